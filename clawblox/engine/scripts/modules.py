"""What ``require`` returns: each module runs once, and may wait while it loads.

A module runs in a thread of its own. Those that require it meanwhile wait until it has returned; if
it fails, its error is theirs, and the next ``require`` runs it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.instances.instance import Instance
from clawblox.engine.saved_state import Layouts, SavedState, entries, object_slot, record
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.slots import Slots
from clawblox.luau import Coroutine, LuaError, RuntimeFault, fail_call

_CYCLE: Final = "cyclic module dependency detected"


@attrs.define(eq=False)
class _Load:
    """A module that has begun to run and has not returned.

    Attributes:
        thread: Its thread.
        requirers: The threads that wait for its value, in the order in which they began to wait.
        needs: The number of the module that its own thread requires now; 0 for none.
    """

    thread: Coroutine
    requirers: list[Coroutine] = attrs.field(factory=list)
    needs: int = 0


class Modules(SavedState):
    """The modules of a world.

    Args:
        scheduler: The threads that wait.
        load: Compiles a module and returns the thread that will run it; raises LuaError.
        results: Gets the values of the modules that have returned, by the number of their instance.
    """

    layouts: ClassVar[Layouts] = {
        "_loads": entries(
            shapes.whole,
            record(_Load, object_slot(Coroutine), [object_slot(Coroutine)], shapes.whole),
        )
    }

    def __init__(
        self,
        scheduler: Scheduler,
        load: Callable[[Instance], Coroutine],
        results: dict[int, Any],
    ) -> None:
        self._scheduler = scheduler
        self._load = load
        self._results = results
        self._loads: dict[int, _Load] = {}
        self._starting: dict[int, None] = {}  # those before their first wait
        self._ready: deque[tuple[Coroutine, bool, Any]] = deque()
        self._is_resuming = False

    def require(self, module: Any) -> Any:
        """Return the value of a ModuleScript.

        Raises:
            Yield: It waits; the running thread gets its value later.
            LuaError: It is not a ModuleScript, requires itself or fails; or it waits where the
                running thread cannot.
        """
        if not isinstance(module, Instance) or not module.is_a("ModuleScript"):
            raise RuntimeFault("require expects a ModuleScript")
        number = module.number
        if number not in self._results:
            if number not in self._loads:
                self._start(module)
            elif self._waits_for_running_thread(number):
                raise RuntimeFault(_CYCLE)
            if number not in self._results:
                self._wait_for(number)
        return self._results[number]

    def _start(self, module: Instance) -> None:
        """Run a module up to its first wait."""
        number, thread = module.number, self._load(module)
        self._loads[number] = _Load(thread)
        self._starting[number] = None
        self._note_need(self._scheduler.vm.running, number)
        thread.ended = partial(self._finish, number)
        try:
            self._scheduler.vm.resume(thread)
        finally:
            del self._starting[number]
            self._note_need(self._scheduler.vm.running, 0)

    def _wait_for(self, number: int) -> None:
        """Suspend the running thread until a module has returned."""
        thread, suspension = self._scheduler.park()
        self._loads[number].requirers.append(thread)
        self._note_need(thread, number)
        raise suspension

    def _note_need(self, thread: Coroutine | None, number: int) -> None:
        for load in self._loads.values():
            if load.thread is thread:
                load.needs = number

    def _waits_for_running_thread(self, number: int) -> bool:
        """Return whether a module can return only after the running thread has gone on."""
        while load := self._loads.get(number):
            if load.thread is self._scheduler.vm.running:
                return True
            number = load.needs
        return False

    def _finish(self, number: int, ok: bool, values: tuple[Any, ...]) -> None:
        """Give the value of a module, or its error, to the threads that wait for it."""
        load = self._loads.pop(number)
        value = values[0] if values else None
        if ok:
            self._results[number] = value
        requirers = [thread for thread in load.requirers if thread.status == "suspended"]
        self._ready += [(thread, ok, value) for thread in requirers]
        if not (ok or requirers or number in self._starting):
            self._scheduler.fail(load.thread.error or LuaError(value))
        self._resume_ready()

    def _resume_ready(self) -> None:
        """Resume these threads one after the other, also if they end modules in turn."""
        if self._is_resuming:
            return
        self._is_resuming = True
        try:
            while self._ready:
                thread, ok, value = self._ready.popleft()
                self._note_need(thread, 0)
                if thread.status != "suspended":
                    continue
                if not ok:
                    fail_call(thread, LuaError(value))
                self._scheduler.resume(thread, (value,))
        finally:
            self._is_resuming = False

    def held(self) -> Iterator[Coroutine]:
        """Iterate over the threads that it keeps alive, to count them as memory."""
        for load in self._loads.values():
            yield load.thread
            yield from load.requirers

    def restore(self, document: Any, slots: Slots) -> None:
        """Restore the modules that are loading.

        Raises:
            ValueError: The snapshot is damaged.
        """
        super().restore(document, slots)
        for number, load in self._loads.items():
            load.thread.ended = partial(self._finish, number)
            for thread in load.requirers:
                self._scheduler.restore_parked(thread)
