"""The globals of scripts that do not belong to another module."""

from __future__ import annotations

from typing import Any

from clawblox.engine.errors import to_text
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.scripts.script_runner import ScriptRunner
from clawblox.luau import VM, Host, LuaTable
from clawblox.luau.core import operators
from clawblox.luau.core.values import raw_set
from clawblox.luau.lib.support import arguments as arg


def make_script_globals(host: Host, runner: ScriptRunner, scheduler: Scheduler) -> dict[str, Any]:
    """Register ``require`` and ``warn`` with a host; return them by name."""

    @host.raw("require")
    def require(module: Any = None, *_: Any) -> Any:
        return runner.require(module)

    @host.raw("warn")
    def warn(*values: Any) -> Any:
        arg.charge(values)
        text = operators.join([operators.to_text(value) for value in values], "\t")
        scheduler.warn(to_text(text))
        return ()

    return {"require": require, "warn": warn}


def share_tables(vm: VM) -> None:
    """Give scripts the tables ``_G`` and ``shared``, which all of them may write to.

    The sandbox makes every library read-only, so this comes after it.
    """
    for name in ("_G", "shared"):
        raw_set(vm.globals, name, LuaTable())
