"""What went wrong with an instance, as the public error that says so.

The rooms below raise exceptions of their own, which know a port or a program but not the
instance. Here they meet what is known of it: directory, files, address, exit, last log lines.
"""

from __future__ import annotations

import re
import sys
from pathlib import PurePath
from typing import Final, TypeVar

from clawblox.errors import (
    ClawbloxError,
    PortInUseError,
    SnapshotRefusedError,
    WorldCommandError,
    WorldError,
    WorldExitedBeforeReady,
    WorldExitedError,
    WorldIdentityError,
    WorldReadyTimeout,
    WorldStartError,
    WorldStopError,
)
from clawblox.instance.health import StrangerAnswers
from clawblox.instance.instance import Instance
from clawblox.system.ports import NoFreePort, PortBusy, connect_host, listeners_on
from clawblox.system.process import CannotExecute
from clawblox.system.tmux import TmuxError

__all__ = [
    "exited_before_ready",
    "exited_error",
    "identity_error",
    "ready_timeout",
    "start_failure",
    "stop_error",
]

_Error = TypeVar("_Error", bound=WorldError)

_PYTHON: Final = re.compile(r"python[0-9.]*")
_NO_CLAWBLOX: Final = re.compile(r"No module named '?clawblox\b")
"""What Python says when it cannot import clawblox, or run a module of it."""

_PUBLIC_CLASS: dict[type[Exception], type[WorldStartError]] = {
    PortBusy: PortInUseError,
    NoFreePort: PortInUseError,
    CannotExecute: WorldCommandError,
    TmuxError: WorldStartError,
    OSError: WorldStartError,
}


def start_failure(error: Exception, instance: Instance, phase: str, elapsed_s: float) -> Exception:
    """Return the public error for whatever a start raised; a defect stays what it is.

    Args:
        error: What was raised.
        instance: The instance that was being started.
        phase: What was being done.
        elapsed_s: Seconds since the start began.
    """
    if isinstance(error, WorldError):
        _located(error, instance, phase, elapsed_s)
        if any(map(_NO_CLAWBLOX.search, error.log_lines)):
            error.hint = _interpreter_hint()
        return error
    if isinstance(error, ClawbloxError):
        return error
    for raised, public in _PUBLIC_CLASS.items():
        if isinstance(error, raised):
            found = public(_sentence(error, instance), hint=_command_hint(error))
            _located(found, instance, phase, elapsed_s)
            found.__cause__ = error
            return found
    return error


def exited_before_ready(instance: Instance) -> WorldExitedBeforeReady:
    """Return the error of a world that ended during its start."""
    if instance.launch.resume_path is not None:
        return SnapshotRefusedError(
            f"world {_name(instance)} ended while it should have restored "
            f"{instance.launch.resume_path}: {instance.exit}",
            hint="the last log lines say why; a snapshot fits one world content and version",
        )
    return WorldExitedBeforeReady(
        f"world {_name(instance)} ended before it was ready: {instance.exit}"
    )


def identity_error(instance: Instance, stranger: StrangerAnswers) -> WorldIdentityError:
    """Return the error of a port that somebody else serves."""
    return WorldIdentityError(
        f"port {instance.port} is served by {stranger.owner or 'a process of somebody else'}, "
        f"not by world {_name(instance)}",
        hint="a world must listen in a process that it started itself",
    )


def ready_timeout(instance: Instance) -> WorldReadyTimeout:
    """Return the error of a world that lives but does not get ready. Blocks."""
    return WorldReadyTimeout(
        f"world {_name(instance)} was not ready within "
        f"{instance.launch.options.health_timeout:g} s; last probe: {instance.running.probe.seen}",
        hint=_elsewhere_hint(instance),
    )


def exited_error(instance: Instance, elapsed_s: float) -> WorldExitedError:
    """Return the error of a call to an instance that has ended."""
    why = f"it halted: {instance.halt}" if instance.halt else instance.exit or "it was stopped"
    error = WorldExitedError(f"world {_name(instance)} has ended: {why}")
    return _located(error, instance, "ready", elapsed_s)


def stop_error(instance: Instance, reason: str) -> WorldStopError:
    """Return the error of an instance that was not seen to end."""
    error = WorldStopError(
        f"world {_name(instance)} could not be ended: {reason}",
        hint="the guard goes on watching what is left of it",
    )
    return _located(error, instance, "stopping", None)


def _located(
    error: _Error, instance: Instance, phase: str | None, elapsed_s: float | None
) -> _Error:
    error.locate(phase=phase, elapsed_s=elapsed_s, **instance.error_fields())
    return error


def _sentence(error: Exception, instance: Instance) -> str:
    if isinstance(error, OSError):
        path = error.filename2 or error.filename  # of a failed rename, where to
        place = f": {path}" if path else ""
        return f"cannot start world {_name(instance)}: {error.strerror or error}{place}"
    return f"cannot start world {_name(instance)}: {error}"


def _command_hint(error: Exception) -> str | None:
    is_python = isinstance(error, CannotExecute) and _PYTHON.fullmatch(PurePath(error.program).name)
    return _interpreter_hint() if is_python else None


def _interpreter_hint() -> str:
    return (
        f"clawblox runs on {sys.executable}; the word {{python}} in a command of world.toml "
        "means that interpreter"
    )


def _name(instance: Instance) -> str:
    return repr(instance.launch.config.name)


def _elsewhere_hint(instance: Instance) -> str | None:
    """Say when somebody listens on the port, only not where we look."""
    expected = connect_host(instance.launch.options.host)
    found = {listener.address for listener in listeners_on(instance.port)} - {expected}
    if not found:
        return None
    return f"something listens on {', '.join(sorted(found))}; worlds bind WORLD_HOST ({expected})"
