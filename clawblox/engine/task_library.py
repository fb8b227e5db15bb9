"""The globals of time: the library ``task``, ``wait``, ``tick`` and their like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clawblox.engine.scheduler import Scheduler
from clawblox.luau import Coroutine, Host, LuaTable, RuntimeFault
from clawblox.luau.core.operators import shown_type
from clawblox.luau.core.values import is_function

__all__ = ["make_task_globals"]

_WAIT_WARNING = "wait() is legacy; prefer task.wait()"
_TICK_WARNING = "tick() is legacy; prefer task.wait() and RunService events"


def make_task_globals(host: Host, scheduler: Scheduler) -> dict[str, Any]:
    """Register the functions of time with a host; return the globals by name.

    Args:
        host: What the VM borrows from the engine.
        scheduler: The threads that wait.
    """
    functions = _Functions(scheduler)

    def lend(name: str, function: Callable[..., Any]) -> Any:
        return host.raw(name)(function)

    names = ("wait", "spawn", "defer", "delay", "cancel")
    return {
        "task": LuaTable({name: lend(f"task.{name}", getattr(functions, name)) for name in names}),
        "wait": lend("wait", functions.wait_with_warning),
        "spawn": lend("spawn", functions.defer),
        "delay": lend("delay", functions.delay),
        "tick": lend("tick", functions.tick),
        "time": lend("time", functions.time),
        "elapsedTime": lend("elapsedTime", functions.time),
    }


class _Functions:
    """What scripts call; missing arguments are nil."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def wait(self, seconds: Any = None, *_: Any) -> Any:
        raise self._scheduler.wait(_seconds(seconds, 1, "wait"))

    def wait_with_warning(self, seconds: Any = None, *_: Any) -> Any:
        self._scheduler.warn_once(_WAIT_WARNING)
        raise self._scheduler.wait(_seconds(seconds, 1, "wait"))

    def spawn(self, target: Any = None, *values: Any) -> Any:
        return self._scheduler.spawn(_target(target, 1, "spawn"), values)

    def defer(self, target: Any = None, *values: Any) -> Any:
        return self._scheduler.start_later(0.0, _target(target, 1, "defer"), values)

    def delay(self, seconds: Any = None, target: Any = None, *values: Any) -> Any:
        due = _seconds(seconds, 1, "delay")
        return self._scheduler.start_later(due, _target(target, 2, "delay"), values)

    def cancel(self, thread: Any = None, *_: Any) -> Any:
        if not isinstance(thread, Coroutine):
            raise _wrong_type(1, "cancel", "thread", thread)
        self._scheduler.cancel(thread)
        return ()

    def tick(self, *_: Any) -> Any:
        self._scheduler.warn_once(_TICK_WARNING)
        return self._scheduler.time

    def time(self, *_: Any) -> Any:
        return self._scheduler.time


def _seconds(value: Any, at: int, function: str) -> float:
    if value is None:
        return 0.0
    if value.__class__ is not float:
        raise _wrong_type(at, function, "number", value)
    return float(value)


def _target(value: Any, at: int, function: str) -> Any:
    if not is_function(value) and not isinstance(value, Coroutine):
        raise _wrong_type(at, function, "function or thread", value)
    return value


def _wrong_type(at: int, function: str, wanted: str, value: Any) -> RuntimeFault:
    return RuntimeFault(
        f"invalid argument #{at} to '{function}' ({wanted} expected, got {shown_type(value)})"
    )
