"""Finding the processes of instances, with one pass over ``/proc`` for all that ask at a time.

A pass costs nearly the same for a hundred instances as for one. When many are stopped, all of them
ask at once, and again as their leaders end. ``process_tree`` decides what belongs to an instance.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import anyio
import attrs

from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.threads import run_blocking
from clawblox.system.process_tree import Mark, Proc, Search, find_trees, signal_processes

_GATHER_S = 0.01
"""How long a pass waits for other tasks that are about to ask, in seconds."""


@attrs.define(eq=False)
class _Request:
    """What a task waits for; ``answer`` is None until a pass has answered."""

    search: Search
    number: int | None
    answer: list[Proc] | OSError | None = None
    is_woken: anyio.Event = attrs.field(factory=anyio.Event)

    async def wait(self) -> None:
        """Wait for an answer, or for the turn of its own task to make the pass."""
        if self.is_woken.is_set():
            self.is_woken = anyio.Event()
        await self.is_woken.wait()


class Finder:
    """Answers all tasks that look for processes at the same time with the same pass.

    It has no task of its own. A task that asks while no pass is under way makes the next one, for
    all that wait by then. A pass never answers a request that was made after it had begun.
    """

    def __init__(self) -> None:
        self._waiting: dict[_Request, None] = {}
        self._is_passing = False
        self._lookers = 0
        self._all_wait = anyio.Event()

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Announce that the block will ask more than once; passes wait a little for it."""
        self._lookers += 1
        try:
            yield
        finally:
            self._lookers -= 1
            self._note_change()

    async def find(
        self, mark: Mark, known: Sequence[Proc] = (), *, number: int | None = None
    ) -> list[Proc]:
        """Return the live processes of ``mark``, and send them a signal at once.

        Args:
            mark: Marks the processes.
            known: An earlier answer, whose processes still belong to it.
            number: The signal; None sends none.

        Raises:
            OSError: The processes cannot be looked at, for lack of descriptors.

        Cancellation: affects no other task; a pass that has begun may still send the signal.
        """
        request = _Request(Search((mark,), tuple(known)), number)
        self._waiting[request] = None
        self._note_change()
        try:
            while request.answer is None:
                if self._is_passing:
                    await request.wait()
                else:
                    await self._make_pass()
        finally:
            self._waiting.pop(request, None)
            self._wake_next()
        if isinstance(request.answer, OSError):  # several may raise it, each its own
            raise OSError(request.answer.errno, request.answer.strerror) from request.answer
        return request.answer

    async def _make_pass(self) -> None:
        self._is_passing = True
        try:
            await self._gather()
            batch = list(self._waiting)
            answers = await run_blocking(_find_and_signal, batch)
        finally:
            self._is_passing = False
        for request, answer in zip(batch, answers, strict=True):
            request.answer = answer
            request.is_woken.set()
            self._waiting.pop(request, None)

    async def _gather(self) -> None:
        self._all_wait = anyio.Event()
        self._note_change()
        with anyio.move_on_after(_GATHER_S):
            await self._all_wait.wait()  # at least one turn of the loop, for tasks that ask in it

    def _note_change(self) -> None:
        if len(self._waiting) >= self._lookers:
            self._all_wait.set()

    def _wake_next(self) -> None:
        """Have a task that still waits make the next pass."""
        if not self._is_passing and self._waiting:
            next(iter(self._waiting)).is_woken.set()


@per_loop
def current_finder() -> Finder:
    """Return the finder of the running event loop."""
    return Finder()


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
