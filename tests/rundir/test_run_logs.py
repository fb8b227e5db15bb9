"""The logs of a run directory, read by the records of its instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from clawblox import UsageError
from clawblox.rundir import run_logs
from clawblox.rundir.records import InstanceRecord, write_records
from clawblox.rundir.run_logs import read_logs
from clawblox.rundir.status import read_run
from clawblox.telemetry.log_reader import LogReader
from tests.rundir.test_records import written
from tests.rundir.test_status import DEAD, LEFT, OWNED, Saves, sleeper
from tests.support.waiting import HANG_S

__all__ = ["sleeper"]


def lines_of(reader: LogReader, seconds: float = HANG_S) -> tuple[list[str], bool]:
    """Return the lines of a log, and whether its end was reached in time."""

    async def read() -> tuple[list[str], bool]:
        texts: list[str] = []
        with anyio.move_on_after(seconds) as scope:
            async with reader as lines:
                async for line in lines:
                    texts.append(line.text)  # noqa: PERF401 - keeps lines after a timeout
        return texts, not scope.cancelled_caught

    return anyio.run(read)


def logged(run: Path, *lines: str, **changes: Any) -> InstanceRecord:
    """Write the log of an instance, and its record."""
    log = run / "world.log"
    log.write_text("".join(f"{line}\n" for line in ("of an earlier run", *lines)))
    start = len("of an earlier run\n")
    (record,) = written(run, "w000", log_file=str(log), log_start=start, **changes)
    return record


@pytest.mark.parametrize("follow", [False, True])
def test_a_log_is_read_from_the_first_line_of_its_instance(tmp_path: Path, follow: bool) -> None:
    logged(tmp_path, "one", "two", **DEAD, **LEFT)
    readers = read_logs(tmp_path, follow=follow, tail=None)
    assert lines_of(readers["w000"]) == (["one", "two"], True)
    assert lines_of(read_logs(tmp_path, follow=follow, tail=1)["w000"]) == (["two"], True)
    with pytest.raises(UsageError, match="no instance 'w001'"):
        read_logs(tmp_path, ["w001"], follow=follow, tail=None)


def test_a_moved_run_keeps_its_own_files_if_another_run_takes_its_place(
    tmp_path: Path,
) -> None:
    run, moved = tmp_path / "run", tmp_path / "run.failed-1"
    for place, word in ((run, "first"), (run, "second")):
        if run.exists():
            run.rename(moved)
        home = Saves(place / "worlds" / "w000")
        home.add(f"{word}.json")
        logged(place, word, instance_dir=str(home.directory), **DEAD, **LEFT)
    for place, word in ((moved, "first"), (run, "second")):
        (status,) = read_run(place).instances
        assert status.saved_path == place / "worlds" / "w000" / f"{word}.json"
        assert status.log_file == place / "world.log"
        assert lines_of(read_logs(place, follow=False, tail=None)["w000"]) == ([word], True)
    (moved / "worlds").rename(tmp_path / "elsewhere")
    (status,) = read_run(moved).instances
    assert status.instance_dir == run / "worlds" / "w000"  # it was not moved


AFTERWARDS: dict[str, tuple[dict[str, Any], bool]] = {
    "as before": ({}, False),
    "brought back": ({"restarts": 3, "cookie": "another"}, False),
    "exited": ({"state": "exited"}, True),
    "another start of that name": ({"cookie": "another"}, True),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("changes", "is_end"), AFTERWARDS.values(), ids=AFTERWARDS)
def test_a_log_is_followed_through_restarts_to_the_end_of_its_instance(
    tmp_path: Path, sleeper: dict[str, Any], changes: dict[str, Any], is_end: bool
) -> None:
    record = logged(tmp_path, "one", **sleeper, **OWNED)
    readers = read_logs(tmp_path, follow=True, tail=None)
    write_records(tmp_path, msgspec.structs.replace(record, **changes))
    assert lines_of(readers["w000"], HANG_S if is_end else 0.3) == (["one"], is_end)


def test_a_follower_reads_the_record_twice_a_second_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: dict[str, Any]
) -> None:
    record = logged(tmp_path, "one", **sleeper, **OWNED)
    reads: list[str] = []

    def read(_: Path, name: str) -> InstanceRecord:
        reads.append(name)
        return record

    monkeypatch.setattr(run_logs, "read_record", read)
    (reader,) = read_logs(tmp_path, follow=True, tail=None).values()
    assert not any(reader._is_over() for _ in range(50))
    assert reads == ["w000"]


def test_following_a_log_ends_when_the_record_disappears(
    tmp_path: Path, sleeper: dict[str, Any]
) -> None:
    logged(tmp_path, "one", **sleeper, **OWNED)
    readers = read_logs(tmp_path, follow=True, tail=None)
    (tmp_path / ".clawblox" / "instances" / "records.jsonl").unlink()
    assert lines_of(readers["w000"]) == (["one"], True)
