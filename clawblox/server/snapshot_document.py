"""The snapshot document: everything that a restored instance needs to be the same one.

Its shape is described in ``docs/server.md``. ``format``, ``time`` and ``scene_hash`` are the
names that orchestrators and other tools read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import attrs

from clawblox.server.chat import Chat, ChatMessage
from clawblox.server.instance import Instance, PendingInput
from clawblox.server.sessions import IdSource, Session, Sessions

__all__ = ["VERSION", "SnapshotRefusal", "capture", "restore"]

VERSION: Final = 1
"""Version of the document around the simulation's own state."""

_log = logging.getLogger("clawblox.server")
_T = TypeVar("_T")


class SnapshotRefusal(ValueError):  # noqa: N818 - says what happened
    """A document that this world cannot become; the message says why."""


def capture(instance: Instance) -> dict[str, Any]:
    """Return the document of an instance, as it stands between two ticks.

    An error of the simulation's ``snapshot`` is passed on and does not halt the world: what
    an operator asks for must not end what agents do.

    Raises:
        Halted: The world has stopped.
    """
    instance.check()
    return {
        "format": instance.simulation.format,
        "version": VERSION,
        "time": instance.time,
        "tick": instance.tick,
        "scene_hash": instance.simulation.content_hash(),
        "state": instance.simulation.snapshot(),
        "sessions": [attrs.asdict(session) for session in instance.sessions],
        "ids": instance.ids.document(),
        "pending_inputs": [
            {"agent_id": each.agent_id, "action": each.action, "data": each.data}
            for each in instance.pending
        ],
        "chat": instance.chat.document(),
    }


def restore(instance: Instance, body: bytes) -> None:
    """Make a fresh instance the one that ``body`` was captured of.

    Raises:
        SnapshotRefusal: The document is not a snapshot of this world; the instance must not
            be used any more.
    """
    document = _parse(body)
    _check_identity(instance, document)
    _restore_kit(instance, document)
    _restore_simulation(instance, document)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SnapshotRefusal(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise SnapshotRefusal("it is not a JSON object")
    return document


def _check_identity(instance: Instance, document: dict[str, Any]) -> None:
    expected = {
        "format": instance.simulation.format,
        "version": VERSION,
        "scene_hash": instance.simulation.content_hash(),
    }
    for key, ours in expected.items():
        theirs = _field(document, key, type(ours))
        if theirs != ours:
            raise SnapshotRefusal(f"its {key} is {theirs!r}, and this world's is {ours!r}")


def _restore_kit(instance: Instance, document: dict[str, Any]) -> None:
    ids, chat = _field(document, "ids", dict), _field(document, "chat", dict)
    instance.tick = _field(document, "tick", int)
    instance.ids = IdSource(_read_hex(_field(ids, "key", str)), _field(ids, "issued", int))
    instance.sessions = Sessions(_entries(document, "sessions", Session))
    instance.chat = Chat(_entries(chat, "messages", ChatMessage), _field(chat, "posted", int))
    instance.pending = _entries(document, "pending_inputs", PendingInput)


def _restore_simulation(instance: Instance, document: dict[str, Any]) -> None:
    time = _field(document, "time", (int, float))
    if "state" not in document:
        raise SnapshotRefusal("it has no 'state'")
    try:
        instance.simulation.restore(document["state"])
    except ValueError as error:
        raise SnapshotRefusal(f"its state cannot be restored: {error}") from error
    except Exception as error:
        _log.exception("restoring the state failed")
        raise SnapshotRefusal(
            f"its state cannot be restored: {type(error).__name__}: {error}"
        ) from error
    instance.time = instance.simulation.time
    if instance.time != time:
        raise SnapshotRefusal(
            f"it was taken at time {time}, but the restored world is at {instance.time}"
        )


def _field(document: dict[str, Any], key: str, kind: type[_T] | tuple[type[_T], ...]) -> _T:
    if key not in document:
        raise SnapshotRefusal(f"it has no {key!r}")
    value = document[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise SnapshotRefusal(f"its {key!r} is of the wrong type: {type(value).__name__}")
    return value


def _entries(document: dict[str, Any], key: str, build: Callable[..., _T]) -> list[_T]:
    try:
        return [build(**entry) for entry in _field(document, key, list)]
    except (TypeError, ValueError) as error:
        if isinstance(error, SnapshotRefusal):
            raise
        raise SnapshotRefusal(f"its {key!r} are malformed: {error}") from error


def _read_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise SnapshotRefusal(f"its 'ids' are malformed: {error}") from error


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
