"""Engine worlds within this process: the cost of a tick and of its components.

All times are CPU time of the process, including threads of the physics.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rapier3d import (
    Collider,
    KinematicCharacterController,
    PhysicsWorld,
    QueryFilter,
    QueryFilterFlags,
    RigidBodyBuilder,
)

from clawblox.engine.physics.bodies import CHARACTER, body_shape, rapier_type
from clawblox.engine.physics.colliders import capsule
from clawblox.engine.settings import read_settings
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep

__all__ = ["SCENE", "Played", "measure_physics", "measure_snapshot", "measure_ticks"]

_HERE: Final = Path(__file__).parent
SCENE: Final = _HERE / "engine_scene"
_PLAYERS: Final = 8
_CHUNKS: Final = 20
_WALK: Final = 120  # ticks; a walk of two seconds goes 32 studs

os.environ.setdefault("RAYON_NUM_THREADS", "1")  # like in the engine's own process

Act = tuple[str, Any]


class Played:
    """A world with players that act when due.

    Args:
        directory: The world, whose name determines the players' actions.
        players: Number of players.
    """

    def __init__(self, directory: Path, players: int = _PLAYERS) -> None:
        silent = Console(lambda line: None, lambda line: None)
        self.world = EngineWorld(read_settings(directory), silent)
        self.world.begin()
        self.agents = [str(uuid.UUID(int=number + 1)) for number in range(players)]
        self._play = _PLAYS[directory.name]
        for number, agent in enumerate(self.agents):
            self.world.join(agent, f"Agent {number}")

    def step(self) -> None:
        """Let the players act, and run one tick."""
        for number, agent in enumerate(self.agents):
            for action, data in self._play(self, number, self.world.tick):
                self.world.act(agent, action, data)
        self.world.step()


def _walk(played: Played, number: int, tick: int) -> Iterator[Act]:
    """Let half of the players walk back and forth endlessly."""
    if tick % _WALK == 0 and number < _PLAYERS // 2:
        side = 30 if tick // _WALK % 2 else -30
        yield "MoveTo", {"position": [side + number * 3, 0, number * 7 - 10]}


def _race(played: Played, number: int, tick: int) -> Iterator[Act]:
    """Let all players run to the next checkpoint, and leap twice per second."""
    if (tick + number) % 30 == 0:
        seen = played.world.observe(played.agents[number])["player"]
        yield "Leap", {"position": seen["attributes"]["NextPosition"]}


def _build(played: Played, number: int, tick: int) -> Iterator[Act]:
    """Let all players gather, walk around, craft and build."""
    at = tick + 7 * number
    angle = at / 100 + number
    place = [10 * math.cos(angle), 2, 16 + 10 * math.sin(angle)]
    if at % 30 == 0:
        yield "MoveTo", {"position": place}
    elif at % 30 == 10:
        yield "Gather", None
    elif at % 30 == 15:
        yield "Craft", {"item": "Plank"}
    elif at % 30 == 20:
        yield "Place", {"position": place, "block": "Plank"}


_PLAYS: Final[dict[str, Callable[[Played, int, int], Iterator[Act]]]] = {
    "engine_scene": _walk,
    "platform_race": _race,
    "workshop": _build,
}


def _median_ms(step: Callable[[], None], ticks: int) -> float:
    """Return the CPU time of a step: the median over twenty batches of steps."""
    size = max(1, ticks // _CHUNKS)
    taken = []
    for _ in range(_CHUNKS):
        begun = time.process_time()
        for _ in range(size):
            step()
        taken.append((time.process_time() - begun) / size * 1e3)
    return statistics.median(taken)


def measure_ticks(directory: str, ticks: int) -> float:
    """Return the CPU time of a tick of a world with eight players, in ms."""

    def run() -> float:
        played = Played(Path(directory))
        for _ in range(_WALK):
            played.step()
        return _median_ms(played.step, ticks)

    return run_deep(run)


def measure_snapshot(rounds: int) -> dict[str, float]:
    """Return the CPU time of a snapshot of the scene and of its restore, as text, in ms."""

    def run() -> dict[str, float]:
        played = Played(SCENE)
        for _ in range(_WALK):
            played.step()
        saved, restored = [], []
        for _ in range(rounds):
            played.step()
            begun = time.process_time()
            text = json.dumps(played.world.snapshot())
            saved.append(time.process_time() - begun)
            other = EngineWorld(read_settings(SCENE))
            begun = time.process_time()
            other.restore(json.loads(text))
            restored.append(time.process_time() - begun)
        return {
            "save": statistics.median(saved) * 1e3,
            "restore": statistics.median(restored) * 1e3,
            "kilobytes": len(text) / 1e3,
        }

    return run_deep(run)


def measure_physics(ticks: int) -> dict[str, float]:
    """Return the CPU time of the physics of a tick of the scene, and of rapier alone, in ms."""
    return run_deep(lambda: _measure_physics(ticks))


def _measure_physics(ticks: int) -> dict[str, float]:
    played = Played(SCENE)
    parts = played.world._parts
    taken = [0.0]
    for owner, names in (
        (parts.characters, ("find_roots", "move")),
        (parts.parts, ("sync", "step", "report_touches", "write_back", "apply_welds")),
    ):
        for name in names:
            setattr(owner, name, _timed(getattr(owner, name), taken))
    for _ in range(_WALK):
        played.step()
    taken[0] = 0.0
    for _ in range(ticks):
        played.step()
    return {"engine": taken[0] / ticks * 1e3, "rapier": _measure_rapier(played, ticks)}


def _timed(function: Callable[[], None], taken: list[float]) -> Callable[[], None]:
    def call() -> None:
        begun = time.process_time()
        function()
        taken[0] += time.process_time() - begun

    return call


def _measure_rapier(played: Played, ticks: int) -> float:
    """Return the CPU time of the same bodies in rapier alone, with the motion of the scene."""
    space = played.world._parts.parts.space
    world = PhysicsWorld()
    moved, walkers = [], []
    platforms = {
        part.number
        for part in played.world._parts.model.workspace.children
        if part.name == "Platform"
    }
    for number, body in space.bodies.items():
        at, turn = body.rigid.translation.to_tuple(), body.rigid.rotation.to_tuple()
        kind = rapier_type(body.traits.motion, moved=number in platforms)
        handle = world.add_body(RigidBodyBuilder(kind).position((at, turn)))
        collider = Collider.new(body_shape(body.traits)).sensor(not body.traits.solid)
        world.add_collider(collider, handle)
        rigid = world.rigid_bodies[handle]
        if number in platforms:
            moved.append((rigid, at))
        elif body.traits.motion is CHARACTER:
            solids = QueryFilter(QueryFilterFlags.EXCLUDE_SENSORS, exclude_rigid_body=handle)
            walkers.append((rigid, at, solids))
    controller = KinematicCharacterController(up=(0.0, 1.0, 0.0))
    shape = capsule()
    tick = [0]

    def step() -> None:
        tick[0] += 1
        height, way = math.sin(tick[0] / 60) * 3, math.sin(tick[0] / 30) / 4
        for rigid, (x, y, z) in moved:
            rigid.set_next_kinematic_translation((x, y + height, z))
        for number, (rigid, _, solids) in enumerate(walkers):
            x, y, z = rigid.translation.to_tuple()
            wish = (way if number < len(walkers) // 2 else 0.0, 0.0, 0.0)
            moves = controller.move_shape(
                1 / 60,
                world.rigid_bodies,
                world.colliders,
                world.query_pipeline,
                shape,
                ((x, y, z), (0.0, 0.0, 0.0, 1.0)),
                wish,
                solids,
            )
            dx, dy, dz = moves.translation.to_tuple()
            rigid.set_next_kinematic_translation((x + dx, y + dy, z + dz))
        world.step()

    return _median_ms(step, ticks)
