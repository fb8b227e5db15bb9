"""The exit of a process is known even if other code reaped it; foreign processes are adopted."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import anyio
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.results import ProcessExit
from clawblox.system.process import adopt, signal_name
from tests.support.processes import read_process
from tests.support.waiting import HANG_S, wait_until_async
from tests.system.process.support import SLEEP, Spawn, reaping_everything

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("exit 0", ProcessExit(status=0)),
        ("exit 3", ProcessExit(status=3)),
        ("exit 255", ProcessExit(status=255)),
        ("kill -TERM $$", ProcessExit(signal="SIGTERM")),
        ("kill -SEGV $$", ProcessExit(signal="SIGSEGV")),
        ("kill -KILL $$", ProcessExit(signal="SIGKILL")),
        ("kill -35 $$", ProcessExit(signal="signal 35")),
    ],
)
async def test_an_exit_has_a_status_or_the_name_of_a_signal(
    start: Spawn, ending: str, expected: ProcessExit
) -> None:
    process = await start("sh", "-c", ending)
    assert await process.wait() == expected
    assert await process.wait() == expected


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (64, "SIGRTMAX"), (99, "signal 99")])
def test_every_signal_has_a_name(number: int, name: str) -> None:
    assert signal_name(number) == name


async def test_an_ended_process_is_a_zombie_until_it_is_released(start: Spawn) -> None:
    process = await start("true")
    await process.wait()
    zombie = read_process(process.pid)
    assert zombie is not None
    assert zombie.state == "Z"
    assert zombie.start_time == process.start_time
    process.release()
    assert read_process(process.pid) is None
    process.release()
    assert process.has_exited
    assert await process.wait() == ProcessExit(status=0)


async def test_has_exited_is_true_only_after_the_end(start: Spawn) -> None:
    process = await start(*SLEEP)
    assert not process.has_exited
    os.kill(process.pid, signal.SIGKILL)
    await wait_until_async(lambda: process.has_exited)
    await process.wait()
    assert process.has_exited


async def test_a_cancelled_wait_does_not_affect_other_waiting_tasks(
    start: Spawn,
) -> None:
    process = await start(*SLEEP)
    exits: list[ProcessExit] = []

    async def wait() -> None:
        exits.append(await process.wait())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0) as scope:
            await process.wait()
        assert scope.cancelled_caught
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        os.kill(process.pid, signal.SIGKILL)
    assert exits == [ProcessExit(signal="SIGKILL")] * 2


async def test_a_foreign_wait_for_every_child_only_hides_the_status(start: Spawn) -> None:
    with reaping_everything() as reaped:
        process = await start(*SLEEP)
        os.kill(process.pid, signal.SIGKILL)
        await wait_until_async(lambda: process.pid in reaped)
        assert process.has_exited
        with anyio.fail_after(HANG_S):
            assert await process.wait() == ProcessExit()
        process.release()


async def test_a_process_reaped_before_the_watch_counts_as_exited(
    start: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_pidfd = os.pidfd_open

    def reap_first(pid: int) -> int:
        os.waitpid(pid, 0)
        return open_pidfd(pid)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", reap_first)
        process = await start("true")
    assert process.has_exited
    assert await process.wait() == ProcessExit()
    process.release()


async def test_a_process_reaped_during_the_open_counts_as_exited(
    start: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_pidfd = os.pidfd_open

    def reap_then(pid: int) -> int:
        pidfd = open_pidfd(pid)
        os.waitpid(pid, 0)
        return pidfd

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", reap_then)
        process = await start("true")
    assert await process.wait() == ProcessExit()


async def test_a_foreign_process_is_adopted_without_its_status(
    tmp_path: Path,
) -> None:
    script = "sleep 60 & echo $! >pid.part; mv pid.part pid; wait; touch waited"
    with subprocess.Popen(["sh", "-c", script], cwd=tmp_path) as parent:
        await wait_until_async((tmp_path / "pid").exists)
        process = await run_blocking(adopt, int((tmp_path / "pid").read_text()))
        assert not process.is_child
        assert not process.has_exited
        os.kill(process.pid, signal.SIGKILL)
        assert await process.wait() == ProcessExit()
        process.release()
        await wait_until_async(lambda: parent.poll() is not None)
    assert (tmp_path / "waited").exists()  # its parent has reaped it


async def test_an_own_process_is_adopted_again_with_its_status(start: Spawn) -> None:
    let_go = await start("sh", "-c", "exec sleep 60")
    process = await run_blocking(adopt, let_go.pid)
    assert process.is_child
    os.kill(process.pid, signal.SIGKILL)
    assert await process.wait() == ProcessExit(signal="SIGKILL")
    process.release()
    assert read_process(process.pid) is None


async def test_a_process_that_does_not_exist_cannot_be_adopted(start: Spawn) -> None:
    process = await start("true")
    await process.wait()
    process.release()
    with pytest.raises(ProcessLookupError):
        await run_blocking(adopt, process.pid)
