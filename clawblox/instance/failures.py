"""Turns failures of an instance into public errors.

Other packages raise exceptions that name a port or a program but not the instance. This module
adds the instance: its directory, files, address, exit and last log lines.

The first line of such an error starts with the name of the instance, so the messages omit it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final, TypeVar

from clawblox.errors import (
    ClawbloxError,
    PortInUseError,
    SnapshotRefusedError,
    WorldCommandError,
    WorldError,
    WorldExitedBeforeReadyError,
    WorldExitedError,
    WorldIdentityError,
    WorldReadyTimeoutError,
    WorldStartError,
    WorldStopError,
)
from clawblox.extras import find_missing, install_command, name_extra
from clawblox.instance.health import StrangerAnswers
from clawblox.instance.instance import Instance
from clawblox.instance.launch import Launch
from clawblox.instance.listening import EXEC_HINT, Obstacle, find_in_use
from clawblox.protocol import WATCHDOG_MARK, WATCHDOG_STATUS
from clawblox.results import ProcessExit
from clawblox.system.ports import NoFreePort, PortBusy, connect_host, listeners_on
from clawblox.system.process import CannotExecute
from clawblox.system.process_tree import Proc
from clawblox.system.tmux import TmuxError

_Error = TypeVar("_Error", bound=WorldError)

_PYTHON: Final = re.compile(r"python[0-9.]*")
_NO_CLAWBLOX: Final = re.compile(r"No module named '?clawblox\b")
"""Python's error when it cannot import clawblox, or run one of clawblox's modules."""
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")

_PUBLIC_CLASS: dict[type[Exception], type[WorldStartError]] = {
    PortBusy: PortInUseError,
    NoFreePort: PortInUseError,
    CannotExecute: WorldCommandError,
    TmuxError: WorldStartError,
    OSError: WorldStartError,
}


def start_failure(error: Exception, instance: Instance, phase: str, elapsed_s: float) -> Exception:
    """Return the public error for an exception of a start; bugs are returned unchanged. Blocks.

    Args:
        error: The exception.
        instance: The instance that was being started.
        phase: State of the instance at the failure, for example ``probing``.
        elapsed_s: Seconds since the beginning of the start.
    """
    if isinstance(error, WorldError):
        _located(error, instance, phase, elapsed_s)
        if isinstance(error, WorldExitedBeforeReadyError) and (missing := _missing_package(error)):
            module, extra = missing
            error = WorldExitedBeforeReadyError(
                f"world {_name(instance.launch)} needs the package {module}, which is not "
                f"installed: {install_command(extra)}"
            )
            _located(error, instance, phase, elapsed_s)
            error.log_lines = ()  # a traceback that adds nothing to the message
            return error
        if any(map(_NO_CLAWBLOX.search, error.log_lines)):
            error.hint = _interpreter_hint()
        elif instance.launch.hands_listener_over and find_in_use(instance.port, error.log_lines):
            error.hint = EXEC_HINT
        return error
    if isinstance(error, ClawbloxError):
        return error
    for raised, public in _PUBLIC_CLASS.items():
        if isinstance(error, raised):
            reason = str(error)
            if isinstance(error, OSError):
                path = error.filename2 or error.filename  # for a failed rename, the target
                reason = f"{error.strerror or error}{f': {path}' if path else ''}"
            message = f"cannot start world {_name(instance.launch)}: {reason}"
            failure = _located(public(message), instance, phase, elapsed_s)
            if isinstance(error, CannotExecute) and _PYTHON.fullmatch(PurePath(error.program).name):
                failure.hint = _interpreter_hint()
            failure.__cause__ = error
            return failure
    return error


def _missing_package(error: WorldError) -> tuple[str, str] | None:
    """Return the module that a world lacks and the extra that provides it, or None.

    A module that this interpreter has is missing only in the interpreter named by the world's
    message.
    """
    for match in filter(None, map(_NO_MODULE.search, reversed(error.log_lines))):
        extra = name_extra(module := match[1])
        if extra is not None and module.partition(".")[0] in find_missing(extra):
            return module, extra
    return None


def exited_before_ready(instance: Instance) -> WorldExitedBeforeReadyError:
    """Return the error for a world that ended during its start."""
    if (halt := instance.halt or read_watchdog_end(instance)) is not None:
        return WorldExitedBeforeReadyError(
            f"world {_name(instance.launch)} was ended before it was ready: {halt}"
        )
    if instance.launch.resume_path is not None:
        return SnapshotRefusedError(
            f"world {_name(instance.launch)} ended while restoring "
            f"{instance.launch.resume_path}: {instance.exit}",
            hint="a snapshot only fits the content and version of the world that saved it; "
            "see the log lines above",
        )
    return WorldExitedBeforeReadyError(
        f"world {_name(instance.launch)} ended before it was ready: {instance.exit}"
    )


def halted_before_ready(instance: Instance, reason: str) -> WorldStartError:
    """Return the error for a world that reports during its start that it has halted."""
    return WorldStartError(
        f"world {_name(instance.launch)} halted before it was ready: {instance.masked(reason)}"
    )


def never_ready(instance: Instance, obstacle: Obstacle) -> WorldStartError:
    """Return the error for a running world that can no longer become ready."""
    return WorldStartError(
        f"world {_name(instance.launch)} cannot become ready: {obstacle}", hint=obstacle.hint
    )


def identity_error(instance: Instance, stranger: StrangerAnswers) -> WorldIdentityError:
    """Return the error for a port served by a process outside the instance."""
    return WorldIdentityError(
        f"port {instance.port} is served by {str(stranger) or 'another process'}, "
        f"not by world {_name(instance.launch)}",
        hint="the command of the world, or a process that it starts, must listen on the port",
    )


def ready_timeout(instance: Instance, processes: Iterable[Proc]) -> WorldReadyTimeoutError:
    """Return the error for a running world that is not ready in time. Blocks.

    Args:
        instance: The instance.
        processes: Its live processes.

    Raises:
        OSError: The listeners cannot be read, for lack of file descriptors.
    """
    seen = f"last probe: {instance.running.probe.seen}"
    obstacle = instance.running.find_obstacle(processes)
    return WorldReadyTimeoutError(
        f"world {_name(instance.launch)} was not ready within "
        f"{instance.launch.options.health_timeout:g} s; {obstacle or seen}",
        hint=obstacle.hint if obstacle else _elsewhere_hint(instance),
    )


def exited_error(
    instance: Instance, elapsed_s: float, *, is_coming_back: bool = False
) -> WorldExitedError:
    """Return the error for a call to an instance that has ended. Blocks.

    Args:
        instance: The instance.
        elapsed_s: Seconds since the start of the call.
        is_coming_back: Whether it is being restarted.
    """
    halt = instance.halt or read_watchdog_end(instance)
    how = f"halted: {halt}" if halt else f"ended: {instance.exit or 'stopped'}"
    message, phase, hint = f"world {_name(instance.launch)} has {how}", "ready", None
    if is_coming_back:
        is_known = instance.halt or instance.exit
        message = f"{message}; it" if is_known else f"world {_name(instance.launch)}"
        message, phase = f"{message} is being restarted", "restarting"
        hint = "try again when it is ready; a client waits for that with wait_restart="
    return _located(WorldExitedError(message, hint=hint), instance, phase, elapsed_s)


def stop_error(instance: Instance, reason: str) -> WorldStopError:
    """Return the error for an instance that could not be stopped. Blocks.

    Args:
        instance: The instance.
        reason: Reason for the message.
    """
    error = WorldStopError(
        f"world {_name(instance.launch)} could not be stopped: {reason}",
        hint="clawblox ends its remaining processes when this process ends",
    )
    return _located(error, instance, "stopping", None)


def _located(
    error: _Error, instance: Instance, phase: str | None, elapsed_s: float | None
) -> _Error:
    error.locate(phase=phase, elapsed_s=elapsed_s, **instance.error_fields())
    return error


def _interpreter_hint() -> str:
    return (
        f"clawblox runs on {sys.executable}; write {{python}} in a command of world.toml "
        "to use that interpreter"
    )


def read_watchdog_end(instance: Instance) -> str | None:
    """Return why the watchdog ended an engine world; None if it ended otherwise. Blocks."""
    is_engine_world = instance.launch.config.is_engine_world
    if not is_engine_world or instance.exit != ProcessExit(status=WATCHDOG_STATUS):
        return None
    lines: Sequence[str] = instance.error_fields()["log_lines"]
    reasons = [line for line in lines if line.startswith(WATCHDOG_MARK)]
    reason = (
        reasons[-1].removeprefix(WATCHDOG_MARK) if reasons else "its log does not state a reason"
    )
    return f"the watchdog ended it: {reason}"


def _name(launch: Launch) -> str:
    return repr(launch.config.name)


def _elsewhere_hint(instance: Instance) -> str | None:
    """Return a hint if another process, perhaps in a container, has the port at another address."""
    expected = connect_host(instance.launch.options.host)
    found = {listener.address for listener in listeners_on(instance.port)} - {expected}
    if not found:
        return None
    return f"a process listens on {', '.join(sorted(found))}; bind WORLD_HOST ({expected}) instead"


def start_stopped() -> WorldStartError:
    """Return the error for a start that was stopped."""
    return WorldStartError("the start was stopped")
