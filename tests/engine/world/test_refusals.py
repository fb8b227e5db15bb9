"""A world refuses snapshots from which it cannot continue, with the reason."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from clawblox.engine.errors import SettingsError, SnapshotMismatch
from clawblox.engine.settings import EngineSettings
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from tests.engine.playing import play

MAIN = 'local part = Instance.new("Part", workspace) part.Anchored = true task.wait(9)'


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def state(directory) -> Any:
    return json.loads(json.dumps(play(directory, MAIN, 3).world.snapshot()))


def restore(directory, state, **options: Any) -> EngineWorld:
    world = EngineWorld(EngineSettings(directory=directory), Console(), **options)
    world.restore(state)
    return world


def test_a_restored_world_gives_the_same_snapshot(directory, state):
    again = restore(directory, copy.deepcopy(state)).snapshot()
    assert json.dumps(again) == json.dumps(state)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema_version": 2}, "unsupported snapshot schema version 2"),
        ({"schema_version": None}, "unsupported snapshot schema version None"),
        ({"format": "marbles-v1"}, "the snapshot's format is 'marbles-v1'"),
        ({"content_hash": "0"}, "scripts or settings have changed"),
        ({"systems": {}}, "other parts"),
        ({"tree": {}}, "cannot be restored"),
    ],
)
def test_snapshot_of_another_format_is_refused(directory, state, change, reason):
    with pytest.raises(SnapshotMismatch, match=reason):
        restore(directory, {**copy.deepcopy(state), **change})


def test_a_snapshot_of_another_vm_is_refused(directory, state):
    changed = copy.deepcopy(state)
    changed["vm"]["version"] = 1
    with pytest.raises(SnapshotMismatch, match="version"):
        restore(directory, changed)


def test_a_snapshot_of_another_physics_library_is_refused_unless_asked_for(directory, state):
    changed = copy.deepcopy(state)
    changed["systems"]["parts"]["space"]["library"] = "rapier3d 0.1.0 abacus"
    with pytest.raises(ValueError, match=r"rapier3d 0\.1\.0 abacus"):
        restore(directory, copy.deepcopy(changed))
    lines: list[str] = []
    console = Console(error=lines.append)
    world = EngineWorld(EngineSettings(directory=directory), console, logical_restore=True)
    world.restore(changed)
    world.step()
    assert world.tick == 4
    (line,) = lines
    assert line.startswith("[Snapshot] The physics was saved by another version")


def test_logical_restore_is_not_used_if_the_exact_state_can_be_restored(directory, state):
    again = restore(directory, copy.deepcopy(state), logical_restore=True).snapshot()
    assert json.dumps(again) == json.dumps(state)


def test_a_snapshot_is_refused_after_a_script_has_changed(directory, state):
    (directory / "main.lua").write_text(MAIN + "\n-- another")
    try:
        with pytest.raises(SnapshotMismatch, match="scripts or settings have changed"):
            restore(directory, state)
    finally:
        (directory / "main.lua").write_text(MAIN)


def test_a_world_without_its_main_script_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"main\.lua"):
        EngineWorld(EngineSettings(directory=tmp_path))
