"""A process tree: all processes with one cookie, which are guarded and ended down the ladder."""

from __future__ import annotations

import contextlib
import signal  # noqa: TID251 - numbers only; the finder sends them
from collections.abc import Iterator, Sequence
from typing import Final

import anyio
import attrs
import msgspec

from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.threads import run_blocking
from clawblox.protocol import INSTANCE_ENV
from clawblox.results import Rung
from clawblox.system.guard import guard
from clawblox.system.process import Process
from clawblox.system.process_tree import (
    Mark,
    Proc,
    Search,
    command_line,
    find_trees,
    signal_processes,
)
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

_KILL_TIMEOUT_S: Final = 10.0
_FIRST_DELAY_S: Final = 0.002
_LAST_DELAY_S: Final = 0.05
_GATHER_S: Final = 0.01
"""Time for which a pass waits for more requests, in seconds."""


class Grace:
    """The time left to a stopping tree; a second, shorter stop shortens it.

    Args:
        seconds: Time between TERM and KILL.
    """

    def __init__(self, seconds: float) -> None:
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)

    def shorten(self, seconds: float) -> None:
        """Leave at most ``seconds`` from now."""
        self.scope.deadline = min(self.scope.deadline, anyio.current_time() + seconds)


class SharedStop(msgspec.Struct, eq=False):
    """Ends one supervised task; the last act of the task is to end its process tree.

    Attributes:
        scope: Encloses the work of the task; cancelled by the first request.
        grace: Time between TERM and KILL; None before the stop is requested or started.
        is_over: Set when the task and its whole tree have ended.
    """

    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    grace: Grace | None = None
    is_over: anyio.Event = msgspec.field(default_factory=anyio.Event)

    async def request(self, grace_seconds: float) -> None:
        """Stop the task and wait until it is over.

        Args:
            grace_seconds: Seconds between TERM and KILL. A later request can only shorten them.

        Cancellation: the task is still stopped.
        """
        self.begin(grace_seconds).shorten(grace_seconds)
        self.scope.cancel()
        await self.is_over.wait()

    def begin(self, grace_seconds: float) -> Grace:
        """Return the grace of the stop; ``grace_seconds`` if no stop was requested."""
        if self.grace is None:
            self.grace = Grace(grace_seconds)
        return self.grace

    def kill_now(self) -> None:
        """Cut the grace of a stop in progress."""
        if self.grace is not None:
            self.grace.shorten(0.0)


@attrs.frozen
class TreeEnd:
    """The end of a process tree.

    Attributes:
        rung: The rung of the ladder that ended the tree.
        killed: The processes that had to be killed, as ``pid command``.
        survivors: The processes that survived even SIGKILL.
        failure: Reason why processes may be left, or None.
    """

    rung: Rung
    killed: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    failure: str | None = attrs.field()

    @failure.default
    def _name_survivors(self) -> str | None:
        return f"not even SIGKILL ended {', '.join(self.survivors)}" if self.survivors else None


class ProcessTree:
    """The processes with one cookie. The tree outlives its leaders, which may come and go.

    Args:
        cookie: The value of the variable that marks the processes.

    Attributes:
        cookie: The value of the variable.
        processes: The leaders that have not been released, in the order of their start.
        may_have_survivors: Whether a process may be left: true from the first watch or leader until
            all processes have ended.
    """

    def __init__(self, cookie: str) -> None:
        self.cookie = cookie
        self.may_have_survivors = False
        self.processes: list[Process] = []
        self._leaders: tuple[tuple[int, int], ...] = ()

    @property
    def mark(self) -> Mark:
        """The mark of the processes, with the cookie and the sessions of the leaders."""
        return Mark(f"{INSTANCE_ENV}={self.cookie}".encode(), self._leaders)

    def watch(self) -> None:
        """Make the guard end the tree when this process is gone. Blocks. Call this before a spawn.

        Raises:
            OSError: The guard cannot be started.
        """
        self.may_have_survivors = True
        guard.watch(self.mark)

    def add(self, process: Process) -> None:
        """Add a process that was spawned with the cookie; callers wait for the first process.

        The first leader stays in the mark after its release, because processes that it left behind
        are older than its successors.
        """
        self.may_have_survivors = True
        self.processes.append(process)
        present = [(process.pid, process.start_time) for process in self.processes]
        self._leaders = tuple(dict.fromkeys((*self._leaders[:1], *present)))

    async def end(self, grace: Grace) -> TreeEnd:
        """End all processes. If they cannot be searched for, the leaders are killed.

        Args:
            grace: Time between TERM and KILL.

        Cancellation: stops on the current rung; shield the call.
        """
        self.may_have_survivors = True
        leader = next(iter(self.processes), None)
        try:
            end = await end_tree(self.mark, leader, grace)
        except Exception as error:  # noqa: BLE001 - end as much as possible after any error
            self.kill()
            if not isinstance(error, OSError):
                _log.defect("processes not looked for", error)
            reason = getattr(error, "strerror", None) or repr(error)
            failure = f"its processes cannot be inspected: {reason}"
            end = TreeEnd("killed", failure=failure)
            if leader is not None:
                with anyio.move_on_after(_KILL_TIMEOUT_S):
                    await leader.wait()
        else:
            self.may_have_survivors = bool(end.survivors)
        return end

    def kill(self) -> None:
        """Kill the leaders and their groups without a descriptor. The guard watches the rest."""
        for process in self.processes:
            process.kill()

    def forget(self) -> None:
        """Make the guard forget the tree, because it has ended or outlives this process."""
        guard.forget(self.mark)

    def release(self) -> None:
        """Reap the leaders and close their pidfds. Idempotent."""
        with contextlib.ExitStack() as releases:  # release each, even if another fails
            for process in self.processes:
                releases.callback(process.release)
        self.processes = []


async def end_tree(mark: Mark, leader: Process | None, grace: Grace) -> TreeEnd:
    """End all processes of ``mark``: send TERM, wait for the grace, send KILL until all end.

    Args:
        mark: Mark of the processes; it must name the leader, so that its session counts.
        leader: The process to wait for first, or None.
        grace: Time between TERM and KILL.

    Raises:
        OSError: The processes cannot be inspected, for lack of file descriptors.

    Cancellation: stops on the current rung; shield the call.
    """
    finder = current_finder()
    with finder.looking():
        end = await _climb(finder, mark, leader, grace)
    if leader is not None and not end.survivors and not leader.has_exited:
        # A program whose first thread has ended looks dead although other threads are running.
        leader.kill()
        with anyio.move_on_after(_KILL_TIMEOUT_S):
            await leader.wait()
    return end


async def _climb(finder: Finder, mark: Mark, leader: Process | None, grace: Grace) -> TreeEnd:
    members = await finder.find(mark, number=signal.SIGTERM)
    if not members:
        return TreeEnd("already_exited")
    with grace.scope:
        if leader is not None:
            await leader.wait()
        delay = _FIRST_DELAY_S
        while members := await finder.find(mark, members):
            await anyio.sleep(delay)
            delay = min(delay * 2, _LAST_DELAY_S)
        return TreeEnd("terminated")
    return await _kill(finder, mark, members)


async def _kill(finder: Finder, mark: Mark, known: Sequence[Proc]) -> TreeEnd:
    left = await finder.find(mark, known)
    killed = await run_blocking(_describe, left)
    deadline = anyio.current_time() + _KILL_TIMEOUT_S
    delay = _FIRST_DELAY_S
    while left := await finder.find(mark, left, number=signal.SIGKILL):
        if anyio.current_time() >= deadline:
            break
        await anyio.sleep(delay)
        delay = min(delay * 2, _LAST_DELAY_S)
    survivors = await run_blocking(_describe, left)
    return TreeEnd("killed" if killed else "terminated", killed, survivors)


def _describe(processes: Sequence[Proc]) -> tuple[str, ...]:
    return tuple(f"{proc.pid} {command_line(proc.pid)[:200]}".rstrip() for proc in processes)


# -- one pass over /proc for all tasks that search for processes at the same time --------------


class _Request(msgspec.Struct, eq=False):
    """A task's request; ``answer`` is None until a pass has answered."""

    search: Search
    number: int | None
    answer: list[Proc] | OSError | None = None
    is_woken: anyio.Event = msgspec.field(default_factory=anyio.Event)


class Finder:
    """Answers all tasks that search for processes at the same time with one pass.

    The finder has no task of its own. A task that makes a request while no pass is in progress
    makes the next pass for all waiting tasks. A pass never answers requests made after its start.
    """

    def __init__(self) -> None:
        self._waiting: dict[_Request, None] = {}
        self._is_passing = False
        self._lookers = 0
        self._all_wait = anyio.Event()

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Announce that the block makes several requests; passes wait briefly for them."""
        self._lookers += 1
        try:
            yield
        finally:
            self._lookers -= 1
            self._note_change()

    async def find(
        self, mark: Mark, known: Sequence[Proc] = (), *, number: int | None = None
    ) -> list[Proc]:
        """Return the live processes of ``mark``, after sending them a signal.

        Args:
            mark: Mark of the processes.
            known: An earlier answer, whose processes still belong to the mark.
            number: The signal; None sends no signal.

        Raises:
            OSError: The processes cannot be inspected, for lack of descriptors.

        Cancellation: does not affect other tasks; a pass in progress may still send the signal.
        """
        request = _Request(Search((mark,), tuple(known)), number)
        self._waiting[request] = None
        self._note_change()
        try:
            while request.answer is None:
                if self._is_passing:
                    # Wait for an answer, or for the turn of this task to make the pass.
                    if request.is_woken.is_set():
                        request.is_woken = anyio.Event()
                    await request.is_woken.wait()
                else:
                    await self._make_pass()
        finally:
            self._waiting.pop(request, None)
            if not self._is_passing and self._waiting:  # another task makes the next pass
                next(iter(self._waiting)).is_woken.set()
        if isinstance(request.answer, OSError):  # each task raises its own copy
            raise OSError(request.answer.errno, request.answer.strerror) from request.answer
        return request.answer

    async def _make_pass(self) -> None:
        self._is_passing = True
        try:
            self._all_wait = anyio.Event()
            self._note_change()
            with anyio.move_on_after(_GATHER_S):
                await self._all_wait.wait()  # collects requests of this turn
            batch = list(self._waiting)
            answers = await run_blocking(_find_and_signal, batch)
        finally:
            self._is_passing = False
        for request, answer in zip(batch, answers, strict=True):
            request.answer = answer
            request.is_woken.set()
            self._waiting.pop(request, None)

    def _note_change(self) -> None:
        if len(self._waiting) >= self._lookers:
            self._all_wait.set()


current_finder = per_loop(Finder)
"""Returns the finder of the running event loop."""


def _find_and_signal(requests: Sequence[_Request]) -> list[list[Proc] | OSError]:
    try:
        found = find_trees([request.search for request in requests])
    except OSError as error:
        return [error] * len(requests)
    return [
        _signal(members, request.number) for request, members in zip(requests, found, strict=True)
    ]


def _signal(members: list[Proc], number: int | None) -> list[Proc] | OSError:
    if number is not None:
        try:
            signal_processes(members, number)
        except OSError as error:
            return error
    return members
