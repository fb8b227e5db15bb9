"""The globals of scripts: ``require``, ``warn``, ``Instance``, the library ``task`` and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clawblox.engine.errors import suggest, to_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import number_argument, text_argument, wrong_argument
from clawblox.engine.instances.tree_changes import set_parent
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.scripts.script_runner import ScriptRunner
from clawblox.luau import Coroutine, Host, LuaTable, RuntimeFault
from clawblox.luau.core.values import describe_key, is_function
from clawblox.luau.lib.support import arguments as arg


def make_script_globals(
    host: Host, runner: ScriptRunner, warn_line: Callable[[str], None]
) -> dict[str, Any]:
    """Register ``require`` and ``warn`` with a host; return them by name.

    Args:
        host: The engine's functions and objects for the VM.
        runner: Runs modules.
        warn_line: Called with the text of a warning.
    """

    @host.raw("require")
    def require(module: Any = None, *_: Any) -> Any:
        return runner.require(module)

    @host.raw("warn")
    def warn(*values: Any) -> Any:
        warn_line(to_text(arg.printed(values)))
        return ()

    return {"require": require, "warn": warn}


SHARED_TABLES = ("_G", "shared")
"""The globals that scripts may change."""


def make_task_globals(host: Host, scheduler: Scheduler) -> dict[str, Any]:
    """Register the library ``task`` and the time functions with a host; return them by name.

    Args:
        host: The engine's functions and objects for the VM.
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
        return scheduler.defer(_target(target, 1, "defer"), values)

    @host.raw("task.delay")
    def delay(seconds: Any = None, target: Any = None, *values: Any) -> Any:
        due = _seconds(seconds, "delay")
        return scheduler.start_later(due, _target(target, 2, "delay"), values)

    @host.raw("task.cancel")
    def cancel(thread: Any = None, *_: Any) -> Any:
        if not isinstance(thread, Coroutine):
            raise wrong_argument(thread, 1, "cancel", "thread")
        scheduler.cancel(thread)
        return ()

    @host.raw("task.synchronize")
    def synchronize(*_: Any) -> Any:
        return ()

    @host.raw("task.desynchronize")
    def desynchronize(*_: Any) -> Any:
        return ()

    @host.raw("wait")
    def wait(seconds: Any = None, *_: Any) -> Any:
        scheduler.warn_once("wait() is legacy; prefer task.wait()")
        raise scheduler.wait(_seconds(seconds, "wait"))

    @host.raw("tick")
    def tick(*_: Any) -> Any:
        scheduler.warn_once("tick() is legacy; prefer task.wait() and RunService events")
        return scheduler.time

    @host.raw("time")
    def time(*_: Any) -> Any:
        return scheduler.time

    library = {
        "wait": task_wait,
        "spawn": spawn,
        "defer": defer,
        "delay": delay,
        "cancel": cancel,
        "synchronize": synchronize,
        "desynchronize": desynchronize,
    }
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
    return 0.0 if value is None else number_argument(value, 1, function)


def _target(value: Any, at: int, function: str) -> Any:
    if not is_function(value) and not isinstance(value, Coroutine):
        raise wrong_argument(value, at, function, "function or thread")
    return value


def make_instance_library(host: Host, model: DataModel) -> LuaTable:
    """Register ``Instance.new`` with a host; return the library."""

    @host.raw("Instance.new")
    def new(class_name: Any = None, parent: Any = None, *_: Any) -> Any:
        name = text_argument(class_name, 1, "new")
        spec = model.classes.find(name)
        if spec is not None and spec.refusal:
            raise RuntimeFault(f"{name} is not supported: {spec.refusal}")
        if spec is None or not spec.creatable:
            likely = suggest(name, (row.name for row in model.classes.rows() if row.creatable))
            raise RuntimeFault(f"Unknown class {describe_key(name)}{likely}")
        if parent is not None and not isinstance(parent, Instance):
            raise RuntimeFault("invalid argument #2 to 'new' (Instance expected)")
        instance = model.make(name)
        if parent is not None:
            set_parent(instance, parent)
        return instance

    return LuaTable({"new": new})
