"""The VM: one heap of Luau values, its globals, and how the host enters it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import length_hint
from types import FunctionType
from typing import Any
from weakref import WeakSet

from clawblox.luau.core import iteration, operators
from clawblox.luau.core.context import MAX_C_CALLS, MAX_C_CALLS_IN_HANDLER, current
from clawblox.luau.core.deep import MAX_CALLS, call_limit, run_deep
from clawblox.luau.core.errors import LuaError, OutOfMemory, RuntimeFault, SnapshotError
from clawblox.luau.core.limits import (
    BYTES_A_STEP,
    STEP_BYTES,
    STEPS_A_COLLECTION,
    Budget,
    Charge,
    batch,
    free_of_charge,
)
from clawblox.luau.core.machine import Coroutine
from clawblox.luau.core.numbers import format_number
from clawblox.luau.core.random import DEFAULT_SEED, PcgRandom
from clawblox.luau.core.values import (
    Function,
    LuaTable,
    as_result,
    as_tuple,
    freeze,
    own_user_class,
    read_serial,
    set_metatable,
    set_serial,
    table_key,
    type_name,
)
from clawblox.luau.lib.global_table import build_globals
from clawblox.luau.lib.support.garbage import collect
from clawblox.luau.lib.support.registry import BUILTINS
from clawblox.luau.runtime import suspension
from clawblox.luau.runtime.chunk import CheckedFunction, Chunk
from clawblox.luau.runtime.coroutines import close, resume
from clawblox.luau.runtime.diagnose import to_luau_error
from clawblox.luau.runtime.host import Host, to_luau
from clawblox.luau.runtime.measure import heap_bytes
from clawblox.luau.state.restore import Loader
from clawblox.luau.state.snapshot import Saver

NAMES: dict[str, Any] = {
    "T": LuaTable,
    "Y": suspension.Yield,
    "CALL": iteration.CALL,
    "ONCE": iteration.ONCE,
    "INF": float("inf"),
    "add": operators.add,
    "sub": operators.sub,
    "mul": operators.mul,
    "div": operators.div,
    "idiv": operators.idiv,
    "mod": operators.mod,
    "power": operators.power,
    "minus": operators.minus,
    "length": operators.length,
    "less": operators.less,
    "less_equal": operators.less_equal,
    "equal": operators.equal,
    "concat": operators.concat,
    "concat_all": operators.concat_all,
    "interpolate": operators.interpolate,
    "put": operators.put,
    "text_field": operators.text_field,
    "as_key": table_key,
    "text": format_number,
    "table_of": operators.table_without_nil,
    "table_with": operators.table_with,
    "place": operators.place,
    "large": operators.account_table,
    "many": as_result,
    "adjust": operators.adjust,
    "first_of": operators.take_values,
    "count": iteration.count,
    "count_on": iteration.count_on,
    "iterate": iteration.iterate,
    "save": suspension.save,
}
"""What generated code may call; a name's length is part of what code costs, so it stays."""


class VM:
    """A Luau virtual machine.

    Args:
        steps: How many steps (loop iterations and calls) one call from the host may take; None
            means no limit.
        memory_bytes: An estimate of the heap above which allocating fails; None means no limit.
        output: Receives what ``print`` prints, one line without its end; None drops it.
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        memory_bytes: int | None = None,
        output: Callable[[str], None] | None = None,
    ) -> None:
        self.step_limit = steps
        self.memory_limit = memory_bytes
        self.block_limit: int | None = None  # the largest single allocation
        self.output = output
        self.c_calls = 0
        self.base_c_calls = 0
        self.depth = 0
        self.has_headroom = False  # on a stack that was full
        self.running: Coroutine | None = None
        self.error_stack: str | None = None
        self.random = PcgRandom(DEFAULT_SEED)
        self.chunks: WeakSet[Chunk] = WeakSet()
        self.roots: dict[str, Any] = {}  # what the host keeps, and snapshots save
        self._budget = Budget()
        self.steps: Iterator[Any] = batch(0)
        self.serials_given = 0
        self.allocated = 0
        self._compiling = 0  # bytes that the compiler takes at the time
        self.steps_since_collection = 0
        self._names = {
            **NAMES,
            "more": self.more_steps,
            "hold": self.hold,
            "deeper": self.deeper,
            "shallower": self.shallower,
        }
        self.globals, self.string_library = build_globals()
        self.main_environment: Any = self.globals
        self.main_coroutine: Coroutine | None = None
        self.has_weak_tables = False
        self.string_metatable = LuaTable()
        self.string_metatable["__index"] = self.string_library
        self.string_metatable["__metatable"] = "The metatable is locked"
        freeze(self.string_metatable)
        self.clock: Callable[[], float] = time.perf_counter
        self.wall_clock: Callable[[], float] = time.time

    # Loading and calling

    def load(self, source: str | bytes, name: str = "=script", environment: Any = None) -> Any:
        """Compile a chunk; return its main function.

        Args:
            source: Its text; a ``str`` is taken as UTF-8.
            name: Its name: ``=x`` and ``@x`` show as x in messages.
            environment: The table of its globals; None means the VM's globals.

        Raises:
            LuauSyntaxError: The source is not Luau.
        """
        text = source.encode() if isinstance(source, str) else source
        shown = to_luau(name)  # it is in messages, which scripts see
        chunk = run_deep(lambda: self.compile(text.decode("latin-1"), shown))
        return chunk.main(self.globals if environment is None else environment)

    def compile(self, source: str, name: str, charge: Charge = free_of_charge) -> Chunk:
        """Compile a chunk of Latin-1 source.

        Args:
            source: Its text.
            name: Its name.
            charge: Called with a number of steps before the work they stand for.
        """
        chunk = Chunk(source, name, self._names, charge)
        chunk.namespace["B"] = self.steps
        self.chunks.add(chunk)
        return chunk

    def load_charged(self, source: str, name: str, environment: Any) -> Function:
        """Compile a chunk for the running script, which is charged steps and memory.

        Args:
            source: Its text, one character a byte.
            name: Its name.
            environment: The table of its globals.

        Returns:
            Its main function.

        Raises:
            LuaError: It is not Luau, or `more_steps` says what.
        """
        outer = self._compiling
        try:
            chunk = self.compile(source, name, self._charge_compiling)
        finally:
            self._compiling = outer
        return chunk.main(environment)

    def _charge_compiling(self, steps: int) -> None:
        """Take steps for compiling, which needs memory until it ends."""
        self.charge(steps)
        self._compiling += steps * STEP_BYTES

    def new_environment(self) -> LuaTable:
        """Return the globals of one script: its own table, which falls back on the VM's."""
        environment, meta = LuaTable(), LuaTable()
        meta["__index"] = self.globals
        freeze(meta)
        own_user_class(meta)
        set_metatable(environment, meta)
        return environment

    def sandbox(self) -> None:
        """Make the libraries and the globals read-only; scripts get environments of their own."""
        for value in self.globals.values():
            if isinstance(value, LuaTable) and value is not self.globals:
                freeze(value)
        freeze(self.globals)

    def coroutine(self, function: Any) -> Coroutine:
        """Return a coroutine that will run a function."""
        return Coroutine(function, self.main_environment)

    def call(self, function: Any, *arguments: Any) -> tuple[Any, ...]:
        """Call a Luau function that does not yield; return its results.

        Raises:
            LuaError: The function failed.
        """
        return self._run(lambda: self._call(function, arguments))

    def _run(self, function: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Run a call of the host; an exception that hits the waiting thread ends the script."""
        was_interrupted = self._budget.is_interrupted
        try:
            return run_deep(function, self.interrupt)
        except LuaError:
            raise
        except BaseException:
            self._budget.is_interrupted = was_interrupted
            raise

    def _call(self, function: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        with self.entered():
            self.c_calls += 1  # nothing in it may yield past the host
            try:
                return as_tuple(function(*arguments))
            except Exception as error:  # noqa: BLE001 - to_luau_error raises what is not the script's
                raise to_luau_error(error) from None
            finally:
                self.c_calls -= 1

    def resume(self, coroutine: Coroutine, *values: Any) -> tuple[Any, ...]:
        """Run a coroutine until it yields or returns; return those values.

        Raises:
            LuaError: It failed, or it cannot be resumed.
        """
        return self._run(lambda: self._resume(coroutine, values))

    def _resume(self, coroutine: Coroutine, values: tuple[Any, ...]) -> tuple[Any, ...]:
        with self.entered():
            ok, result = resume(coroutine, values)
        if ok:
            return result
        raise coroutine.error or LuaError(result[0])

    def close(self, coroutine: Coroutine) -> None:
        """Kill a suspended coroutine."""
        with self.entered():
            close(coroutine)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this the thread's VM, with a fresh budget if the host enters it."""
        outer = getattr(current, "vm", None)
        if outer is self:
            yield
            return
        current.vm = self
        self._renew_steps()
        try:
            yield
        finally:
            if outer is None:
                del current.vm
            else:
                current.vm = outer

    @property
    def is_running(self) -> bool:
        """Whether a call is under way on this thread."""
        return getattr(current, "vm", None) is self

    # Snapshots

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as a JSON-able document.

        Raises:
            SnapshotError: A script is running, or something the host has not registered is in
                reach.
        """
        if self.running is not None or self.is_running:
            raise SnapshotError("a VM cannot be saved while it runs")
        document: dict[str, Any] = run_deep(Saver(self).save)
        return document

    @classmethod
    def restore(
        cls,
        document: dict[str, Any],
        *,
        host: Host | None = None,
        sources: Mapping[str, str] | None = None,
        **options: Any,
    ) -> VM:
        """Return a new VM in the state of a document.

        Args:
            document: What `snapshot` returned, here or in another process.
            host: Supplies the functions and objects that the document names.
            sources: Current sources by chunk name, to be compared with the saved ones; None
                compares nothing.
            options: Those of the constructor.

        Raises:
            SnapshotError: The document is of another format or version, a source has changed, or
                the host lacks something.
        """
        vm = cls(**options)
        run_deep(Loader(vm, document, host, sources).load)
        return vm

    # Limits

    def _renew_steps(self) -> None:
        self.c_calls = self.base_c_calls = self.depth = 0
        self._budget.steps_left = self.step_limit
        self._set_steps(0)

    def _set_steps(self, size: int) -> None:
        self.steps = batch(size)
        for chunk in self.chunks:
            chunk.namespace["B"] = self.steps

    def more_steps(self) -> None:
        """Hand out the next batch of steps.

        Raises:
            LuaError: The call has used up its steps or its memory, or is interrupted.
        """
        size = self._budget.take_batch()
        self._charge_memory(size)
        self._set_steps(size)

    def charge(self, steps: int) -> None:
        """Take steps of a script's loop at once; `more_steps` says what it raises."""
        self.charge_work(steps)
        self._charge_memory(steps)

    def charge_work(self, steps: int) -> None:
        """Take steps for work that adds nothing to the heap; `more_steps` says what it raises."""
        left = self._budget.steps_left
        if left is not None and left < steps:  # what is left of the batch counts as well
            self._budget.steps_left = left + length_hint(self.steps)
            self._set_steps(0)
        self._budget.take(steps)

    def charge_search(self) -> None:
        """Take steps for going through the whole heap; `more_steps` says what it raises."""
        heap_bytes(self, sys._getframe())

    def _charge_memory(self, steps: int) -> None:
        self._account(steps * STEP_BYTES)
        if self.has_weak_tables:
            self.steps_since_collection += steps
            if self.steps_since_collection >= STEPS_A_COLLECTION:
                self.steps_since_collection = 0
                collect()

    def deeper(self) -> None:
        """Count a call, where the interpreter does not."""
        self.depth += 1
        if self.depth > MAX_CALLS:
            self.depth -= 1
            raise RuntimeFault("stack overflow")

    def protect(self) -> None:
        """Count a protected call, with the stack at its usual size."""
        if self.has_headroom:
            sys.setrecursionlimit(call_limit())
            self.has_headroom = False
        self.depth += 1
        if self.depth > MAX_CALLS:
            self.depth -= 1
            raise RuntimeFault("stack overflow")

    def shallower(self) -> None:
        """Count the end of a call."""
        self.depth -= 1

    def interrupt(self) -> None:
        """Make the script that runs on another thread fail soon, until `clear_interrupt`."""
        self._budget.is_interrupted = True

    def clear_interrupt(self) -> None:
        """Let scripts run again."""
        self._budget.is_interrupted = False

    def check_c_calls(self) -> None:
        """Refuse callbacks within callbacks that nest too deep."""
        if self.c_calls == MAX_C_CALLS:
            fault = RuntimeFault("C stack overflow")
            fault.c_calls = self.c_calls
            raise fault
        if self.c_calls >= MAX_C_CALLS_IN_HANDLER:
            raise LuaError("error in error handling")

    def allocate(self, size: int) -> None:
        """Account for bytes about to be allocated, and charge for filling them.

        Raises:
            OutOfMemory: There is no room for them.
            LuaError: The call has used up its steps, or is interrupted.
        """
        if self.block_limit is not None and size > self.block_limit:
            raise OutOfMemory
        self._account(size)
        if size >= BYTES_A_STEP:
            self.charge_work(size // BYTES_A_STEP)

    def hold(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Account for many values on their way to or from a call; return them."""
        self.allocate(8 * len(values))
        return values

    def _account(self, size: int) -> None:
        if self.memory_limit is None:
            return
        self.allocated += size
        if self.allocated > self.memory_limit:
            self._measure(size)

    def _measure(self, size: int) -> None:
        assert self.memory_limit is not None
        if size > self.memory_limit:
            raise OutOfMemory
        used = heap_bytes(self, sys._getframe()) + self._compiling
        if used + size > self.memory_limit:
            raise OutOfMemory
        self.allocated = used + size

    # Identity

    def identify(self, value: Any) -> str:
        """Return the text of a value that has no other: its type and serial number."""
        kind = type_name(value)
        return f"{kind}: 0x{self.serial_number(value):016x}"

    def serial_number(self, value: Any) -> int:
        """Return an object's serial number, giving it one at the first use."""
        if value.__class__ is CheckedFunction:
            value = value.function
        name = BUILTINS.find_name(value) if isinstance(value, FunctionType) else None
        if name is not None:
            return BUILTINS.serial_number(name)
        serial = read_serial(value)
        if serial is None:
            serial = self.next_serial()
            set_serial(value, serial)
        return serial

    def next_serial(self) -> int:
        """Return a new serial number."""
        self.serials_given += 1
        return 0x10000 + self.serials_given * 16
