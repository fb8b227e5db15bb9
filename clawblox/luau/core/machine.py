"""The interface of the VM for the packages below it, coroutines, and the current VM of a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from clawblox.luau.core.errors import LuaError
from clawblox.luau.core.limits import BYTES_PER_STEP, LONG_TEXT
from clawblox.luau.core.random import DEFAULT_SEED, PcgRandom

if TYPE_CHECKING:
    from clawblox.luau.core.values import LuaTable, Vector


class SuspendedFrame:
    """A suspended frame that waits for the result of a call."""

    __slots__ = ()

    def rest(self, result: Any) -> tuple[Callable[[Any], Any], Any]:
        """Return the function that continues with the result of the call, and its argument.

        The caller must call the function, to avoid a Python frame in between.

        Raises:
            LuaError: The call has failed.
        """
        raise NotImplementedError


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Coroutine:
    """A Luau thread.

    Attributes:
        status: ``suspended``, ``running``, ``normal`` or ``dead``.
        function: The function it will run; None once it has started.
        frames: The suspended calls, outermost first.
        environment: The globals of chunks loaded in it.
        error: The error that killed it, for ``coroutine.close``; None otherwise.
        ended: Called after it has returned, failed or been closed, with whether it succeeded, and
            with its results or the error value. The host sets it, also after a restore.
    """

    function: Callable[..., Any] | None
    environment: Any
    status: str = "suspended"
    frames: list[SuspendedFrame] = field(default_factory=list)
    error: LuaError | None = None
    ended: Callable[[bool, tuple[Any, ...]], None] | None = None
    _serial: int = field(init=False)


class Machine:
    """The VM that `current` provides to operators, coroutines and libraries.

    Attributes:
        c_calls: The number of active callbacks.
        base_c_calls: The number of callbacks below the running coroutine; yields cannot cross them.
        depth: The number of active calls, if the interpreter does not count them.
        has_headroom: Whether the stack was full and the recursion limit is raised.
        extra_calls: The calls below the running coroutine for which the recursion limit is raised.
        running: The running coroutine; None outside coroutines.
        error_stack: The traceback of the error that a handler is handling; None outside handlers.
        main_environment: The globals outside coroutines.
        has_weak_tables: Whether a metatable with ``__mode`` was ever set.
        vectors: The name and the members of vectors.
        blanks: Creates and counts vectors without components.
        allocated: The heap size at its last measurement plus the bytes allocated since; 0 without
            a memory limit.
        roots: Values that the host needs after a restore.
        held: Returns the other values that the host keeps for scripts.
        globals: The table of globals.
        string_library: The table in which fields of strings are looked up.
        string_metatable: The metatable of all strings.
        late: The late names of the sandbox; see `lib.support.late.place_late`.
        main_coroutine: The coroutine that is the main thread for scripts, or None.
        random: The stream of ``math.random``.
        draws: A checksum of the draws from other streams in the current call from the host.
        output: The receiver of printed lines; None to drop them.
        clock: The clock of ``os.clock``, in seconds.
        wall_clock: The clock of ``os.time``, in seconds since 1970.
    """

    globals: LuaTable
    string_library: LuaTable
    string_metatable: LuaTable
    main_environment: Any
    vectors: Any  # the `VectorType`
    blanks: Iterator[Vector]

    def __init__(self) -> None:
        self.c_calls = 0
        self.base_c_calls = 0
        self.depth = 0
        self.has_headroom = False
        self.extra_calls = 0
        self.running: Coroutine | None = None
        self.error_stack: str | None = None
        self.has_weak_tables = False
        self.allocated = 0
        self.roots: dict[str, Any] = {}
        self.held: Callable[[], Iterable[Any]] = tuple
        self.late: dict[int, dict[str, Any]] = {}
        self.main_coroutine: Coroutine | None = None
        self.random = PcgRandom(DEFAULT_SEED)
        self.draws = 0
        self.output: Callable[[str], None] | None = None
        self.clock: Callable[[], float] = time.perf_counter
        self.wall_clock: Callable[[], float] = time.time

    def early_entries(self, table: LuaTable) -> dict[Any, Any]:
        """Return the entries of a table without its late names."""
        late = self.late[id(table)]
        return {key: value for key, value in table.items() if key not in late}

    def charge(self, steps: int) -> None:
        """Charge steps of a script's loop, and account for the memory that it may fill."""

    def charge_work(self, steps: int) -> None:
        """Charge steps for work that does not add to the heap."""

    def is_new_pattern(self, pattern: str) -> bool:
        """Return whether a string pattern is new in this call from the host, and is charged."""
        raise NotImplementedError

    def take_steps(self, steps: int) -> None:
        """Charge steps for work that cannot be refused, such as error handling."""

    def charge_search(self) -> None:
        """Charge steps for a search of the whole heap."""

    def allocate(self, size: int, filled: int | None = None) -> None:
        """Account for bytes about to be allocated, and charge steps for filling all or some."""

    def fill(self, size: int) -> None:
        """Account for bytes that cannot be refused, such as those of an error."""

    def check_c_calls(self) -> None:
        """Refuse callbacks that are nested too deeply."""

    def protect(self) -> None:
        """Count a protected call."""

    def identify(self, value: Any) -> str:
        """Return the type and serial number of a value without other text."""
        raise NotImplementedError

    def load_charged(self, source: str, name: str, environment: Any) -> Callable[..., Any]:
        """Compile a chunk for the running script; return its main function."""
        raise NotImplementedError


class _Context(threading.local):
    vm: Machine = cast("Machine", None)  # outside all VMs; no code uses it there


current = _Context()
MAX_C_CALLS = 200
MAX_C_CALLS_IN_HANDLER = 225


def thread_environment() -> Any:
    """Return the globals of chunks that the running coroutine loads."""
    vm = current.vm
    return vm.main_environment if vm.running is None else vm.running.environment


def charge_reading(size: int) -> None:
    """Charge reading a long text, for example in comparisons and hashing.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    if size >= LONG_TEXT:
        current.vm.charge_work(size // BYTES_PER_STEP)


def call_unyieldable(function: Any, *arguments: Any) -> Any:
    """Call a metamethod or callback that must not yield; calls nest at most 200 deep.

    Raises:
        LuaError: The function fails, or callbacks are nested too deeply.
    """
    vm = current.vm
    vm.c_calls += 1
    try:
        if vm.c_calls >= MAX_C_CALLS:
            vm.check_c_calls()
        return function(*arguments)
    finally:
        vm.c_calls -= 1
