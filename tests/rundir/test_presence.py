"""Waiting for ends: what counts as an end, and how rarely the disk is read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.to_thread import run_sync

from clawblox.errors import UsageError
from clawblox.results import ProcessExit
from clawblox.rundir import presence
from clawblox.rundir.presence import EndedInstance, EndWatch
from clawblox.rundir.records import InstanceRecord, write_records
from tests.rundir.support import make_record
from tests.support.resources import open_fds
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio

FAILED = ProcessExit(status=4)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows whenever the records are read."""
    seen: list[None] = []
    read = presence.read_records

    def count(run_dir: Path) -> list[InstanceRecord]:
        seen.append(None)
        return read(run_dir)

    monkeypatch.setattr(presence, "read_records", count)
    return seen


async def watch(run_dir: Path, *names: str) -> EndWatch:
    return await run_sync(EndWatch, run_dir, names)


async def write(run_dir: Path, record: InstanceRecord, **fields: Any) -> InstanceRecord:
    changed = msgspec.structs.replace(record, **fields)
    await run_sync(write_records, run_dir, changed)
    return changed


async def make(run_dir: Path, pid: int, **fields: Any) -> InstanceRecord:
    return await run_sync(lambda: make_record(run_dir, pid, **fields))


async def test_an_earlier_end_is_returned_immediately_and_only_once(tmp_path: Path) -> None:
    await make(tmp_path, 0, name="b", state="exited", exit=ProcessExit(signal="SIGKILL"))
    await make(tmp_path, 0, name="a", state="failed", exit=FAILED)
    await make(tmp_path, 0, name="c", state="exited", exit=ProcessExit(status=0), halt="full")
    with anyio.fail_after(HANG_S), await watch(tmp_path) as ends:
        assert await ends.next_ends() == [
            EndedInstance("a", "failed", FAILED),
            EndedInstance("b", "exited", ProcessExit(signal="SIGKILL")),
            EndedInstance("c", "halted", ProcessExit(status=0), "full"),
        ]
        assert await ends.next_ends() == []


async def test_only_the_named_instances_are_waited_for(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    await make(tmp_path, sleeper.pid, name="lives")
    await make(tmp_path, 0, name="over", state="exited", exit=FAILED)
    with anyio.fail_after(HANG_S), await watch(tmp_path, "over") as ends:
        assert [end.name for end in await ends.next_ends()] == ["over"]
        assert await ends.next_ends() == []


async def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    await make(tmp_path, 0, state="exited")
    with pytest.raises(UsageError, match="no instance 'w9'"):
        await watch(tmp_path, "w000", "w9")


async def test_a_live_process_is_not_polled_and_its_end_is_seen(
    tmp_path: Path,
    sleeper: subprocess.Popen[bytes],
    looks: list[None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presence, "_LOOK_INTERVAL_S", 0.05)
    record = await make(tmp_path, sleeper.pid)
    descriptors = open_fds()
    found: list[EndedInstance] = []

    async def wait() -> None:
        found.extend(await ends.next_ends())

    with anyio.fail_after(HANG_S):
        with await watch(tmp_path) as ends:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await wait_until_async(lambda: looks)
                await anyio.sleep(5 * presence._LOOK_INTERVAL_S)  # during which no event may occur
                assert len(looks) == 1
                assert ends.left == ["w000"]
                await write(tmp_path, record, state="exited", exit=FAILED)
                sleeper.kill()
        assert found == [EndedInstance("w000", "exited", FAILED)]
    assert len(looks) >= 2
    assert open_fds() == descriptors


async def test_an_instance_without_a_process_is_polled_twice_a_second_at_most(
    tmp_path: Path, looks: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert presence._LOOK_INTERVAL_S >= 0.5
    monkeypatch.setattr(presence, "_LOOK_INTERVAL_S", 0.1)
    await make(tmp_path, 0, state="starting")
    with await watch(tmp_path) as ends, anyio.move_on_after(4 * presence._LOOK_INTERVAL_S) as limit:
        await ends.next_ends()
    assert limit.cancelled_caught
    assert 2 <= len(looks) <= 4


async def test_a_restart_does_not_count_as_an_end(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_LOOK_INTERVAL_S", 0.01)
    monkeypatch.setattr(presence, "_GATHER_S", 0.0)
    died = msgspec.structs.replace(await make(tmp_path, sleeper.pid), pid=dead_pid)
    await write(tmp_path, died)  # its owner has not decided yet
    found: list[EndedInstance] = []

    async def wait() -> None:
        found.extend(await ends.next_ends())

    with anyio.fail_after(HANG_S), await watch(tmp_path) as ends:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await wait_until_async(lambda: ends.left == ["w000"])
            await write(tmp_path, died, state="starting", pid=0, restarts=1)
            back = await make(tmp_path, sleeper.pid, restarts=1)
            await wait_until_async(lambda: ends._watched)
            assert found == []
            sleeper.kill()
            await write(tmp_path, back, state="exited", exit=FAILED)
    assert found == [EndedInstance("w000", "exited", FAILED)]


async def test_without_an_orchestrator_the_death_of_the_process_is_the_end(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], dead_pid: int
) -> None:
    await make(tmp_path, sleeper.pid, orchestrator_pid=dead_pid, is_detached=True)
    sleeper.kill()
    sleeper.wait()
    with anyio.fail_after(HANG_S), await watch(tmp_path) as ends:
        assert await ends.next_ends() == [EndedInstance("w000", "interrupted", None)]


async def test_a_planned_instance_is_awaited_until_its_orchestrator_is_gone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_LOOK_INTERVAL_S", 0.01)
    await make(tmp_path, 0, name="a", state="exited", exit=FAILED)
    await make(tmp_path, 0, name="b", state="planned", orchestrator_pid=sleeper.pid)
    with anyio.fail_after(HANG_S), await watch(tmp_path, "a", "b") as ends:
        assert [end.name for end in await ends.next_ends()] == ["a"]
        assert ends.left == ["b"]
        sleeper.kill()
        await run_sync(sleeper.wait)
        assert await ends.next_ends() == [EndedInstance("b", "interrupted", None)]
        assert await ends.next_ends() == []


async def test_records_are_polled_when_descriptors_run_out(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_pid: int) -> int:
        raise OSError("no descriptors")

    monkeypatch.setattr(presence, "_LOOK_INTERVAL_S", 0.01)
    monkeypatch.setattr(presence.os, "pidfd_open", refuse)
    record = await make(tmp_path, sleeper.pid)
    with anyio.fail_after(HANG_S), await watch(tmp_path) as ends:
        sleeper.kill()
        await run_sync(sleeper.wait)
        await write(tmp_path, record, state="exited", exit=FAILED)
        assert await ends.next_ends() == [EndedInstance("w000", "exited", FAILED)]
