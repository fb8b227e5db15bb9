"""Shared passes over ``/proc``: which pass answers a request, and effects of a cancellation."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.supervision import tree as finder_module
from clawblox.supervision.tree import Finder, current_finder
from clawblox.system.process_tree import Mark, Proc, Search, find_trees, signal_processes
from tests.support.processes import is_alive, kill_processes, processes_in, read_process
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio


Start = Callable[[], Mark]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start processes below ``tmp_path`` and return their marks; kill the rest at the end."""
    children: list[subprocess.Popen[bytes]] = []

    def start_one() -> Mark:
        child = subprocess.Popen(["sleep", "60"], cwd=tmp_path, start_new_session=True)
        children.append(child)
        shown = read_process(child.pid)
        assert shown is not None
        leader = child.pid, shown.start_time
        return Mark(f"CLAWBLOX_INSTANCE={uuid.uuid4().hex}".encode(), (leader,))

    yield start_one
    kill_processes(lambda: processes_in(tmp_path))
    for child in children:
        child.wait()


class Gate:
    """Replaces passes: notes the requests that share each, and blocks while it is closed."""

    def __init__(self) -> None:
        self.passes: list[int] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.failures: list[Exception] = []

    def find_trees(self, searches: Sequence[Search]) -> list[list[Proc]]:
        self.passes.append(len(searches))
        found = find_trees(searches)
        assert self.is_open.wait(HANG_S)
        if self.failures:
            raise self.failures.pop()
        return found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(finder_module, "find_trees", gate.find_trees)
    yield gate
    gate.is_open.set()


@pytest.fixture
def found() -> dict[int, Any]:
    """Results by number of the request."""
    return {}


def asking(finder: Finder, found: dict[int, Any], **options: Any) -> Callable[..., Any]:
    async def ask(number: int, mark: Mark) -> None:
        try:
            found[number] = [proc.pid for proc in await finder.find(mark, **options)]
        except OSError as error:
            found[number] = error

    return ask


def leader_of(mark: Mark) -> int:
    ((pid, _),) = mark.leaders
    return pid


async def test_each_event_loop_has_one_finder() -> None:
    assert current_finder() is current_finder()


async def test_concurrent_searches_share_one_pass(
    start: Start, gate: Gate, found: dict[int, Any]
) -> None:
    marks = [start() for _ in range(10)]
    ask = asking(Finder(), found)
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            for number, mark in enumerate(marks):
                tasks.start_soon(ask, number, mark)
    assert found == {number: [leader_of(mark)] for number, mark in enumerate(marks)}
    assert gate.passes == [10]


async def test_a_search_is_not_answered_by_an_earlier_pass(
    start: Start, gate: Gate, found: dict[int, Any]
) -> None:
    finder = Finder()
    ask = asking(finder, found)
    gate.is_open.clear()
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, 0, start())
            await wait_until_async(lambda: gate.passes == [1])
            late = [start() for _ in range(3)]
            for number, mark in enumerate(late, 1):
                tasks.start_soon(ask, number, mark)
            await anyio.wait_all_tasks_blocked()
            gate.is_open.set()
    assert gate.passes == [1, 3]
    assert [found[number] for number in (1, 2, 3)] == [[leader_of(mark)] for mark in late]


async def test_a_repeated_request_makes_a_pass_for_waiting_callers(
    start: Start, gate: Gate, found: dict[int, Any]
) -> None:
    finder = Finder()
    ask = asking(finder, found)
    marks = [start() for _ in range(4)]
    gate.is_open.clear()

    async def ask_twice() -> None:
        await ask(0, marks[0])
        gate.is_open.clear()
        await ask(1, marks[1])

    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_twice)
            tasks.start_soon(ask, 2, marks[2])
            await wait_until_async(lambda: gate.passes == [2])
            tasks.start_soon(ask, 3, marks[3])
            await anyio.wait_all_tasks_blocked()
            gate.is_open.set()
            await wait_until_async(lambda: len(gate.passes) == 2)
            await anyio.wait_all_tasks_blocked()  # a task that waits for the pass only waits
            gate.is_open.set()
    assert gate.passes == [2, 2]
    assert found == {number: [leader_of(mark)] for number, mark in enumerate(marks)}


async def test_a_pass_waits_for_announced_searches(
    start: Start, gate: Gate, found: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder_module, "_GATHER_S", 2 * HANG_S)
    finder = Finder()
    ask = asking(finder, found)
    with anyio.fail_after(HANG_S), finder.looking(), finder.looking():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, 0, start())
            await anyio.wait_all_tasks_blocked()
            assert gate.passes == []
            tasks.start_soon(ask, 1, start())
    assert gate.passes == [2]


async def test_a_pass_does_not_wait_for_finished_searches(
    start: Start, gate: Gate, found: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder_module, "_GATHER_S", 2 * HANG_S)
    finder = Finder()
    with anyio.fail_after(HANG_S), finder.looking():
        async with anyio.create_task_group() as tasks:
            with finder.looking():
                tasks.start_soon(asking(finder, found), 0, start())
                await anyio.wait_all_tasks_blocked()
                assert gate.passes == []
    assert gate.passes == [1]


async def test_a_pass_waits_only_briefly(start: Start, gate: Gate, found: dict[int, Any]) -> None:
    finder = Finder()
    with anyio.fail_after(HANG_S), finder.looking(), finder.looking():
        await asking(finder, found)(0, start())
    assert gate.passes == [1]


async def test_each_search_sends_its_own_signal(start: Start, found: dict[int, Any]) -> None:
    finder = Finder()
    spared, terminated, killed = start(), start(), start()
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asking(finder, found), 0, spared)
            tasks.start_soon(asking(finder, found, number=signal.SIGTERM), 1, terminated)
            tasks.start_soon(asking(finder, found, number=signal.SIGKILL), 2, killed)
    statuses = [os.waitid(os.P_PID, leader_of(mark), os.WEXITED) for mark in (terminated, killed)]
    assert [status and status.si_status for status in statuses] == [signal.SIGTERM, signal.SIGKILL]
    assert is_alive(leader_of(spared))
    assert found == {n: [leader_of(m)] for n, m in enumerate((spared, terminated, killed))}


async def test_a_failed_pass_fails_every_caller(
    start: Start, gate: Gate, found: dict[int, Any]
) -> None:
    finder = Finder()
    gate.failures.append(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    mark = start()
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asking(finder, found), 0, mark)
            tasks.start_soon(asking(finder, found), 1, start())
        assert [found[number].errno for number in (0, 1)] == [errno.EMFILE] * 2
        assert found[0] is not found[1]
        assert [proc.pid for proc in await finder.find(mark)] == [leader_of(mark)]


async def test_an_unsignallable_process_fails_only_its_own_caller(
    start: Start, found: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_for_the_second(processes: Sequence[Proc], number: int) -> None:
        if leader_of(second) in [proc.pid for proc in processes]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        signal_processes(processes, number)

    first, second = start(), start()
    monkeypatch.setattr(finder_module, "signal_processes", fail_for_the_second)
    ask = asking(Finder(), found, number=signal.SIGTERM)
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, 0, first)
            tasks.start_soon(ask, 1, second)
    assert found[1].errno == errno.EMFILE
    assert found[0] == [leader_of(first)]
    await wait_until_async(lambda: not is_alive(leader_of(first)))


# -------------------------------------------------------------------------------- cancelled


async def test_a_cancelled_waiting_caller_does_not_affect_others(
    start: Start, gate: Gate, found: dict[int, Any]
) -> None:
    finder = Finder()
    ask = asking(finder, found)
    gate.is_open.clear()
    scopes = [anyio.CancelScope() for _ in range(3)]

    async def ask_within(number: int, mark: Mark) -> None:
        with scopes[number]:
            await ask(number, mark)

    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_within, 0, start())
            await wait_until_async(lambda: gate.passes == [1])
            tasks.start_soon(ask_within, 1, start())
            tasks.start_soon(ask_within, 2, start())
            await anyio.wait_all_tasks_blocked()
            # The first task would make the next pass.
            scopes[1].cancel()
            await anyio.wait_all_tasks_blocked()
            gate.is_open.set()
    assert gate.passes == [1, 1]
    assert found.keys() == {0, 2}


async def test_a_caller_cancelled_before_its_pass_leaves_it_to_the_next(
    start: Start, gate: Gate, found: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder_module, "_GATHER_S", 2 * HANG_S)
    finder = Finder()
    ask = asking(finder, found)
    scope = anyio.CancelScope()

    async def ask_within(mark: Mark) -> None:
        with scope, finder.looking():
            await ask(0, mark)

    with anyio.fail_after(HANG_S), finder.looking():
        async with anyio.create_task_group() as tasks:
            with finder.looking():
                tasks.start_soon(ask_within, start())
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(ask, 1, start())
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                await anyio.wait_all_tasks_blocked()
                assert gate.passes == []
    assert gate.passes == [1]
    assert found.keys() == {1}


async def test_a_caller_cancelled_during_its_pass_completes_it(
    start: Start, gate: Gate, found: dict[int, Any]
) -> None:
    finder = Finder()
    ask = asking(finder, found)
    gate.is_open.clear()
    scope = anyio.CancelScope()

    async def ask_within(mark: Mark) -> None:
        with scope:
            await ask(0, mark)

    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_within, start())
            tasks.start_soon(ask, 1, start())
            await wait_until_async(lambda: gate.passes == [2])
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            gate.is_open.set()
    assert gate.passes == [2]
    assert found[1]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_cancelled_by_asyncio_during_its_pass_leaves_it_to_the_next(
    start: Start, gate: Gate, found: dict[int, Any]
) -> None:
    finder = Finder()
    ask = asking(finder, found)
    gate.is_open.clear()
    first, second = start(), start()
    one = asyncio.create_task(ask(0, first))
    other = asyncio.create_task(ask(1, second))
    await wait_until_async(lambda: gate.passes == [2])
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    gate.is_open.set()
    async with asyncio.timeout(HANG_S):
        await other
    assert gate.passes == [2, 1]
    assert found == {1: [leader_of(second)]}
