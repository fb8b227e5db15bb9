"""The status of a run directory, from its files and the live processes."""

from __future__ import annotations

import gc
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox import ProcessExit, UsageError
from clawblox.rundir import listed_saves
from clawblox.rundir.claims import claim_run
from clawblox.rundir.listed_saves import LineageSave
from clawblox.rundir.manifest import Manifest
from clawblox.rundir.status import (
    InstanceStatus,
    is_over,
    is_ready,
    own_start,
    read_run,
    run_owner,
)
from clawblox.system.process_tree import boot_id, read_start_time
from tests.rundir.test_records import record_of, written
from tests.support.processes import read_process
from tests.support.waiting import wait_until
from tests.support.worlds import running_world

NOBODY = 2**22 + 1
"""A process id that Linux never assigns."""


@pytest.fixture(scope="module")
def sleeper() -> Iterator[dict[str, Any]]:
    """Yield the fields of a record whose process is alive."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield {"pid": process.pid, "start_time": read_start_time(process.pid)}
        process.kill()


def status_of(run: Path, **changes: Any) -> InstanceStatus:
    """Return the status of an instance with such a record."""
    written(run, "w000", **changes)
    (status,) = read_run(run).instances
    return status


# ---------------------------------------------------------------------------------- states

OWNED, LEFT = {"orchestrator_pid": os.getpid()}, {"orchestrator_pid": NOBODY}
NOT_YET: dict[str, Any] = {"pid": 0, "start_time": 0}
DEAD: dict[str, Any] = {"pid": NOBODY}
LIVES = None

STATES: dict[str, tuple[str, dict[str, Any] | None, dict[str, Any], int, str]] = {
    "serves": ("ready", LIVES, OWNED, 0, "ready"),
    "serves after a restart": ("ready", LIVES, OWNED, 2, "ready"),
    "serves, and has no owner": ("ready", LIVES, LEFT, 0, "ready"),
    "has no process yet": ("starting", NOT_YET, OWNED, 0, "starting"),
    "is not ready yet": ("starting", LIVES, OWNED, 0, "starting"),
    "comes back, has no process yet": ("starting", NOT_YET, OWNED, 1, "restarting"),
    "comes back": ("starting", LIVES, OWNED, 1, "restarting"),
    "its owner cleans up": ("ready", DEAD, OWNED, 0, "stopping"),
    "its start failed, its owner cleans up": ("starting", DEAD, OWNED, 0, "stopping"),
    "died after its owner": ("ready", DEAD, LEFT, 0, "interrupted"),
    "never began, its owner died": ("starting", NOT_YET, LEFT, 0, "interrupted"),
    "was coming back when its owner died": ("starting", DEAD, LEFT, 1, "interrupted"),
    "ended": ("exited", DEAD, OWNED, 0, "exited"),
    "ended, whatever lives": ("exited", LIVES, OWNED, 0, "exited"),
    "never served": ("failed", DEAD, LEFT, 0, "failed"),
}


def test_the_state_is_the_recorded_state_corrected_by_living_processes(
    tmp_path: Path, sleeper: dict[str, Any]
) -> None:
    for case, (state, process, owner, restarts, expected) in STATES.items():
        fields = {"state": state, "restarts": restarts, **owner, **(process or sleeper)}
        status = status_of(tmp_path, **fields)
        assert (status.state, status.restarts) == (expected, restarts), case
        (record,) = written(tmp_path, "w000", **fields)
        assert is_over(record) == (expected in ("exited", "failed", "interrupted")), case
        assert is_ready(record) == (expected == "ready"), case


def test_an_instance_of_an_earlier_boot_is_interrupted(
    tmp_path: Path, sleeper: dict[str, Any]
) -> None:
    status = status_of(tmp_path, boot_id="another", **sleeper, **OWNED)
    assert (status.state, status.pid) == ("interrupted", None)


ENDS: list[tuple[str, ProcessExit | None, bool]] = [
    ("exited", None, False),
    ("exited", ProcessExit(status=0), False),
    ("exited", ProcessExit(signal="SIGTERM"), False),
    ("exited", ProcessExit(status=3), True),
    ("exited", ProcessExit(signal="SIGKILL"), True),
    ("exited", ProcessExit(), True),
    ("failed", ProcessExit(status=0), True),
    ("ready", None, True),  # interrupted
]


@pytest.mark.parametrize(("state", "exit_", "has_died"), ENDS)
def test_only_a_bad_exit_counts_as_a_death(
    tmp_path: Path, state: str, exit_: ProcessExit | None, has_died: bool
) -> None:
    status = status_of(tmp_path, state=state, exit=exit_, **DEAD, **LEFT)
    assert status.has_died == has_died
    assert status.exit == exit_


def test_a_running_instance_has_not_died(tmp_path: Path, sleeper: dict[str, Any]) -> None:
    assert not status_of(tmp_path, exit=ProcessExit(status=3), **sleeper).has_died


# --------------------------------------------------------------------------- which, and what


def test_a_directory_without_runs_has_no_instances(tmp_path: Path) -> None:
    assert read_run(tmp_path / "missing").instances == ()


def test_names_select_instances_and_no_names_select_all(tmp_path: Path) -> None:
    written(tmp_path, "w001", "w000", "left")
    assert [one.name for one in read_run(tmp_path).instances] == ["left", "w000", "w001"]
    assert [one.name for one in read_run(tmp_path, ["w001", "left"]).instances] == ["left", "w001"]
    with pytest.raises(UsageError, match=r"no instance 'w007' in .*: left, w000, w001"):
        read_run(tmp_path, ["w000", "w007"])
    with pytest.raises(UsageError, match="there are: none"):
        read_run(tmp_path / "other", ["w000"])


def test_a_status_has_the_facts_of_its_record(tmp_path: Path) -> None:
    status = status_of(tmp_path, resume_path="/s.json", is_detached=True, **DEAD)
    record = record_of("w000")
    for name in ("world", "host", "port", "url", "started_at", "orchestrator_pid"):
        assert getattr(status, name) == getattr(record, name)
    for name in ("world_dir", "instance_dir", "command_file", "log_file"):
        assert getattr(status, name) == Path(getattr(record, name))
    assert (status.resume_path, status.is_detached) == (Path("/s.json"), True)
    assert status_of(tmp_path, **DEAD).resume_path is None


@pytest.mark.parametrize(
    ("started_at", "ended_at", "uptime_s"),
    [
        ("2026-06-22T18:59:25Z", "2026-06-22T19:00:05Z", 40.0),
        ("2026-06-22T18:59:25Z", "2026-06-22T18:59:20Z", 0.0),  # the clock was set back
        ("2026-06-22T18:59:25Z", None, None),
    ],
)
def test_the_uptime_of_an_ended_instance_is_its_lifetime(
    tmp_path: Path, started_at: str, ended_at: str | None, uptime_s: float | None
) -> None:
    status = status_of(tmp_path, started_at=started_at, ended_at=ended_at, state="exited")
    assert (status.uptime_s, status.ended_at) == (uptime_s, ended_at)


# ----------------------------------------------------------------------------------- usage


def test_memory_and_processor_time_are_summed_over_all_processes(tmp_path: Path) -> None:
    with running_world(tmp_path, "--stubborn-child") as world:
        pid_file = world.directory / "stubborn-child.pid"
        child = int(wait_until(lambda: pid_file.is_file() and pid_file.read_text()))
        leader = {"pid": world.process.pid, "start_time": read_start_time(world.process.pid)}
        status = status_of(tmp_path, cookie=world.cookie, **leader, **OWNED)
        assert status.pid == world.process.pid
        assert status.rss_bytes is not None
        assert status.rss_bytes > resident(leader["pid"]) + 0.5 * resident(child)
        assert status.cpu_s is not None
        assert 0.0 <= status.cpu_s < 60.0
        assert status.uptime_s is not None
        assert 0.0 <= status.uptime_s < 600.0


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_an_ended_instance_has_no_memory_and_no_processor_time(tmp_path: Path) -> None:
    status = status_of(tmp_path, **DEAD)
    assert (status.pid, status.rss_bytes, status.cpu_s) == (None, None, None)


# ----------------------------------------------------------------------------------- saves


class Saves:
    """A manifest with checkpoints, and their files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._entries: list[dict[str, Any]] = []
        (directory / ".clawblox").mkdir(parents=True)

    def add(self, name: str, instance: str = "w000", **fields: Any) -> None:
        """Add an entry with its file; ``is_there=False`` leaves the file out."""
        if fields.pop("is_there", True):
            (self.directory / name).touch()
        entry = {"path": name, "instance": instance, "created_at": f"at {name}", **fields}
        self._entries.append(entry)
        self.write(json.dumps({"schema_version": 1, "checkpoints": self._entries}))

    def write(self, text: str) -> None:
        (self.directory / ".clawblox" / "manifest.json").write_text(text)


@pytest.fixture
def saves(tmp_path: Path) -> Saves:
    return Saves(tmp_path / "worlds" / "w000")


def test_the_last_save_is_the_latest_whose_file_exists(tmp_path: Path, saves: Saves) -> None:
    home = str(saves.directory)
    assert status_of(tmp_path, instance_dir=home).saved_at is None
    saves.add("a.json", time=1.5, sha256="aa")
    saves.add("b.json", time=2.5, sha256="bb")
    saves.add("c.json", removed_at="2026-06-22T18:59:25Z")
    saves.add("d.json", is_there=False)
    saves.add("e.json", instance="w001")
    status = status_of(tmp_path, instance_dir=home)
    assert (status.saved_at, status.sim_time) == ("at b.json", 2.5)
    assert (status.saved_path, status.saved_sha256) == (saves.directory / "b.json", "bb")
    (saves.directory / "b.json").unlink()
    assert status_of(tmp_path, instance_dir=home).saved_at == "at a.json"
    saves.add("f.json")
    status = status_of(tmp_path, instance_dir=home)
    assert (status.saved_at, status.sim_time, status.saved_sha256) == ("at f.json", None, None)


@pytest.mark.thorough
def test_only_the_saves_of_the_latest_manifest_version_are_cached(
    tmp_path: Path, saves: Saves
) -> None:
    home = str(saves.directory)
    for number in range(20):
        saves.add(f"{number}.json")
        assert status_of(tmp_path, instance_dir=home).saved_at == f"at {number}.json"
    gc.collect()
    kept = [one for one in gc.get_objects() if type(one) is LineageSave]
    assert sum(save.path.is_relative_to(saves.directory) for save in kept) == 20


def test_a_manifest_is_read_again_only_after_it_has_changed(
    tmp_path: Path, saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves.add("a.json")
    reads: list[Path] = []
    read = listed_saves.read_manifest

    def count(path: Path) -> Manifest:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(listed_saves, "read_manifest", count)
    for expected in (1, 1, 2):
        if expected == 2:
            saves.add("b.json")
        status_of(tmp_path, instance_dir=str(saves.directory))
        assert len(reads) == expected


def test_instances_that_share_a_manifest_have_their_own_saves(tmp_path: Path, saves: Saves) -> None:
    saves.add("a.json")
    saves.add("b.json", instance="w001")
    written(tmp_path, "w000", "w001", "w002", instance_dir=str(saves.directory))
    found = {one.name: one.saved_at for one in read_run(tmp_path).instances}
    assert found == {"w000": "at a.json", "w001": "at b.json", "w002": None}


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 99}', '{"checkpoints": null}'])
def test_an_unreadable_manifest_does_not_hide_instances(
    tmp_path: Path, saves: Saves, text: str
) -> None:
    saves.write(text)
    assert status_of(tmp_path, instance_dir=str(saves.directory)).saved_at is None


# ----------------------------------------------------------------------------------- owners


def test_own_start_is_the_record_that_this_process_is_starting(tmp_path: Path) -> None:
    assert own_start(tmp_path) is None
    written(tmp_path, "w000", state="starting", **LEFT)
    written(tmp_path, "w001", state="ready", **OWNED)
    assert own_start(tmp_path) is None
    (record,) = written(tmp_path, "w002", state="starting", **OWNED)
    assert own_start(tmp_path) == record


def test_planned_instances_wait_and_are_interrupted_without_an_owner(tmp_path: Path) -> None:
    assert (read_run(tmp_path).owner_pid, read_run(tmp_path).waiting) == (None, 0)
    claim = claim_run(tmp_path)
    assert (read_run(tmp_path).owner_pid, read_run(tmp_path).waiting) == (os.getpid(), 0)
    for name in ("w000", "w001", "w002"):
        written(tmp_path, name, state="planned", pid=0, orchestrator_pid=os.getpid())
    assert read_run(tmp_path).waiting == 3
    assert read_run(tmp_path).instances == ()
    written(tmp_path, "w001", state="failed")
    assert read_run(tmp_path).waiting == 2
    written(tmp_path, "w002", state="planned", pid=0, orchestrator_pid=NOBODY)
    assert read_run(tmp_path).waiting == 1
    told = {one.name: (one.state, one.pid, one.url) for one in read_run(tmp_path).instances}
    assert told["w002"][:2] == ("interrupted", None)
    claim.release()
    assert run_owner(tmp_path) is None


def test_a_dead_orchestrator_owns_no_instances(tmp_path: Path) -> None:
    (tmp_path / ".clawblox").mkdir()
    (tmp_path / ".clawblox" / "run.lock").write_text(f"{NOBODY} here 2026-06-22T18:59:25Z")
    assert run_owner(tmp_path) is None


def test_the_record_cases_cover_a_wrong_boot_and_a_dead_process() -> None:
    assert boot_id() != "another"
    assert read_process(os.getpid()) is not None
    assert read_process(NOBODY) is None
