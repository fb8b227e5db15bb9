"""The values that the public API returns."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox import results
from clawblox.concurrency.batch import Batch, Outcome
from clawblox.config.options import InstanceSpec
from clawblox.errors import BatchError, UsageError
from clawblox.protocol import TickRate
from clawblox.results import (
    Access,
    Event,
    Excluded,
    Finding,
    LoadedCheckpoint,
    LogLine,
    PlanChange,
    ProcessExit,
    SavedCheckpoint,
    SavedSnapshot,
    StartedWorld,
    StopResult,
    WorldEvent,
    describe_ending,
)

SAVED = SavedSnapshot(
    path=Path("/runs/r1/checkpoints/a.json"),
    format="counter-v1",
    time=1.5,
    size_bytes=640,
    sha256="ab" * 32,
    created_at="2026-06-22T18:59:25Z",
    instance="w000",
)
CHECKPOINT = SavedCheckpoint(
    path=Path("/runs/r1/checkpoints/gen1.ckpt"),
    size_bytes=4096,
    sha256="cd" * 32,
    metadata={"agents": {"Eko": {"mid_turn": True}, "Moa": {"mid_turn": None}}},
    excluded=(Excluded(path="agents/Eko/workspace/.venv", reason="can be built again"),),
)
RUN = Path("/runs/r1")
STARTED = StartedWorld(
    name="w000",
    url="http://127.0.0.1:20001",
    host="127.0.0.1",
    port=20001,
    pid=4711,
    command=["./run"],
    start_command=["./run"],
    delegated=True,
    run_command=["./run"],
    env={"WORLD_PORT": "20001"},
    run_dir=RUN,
    instance_dir=RUN / "worlds" / "w000",
    command_file=RUN / "start.sh",
    log_file=RUN / "world.log",
    record_dir=None,
    resume_path=None,
    ready_s=0.1,
)
ACCESS = Access(
    session="s-1",
    agent_id="agent-1",
    name="Rocky",
    headers={"X-Session": "s-1"},
    base_url="http://127.0.0.1:20001",
    internal_base_url="http://127.0.0.1:20001",
    more={"spawn": {"x": 1.5}},
)
VALUES: list[Any] = [
    CHECKPOINT,
    CHECKPOINT.excluded[0],
    ACCESS,
    SAVED,
    LoadedCheckpoint(
        world_snapshot=RUN / "world.snapshot",
        agents={"Eko": RUN / "agents" / "Eko"},
        metadata={"generation": 1},
        excluded=[],
        lost_sessions={},
        git_hosts={"Eko": {"lib/.git": ["github.com"]}},
        verified=True,
    ),
    STARTED,
    InstanceSpec(name="w000"),
    Outcome("w000", value=SAVED),
    Batch({"w000": SAVED}, {}),
    ProcessExit(status=1),
    StopResult(instance="w000", rung="terminated"),
    TickRate(nominal_hz=60.0, achieved_hz=59.5, tick_cost_s=0.001),
    LogLine(instance="w000", text="hello", offset=0),
    Event(time="2026-06-22T18:59:25Z", kind="ready", subject="w000"),
    WorldEvent(time="2026-06-22T18:59:25Z", kind="ready", subject="w000"),
    Finding(path="a.txt", rule="github-token", fingerprint="0" * 16, preview="ghp_… (40)"),
    PlanChange("duration", 60.0, 90.0, "amendment"),
]
CLASSES = [Batch, InstanceSpec, Outcome, TickRate] + [
    value
    for value in vars(results).values()
    if inspect.isclass(value)
    and value.__module__ == results.__name__
    and not value.__name__.startswith("_")
]


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (ProcessExit(), "exit status unknown"),
        (ProcessExit(status=0), "exit status 0"),
        (ProcessExit(status=3), "exit status 3"),
        (ProcessExit(signal="SIGSEGV"), "killed by SIGSEGV"),
        (
            ProcessExit(signal="SIGKILL"),
            "killed by SIGKILL (by a person, a program, or for lack of memory)",
        ),
    ],
)
def test_an_exit_reads_as_a_sentence(ended: ProcessExit, text: str) -> None:
    assert str(ended) == text


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ({"exit": ProcessExit(status=3), "unresponsive": False}, "ended by itself: exit status 3"),
        ({"exit": None, "unresponsive": True}, "was stopped because it did not respond"),
        ({"exit": None, "unresponsive": True, "halt": "no\x1b room"}, r"halted: no\x1b room"),
        (
            {"exit": ProcessExit(status=0), "rung": "terminated"},
            "was stopped by another process: exit status 0",
        ),
    ],
)
def test_an_end_is_described_the_same_everywhere(detail: dict[str, Any], text: str) -> None:
    assert describe_ending(detail) == text


def test_a_saved_snapshot_is_a_mapping_of_its_fields() -> None:
    assert dict(SAVED) == {
        "path": Path("/runs/r1/checkpoints/a.json"),
        "format": "counter-v1",
        "time": 1.5,
        "size_bytes": 640,
        "sha256": "ab" * 32,
        "created_at": "2026-06-22T18:59:25Z",
        "instance": "w000",
    }
    assert len(SAVED) == len(dict(SAVED))
    assert SAVED["path"] is SAVED.path


@pytest.mark.parametrize("name", ["", "nothing", "keys", "__len__", 7])
def test_a_saved_snapshot_has_only_its_fields_as_keys(name: Any) -> None:
    with pytest.raises(KeyError):
        SAVED[name]
    assert name not in SAVED
    assert SAVED.get(name) is None


def test_saved_snapshots_of_equal_fields_are_equal_and_hash_alike() -> None:
    twin = attrs.evolve(SAVED)
    assert (twin == SAVED, hash(twin) == hash(SAVED)) == (True, True)
    assert attrs.evolve(SAVED, time=2.0) != SAVED


def test_a_saved_checkpoint_is_usable_as_its_path() -> None:
    assert Path(CHECKPOINT) == Path(str(CHECKPOINT)) == CHECKPOINT.path
    assert CHECKPOINT.mid_turn == ("Eko",)


def test_an_access_is_the_mapping_that_connect_returns() -> None:
    items = {
        "session": "s-1",
        "agent_id": "agent-1",
        "name": "Rocky",
        "headers": {"X-Session": "s-1"},
        "base_url": "http://127.0.0.1:20001",
        "internal_base_url": "http://127.0.0.1:20001",
        "spawn": {"x": 1.5},
    }
    assert dict(ACCESS) == items
    assert items == ACCESS
    assert len(ACCESS) == len(items)
    assert json.loads(json.dumps(dict(ACCESS))) == items
    assert pickle.loads(pickle.dumps(ACCESS)) == ACCESS
    assert attrs.evolve(ACCESS, base_url="http://127.0.0.1:1") != ACCESS
    assert "s-1" not in repr(ACCESS).replace("session='s-1'", "")


@pytest.mark.parametrize("name", ["", "more", "keys", "__len__", 7])
def test_an_access_has_only_its_items_as_keys(name: Any) -> None:
    with pytest.raises(KeyError):
        ACCESS[name]
    assert name not in ACCESS


def test_an_access_is_independent_of_the_values_it_was_made_of() -> None:
    headers, more = {"X-Session": "s-1"}, {"spawn": 1}
    access = attrs.evolve(ACCESS, headers=headers, more=more)
    headers["X-Session"], more["spawn"] = "other", 2
    assert (access["headers"], access["spawn"]) == ({"X-Session": "s-1"}, 1)


def test_every_class_of_the_module_is_tested() -> None:
    assert {type(value) for value in VALUES} == set(CLASSES)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_no_value_can_be_changed(value: Any) -> None:
    for field in attrs.fields(type(value)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, field.name, None)


def test_a_batch_returns_its_values_and_raises_its_errors() -> None:
    closed = UsageError("closed")
    batch = Batch({"w001": 1, "w000": 0}, {"w002": closed})
    assert (list(batch), len(batch), batch["w000"]) == ([1, 0], 2, 0)
    for name, kind in (("w002", UsageError), ("w003", KeyError)):
        with pytest.raises(kind):
            batch[name]
    with pytest.raises(BatchError, match="1 of 3 instances failed") as caught:
        batch.raise_if_failed()
    assert caught.value.__cause__ is closed
    assert bool(Batch({}, {"w000": closed})) is False
    Batch({}, {}).raise_if_failed()


def test_an_absent_member_of_a_spec_keeps_the_shared_option() -> None:
    assert attrs.astuple(InstanceSpec()) == (None, None, None, None, None)


def test_the_detail_of_an_event_is_immutable() -> None:
    detail: Any = {"path": "a.json"}
    event = WorldEvent(time="", kind="saved", subject="w000", data=detail)
    with pytest.raises(TypeError):
        event.data["path"] = "b.json"  # type: ignore[index]
    detail["path"] = "c.json"
    assert dict(event.data) == {"path": "a.json"}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_attribute_is_documented(kind: type[attrs.AttrsInstance]) -> None:
    assert attrs.has(kind)
    described = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2].partition("Raises:\n")[0]
    documented = re.findall(r"^    (\w+): ", described, re.MULTILINE)
    assert documented == [field.name for field in attrs.fields(kind) if not field.inherited]
