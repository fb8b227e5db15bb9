"""The globals of scripts in a whole world."""

from __future__ import annotations

from pathlib import Path

from clawblox.engine.settings import EngineSettings
from clawblox.engine.world.assembly import Assembly
from clawblox.engine.world.console import Console
from clawblox.engine.world.tick import run_tick
from tests.engine.scripts.support import write_world

BARE = [
    "game", "workspace", "Workspace", "Players", "RunService", "ServerScriptService",
    "ServerStorage", "ReplicatedStorage", "script", "_G", "wait", "tick", "print", "warn",
    "require", "task", "typeof", "Instance", "Vector3", "CFrame", "Color3", "UDim", "UDim2",
    "Enum", "RaycastParams", "OverlapParams", "Region3", "Random", "shared", "Vector2",
]  # fmt: skip


def test_scripts_have_every_bare_global_and_their_lines_have_their_marks(tmp_path: Path) -> None:
    checks = "\n".join(f"assert({name} ~= nil, '{name}')" for name in [*BARE, "math.atan2"])
    write_world(tmp_path, checks + "\nprint(1, nil, true, 0.5, Workspace) warn('w', 2)",
                **{"Workspace__s.lua": checks + "\nprint(script)"})  # fmt: skip
    out: list[str] = []
    error: list[str] = []
    world = Assembly(EngineSettings(directory=tmp_path), Console(out.append, error.append))
    world.start()
    with world.vm.entered():
        run_tick(world)
    assert out == ["[Lua] 1\tnil\ttrue\t0.5\tWorkspace", "[Lua] s"]
    assert error == ["[Lua WARN] w\t2"]
