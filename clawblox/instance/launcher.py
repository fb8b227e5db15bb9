"""The launcher: one thread that brings instances up and watches them until they are ready.

Between its turn on the ramp and its readiness, a start blocks only briefly. A single thread
therefore does this work for all instances of a world: it spawns them one after the other and probes
them together, with one epoll. Through one descriptor it notifies the event loop of the beginning
and the end of each start. The thread exists only during starts.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import select
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from enum import Enum
from functools import partial

import anyio
import msgspec

from clawblox.concurrency.tasks import Tasks, outlast
from clawblox.concurrency.threads import run_blocking
from clawblox.instance.health import READ, Steps, Wait
from clawblox.instance.instance import Instance
from clawblox.instance.listening import NeverReady
from clawblox.instance.ramp import LOOK_INTERVAL_S, Ramp, StartPace
from clawblox.system.process_tree import all_processes
from clawblox.telemetry.own_log import OwnLog

_SLOW_S = 5.0
"""Seconds after which a start is slow, and after which its reason is checked again."""

_log = OwnLog(__name__)


class Ending(Enum):
    """The outcome of a start in the launcher."""

    READY = "ready"
    EXITED = "exited"
    LATE = "late"
    FAILED = "failed"
    GIVEN_UP = "given up"


class _Start(msgspec.Struct, eq=False):
    """A start in progress."""

    instance: Instance
    on_spawned: Callable[[], None]
    on_pace: Callable[[StartPace], None]
    is_over: anyio.Event = msgspec.field(default_factory=anyio.Event)
    ending: Ending | None = None
    error: Exception | None = None
    pidfd: int = -1
    steps: Steps | None = None
    waits_for_fd: int = -1
    timer: int = 0
    waits_until: float = math.inf
    looks_at: float = math.inf
    look_interval: float = msgspec.field(default_factory=lambda: _SLOW_S)


class Launcher:
    """Starts instances of a world; see the module.

    Args:
        ramp: Limits the number of concurrent starts.
    """

    def __init__(self, ramp: Ramp) -> None:
        self._ramp = ramp
        self._waiting: deque[_Start] = deque()
        self._given_up: deque[_Start] = deque()
        self._unsettled: set[_Start] = set()
        self._news: deque[tuple[_Start, Callable[[], None]]] = deque()
        self._to_thread = self._to_loop = -1
        self._epoll: select.epoll
        self._has_work = anyio.Event()

    # -- in the event loop ------------------------------------------------------------------

    async def run(
        self,
        instance: Instance,
        *,
        on_spawned: Callable[[], None],
        on_pace: Callable[[StartPace], None],
    ) -> Ending:
        """Bring an instance up and wait until it is ready or its start has failed.

        Args:
            instance: The instance.
            on_spawned: Called in the loop after its process was spawned.
            on_pace: Called in the loop when delays of starts begin or end.

        Raises:
            StrangerAnswers: Another process serves its port.
            Exception: Any exception from bringing up or probing the instance.

        Cancellation: the start is abandoned; the owner of the instance ends and releases it.
        """
        start = _Start(instance, on_spawned, on_pace)
        self._unsettled.add(start)
        self._waiting.append(start)
        self._has_work.set()
        try:
            os.eventfd_write(self._to_thread, 1)
            await start.is_over.wait()
        except BaseException:
            self._give_up_from_loop(start)
            await outlast(start.is_over)
            raise
        finally:
            self._unsettled.discard(start)
        if start.error is not None:
            raise start.error
        assert start.ending is not None
        return start.ending

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run starts while the block is open; callers must end before the block is left.

        Raises:
            OSError: There are no file descriptors left.
        """
        with ExitStack() as stack:
            self._epoll = stack.enter_context(select.epoll())
            self._to_thread, self._to_loop = (_open_eventfd(stack) for _ in range(2))
            self._epoll.register(self._to_thread, READ)
            async with Tasks() as tasks:
                # Starts that are cancelled with this block must still be notified of their end.
                scope = anyio.CancelScope(shield=True)
                tasks.start_soon(self._serve, scope)
                try:
                    yield
                finally:
                    scope.cancel()

    async def _serve(self, scope: anyio.CancelScope) -> None:
        with scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._relay)
                while True:
                    await self._has_work.wait()
                    self._has_work = anyio.Event()
                    try:
                        await run_blocking(self._work, limiter=anyio.CapacityLimiter(1))
                    except Exception as error:  # noqa: BLE001 - it belongs to the callers of `run`
                        # A defect of the whole thread fails all starts.
                        self._waiting.clear()
                        for start in self._unsettled:
                            start.error = start.error or error
                            start.is_over.set()
                        _log.defect("launcher failed", error)

    async def _relay(self) -> None:
        while True:
            await anyio.wait_readable(self._to_loop)
            with suppress(BlockingIOError):
                os.eventfd_read(self._to_loop)
            while self._news:
                self._pass_on(*self._news.popleft())  # locals must not keep a start until the next

    def _pass_on(self, start: _Start, news: Callable[[], None]) -> None:
        try:
            news()
        except Exception as error:  # noqa: BLE001 - it belongs to the caller of `run`
            start.error = error
            self._give_up_from_loop(start)

    def _give_up_from_loop(self, start: _Start) -> None:
        self._given_up.append(start)
        os.eventfd_write(self._to_thread, 1)

    # -- in the thread ----------------------------------------------------------------------

    def _work(self) -> None:
        work = _Work(self._ramp, self._epoll, self._tell)
        try:
            while self._waiting or work.running:
                self._process(work)
        except BaseException:
            for start in work.running:  # stop counting the running starts
                self._ramp.end(start, is_ready=False)
            raise

    def _process(self, work: _Work) -> None:
        while self._given_up:
            start = self._given_up.popleft()
            if start in self._waiting:
                self._waiting.remove(start)
            work.end(start, Ending.GIVEN_UP)
        is_held_back = False
        if self._waiting:
            start = self._waiting[0]
            if self._ramp.begin(start):
                self._waiting.popleft()
                work.begin(start)
            else:
                is_held_back = True
                if (pace := self._ramp.update()) is not None:  # the load has changed
                    self._tell(start, partial(start.on_pace, pace))
        limit = work.seconds_to_timer() if work.running else 0.0
        if self._waiting:
            limit = min(limit, LOOK_INTERVAL_S) if is_held_back else 0.0
        for fd, _ in self._epoll.poll(None if limit == math.inf else limit):
            if fd == self._to_thread:
                with suppress(BlockingIOError):
                    os.eventfd_read(fd)
            else:
                work.on_event(fd)
        work.on_time()

    def _tell(self, start: _Start, news: Callable[[], None]) -> None:
        self._news.append((start, news))
        os.eventfd_write(self._to_loop, 1)


def _open_eventfd(stack: ExitStack) -> int:
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


class _Work:
    """The running starts in the thread.

    Args:
        ramp: Notified when a start ends.
        epoll: Polled by the thread.
        tell: Calls a function on behalf of a start in the event loop.

    Attributes:
        running: The starts.
    """

    def __init__(
        self, ramp: Ramp, epoll: select.epoll, tell: Callable[[_Start, Callable[[], None]], None]
    ) -> None:
        self._ramp = ramp
        self._epoll = epoll
        self._tell = tell
        self.running: set[_Start] = set()
        self._by_fd: dict[int, _Start] = {}
        self._timers: list[tuple[float, int, _Start]] = []
        self._serial: Iterator[int] = itertools.count(1)
        self._has_warned = False

    def seconds_to_timer(self) -> float:
        """Return the seconds until the next timer; ``math.inf`` without timers."""
        while self._timers and self._timers[0][1] != self._timers[0][2].timer:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else math.inf

    def begin(self, start: _Start) -> None:
        """Bring an instance up, and start to probe it."""
        self.running.add(start)
        try:
            pidfd = start.instance.bring_up()
            self._tell(start, start.on_spawned)
            start.looks_at = time.monotonic() + start.look_interval
            start.steps = start.instance.running.look_until_ready(self._ramp.fastest_s)
            if pidfd < 0:
                self.end(start, Ending.EXITED)
                return
            start.pidfd = pidfd
            self._by_fd[pidfd] = start
            self._epoll.register(pidfd, READ)
        except Exception as error:  # noqa: BLE001 - it belongs to the caller of `Launcher.run`
            self.end(start, Ending.FAILED, error)
        else:
            self._advance(start, lambda steps: next(steps))

    def on_event(self, fd: int) -> None:
        """Handle an event of a descriptor: an exit, or the event that a probe waits for."""
        start = self._by_fd.get(fd)
        if start is None:
            with suppress(OSError):  # left over from a defect
                self._epoll.unregister(fd)
        elif fd == start.pidfd:
            self.end(start, Ending.EXITED)
        else:
            self._advance(start, lambda steps: steps.send(True))

    def on_time(self) -> None:
        """Handle the timers that have expired."""
        while self.seconds_to_timer() == 0.0:
            _, _, start = heapq.heappop(self._timers)
            start.timer = 0
            try:
                now = time.monotonic()
                if now >= start.looks_at:
                    start.looks_at = now + start.look_interval
                    start.look_interval *= 2  # checks of many slow starts must not delay them
                    self._look_for_obstacle(start)
                if now >= start.waits_until:
                    self._advance(start, lambda steps: steps.send(False))
                else:
                    self._set_timer(start)
            except Exception as error:  # noqa: BLE001 - it belongs to the caller of `Launcher.run`
                self.end(start, Ending.FAILED, error)

    def _look_for_obstacle(self, start: _Start) -> None:
        """Warn about the reason why a slow start is not ready, once for all starts.

        Raises:
            NeverReady: The reason is final.
        """
        obstacle = None
        with suppress(OSError):  # for lack of descriptors; the start fails for the same reason
            obstacle = start.instance.running.find_obstacle(all_processes().values())
        if obstacle is None:
            return
        if obstacle.is_final:
            raise NeverReady(obstacle)
        if not self._has_warned:
            self._has_warned = True
            text = f"the world is not ready: {obstacle}; {obstacle.hint}"
            _log.warning(text, instance=start.instance.name)

    def _advance(self, start: _Start, resume: Callable[[Steps], Wait]) -> None:
        try:
            self._forget_wait(start)
            assert start.steps is not None
            try:
                wait = resume(start.steps)
            except StopIteration as end:
                if end.value:
                    start.instance.settle()
                self.end(start, Ending.READY if end.value else Ending.LATE)
            else:
                self._wait_for(start, wait)
        except Exception as error:  # noqa: BLE001 - it belongs to the caller of `Launcher.run`
            self.end(start, Ending.FAILED, error)

    def _wait_for(self, start: _Start, wait: Wait) -> None:
        if wait.fd >= 0:
            self._epoll.register(wait.fd, wait.events)
            self._by_fd[wait.fd] = start
        start.waits_for_fd = wait.fd
        start.waits_until = time.monotonic() + max(0.0, wait.seconds)
        self._set_timer(start)

    def _set_timer(self, start: _Start) -> None:
        at = min(start.waits_until, start.looks_at)
        if at < math.inf:
            start.timer = next(self._serial)
            heapq.heappush(self._timers, (at, start.timer, start))

    def _forget_wait(self, start: _Start) -> None:
        start.timer = 0
        if start.waits_for_fd >= 0:
            del self._by_fd[start.waits_for_fd]
            self._epoll.unregister(start.waits_for_fd)
            start.waits_for_fd = -1

    def end(self, start: _Start, ending: Ending, error: Exception | None = None) -> None:
        """Stop watching a start, and report its outcome to the caller."""
        if start.ending is not None:
            return
        start.ending, start.error = ending, start.error or error
        is_running = start in self.running
        self.running.discard(start)
        try:
            self._unwatch(start)
            if is_running:
                self._ramp.end(start, is_ready=ending is Ending.READY)
        except Exception as defect:  # noqa: BLE001 - it belongs to the caller of `Launcher.run`
            start.error = start.error or defect
        finally:
            self._tell(start, start.is_over.set)

    def _unwatch(self, start: _Start) -> None:
        self._forget_wait(start)
        if start.steps is not None:
            start.steps.close()
        if start.pidfd >= 0:
            del self._by_fd[start.pidfd]
            self._epoll.unregister(start.pidfd)
