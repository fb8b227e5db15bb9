"""The globals of scripts in a whole world."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.engine.errors import WorldHalted
from clawblox.engine.settings import EngineSettings
from clawblox.engine.world.assembly import Assembly, run_tick
from clawblox.engine.world.console import Console, halt_lines
from clawblox.engine.world.engine_world import EngineWorld
from tests.engine.scripts.support import write_world

BARE = [
    "game", "workspace", "Workspace", "Players", "RunService", "ServerScriptService",
    "ServerStorage", "ReplicatedStorage", "script", "_G", "wait", "tick", "print", "warn",
    "require", "task", "typeof", "Instance", "Vector3", "CFrame", "Color3", "UDim", "UDim2",
    "Enum", "RaycastParams", "OverlapParams", "Region3", "Random", "shared", "Vector2",
]  # fmt: skip


def test_scripts_have_all_globals_and_marked_output_lines(tmp_path: Path) -> None:
    checks = "\n".join(f"assert({name} ~= nil, '{name}')" for name in [*BARE, "math.atan2"])
    write_world(tmp_path, checks + "\nprint(1, nil, true, 0.5, Workspace) warn('w', 2)",
                **{"Workspace__s.lua": checks + "\nprint(script)"})  # fmt: skip
    out: list[str] = []
    error: list[str] = []
    world = Assembly(EngineSettings(directory=tmp_path), Console(out.append, error.append))
    world.begin()
    with world.vm.entered():
        run_tick(world)
    assert out == ["[Lua] 1\tnil\ttrue\t0.5\tWorkspace", "[Lua] s"]
    assert error == ["[Lua WARN] w\t2"]


def test_task_synchronize_and_desynchronize_have_no_effect(tmp_path: Path) -> None:
    write_world(tmp_path, "print(select('#', task.desynchronize(), task.synchronize()))")
    out: list[str] = []
    Assembly(EngineSettings(directory=tmp_path), Console(out.append)).begin()
    assert out == ["[Lua] 1"]


def test_every_output_line_is_marked_even_within_a_multiline_text(tmp_path: Path) -> None:
    forged = r"'one\n[Halted] Instance stopped\n\nINFO: Listening'"
    write_world(tmp_path, f"print({forged}) warn({forged})")
    out: list[str] = []
    error: list[str] = []
    world = Assembly(EngineSettings(directory=tmp_path), Console(out.append, error.append))
    world.begin()
    texts = ["one", "[Halted] Instance stopped", "", "INFO: Listening"]
    assert out == [f"[Lua] {text}" for text in texts]
    assert error == [f"[Lua WARN] {text}" for text in texts]


def test_lines_beyond_the_limit_of_a_tick_are_counted_and_omitted(tmp_path: Path) -> None:
    write_world(tmp_path, """
        for n = 1, 10001 do print(n) end
        warn("too late") print("one\\ntwo")
        task.wait()
        warn(("w"):rep(2^20)) print("no room") print("")
        task.wait()
        print(("\\n"):rep(10003))
        task.wait()
        print("all is well")
        task.spawn(function() error("never left out") end)
    """)  # fmt: skip
    lines: list[str] = []
    world = Assembly(EngineSettings(directory=tmp_path), Console(lines.append, lines.append))
    world.begin()
    limits = "scripts may print 10000 lines and 1048576 characters in a tick"
    assert lines[9999:] == ["[Lua] 10000", f"[Lua WARN] 4 more lines were left out: {limits}"]
    with world.vm.entered():
        for expected in (
            [
                f"[Lua WARN] {'w' * 2**20}",
                "[Lua] ",
                f"[Lua WARN] 1 more lines were left out: {limits}",
            ],
            ["[Lua] "] * 10000 + [f"[Lua WARN] 4 more lines were left out: {limits}"],
        ):
            lines.clear()
            run_tick(world)
            assert lines == expected
        lines.clear()
        run_tick(world)
    assert lines[0] == "[Lua] all is well"
    assert lines[1].endswith("never left out")


def test_halt_reports_the_lines_omitted_before_it(tmp_path: Path) -> None:
    write_world(tmp_path, "print(('x\\n'):rep(10000)) error('the end')")
    lines: list[str] = []
    world = EngineWorld(EngineSettings(directory=tmp_path), Console(lines.append, lines.append))
    with pytest.raises(WorldHalted):
        world.begin()
    assert "1 more lines were left out" in lines[10000]
    assert "the end" in lines[10001]


def test_reason_of_a_halt_cannot_forge_log_lines(tmp_path: Path) -> None:
    write_world(tmp_path, r"error('one\n[Halted] forged\nStack, newest call first:')")
    world = Assembly(EngineSettings(directory=tmp_path), Console())
    with pytest.raises(WorldHalted) as caught:
        world.begin()
    lines = halt_lines(caught.value, ())
    assert [line for line in lines if line.startswith("[Halted]")] == lines[-1:]
    assert lines.count("Stack, newest call first:") <= 1
    assert all("\n" not in line for line in lines[1:])
