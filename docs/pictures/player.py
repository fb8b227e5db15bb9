"""Makes ``player.glb``: the figure of players in worlds that have no model of their own.

    python -m docs.pictures.player

It is 5 studs high, stands on y = 0 and looks along -Z. Its clips are ``Idle``, ``Walk`` and
``Jump``. The format is glTF 2.0 in its binary form.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final

from clawblox.engine.page import PAGE_DIR

__all__ = ["MODEL", "draw"]

MODEL: Final = PAGE_DIR / "player.glb"

_SKIN, _SHIRT, _TROUSERS, _INK = range(4)
_MATERIALS: Final = (
    ("skin", (0.78, 0.46, 0.29), 0.7),
    ("shirt", (0.85, 0.26, 0.1), 0.55),
    ("trousers", (0.12, 0.16, 0.26), 0.75),
    ("ink", (0.01, 0.015, 0.03), 0.3),
)
_FLOAT, _SHORT = 5126, 5123

Vertex = tuple[float, float, float]
Json = dict[str, Any]


def _profile(radius: float, length: float, rings: int) -> list[tuple[float, float, float]]:
    """Return a capsule's outline from its top down: distance from the axis, height, slope."""
    found = []
    for end in (1, -1):
        for k in range(rings + 1):
            turn = math.pi / 2 * (k / rings if end == 1 else 1 - k / rings)
            height = end * (length / 2 + radius * math.cos(turn))
            found.append((radius * math.sin(turn), height, end * math.cos(turn)))
    return found


def _capsule(
    radius: float, length: float, *, rings: int = 5, sides: int = 16, squash: Vertex = (1, 1, 1)
) -> tuple[list[Vertex], list[Vertex], list[int]]:
    """Return places, normals and triangles of a capsule around Y; length 0 makes a ball."""
    outline = _profile(radius, length, rings)
    places, normals, triangles = [], [], []
    for distance, height, slope in outline:
        for side in range(sides + 1):
            turn = 2 * math.pi * side / sides
            flat = math.sqrt(max(0.0, 1 - slope * slope))
            place = (distance * math.cos(turn), height, distance * math.sin(turn))
            normal = (flat * math.cos(turn), slope, flat * math.sin(turn))
            places.append(tuple(a * b for a, b in zip(place, squash, strict=True)))
            bent = [a / b for a, b in zip(normal, squash, strict=True)]
            normals.append(tuple(value / math.hypot(*bent) for value in bent))
    for row in range(len(outline) - 1):
        for side in range(sides):
            a = row * (sides + 1) + side
            b = a + sides + 1
            triangles += [a, a + 1, b, a + 1, b + 1, b]
    return places, normals, triangles


class _Model:
    def __init__(self) -> None:
        self._data = bytearray()
        self._views: list[Json] = []
        self._accessors: list[Json] = []
        self._meshes: list[Json] = []
        self._nodes: list[Json] = []
        self._clips: list[Json] = []

    def _store(self, packed: bytes, **about: object) -> int:
        self._views.append({"buffer": 0, "byteOffset": len(self._data), "byteLength": len(packed)})
        self._data += packed + bytes(-len(packed) % 4)
        self._accessors.append({"bufferView": len(self._views) - 1, **about})
        return len(self._accessors) - 1

    def _floats(self, rows: list[Any], kind: str) -> int:
        table = [row if isinstance(row, tuple) else (row,) for row in rows]
        flat = [struct.unpack("<f", struct.pack("<f", value))[0] for row in table for value in row]
        columns = list(zip(*[iter(flat)] * len(table[0]), strict=True))
        extent = {
            "min": [min(column) for column in zip(*columns, strict=True)],
            "max": [max(column) for column in zip(*columns, strict=True)],
        }
        packed = struct.pack(f"<{len(flat)}f", *flat)
        return self._store(packed, componentType=_FLOAT, count=len(rows), type=kind, **extent)

    def mesh(self, material: int, shape: tuple[list[Vertex], list[Vertex], list[int]]) -> int:
        places, normals, triangles = shape
        primitive = {
            "attributes": {
                "POSITION": self._floats(places, "VEC3"),
                "NORMAL": self._floats(normals, "VEC3"),
            },
            "indices": self._store(
                struct.pack(f"<{len(triangles)}H", *triangles),
                componentType=_SHORT,
                count=len(triangles),
                type="SCALAR",
            ),
            "material": material,
        }
        self._meshes.append({"primitives": [primitive]})
        return len(self._meshes) - 1

    def node(
        self, name: str, at: Vertex, mesh: int | None = None, children: tuple[int, ...] = ()
    ) -> int:
        node: Json = {"name": name, "translation": list(at)}
        if mesh is not None:
            node["mesh"] = mesh
        if children:
            node["children"] = list(children)
        self._nodes.append(node)
        return len(self._nodes) - 1

    def clip(
        self, name: str, seconds: list[float], swings: dict[int, list[tuple[float, float]]]
    ) -> None:
        """Add a clip: for each node its turns around X and Z, in radians, at the given times."""
        times = self._floats(seconds, "SCALAR")
        samplers, channels = [], []
        for node, turns in swings.items():
            rows = [
                (
                    math.sin(x / 2) * math.cos(z / 2),
                    -math.sin(x / 2) * math.sin(z / 2),
                    math.cos(x / 2) * math.sin(z / 2),
                    math.cos(x / 2) * math.cos(z / 2),
                )
                for x, z in turns
            ]
            channels.append(
                {"sampler": len(samplers), "target": {"node": node, "path": "rotation"}}
            )
            samplers.append({"input": times, "output": self._floats(rows, "VEC4")})
        self._clips.append({"name": name, "samplers": samplers, "channels": channels})

    def pack(self, root: int) -> bytes:
        document = {
            "asset": {"version": "2.0", "generator": "clawblox"},
            "scene": 0,
            "scenes": [{"nodes": [root]}],
            "nodes": self._nodes,
            "meshes": self._meshes,
            "materials": [
                {
                    "name": name,
                    "pbrMetallicRoughness": {
                        "baseColorFactor": [*color, 1],
                        "metallicFactor": 0,
                        "roughnessFactor": roughness,
                    },
                }
                for name, color, roughness in _MATERIALS
            ],
            "animations": self._clips,
            "buffers": [{"byteLength": len(self._data)}],
            "bufferViews": self._views,
            "accessors": self._accessors,
        }
        text = json.dumps(document, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 4)
        chunks = struct.pack("<II", len(text), 0x4E4F534A) + text
        chunks += struct.pack("<II", len(self._data), 0x004E4942) + bytes(self._data)
        return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


def draw() -> bytes:
    """Return the model."""
    model = _Model()
    arm = model.mesh(_SKIN, _capsule(0.2, 0.95))
    leg = model.mesh(_TROUSERS, _capsule(0.27, 1.0))
    eye = model.mesh(_INK, _capsule(0.095, 0, sides=10, squash=(1, 1.35, 0.6)))
    body = model.mesh(_SHIRT, _capsule(0.62, 0.85, sides=20, squash=(1.08, 1, 0.78)))
    head = model.mesh(_SKIN, _capsule(0.66, 0, rings=8, sides=24))

    eyes = tuple(model.node("Eye", (x, 0.08, -0.6), eye) for x in (-0.23, 0.23))
    joints = {}
    for name, mesh, x, y, drop in (
        ("LeftArm", arm, -0.86, 3.32, -0.555),
        ("RightArm", arm, 0.86, 3.32, -0.555),
        ("LeftLeg", leg, -0.34, 1.77, -0.96),
        ("RightLeg", leg, 0.34, 1.77, -0.96),
    ):
        limb = model.node(f"{name}Mesh", (0, drop, 0), mesh)
        joints[name] = model.node(name, (x, y, 0), children=(limb,))
    parts = (
        model.node("Body", (0, 2.7, 0), body),
        model.node("Head", (0, 4.34, 0), head, eyes),
        *joints.values(),
    )
    root = model.node("Player", (0, 0, 0), children=parts)

    left, right = joints["LeftArm"], joints["RightArm"]
    left_leg, right_leg = joints["LeftLeg"], joints["RightLeg"]
    out = 0.14
    rest = {left_leg: [(0.0, 0.0)] * 3, right_leg: [(0.0, 0.0)] * 3}
    breath = [0.0, 0.06, 0.0]
    model.clip(
        "Idle",
        [0.0, 1.2, 2.4],
        {
            left: [(b, -out - b) for b in breath],
            right: [(b, out + b) for b in breath],
            **rest,
        },
    )
    steps = [0.0, 0.15, 0.3, 0.45, 0.6]
    swing = [0.0, 0.85, 0.0, -0.85, 0.0]
    model.clip(
        "Walk",
        steps,
        {
            left: [(-s, -out) for s in swing],
            right: [(s, out) for s in swing],
            left_leg: [(s, 0.0) for s in swing],
            right_leg: [(-s, 0.0) for s in swing],
        },
    )
    model.clip(
        "Jump",
        [0.0, 0.5, 1.0],
        {
            left: [(2.6, -out), (2.4, -out), (2.6, -out)],
            right: [(2.6, out), (2.4, out), (2.6, out)],
            left_leg: [(0.35, 0.0), (0.25, 0.0), (0.35, 0.0)],
            right_leg: [(-0.35, 0.0), (-0.25, 0.0), (-0.35, 0.0)],
        },
    )
    return model.pack(root)


if __name__ == "__main__":
    MODEL.write_bytes(draw())
