"""The status of a run from disk: its saves, its owner, its logs through restarts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from anyio.to_thread import run_sync

from clawblox.results import ProcessExit
from clawblox.rundir import last_saves, status
from clawblox.rundir.claims import claim_run
from clawblox.rundir.records import InstanceRecord, write_record, write_records
from clawblox.system.process_tree import boot_id, read_start_time
from clawblox.telemetry.logs import LogReader

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _instances(tmp_path: Path) -> None:
    (tmp_path / ".clawblox" / "instances").mkdir(parents=True)


def record_of(run_dir: Path) -> InstanceRecord:
    known: dict[str, Any] = {
        "name": "w000",
        "state": "ready",
        "world": "counter",
        "world_dir": str(run_dir),
        "instance_dir": str(run_dir),
        "index": None,
        "host": "127.0.0.1",
        "port": 20001,
        "base_path": "",
        "url": "http://127.0.0.1:20001",
        "pid": os.getpid(),
        "start_time": read_start_time(os.getpid()),
        "boot_id": boot_id(),
        "cookie": "a",
        "command_file": "",
        "log_file": str(run_dir / "w000.log"),
        "log_start": 0,
        "started_at": "2026-06-22T18:59:25Z",
        "ended_at": None,
        "resume_path": None,
        "is_detached": False,
        "orchestrator_pid": os.getpid(),
        "control": "",
        "restarts": 0,
        "exit": None,
    }
    return InstanceRecord(**known)


async def test_a_followed_log_continues_through_restarts_and_ends_at_another_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_LOOK_INTERVAL_S", 0.0)
    record = await run_sync(record_of, tmp_path)

    def follow() -> LogReader:
        write_record(tmp_path, record)
        return status.read_logs(tmp_path, follow=True, tail=None)["w000"]

    reader = await run_sync(follow)
    with (tmp_path / "w000.log").open("w", buffering=1) as log:
        log.write("first life\n")
        assert (await anext(reader)).text == "first life"
        await run_sync(write_record, tmp_path, attrs.evolve(record, cookie="b", restarts=1))
        for line in ("second life", "still the second"):
            log.write(f"{line}\n")
            assert (await anext(reader)).text == line
        await run_sync(write_record, tmp_path, attrs.evolve(record, cookie="c"))
        assert [line.text async for line in reader] == []


def test_a_follower_looks_at_the_record_twice_a_second_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(tmp_path, record_of(tmp_path))
    looks: list[str] = []

    def read(run_dir: Path, name: str) -> InstanceRecord:
        looks.append(name)
        return record_of(run_dir)

    monkeypatch.setattr(status, "read_record", read)
    (reader,) = status.read_logs(tmp_path, follow=True, tail=None).values()
    assert not any(reader._is_over() for _ in range(50))
    assert looks == ["w000"]


# -------------------------------------------------------------------------------------- saves


def write_manifest(run_dir: Path, **sections: object) -> None:
    (run_dir / ".clawblox" / "manifest.json").write_text(json.dumps(sections))


def only(run_dir: Path) -> status.InstanceStatus:
    (found,) = status.read_run(run_dir).instances
    return found


def test_the_last_save_is_the_latest_that_still_exists(tmp_path: Path) -> None:
    write_record(tmp_path, record_of(tmp_path))
    assert only(tmp_path).saved_path is None
    saves = [
        {
            "instance": "w000",
            "path": f"s{number}.json",
            "time": number,
            "created_at": f"at {number}",
        }
        for number in range(4)
    ]
    saves[3]["instance"] = "w001"
    write_manifest(tmp_path, checkpoints=saves)
    for number in range(3):
        (tmp_path / f"s{number}.json").touch()
    found = only(tmp_path)
    assert (found.saved_path, found.sim_time) == (tmp_path / "s2.json", 2)
    assert (found.saved_at, found.saved_sha256) == ("at 2", None)
    (tmp_path / "s2.json").unlink()
    assert only(tmp_path).saved_path == tmp_path / "s1.json"
    write_manifest(tmp_path, checkpoints=[saves[0], {**saves[1], "removed_at": "now"}])
    assert only(tmp_path).saved_path == tmp_path / "s0.json"


def test_a_manifest_is_read_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(tmp_path, record_of(tmp_path))
    write_manifest(tmp_path, checkpoints=[])
    reads: list[Path] = []
    read = last_saves.read_manifest
    monkeypatch.setattr(last_saves, "read_manifest", lambda path: reads.append(path) or read(path))
    for _ in range(3):
        only(tmp_path)
    assert len(reads) == 1
    write_manifest(tmp_path, checkpoints=[], agents=[])
    only(tmp_path)
    assert len(reads) == 2


@pytest.mark.parametrize("content", ["{", "[]", '{"schema_version": 99}'])
def test_a_manifest_that_cannot_be_read_hides_no_instance(tmp_path: Path, content: str) -> None:
    write_record(tmp_path, record_of(tmp_path))
    (tmp_path / ".clawblox" / "manifest.json").write_text(content)
    assert only(tmp_path).saved_path is None
    assert status.read_run(tmp_path).waiting == 0


# ------------------------------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "ready"),
        ({"state": "starting"}, "starting"),
        ({"state": "starting", "restarts": 1}, "restarting"),
        ({"state": "starting", "pid": 0}, "starting"),
        ({"start_time": 1}, "stopping"),
        ({"state": "starting", "start_time": 1, "restarts": 1}, "restarting"),
        ({"start_time": 1, "orchestrator_pid": 0}, "interrupted"),
        ({"start_time": 1, "boot_id": "another"}, "interrupted"),
        ({"state": "exited", "start_time": 1}, "exited"),
        ({"state": "failed", "pid": 0}, "failed"),
    ],
)
def test_a_state_is_the_recorded_state_corrected_by_living_processes(
    tmp_path: Path, fields: dict[str, Any], state: str
) -> None:
    write_record(tmp_path, attrs.evolve(record_of(tmp_path), **fields))
    assert only(tmp_path).state == state


@pytest.mark.parametrize(
    ("fields", "has_died"),
    [
        ({}, False),
        ({"state": "failed"}, True),
        ({"state": "exited", "exit": ProcessExit(status=0)}, False),
        ({"state": "exited", "exit": ProcessExit(status=3)}, True),
        ({"state": "exited", "exit": ProcessExit(signal="SIGTERM")}, False),
        ({"state": "exited", "exit": ProcessExit(signal="SIGKILL")}, True),
        ({"state": "exited", "exit": None}, False),
    ],
)
def test_exit_and_state_decide_whether_an_instance_has_died(
    tmp_path: Path, fields: dict[str, Any], has_died: bool
) -> None:
    write_record(tmp_path, attrs.evolve(record_of(tmp_path), **fields))
    assert only(tmp_path).has_died is has_died


# ------------------------------------------------------------------------------------- owners


def test_instances_that_are_planned_and_not_started_are_waiting(tmp_path: Path) -> None:
    write_record(tmp_path, record_of(tmp_path))
    claim = claim_run(tmp_path)
    assert (status.run_owner(tmp_path), status.read_run(tmp_path).waiting) == (os.getpid(), 0)
    planned = attrs.evolve(
        record_of(tmp_path), state="planned", pid=0, orchestrator_pid=os.getpid(), boot_id=boot_id()
    )
    write_records(tmp_path, [attrs.evolve(planned, name=f"w{i:03}") for i in range(1, 5)])
    assert (status.run_owner(tmp_path), status.read_run(tmp_path).waiting) == (os.getpid(), 4)
    claim.release()
    assert status.run_owner(tmp_path) is None


def test_a_dead_orchestrator_owns_nothing(tmp_path: Path) -> None:
    code = """if True:
        import os, pathlib, sys
        from clawblox.rundir.claims import claim_run
        claim_run(pathlib.Path(sys.argv[1]))
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=20)
    assert (tmp_path / ".clawblox" / "run.lock").read_text()
    assert status.run_owner(tmp_path) is None
