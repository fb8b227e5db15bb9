"""The globals of time: the library ``task``, ``wait``, ``tick`` and their like."""

from __future__ import annotations

from typing import Any

from clawblox.engine.scheduler import Scheduler
from clawblox.luau import Coroutine, Host, LuaTable, RuntimeFault
from clawblox.luau.core.operators import shown_type
from clawblox.luau.core.values import is_function

_WAIT_WARNING = "wait() is legacy; prefer task.wait()"
_TICK_WARNING = "tick() is legacy; prefer task.wait() and RunService events"


def make_task_globals(host: Host, scheduler: Scheduler) -> dict[str, Any]:
    """Register the functions of time with a host; return the globals by name.

    Args:
        host: What the VM borrows from the engine.
        scheduler: The threads that wait.
    """

    @host.raw("task.wait")
    def task_wait(seconds: Any = None, *_: Any) -> Any:
        raise scheduler.wait(_seconds(seconds, "wait"))

    @host.raw("task.spawn")
    def spawn(target: Any = None, *values: Any) -> Any:
        return scheduler.spawn(_target(target, 1, "spawn"), values)

    @host.raw("task.defer")
    def defer(target: Any = None, *values: Any) -> Any:
        return scheduler.start_later(0.0, _target(target, 1, "defer"), values)

    @host.raw("task.delay")
    def delay(seconds: Any = None, target: Any = None, *values: Any) -> Any:
        due = _seconds(seconds, "delay")
        return scheduler.start_later(due, _target(target, 2, "delay"), values)

    @host.raw("task.cancel")
    def cancel(thread: Any = None, *_: Any) -> Any:
        if not isinstance(thread, Coroutine):
            raise _wrong_type(1, "cancel", "thread", thread)
        scheduler.cancel(thread)
        return ()

    @host.raw("wait")
    def wait(seconds: Any = None, *_: Any) -> Any:
        scheduler.warn_once(_WAIT_WARNING)
        raise scheduler.wait(_seconds(seconds, "wait"))

    @host.raw("tick")
    def tick(*_: Any) -> Any:
        scheduler.warn_once(_TICK_WARNING)
        return scheduler.time

    @host.raw("time")
    def time(*_: Any) -> Any:
        return scheduler.time

    library = {"wait": task_wait, "spawn": spawn, "defer": defer, "delay": delay, "cancel": cancel}
    return {
        "task": LuaTable(library),
        "wait": wait,
        "spawn": defer,
        "delay": delay,
        "tick": tick,
        "time": time,
        "elapsedTime": time,
    }


def _seconds(value: Any, function: str) -> float:
    if value is None:
        return 0.0
    if value.__class__ is not float:
        raise _wrong_type(1, function, "number", value)
    return float(value)


def _target(value: Any, at: int, function: str) -> Any:
    if not is_function(value) and not isinstance(value, Coroutine):
        raise _wrong_type(at, function, "function or thread", value)
    return value


def _wrong_type(at: int, function: str, wanted: str, value: Any) -> RuntimeFault:
    return RuntimeFault(
        f"invalid argument #{at} to '{function}' ({wanted} expected, got {shown_type(value)})"
    )
