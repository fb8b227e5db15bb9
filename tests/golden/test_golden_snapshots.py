"""Snapshots that earlier versions wrote open, and those of later versions are refused.

Every change of a format adds a document here; none is ever replaced. The documents of version 1
were written by the first state of the package with this format.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.settings import read_settings
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep
from clawblox.server import HostedWorld, Simulation
from clawblox.server.snapshot_document import SnapshotRefusal, make_snapshot, restore_snapshot
from tests.server.tally import Tally

HERE = Path(__file__).parent
ENGINE = HERE / "engine_snapshot" / "v1"
THREADS = HERE / "engine_snapshot" / "v1-threads"
KIT = HERE / "kit_snapshot" / "v1.json"


def restore(simulation: Simulation, document: dict[str, Any]) -> HostedWorld:
    hosted = HostedWorld(simulation)
    restore_snapshot(hosted, json.dumps(document).encode())
    return hosted


def engine_world(lines: list[str], directory: Path = ENGINE) -> EngineWorld:
    console = Console(lines.append, lines.append)
    return EngineWorld(read_settings(directory), console, logical_restore=True)


def test_an_engine_snapshot_of_version_1_opens_and_continues() -> None:
    document = json.loads((ENGINE / "snapshot.json").read_text())
    assert document["state"]["schema_version"] == 1
    lines: list[str] = []

    def play() -> dict[str, Any]:
        hosted = restore(engine_world(lines), document)
        (session,) = hosted.sessions
        hosted.apply_inputs()
        for _ in range(3):
            hosted.step()
        assert hosted.failure is None
        return json.loads(hosted.observe(session))

    seen = run_deep(play)
    own = [line for line in lines if not line.startswith("[Snapshot]")]
    assert own == ["[Lua] Rocky\tWave\t4", "[Lua] beats\t12\t1"]
    (ball,) = (each for each in seen["world"]["entities"] if each["name"] == "Ball")
    assert ball["attributes"] == {"Path": [1, 2, [1.0, 2.0, 3.0]]}
    assert 0 < ball["position"][1] < 5


WAITED = [
    (1, "bare 2"),  # the old entry of a bare yield continues once
    (3, "wrapped 3"),
    (6, "delayed a table: 0x0000000000010010"),
    (6, "timed 6"),
    (6, "caught false table: 0x0000000000010020"),
    (6, "wrapped 6"),
    (9, "heard one 1"),
    (9, "heard two 2"),
    (9, "wrapped 9"),
    (9, "deferred one"),
    (9, "deferred two"),
    (10, "child Late"),
    (12, "wrapped 12"),
]


def test_threads_that_wait_in_every_way_in_a_snapshot_of_an_earlier_engine_continue() -> None:
    document = json.loads((THREADS / "snapshot.json").read_text())
    lines: list[str] = []

    def play() -> None:
        hosted = restore(engine_world(lines, THREADS), document)
        for _ in range(12):
            hosted.step()
        assert hosted.failure is None

    run_deep(play)
    own = [line.replace("\t", " ") for line in lines if line.startswith("[Lua] ")]
    assert own == [f"[Lua] {tick} {text}" for tick, text in WAITED]


def test_an_engine_snapshot_of_a_later_version_is_refused_with_advice() -> None:
    document = json.loads((ENGINE / "snapshot.json").read_text())
    document["state"]["schema_version"] = 2
    advice = "unsupported snapshot schema version 2; restore it with the version of clawblox that"
    with pytest.raises(SnapshotRefusal, match=advice):
        restore(engine_world([]), document)


def test_a_kit_snapshot_of_version_1_opens_and_is_written_again_as_it_was() -> None:
    document = json.loads(KIT.read_text())
    assert document["version"] == 1
    assert make_snapshot(restore(Tally(), document)) == document


def test_a_kit_snapshot_of_a_later_version_or_another_world_is_refused_with_advice() -> None:
    document = json.loads(KIT.read_text())
    for change, advice in (
        ({"version": 2}, "start the world with the version of clawblox that saved it"),
        ({"format": "marbles-v1"}, "start the world that saved it"),
    ):
        with pytest.raises(SnapshotRefusal, match=advice):
            restore(Tally(), {**document, **change})
