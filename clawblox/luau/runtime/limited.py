"""The limits of a call from the host: steps, memory, and depth."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from operator import length_hint
from types import FrameType
from typing import Any
from weakref import WeakSet

from clawblox.luau.core.deep import MAX_CALLS, call_limit
from clawblox.luau.core.errors import LuaError, OutOfMemory, RuntimeFault
from clawblox.luau.core.limits import (
    BATCH,
    BYTES_PER_STEP,
    CHUNK_BYTES,
    EXHAUSTED,
    INTERRUPTED,
    MOST_PATTERNS,
    ROOM_BYTES,
    STEP_BYTES,
    STEPS_PER_COLLECTION,
    TOKEN_BYTES,
    VECTOR_BYTES,
    Charge,
    free_of_charge,
)
from clawblox.luau.core.machine import MAX_C_CALLS, MAX_C_CALLS_IN_HANDLER, Machine
from clawblox.luau.core.operators import vector_operators
from clawblox.luau.core.values import Function, Vector
from clawblox.luau.runtime.chunk import Chunk
from clawblox.luau.runtime.heap import collect, heap_bytes

_STEPS_PER_SEARCH = 2000  # for the objects of the process outside the heap
_OBSERVED_STEPS = 200


class LimitedMachine(Machine):
    """The part of the VM that keeps scripts within their limits.

    Args:
        steps: Maximum number of steps of a call from the host; None for no limit.
        memory_bytes: Maximum estimated size of the heap; None for no limit.
        names: The names in generated code, except those of the VM's own methods.

    Attributes:
        steps: The iterator from which generated code takes its steps at very low cost; renewed in
            batches.
        steps_left: The steps not handed out yet; None for no limit. Negative after work that could
            not be refused.
        is_interrupted: Whether the host has interrupted the script.
        has_older_sizes: Whether the VM comes from a document with smaller sizes of values, and the
            heap has not been measured since.
        inherited: The excess over the limit of a heap from such a document. It does not count,
            because the limit applies to growth.
        limit_hit: The limit that the current or last call has hit: ``steps`` or ``memory``, or
            None. A call cannot continue without steps; after the error of a full heap, a script
            may catch the error, free memory and continue.
        observer: Called with the running frame when a call from the host takes its first steps,
            then every thousand steps, and before work that costs 200 or more; or None. `Places`
            reads the frame.
        is_sandboxed: Whether the host has made globals and libraries read-only.
    """

    def __init__(self, steps: int | None, memory_bytes: int | None, names: dict[str, Any]) -> None:
        super().__init__()
        self.step_limit = steps
        self.memory_limit = memory_bytes
        self.block_limit: int | None = None  # bytes of a single allocation
        self.chunks: WeakSet[Chunk] = WeakSet()
        self.steps_left: int | None = None
        self.is_interrupted = False
        self._interruption = INTERRUPTED
        self.limit_hit: str | None = None
        self.steps: Iterator[Any] = repeat(None, 0)
        # These know how many were taken, to count without cost.
        self._room = repeat(None, sys.maxsize)
        self._vectors = repeat(Vector, sys.maxsize)
        self._room_left = self._vectors_left = sys.maxsize
        self.blanks = map(object.__new__, self._vectors)
        self.has_older_sizes = False
        self.inherited = 0
        self._compiling = 0  # bytes that the compiler is using
        self.observer: Callable[[FrameType], None] | None = None
        self.steps_since_collection = 0
        self._patterns: set[str] = set()  # paid for by the current call
        self.serials_given = 0
        self.is_sandboxed = False
        self._names = {
            **names,
            **vector_operators(self.blanks),
            "more": self.more_steps,
            "A": self._room,
            "take_room": self.take_room,
            "hold": self.hold,
            "charge": self.charge,
            "deeper": self.deeper,
            "shallower": self.shallower,
        }

    def renew_steps(self) -> None:
        """Start a call from the host, with its full number of steps."""
        self.c_calls = self.base_c_calls = self.depth = 0
        self.steps_left = self.step_limit
        self.limit_hit = None
        self.draws = 0
        self._patterns.clear()
        self._set_steps(0)

    def steps_taken(self) -> int:
        """Return the steps taken by the current or last call from the host.

        Without a limit, only the steps since the last batch are known.
        """
        limit, left = self.step_limit or 0, self.steps_left or 0
        return limit - left - length_hint(self.steps)

    def _set_steps(self, size: int) -> None:
        self.steps = repeat(None, size)
        for chunk in self.chunks:
            chunk.namespace["B"] = self.steps

    def take_room(self, count: int) -> None:
        """Account for tables and functions that generated code is about to create.

        Raises:
            OutOfMemory: The heap is full.
            LuaError: The call has used up its steps, or the host has interrupted it.
        """
        self._account(count * ROOM_BYTES)

    def check_interrupt(self) -> None:
        """Check whether the host has interrupted the script.

        Raises:
            RuntimeFault: The host has interrupted the script.
        """
        if self.is_interrupted:
            raise RuntimeFault(self._interruption)

    def more_steps(self) -> None:
        """Hand out the next batch of steps.

        Raises:
            LuaError: The call has used up its steps or its memory, or the host has interrupted it.
        """
        if self.observer is not None:
            self.observer(sys._getframe(1))
        self.check_interrupt()
        size = BATCH
        if self.steps_left is not None:
            if self.steps_left <= 0:
                raise self._exhausted()
            size = min(BATCH, self.steps_left)
            self.steps_left -= size
        self.fill_made()
        self._account(size * STEP_BYTES)
        if self.has_weak_tables:
            self._count_to_collection(size)
        self._set_steps(size)

    def charge(self, steps: int) -> None:
        """Charge all steps of a script's loop, and account for the memory that it may fill.

        Raises:
            LuaError: The call has used up its steps or its memory, or the host has interrupted it.
        """
        self.charge_work(steps)
        if steps >= _OBSERVED_STEPS:  # otherwise the next batch of steps comes soon
            self.fill_made()
        self._account(steps * STEP_BYTES)
        if self.has_weak_tables:
            self._count_to_collection(steps)

    def charge_work(self, steps: int) -> None:
        """Charge steps for work that does not add to the heap.

        Raises:
            LuaError: The call has used up its steps, or the host has interrupted it.
        """
        if steps >= _OBSERVED_STEPS and self.observer is not None:
            self.observer(sys._getframe(1))
        if self.is_interrupted:
            self.check_interrupt()
        left = self.steps_left
        if left is None:
            return
        if left < steps:  # including the rest of the batch
            left += length_hint(self.steps)
            self._set_steps(0)
            if left < steps:
                self.steps_left = min(left, 0)
                raise self._exhausted()
        self.steps_left = left - steps

    def _exhausted(self) -> RuntimeFault:
        self.limit_hit = "steps"
        return RuntimeFault(EXHAUSTED)

    def is_new_pattern(self, pattern: str) -> bool:
        """Return whether a string pattern is new in this call from the host, and is charged.

        Each call pays for each pattern once, even if the process has parsed it before, so a
        restored VM pays the same. A call with very many patterns pays for them again.
        """
        if pattern in self._patterns:
            return False
        if len(self._patterns) == MOST_PATTERNS // 2:
            self._patterns.clear()
        self._patterns.add(pattern)
        return True

    def take_steps(self, steps: int) -> None:
        """Charge steps for work that cannot be refused; later work may fail for lack of steps."""
        if self.steps_left is not None:
            self.steps_left -= steps

    def charge_search(self) -> None:
        """Charge steps for a search of the whole heap.

        Raises:
            LuaError: The call has used up its steps, or the host has interrupted it.
        """
        self.charge_work(_STEPS_PER_SEARCH)
        heap_bytes(self, sys._getframe())

    def _count_to_collection(self, steps: int) -> None:
        self.steps_since_collection += steps
        if self.steps_since_collection >= STEPS_PER_COLLECTION:
            self.steps_since_collection = 0
            collect()

    def compile(self, source: str, name: str, charge: Charge = free_of_charge) -> Chunk:
        """Compile a chunk.

        Args:
            source: Its text, one character per byte.
            name: Its name.
            charge: Called with a number of steps before the work that they pay for.

        Raises:
            LuauSyntaxError: The source is not valid Luau.
            LuaError: `charge` refuses.
        """
        chunk = Chunk(source, name, self._names, charge)
        chunk.namespace["B"] = self.steps
        self.chunks.add(chunk)
        return chunk

    def load_charged(self, source: str, name: str, environment: Any) -> Function:
        """Compile a chunk, charging steps and memory to the running script.

        Args:
            source: Its text, one character per byte.
            name: Its name.
            environment: The table of its globals.

        Returns:
            Its main function.

        Raises:
            LuauSyntaxError: The source is not valid Luau.
            LuaError: The call has used up its steps or its memory, or the host has interrupted it.
        """
        outer = self._compiling
        try:
            chunk = self.compile(source, name, self._charge_compiling)
        finally:
            self._compiling = outer  # its memory is free again
        self.allocate(CHUNK_BYTES + TOKEN_BYTES * chunk.tokens, 0)
        return chunk.main(environment)

    def _charge_compiling(self, steps: int) -> None:
        self.charge(steps)
        self._compiling += steps * STEP_BYTES

    def deeper(self) -> None:
        """Count a call, if the interpreter does not.

        Raises:
            RuntimeFault: Calls are nested too deeply.
        """
        self.depth += 1
        if self.depth > MAX_CALLS:
            self.depth -= 1
            raise RuntimeFault("stack overflow")

    def protect(self) -> None:
        """Count a protected call, and remove the headroom for a full stack.

        Raises:
            RuntimeFault: Calls are nested too deeply.
            LuaError: Errors have used up the steps.
        """
        if (self.steps_left or 0) < 0:
            self.charge_work(0)
        if self.has_headroom:
            sys.setrecursionlimit(call_limit() + self.extra_calls)
            self.has_headroom = False
        self.depth += 1  # `deeper` would need a further call on a stack that may be full
        if self.depth > MAX_CALLS:
            self.depth -= 1
            raise RuntimeFault("stack overflow")

    def shallower(self) -> None:
        """Count the end of a call."""
        self.depth -= 1

    def interrupt(self, reason: str = INTERRUPTED) -> None:
        """Make the script on another thread fail soon, and every later script immediately.

        Args:
            reason: The text of the error.
        """
        self._interruption = reason
        self.is_interrupted = True
        deque(self.steps, maxlen=0)  # makes loops check immediately whether they may continue

    def check_c_calls(self) -> None:
        """Check the nesting of callbacks.

        Raises:
            LuaError: Callbacks are nested too deeply.
        """
        if self.c_calls == MAX_C_CALLS:
            fault = RuntimeFault("C stack overflow")
            fault.c_calls = self.c_calls
            raise fault
        if self.c_calls >= MAX_C_CALLS_IN_HANDLER:
            raise LuaError("error in error handling")

    def allocate(self, size: int, filled: int | None = None) -> None:
        """Account for bytes about to be allocated, and charge for filling them.

        Args:
            size: The number of allocated bytes.
            filled: The number of bytes charged for filling; None for all.

        Raises:
            OutOfMemory: The heap is full.
            LuaError: The call has used up its steps, or the host has interrupted it.
        """
        if filled is None:
            filled = size
        if self.block_limit is not None and filled > self.block_limit:
            raise self._out_of_memory()
        self._account(size)
        if filled >= BYTES_PER_STEP:
            self.charge_work(filled // BYTES_PER_STEP)

    def fill(self, size: int) -> None:
        """Account for bytes that cannot be refused; later allocations may fail."""
        if self.memory_limit is not None:
            self.allocated += size

    def fill_made(self) -> None:
        """Account for the tables, functions and vectors created since the last call."""
        if self.memory_limit is None:
            return
        room, vectors = length_hint(self._room), length_hint(self._vectors)
        self.allocated += (self._room_left - room) * ROOM_BYTES
        self.allocated += (self._vectors_left - vectors) * VECTOR_BYTES
        self._room_left, self._vectors_left = room, vectors

    def _out_of_memory(self) -> OutOfMemory:
        self.limit_hit = self.limit_hit or "memory"
        return OutOfMemory()

    def hold(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Account for many arguments or results of a call; return them.

        Raises:
            OutOfMemory: The heap is full.
            LuaError: The call has used up its steps, or the host has interrupted it.
        """
        self.allocate(8 * len(values))
        return values

    def _account(self, size: int) -> None:
        if self.memory_limit is None:
            return
        self.allocated += size
        if self.allocated > self.memory_limit + self.inherited:
            self._measure(size)

    def _measure(self, size: int) -> None:
        assert self.memory_limit is not None
        if size > self.memory_limit:
            raise self._out_of_memory()
        used = heap_bytes(self, sys._getframe()) + self._compiling
        if self.has_older_sizes:
            self.has_older_sizes = False
            self.inherited = used if used > self.memory_limit else 0
        if used + size > self.memory_limit + self.inherited:
            raise self._out_of_memory()
        self.allocated = used + size
