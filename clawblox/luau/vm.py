"""The VM: a heap of Luau values with its globals, its limits, and the calls of the host."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar

from clawblox.luau.core import iteration, operators
from clawblox.luau.core.deep import is_deep, run_deep
from clawblox.luau.core.errors import LuaError, VMSnapshotError
from clawblox.luau.core.machine import Coroutine, current
from clawblox.luau.core.numbers import format_number
from clawblox.luau.core.values import (
    LuaTable,
    Vector,
    as_result,
    as_tuple,
    freeze,
    own_user_class,
    set_metatable,
    table_key,
    type_name,
)
from clawblox.luau.lib import build_globals
from clawblox.luau.lib.support.registry import BUILTINS, LATE_NAMES, place_late
from clawblox.luau.runtime import suspension
from clawblox.luau.runtime.chunk import CheckedFunction
from clawblox.luau.runtime.coroutines import close, resume
from clawblox.luau.runtime.diagnose import to_luau_error
from clawblox.luau.runtime.host import Host, HostObject, lent_name, to_luau
from clawblox.luau.runtime.limited import LimitedMachine
from clawblox.luau.runtime.raw import PLAIN_VECTORS, VectorType
from clawblox.luau.state.restore import Loader
from clawblox.luau.state.snapshot import Saver

Result = TypeVar("Result")

_OPERATORS = """
    add adjust concat concat_all div equal idiv interpolate length less less_equal method minus mod
    mul place power put sub table_with text_field
"""
NAMES: dict[str, Any] = {
    **{name: getattr(operators, name) for name in _OPERATORS.split()},
    "T": LuaTable,
    "V": Vector,
    "Y": suspension.Yield,
    "CALL": iteration.CALL,
    "ONCE": iteration.ONCE,
    "INF": float("inf"),
    "as_key": table_key,
    "text": format_number,
    "table_of": operators.table_without_nil,
    "large": operators.account_table,
    "many": as_result,
    "first_of": operators.take_values,
    "count": iteration.count,
    "count_on": iteration.count_on,
    "iterate": iteration.iterate,
    "save_frame": suspension.save_frame,
}
"""The names in generated code. They must not change, since their length affects charged steps."""

_LENT_SERIALS = 1 << 40  # in addition to those of a VM


class VM(LimitedMachine):
    """A Luau virtual machine.

    Its calls may come from any thread, one at a time.

    Args:
        steps: Maximum number of steps (loop iterations and calls) of a call from the host; None
            for no limit.
        memory_bytes: Maximum estimated size of the heap; None for no limit.
        output: Called with each line that ``print`` prints, without its end; None to drop lines.
        vectors: The name and the members of vectors; by default as in the reference.
        late_names: Globals of the host, library fields with dots, that its first snapshots lacked,
            in the order in which they were added. Snapshots of a sandbox omit them until scripts
            hold them.

    Attributes:
        globals: The table of globals.
        roots: Values that the host needs after a restore, by names chosen by the host.
        held: Called when the heap is measured, to get the other values that the host keeps for
            scripts, such as waiting coroutines; an unknown value counts as 100 bytes.
        step_limit: The `steps` of the constructor; may be changed between calls.
        memory_limit: The `memory_bytes` of the constructor; may be changed between calls.
        block_limit: Maximum size of an allocation, in bytes; None for no limit.
        clock: The clock of ``os.clock``, in seconds.
        wall_clock: The clock of ``os.time`` and ``os.date``, in seconds since 1970.

    A host with simulated time must set both clocks. Snapshots do not include the clocks.
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        memory_bytes: int | None = None,
        output: Callable[[str], None] | None = None,
        vectors: VectorType = PLAIN_VECTORS,
        late_names: Sequence[str] = (),
    ) -> None:
        super().__init__(steps, memory_bytes, NAMES)
        self._late_names = (*LATE_NAMES, *late_names)
        self.vectors = vectors
        self._is_entered = False  # while a budget is in use
        self._is_ready = False  # the budget in use belongs to the current thread, which is deep
        self.output = output
        self.globals, self.string_library = build_globals()
        self.main_environment = self.globals
        self.string_metatable = LuaTable()
        self.string_metatable["__index"] = self.string_library
        self.string_metatable["__metatable"] = "The metatable is locked"
        freeze(self.string_metatable)

    # Loading and calling

    def load(self, source: str | bytes, name: str = "=script", environment: Any = None) -> Any:
        """Compile a chunk; return its main function.

        Args:
            source: Its text; a ``str`` is encoded as UTF-8.
            name: Its name; messages show ``=x`` and ``@x`` as x.
            environment: The table of its globals; None for the VM's globals.

        Raises:
            LuauSyntaxError: The source is not valid Luau.
        """
        text = source.encode() if isinstance(source, str) else source
        shown = to_luau(name)  # scripts see it in messages
        chunk = run_deep(lambda: self.compile(text.decode("latin-1"), shown))
        return chunk.main(self.globals if environment is None else environment)

    def new_environment(self) -> LuaTable:
        """Return the globals for a script: a new table that falls back on the VM's globals."""
        environment, meta = LuaTable(), LuaTable({"__index": self.globals})
        freeze(meta)
        own_user_class(meta)
        set_metatable(environment, meta)
        return environment

    def sandbox(self, *, writable: Sequence[str] = ()) -> None:
        """Make the globals and libraries read-only; scripts then need their own environments.

        Args:
            writable: Globals that become new tables, which scripts may change.
        """
        for value in self.globals.values():
            if isinstance(value, LuaTable) and value is not self.globals:
                freeze(value)
        self.globals.update((name, LuaTable()) for name in writable)
        self._place_late(self.globals)
        freeze(self.globals)

    def _place_late(self, fresh: LuaTable) -> None:
        self.is_sandboxed = True
        self.late = place_late(self._late_names, fresh, self.globals)

    def coroutine(self, function: Any) -> Coroutine:
        """Return a suspended coroutine that will run a function."""
        return Coroutine(function, self.main_environment)

    def call(self, function: Any, *arguments: Any) -> tuple[Any, ...]:
        """Call a Luau function that does not yield.

        Returns:
            Its results.

        Raises:
            LuaError: The function fails, yields, or reaches a limit.
            BaseException: An exception from a host function, or an exception such as
                KeyboardInterrupt in this thread, raised after ending the script.
        """
        if self._is_ready and current.vm is self:
            return self._call(function, arguments)
        return self._enter(lambda: self._call(function, arguments))

    def _call(self, function: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        self.c_calls += 1  # it cannot yield past the host
        try:
            return as_tuple(function(*arguments))
        except Exception as error:  # noqa: BLE001 - re-raises errors of the host
            raise to_luau_error(error) from None
        finally:
            self.c_calls -= 1

    def resume(self, coroutine: Coroutine, *values: Any) -> tuple[Any, ...]:
        """Run a coroutine until it yields or returns.

        Args:
            coroutine: The coroutine.
            values: Its arguments; or, if it has yielded, the results of the yield.

        Returns:
            The values that it yields or returns.

        Raises:
            LuaError: The coroutine fails, reaches a limit, or cannot be resumed.
            BaseException: An exception from a host function, or an exception such as
                KeyboardInterrupt in this thread, raised after ending the script.
        """
        if self._is_ready and current.vm is self:
            ok, result = resume(coroutine, values)
        else:
            ok, result = self._enter(lambda: resume(coroutine, values))
        if ok:
            return result
        raise coroutine.error or LuaError(result[0])

    def close(self, coroutine: Coroutine) -> None:
        """Kill a suspended coroutine.

        Raises:
            LuaError: The coroutine is running, or waiting for a coroutine that it has resumed.
        """
        with self.entered():
            close(coroutine)

    def _enter(self, function: Callable[[], Result]) -> Result:
        """Make a call for the host; an exception in the waiting thread ends the script."""
        was_interrupted = self.is_interrupted
        try:
            return run_deep(self.entered()(function), self.interrupt)
        except LuaError:
            raise
        except BaseException:
            self.is_interrupted = was_interrupted
            raise

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Give all calls within the block a common budget, as if they were one call.

        The limits of the VM apply to the block as a whole. Nested blocks, and calls that scripts
        make through the host, share the budget. Calls are fastest if the block runs within
        `run_deep`; elsewhere each call starts a thread.

            with vm.entered():
                for coroutine in due:
                    vm.resume(coroutine)

        Blocks of other VMs in between do not affect the budget.
        """
        outer, was_entered, was_ready = current.vm, self._is_entered, self._is_ready
        if not was_entered:
            self.renew_steps()
        self._is_entered = True
        self._is_ready = is_deep()
        current.vm = self
        try:
            yield
        finally:
            current.vm = outer
            if not was_entered:
                self.fill_made()
            self._is_entered, self._is_ready = was_entered, was_ready

    # Snapshots

    def snapshot(self, *, lent: list[HostObject] | None = None) -> dict[str, Any]:
        """Return the whole state as a JSON-able document.

        Args:
            lent: A list to which the host's objects in the document are added, each once; the host
                must find them by id in a restore.

        Raises:
            VMSnapshotError: A script is running; or a reachable value cannot be saved, such as a
                Python function that is not registered with the host.
        """
        if self._is_entered:
            raise VMSnapshotError("a VM cannot be saved while it runs")
        saver = Saver(self)
        document: dict[str, Any] = run_deep(saver.write_document)
        if lent is not None:
            lent += saver.lent.values()
        return document

    @classmethod
    def restore(
        cls,
        document: dict[str, Any],
        *,
        host: Host | None = None,
        sources: Mapping[str, str] | None = None,
        fresh: LuaTable | None = None,
        **options: Any,
    ) -> VM:
        """Return a new VM in the state of a document.

        Args:
            document: The document that `snapshot` returned, in this or another process.
            host: The host with the functions and objects in the document; None for a host without
                functions and objects.
            sources: The current sources by chunk name, to compare with the saved sources; None for
                no comparison.
            fresh: The globals of a new VM of this host, which provide a sandbox with the
                `late_names` missing in the document; None for a host without late names.
            options: The arguments of the constructor.

        Raises:
            VMSnapshotError: The document is damaged or has another version, a source has changed,
                or the host lacks a function or object.
        """
        vm = cls(**options)
        fresh = vm.globals if fresh is None else fresh
        run_deep(Loader(vm, document, host, sources).load)
        if vm.is_sandboxed:
            vm._place_late(fresh)
        return vm

    # Identity

    def identify(self, value: Any) -> str:
        """Return the type and serial number of a value without other text."""
        return f"{type_name(value)}: 0x{self.serial_number(value):016x}"

    def serial_number(self, value: Any) -> int:
        """Return an object's serial number, assigned on first use."""
        if value.__class__ is CheckedFunction:
            value = value.function
        if isinstance(value, FunctionType):
            name = BUILTINS.find_name(value)
            if name is not None:
                return BUILTINS.serial_number(name)
        lent = lent_name(value)
        if lent is not None:
            return _LENT_SERIALS + zlib.crc32(lent.encode("utf-8", "surrogateescape")) * 16
        serial: int | None = getattr(value, "_serial", None)
        if serial is None:
            self.serials_given += 1
            serial = value._serial = 0x10000 + self.serials_given * 16
        return serial
