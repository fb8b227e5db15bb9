"""Late names: snapshots of worlds are unchanged, and worlds from older snapshots get them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.settings import read_settings
from clawblox.engine.values.libraries import LATE_NAMES
from clawblox.engine.world import assembly
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep
from clawblox.luau.lib.support import registry
from tests.engine.torture import Plan, torture
from tests.golden.test_golden_snapshots import ENGINE

SOME = ("Region3", "task.cancel", "TweenInfo")
MAIN = """
local kept = TweenInfo
while true do
    print(kept == TweenInfo, typeof(Region3.new), typeof(task.cancel), typeof(TweenInfo.new(1)))
    task.wait()
end
"""
USES = """
local rect, range, graphemes = Rect, NumberRange.new(1, 2), utf8.graphemes
for name, value in next, debug do print(name, value) end
print(ColorSequence, DateTime.new)
task.spawn(function()
    for name in utf8 do
        task.wait()
        print(name, next(utf8, name))
    end
end)
local ticks = 0
while true do
    task.wait()
    ticks += 1
    print(rect == Rect, range == NumberRange.new(1, 2), graphemes == utf8.graphemes, gcinfo() > 0)
    if ticks == 2 then rect = nil end
    if ticks == 4 then rect = Rect end
    print(NumberRange, DateTime.fromUnixTimestamp(ticks).UnixTimestamp)
end
"""
LOOK = "[Lua] true\tfunction\tfunction\tTweenInfo"


def make_world(directory: Path, lines: list[str]) -> EngineWorld:
    return EngineWorld(read_settings(directory), Console(lines.append, lines.append))


def read_sandbox(state: Any) -> dict[str, Any]:
    """Return the globals and libraries in the state of a world, as plain values."""
    objects = state["vm"]["objects"]

    def show(value: Any) -> Any:
        if value.__class__ is not list or value[0] != "r":
            return value
        kind, *parts = objects[value[1]]
        if kind != "table" or parts[0] != "f":
            return kind
        pairs = parts[3]
        return {key: show(item) for key, item in zip(pairs[::2], pairs[1::2], strict=True)}

    shown: dict[str, Any] = show(state["vm"]["roots"]["globals"])
    return shown


def test_snapshot_contains_the_same_globals_as_older_snapshots() -> None:
    """On failure, append the new names to ``LATE_NAMES`` of the engine or of the VM."""
    golden = json.loads((ENGINE / "snapshot.json").read_text())["state"]

    def begin() -> Any:
        world = make_world(ENGINE, [])
        world.begin()
        return world.snapshot()

    saved = read_sandbox(json.loads(json.dumps(run_deep(begin))))
    assert json.dumps(saved, indent=1) == json.dumps(read_sandbox(golden), indent=1)


def test_every_late_name_exists(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text('name = "w"')
    reads = (f"assert({name} ~= nil)" for name in (*registry.LATE_NAMES, *LATE_NAMES))
    (tmp_path / "main.lua").write_text("\n".join(reads))
    run_deep(make_world(tmp_path, []).begin)


def test_restored_world_has_the_same_late_names_as_a_fresh_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "world.toml").write_text('name = "w"')
    (tmp_path / "main.lua").write_text(MAIN)
    monkeypatch.setattr(assembly, "LATE_NAMES", SOME)
    lines: list[str] = []

    def play() -> None:
        world = make_world(tmp_path, [])
        world.begin()
        state = json.loads(json.dumps(world.snapshot()))
        saved = read_sandbox(state)
        assert "Region3" not in saved
        assert "cancel" not in saved["task"]
        assert list(saved)[-2:] == ["shared", "TweenInfo"]
        restored = make_world(tmp_path, lines)
        restored.restore(state)
        for _ in range(3):
            assert json.dumps(restored.snapshot()) == json.dumps(world.snapshot())
            world.step()
            restored.step()

    run_deep(play)
    assert lines[-1] == LOOK


def test_world_that_uses_late_names_continues_exactly(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text('name = "w"')
    (tmp_path / "main.lua").write_text(USES)
    lines = torture(tmp_path, Plan(), ticks=8, saves=(0, 1, 3, 5)).lines
    assert "out [Lua] graphemes\tnil" in lines
    assert lines[-2] == "out [Lua] true\ttrue\ttrue\ttrue"


def test_world_from_a_version_1_snapshot_gets_late_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = json.loads((ENGINE / "snapshot.json").read_text())["state"]
    complete = read_sandbox(state)
    monkeypatch.setattr(assembly, "LATE_NAMES", SOME)

    def restore_and_save() -> Any:
        world = EngineWorld(
            read_settings(ENGINE), Console([].append, [].append), logical_restore=True
        )
        world.restore(state)
        return world.snapshot()

    first = json.loads(json.dumps(run_deep(restore_and_save)))
    saved = read_sandbox(first)
    assert {*complete} - {*saved} == {"Region3", "TweenInfo"}
    assert {*complete["task"]} - {*saved["task"]} == {"cancel"}
    state = first
    assert json.dumps(run_deep(restore_and_save)) == json.dumps(first)
