"""Ticks, the threads that wait for them, and the failure of a script.

Every handler, script and callback runs in its own coroutine. A waiting thread has an entry here.
Due entries are resumed at the start of a tick, in the order in which they were added, after the
threads deferred by `task.defer`. A thread that has yielded without waiting does not have an entry:
it stays suspended until a script resumes it. An error ends its thread, and is counted. Errors of
limits, and of scripts that start with the world, halt the world. Time is counted in ticks to avoid
sums of floating-point numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final
from weakref import ref

from clawblox.engine import shapes
from clawblox.engine.errors import WorldHalted
from clawblox.engine.saved_state import (
    VALUE,
    Layouts,
    SavedState,
    derive_shape,
    entries,
    from_json,
    keys,
    object_slot,
    to_json,
)
from clawblox.engine.shapes import Omittable
from clawblox.engine.slots import Slots
from clawblox.engine.thread_records import ENTRY, Entry, Report, ThreadErrors, ThreadSearch
from clawblox.luau import VM, Coroutine, LuaError, suspend
from clawblox.luau.core.errors import FULL
from clawblox.luau.core.limits import EXHAUSTED
from clawblox.luau.runtime.diagnose import describe, suspended_levels
from clawblox.luau.runtime.suspension import Yield

TICK_RATE: Final = 60
"""Ticks per second of simulation time."""
TICK_S: Final = 1.0 / TICK_RATE
"""Simulated length of a tick, in seconds."""

_LONGEST_S: Final = 1e15
"""Longest wait that ends; longer waits count as endless, in seconds."""


def ticks_in(seconds: float) -> int:
    """Return the number of ticks after which a wait is over, at least 1."""
    if not seconds > 0:
        return 1
    if seconds > _LONGEST_S:
        return 1 << 61  # a snapshot can represent the sum with any tick
    return max(1, math.ceil(seconds * TICK_RATE - 1e-9))


START_STEPS: Final = 20
"""Cost of starting or resuming a thread, in steps."""
_ENTRIES_PER_STEP: Final = 8  # in a search among the waiting threads
_MOST_WARNINGS: Final = 100  # remembered per world; scripts choose the texts of some
_LONGEST_TEXT: Final = 4000  # of an error in the log
_DEEPEST_DEFER: Final = 80
_TOO_DEEP: Final = (
    f"task.defer is nested more than {_DEEPEST_DEFER} deep: the rest runs in the next tick"
)
_LOST: Final = (
    "a thread has yielded and nothing refers to it, so it never resumes; task.wait() waits for the "
    "next tick"
)


class Phase:
    """A named block of engine work, for the text of a halted world.

    Raises:
        WorldHalted: The block raised a script error, because the engine's work has used up the
            budget.
    """

    __slots__ = ("_outer", "_scheduler", "_where")

    def __init__(self, scheduler: Scheduler, where: str) -> None:
        self._scheduler = scheduler
        self._where = where

    def __enter__(self) -> None:
        """Enter the block."""
        self._outer, self._scheduler.where = self._scheduler.where, self._where

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Leave the block."""
        try:
            if isinstance(error, LuaError):
                raise self._scheduler.halt(error) from error
        finally:
            self._scheduler.where = self._outer


class Scheduler(SavedState):
    """The waiting threads of a world.

    Args:
        vm: The VM of the scripts.
        warn: Called with the text of a warning.
        report: Logs an error that has ended a thread; None to warn instead.

    Attributes:
        tick: Number of ticks since the world started.
        where: Current work of the engine, for the text of a halted world.
        searches: Functions that read searches from a snapshot, by kind.
        vm: The VM of the scripts; a restore replaces it.
        errors: The errors that have ended threads.
        halts_on_error: Whether an uncaught error of any thread halts the world. Even then, an error
            in the first run of ``task.spawn`` is only a warning.
    """

    layouts: ClassVar[Layouts] = {"tick": shapes.whole, "_warned": keys(shapes.text)}
    late: ClassVar[Layouts] = {
        "errors": ThreadErrors,
        "_deferred": entries(object_slot(Coroutine), [VALUE]),
    }
    shape: ClassVar[shapes.Shape] = {
        **{name.lstrip("_"): derive_shape(layout) for name, layout in layouts.items()},
        "waiting": derive_shape([ENTRY]),
        **{name.lstrip("_"): Omittable(derive_shape(layout)) for name, layout in late.items()},
    }

    def __init__(self, vm: VM, warn: Callable[[str], None], report: Report | None = None) -> None:
        self.vm = vm
        self.tick = 0
        self.errors = ThreadErrors(report or (lambda error, _: warn(str(error))))
        self.halts_on_error = False
        self.where = "Failed to load script"
        self.searches: dict[str, Callable[[list[Any], Slots], ThreadSearch]] = {}
        self.warn = warn
        self._next_pass = 0  # the next tick in which due threads are resumed
        self._entries: dict[int, Entry] = {}
        self._made = 0
        self._parked: dict[Coroutine, int] = {}  # 0: resumed by other code
        self._deferred: dict[Coroutine, Sequence[Any]] = {}
        self._yielded: dict[
            Coroutine, str
        ] = {}  # yielded without waiting in the current call, with line
        self._warned: dict[str, None] = {}

    @property
    def time(self) -> float:
        """Simulation time in seconds."""
        return self.tick / TICK_RATE

    def phase(self, where: str) -> Phase:
        """Return a named block of engine work, for the text of a halted world."""
        return Phase(self, where)

    # Running

    def run(self, function: Any, *values: Any) -> Coroutine:
        """Run a function in its own thread, up to its first wait; return the thread.

        No steps are charged: a caller that runs many functions must charge for them.

        Raises:
            WorldHalted: The function fails, and the error halts the world.
        """
        thread = self.vm.coroutine(function)
        self.resume(thread, values)
        return thread

    def resume(self, thread: Coroutine, values: Sequence[Any]) -> None:
        """Resume a thread up to its next wait.

        Raises:
            WorldHalted: The thread fails, and the error halts the world.
        """
        try:
            self._advance(thread, values)
        except LuaError as error:
            self._fail_thread(thread, error)

    def _fail_thread(self, thread: Coroutine, error: LuaError) -> None:
        if thread.ended is None or self._is_limit(
            error
        ):  # otherwise the resuming thread has received the error
            self.fail(error)

    def start(self, thread: Coroutine) -> None:
        """Run the thread of a script, up to its first wait.

        Raises:
            WorldHalted: The thread fails before the end of the first tick, or the error halts the
                world at any time.
        """
        try:
            self._advance(thread, ())
        except LuaError as error:
            self.fail_start(error)

    def fail_start(self, error: LuaError) -> None:
        """Handle the error of a script before its first wait.

        Raises:
            WorldHalted: The world has not run its first tick, or the error halts it at any time.
        """
        if self.tick == 0:
            raise self.halt(error) from error
        self.fail(error)

    def fail(self, error: LuaError) -> None:
        """Count the error that has ended a thread.

        Raises:
            WorldHalted: The scripts have reached a limit, or halt on every error.
        """
        failure = self.halt(error)
        if self.halts_on_error or self._is_limit(error):
            raise failure from error
        self.errors.add(failure, self.tick)

    def halt(self, error: LuaError) -> WorldHalted:
        """Return the exception that stops the world because of an error of a script."""
        text = str(error)
        if len(text) > _LONGEST_TEXT:
            text = f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
        return WorldHalted(self.where, text + self._limit_text(error), error.traceback)

    def _limit_text(self, error: LuaError) -> str:
        """Return a hint where the limit in an error is set; empty for other errors."""
        vm, text = self.vm, str(error)
        if vm.limit_hit is not None and text.endswith(FULL):
            return f": {(vm.memory_limit or 0) >> 20} MiB ([clawblox] memory_mib in world.toml)"
        if vm.limit_hit == "steps" and text.endswith(EXHAUSTED):
            return f": {vm.step_limit} ([clawblox] steps_per_tick in world.toml)"
        return ""

    def _is_limit(self, error: LuaError) -> bool:
        """Return whether an error comes from a limit, and therefore always halts the world."""
        return (
            self.vm.is_interrupted or self.vm.limit_hit == "steps" or bool(self._limit_text(error))
        )

    def charge(self, steps: int) -> None:
        """Charge steps for work of the engine that a script has requested.

        Raises:
            LuaError: The scripts have used up the steps of this tick.
        """
        self.vm.charge_work(steps)

    def _advance(self, thread: Coroutine, values: Sequence[Any]) -> None:
        if thread in self._parked or thread in self._yielded:
            self._forget(thread)
        self.vm.resume(thread, *values)
        if thread.status == "suspended" and thread not in self._parked:
            self._yielded[thread] = describe(suspended_levels(thread.frames[-1:])).rstrip()

    def _forget(self, thread: Coroutine) -> None:
        self._entries.pop(self._parked.pop(thread, 0), None)
        self._deferred.pop(thread, None)
        self._yielded.pop(thread, None)

    def spawn(self, target: Any, values: tuple[Any, ...]) -> Coroutine:
        """Run a function or thread immediately, like ``task.spawn``.

        Raises:
            WorldHalted: The function or thread reaches a limit.
        """
        thread = self._as_thread(target)
        try:
            self._advance(thread, values)
        except LuaError as error:
            if self.halts_on_error and not self._is_limit(error):
                self.warn(f"task.spawn error: {error}")
            else:
                self._fail_thread(thread, error)
        return thread

    def warn_of_lost_threads(self) -> None:
        """Warn of unreferenced threads that have yielded without waiting.

        The engine calls it at the end of each external call, to make the warnings depend on the
        scripts alone.
        """
        if not self._yielded:
            return
        yielded, self._yielded = self._yielded, {}
        threads = [
            (ref(thread), place)
            for thread, place in yielded.items()
            if thread.status == "suspended"
        ]
        yielded.clear()
        for thread, place in threads:
            if thread() is None:
                self.warn_once(f"{place}: {_LOST}")

    def _as_thread(self, target: Any) -> Coroutine:
        self.charge(START_STEPS)
        return target if isinstance(target, Coroutine) else self.vm.coroutine(target)

    def warn_once(self, text: str) -> None:
        """Warn, unless the warning is a repetition or the world has reached its maximum."""
        if text not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned[text] = None
            self.warn(text)

    # Waiting

    def start_later(self, seconds: float, target: Any, values: tuple[Any, ...]) -> Coroutine:
        """Start a function, or resume a thread, after a number of seconds."""
        thread = self._as_thread(target)
        self._add(Entry(self._due_after(seconds), self.tick, thread, values))
        return thread

    def defer(self, target: Any, values: tuple[Any, ...]) -> Coroutine:
        """Start a function, or resume a thread, before waiting threads are resumed next."""
        thread = self._as_thread(target)
        self._forget(thread)
        self._parked[thread] = 0
        self._deferred[thread] = values
        return thread

    def _due_after(self, seconds: float) -> int:
        return self.tick + ticks_in(seconds) if seconds > 0 else self._next_pass

    def wait(self, seconds: float) -> Yield:
        """Let the running thread wait; return the exception to raise.

        The wait returns the elapsed seconds to the thread.

        Raises:
            LuaError: The thread cannot be suspended here.
        """
        suspension = suspend()
        self._add(Entry(self._due_after(seconds), self.tick, self._running(), None))
        return suspension

    def wait_for(self, search: ThreadSearch) -> Yield:
        """Let the running thread search once per tick; return the exception to raise.

        Raises:
            LuaError: The thread cannot be suspended here.
        """
        suspension = suspend()
        self._add(Entry(self._next_pass, self.tick, self._running(), (), search))
        return suspension

    def park(self) -> tuple[Coroutine, Yield]:
        """Let the running thread wait until the engine resumes it with `resume`.

        Returns:
            The thread, and the exception to raise.

        Raises:
            LuaError: The thread cannot be suspended here.
        """
        suspension = suspend()
        thread = self._running()
        self._forget(thread)
        self._parked[thread] = 0
        return thread, suspension

    def cancel(self, thread: Coroutine) -> None:
        """Drop a waiting thread; no effect on a dead thread.

        Raises:
            LuaError: The thread is running.
        """
        self._forget(thread)
        self.vm.close(thread)

    def _running(self) -> Coroutine:
        thread = self.vm.running
        assert thread is not None  # checked by `suspend`
        return thread

    def _add(self, entry: Entry) -> None:
        self._forget(entry.thread)
        self._made += 1
        self._entries[self._made] = entry
        self._parked[entry.thread] = self._made

    def resume_due(self) -> None:
        """Resume every due thread, in the order in which they started to wait.

        Deferred threads come first. Threads deferred by the resumed threads come last.

        Raises:
            WorldHalted: A thread fails, and the error halts the world.
        """
        tick = self.tick
        self._next_pass = tick + 1
        if self._deferred:
            self._resume_deferred()
        self.charge(len(self._entries) // _ENTRIES_PER_STEP)
        due = [number for number, entry in self._entries.items() if entry.due <= tick]
        for number in due:
            entry = self._entries.get(number)
            if entry is not None:
                self._resume_entry(number, entry)
        if self._deferred:
            self._resume_deferred()

    def _resume_deferred(self) -> None:
        """Resume the deferred threads, then the threads that they have deferred, and so on."""
        for _ in range(_DEEPEST_DEFER):
            if not self._deferred:
                return
            for thread in tuple(self._deferred):
                values = self._deferred.get(thread)
                if values is not None:
                    self.charge(START_STEPS)
                    self._resume_if_suspended(thread, values)
        if self._deferred:
            self.warn_once(_TOO_DEEP)

    def _resume_if_suspended(self, thread: Coroutine, values: Sequence[Any]) -> None:
        if thread.status == "suspended":
            self.resume(thread, values)
        else:
            self._forget(thread)

    def _resume_entry(self, number: int, entry: Entry) -> None:
        self.charge(START_STEPS)
        values = entry.values
        if entry.search is not None:
            values = entry.search.find(self.tick)
            if values is None:
                entry.due = self._next_pass
                return
        elif values is None:
            values = (max(1, self.tick - entry.since) / TICK_RATE,)
        del self._entries[number]
        self._resume_if_suspended(entry.thread, values)

    def held(self) -> Iterator[Any]:
        """Iterate over the values that the scheduler keeps alive, to count their memory."""
        for entry in self._entries.values():
            yield entry.thread
            yield from entry.values or ()
        for thread, values in self._deferred.items():
            yield thread
            yield from values
        yield from self._yielded

    # Snapshots

    def document(self, slots: Slots) -> dict[str, Any]:
        """Return time and waiting threads for a snapshot."""
        waiting = to_json([ENTRY], self._entries.values(), slots)
        return {**super().document(slots), "waiting": waiting}

    def restore(self, document: dict[str, Any], slots: Slots) -> None:
        """Restore time and waiting threads from a snapshot.

        Raises:
            ValueError: The snapshot is damaged.
        """
        super().restore(document, slots)
        self._next_pass = self.tick
        self._parked.update(dict.fromkeys(self._deferred, 0))
        for entry in from_json([ENTRY], document["waiting"], slots):
            if entry.search is not None:
                entry.search = self._read_search(entry.search, slots)
            self._add(entry)

    def _read_search(self, search: list[Any], slots: Slots) -> ThreadSearch:
        kind, *saved = search or [None]
        read = self.searches.get(kind) if kind.__class__ is str else None
        if read is None:
            raise ValueError(f"the snapshot has a thread that waits for {kind!r}, which is unknown")
        return read(saved, slots)

    def restore_parked(self, thread: Coroutine) -> None:
        """Register a restored thread as parked, unless it has an entry."""
        self._parked.setdefault(thread, 0)
