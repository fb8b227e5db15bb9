"""The requests to an orchestrator through its control socket, and their outcomes.

| ``op`` | members of the request | event for each instance |
|---|---|---|
| ``save`` | ``instances``, ``SaveOptions`` | ``saved`` or ``failed`` |
| ``stop`` | ``instances``, ``grace_seconds`` | ``stopped`` or ``failed`` |
| ``restart`` | ``instances``, ``RestartOptions`` | ``restarted``, ``failed`` |
| ``fork`` | ``checkpoint``, ``count``, ``ManyOptions`` | ``progress``; ``started`` or ``failed`` |
| ``start`` | ``StartOptions`` | none; the answer has the facts |
| ``logs`` | ``instances``, ``follow``, ``tail`` | ``line`` with a ``value``, for each line |
| ``events`` | none | ``subscribed``, then ``event`` with a ``value`` until the client leaves |
| ``describe_blob`` | ``path`` | none; the answer has ``size_bytes`` and ``sha256`` |
| ``read_blob`` | ``path``, ``offset`` | none; the answer has ``data`` |
| ``write_blob`` | ``sha256``, ``size_bytes``, ``offset``, ``data`` | none; see ``blobs`` |

This module encodes and decodes members and events for both sides. A member that is None counts as
missing. ``control_client`` and ``control_server`` transport the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import msgspec

from clawblox.concurrency.batch import Outcome
from clawblox.config.arguments import check_grace
from clawblox.config.options import (
    DEFAULT_GRACE_S,
    ManyOptions,
    RestartOptions,
    SaveOptions,
    StartOptions,
)
from clawblox.errors import ClawbloxError, UsageError
from clawblox.results import LogLine, SavedSnapshot, StopResult, WorldEvent
from clawblox.typed_values import converter

_T = TypeVar("_T")


def _option_names(kind: type[attrs.AttrsInstance], *left_out: str) -> list[str]:
    return [name for name in attrs.fields_dict(kind) if name not in left_out]


_OPTIONS: Final[Mapping[str, Sequence[str]]] = {
    "save": _option_names(SaveOptions),
    "restart": _option_names(RestartOptions),
    # A fork gets its snapshot from ``checkpoint``, and its owner is the orchestrator.
    "fork": _option_names(ManyOptions, "resume", "detach"),
    # A client must not leave a detached instance behind or choose another run directory.
    "start": _option_names(StartOptions, "detach", "run_dir", "tmux_session"),
}
NEEDED: Final[Mapping[str, Sequence[str]]] = {
    "fork": ("checkpoint", "count"),
    "describe_blob": ("path",),
    "read_blob": ("path", "offset"),
    "write_blob": ("sha256", "size_bytes", "offset", "data"),
}
"""The members that a request must have, by ``op``."""
ALLOWED: Final[Mapping[str, Sequence[str]]] = {
    **_OPTIONS,
    "save": ("instances", *_OPTIONS["save"]),
    "stop": ("instances", "grace_seconds"),
    "restart": ("instances", *_OPTIONS["restart"]),
    "logs": ("instances", "follow", "tail"),
}
"""The optional members of a request, by ``op``."""


class Restarted(msgspec.Struct, frozen=True):
    """The result of a restart.

    Attributes:
        url: Address of the instance.
        pid: Process of the world.
        resume_path: Snapshot that was restored; None for a fresh start.
        ready_s: Seconds that the restart took, without the preceding save and stop.
    """

    url: str
    pid: int
    resume_path: Path | None
    ready_s: float


def read_names(asked: Mapping[str, Any]) -> list[str] | None:
    """Return the instances that a request names; None means all.

    Raises:
        UsageError: ``instances`` is not a list of names.
    """
    names = asked.get("instances")
    if names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return names
    raise UsageError(f"instances: must be a list of names, not {names!r}")


def read_options(op: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in a request for an operation, unchecked."""
    return {name: asked[name] for name in _OPTIONS[op] if asked.get(name) is not None}


def read_grace_seconds(asked: Mapping[str, Any]) -> float:
    """Return the seconds between TERM and KILL.

    Raises:
        ConfigError: The value is not a duration.
    """
    grace_seconds = asked.get("grace_seconds")
    return DEFAULT_GRACE_S if grace_seconds is None else check_grace(grace_seconds)


def read_flag(asked: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return a boolean member.

    Raises:
        UsageError: The value is not a boolean.
    """
    value = asked.get(key)
    if value is None or isinstance(value, bool):
        return default if value is None else value
    raise UsageError(f"{key}: must be true or false, not {value!r}")


def read_tail(asked: Mapping[str, Any]) -> int | None:
    """Return the number of latest lines to return; None means all.

    Raises:
        UsageError: The value is not an integer of 0 or more.
    """
    tail = asked.get("tail")
    if tail is None or (type(tail) is int and tail >= 0):
        return tail
    raise UsageError(f"tail: must be a whole number, 0 or more, not {tail!r}")


def describe_error(name: str, error: Exception) -> str:
    """Return the text of an error without the instance name, which the event contains."""
    return str(error).removeprefix(f"{name}: ")


def describe_event(event: WorldEvent) -> dict[str, Any]:
    """Return an event as plain values."""
    data = {
        key: str(value) if isinstance(value, Exception) else value
        for key, value in event.data.items()
    }
    return {**attrs.asdict(event, recurse=False), "data": data, "labels": dict(event.labels)}


def read_line(message: Mapping[str, Any]) -> LogLine:
    """Return the line in a message of ``logs``."""
    return LogLine(**message["value"])


def describe_outcome(event: str, outcome: Outcome[Any]) -> dict[str, Any]:
    """Return the members of the event for an outcome.

    Args:
        event: The event of a success: ``saved`` or ``stopped``.
        outcome: The outcome for one instance.
    """
    if outcome.error is not None:
        error = describe_error(outcome.instance, outcome.error)
        return {"event": "failed", "instance": outcome.instance, "error": error}
    return {"event": event, "instance": outcome.instance, "value": outcome.value}


def read_outcome(event: Mapping[str, Any], convert: Callable[[object], _T]) -> Outcome[_T]:
    """Return the outcome that an event reports.

    Args:
        event: A ``failed`` event, or one with a ``value``.
        convert: Converts the value: :data:`to_saved`, :data:`to_restarted` or :data:`to_stopped`.
    """
    if event["event"] == "failed":
        return Outcome(event["instance"], error=ClawbloxError(event["error"]))
    return Outcome(event["instance"], convert(event["value"]))


def to_path(kind: type[Any], value: Any) -> Any:  # noqa: ANN401 - as msgspec calls it
    """Convert a string to a path, for :func:`clawblox.typed_values.converter`."""
    if kind is Path:
        return Path(value)
    raise NotImplementedError(f"{kind} is not a plain value")


to_saved: Final = converter(SavedSnapshot, dec_hook=to_path)
"""Converts the value of a save."""

to_restarted: Final = converter(Restarted, dec_hook=to_path)
"""Converts the value of a restart."""

to_stopped: Final = converter(StopResult, dec_hook=to_path)
"""Converts the value of a stop."""
