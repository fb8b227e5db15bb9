"""The snapshot of a hosted world: a JSON document, written and restored.

``docs/server.md`` describes its fields. Orchestrators and other tools read ``format``, ``time``
and ``scene_hash``.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs

from clawblox.protocol import SEEDS
from clawblox.server.chat import Chat, ChatMessage
from clawblox.server.hosted_world import HostedWorld, PendingInput
from clawblox.server.payload import refuse_constant
from clawblox.server.sessions import AgentSession, Sessions

VERSION: Final = 1
"""Version of the kit's document around the simulation's state."""

_ADVICE: Final = {
    "format": "start the world that saved it",
    "version": "start the world with the version of clawblox that saved it",
    "scene_hash": "the world's files or rules have changed since it was saved",
}

_log = logging.getLogger("clawblox.server")
_T = TypeVar("_T")


class SnapshotRefusal(ValueError):  # noqa: N818 - names the condition
    """A snapshot does not belong to this world; the message states why."""


def make_snapshot(world: HostedWorld) -> dict[str, Any]:
    """Return the snapshot of a world, as it is between two ticks.

    Errors of the simulation's ``snapshot`` and ``content_hash`` pass through and do not halt the
    world: a failed save must not stop the agents.

    Raises:
        Halted: The world has stopped.
    """
    world.check()
    return {
        "format": world.simulation.format,
        "version": VERSION,
        "time": world.time,
        "tick": world.tick,
        "scene_hash": world.simulation.content_hash(),
        "seed": world.seed,
        "state": world.simulation.snapshot(),
        "sessions": [attrs.asdict(session) for session in world.sessions],
        "ended_sessions": world.sessions.ended,
        "ids": world.ids.document(),
        "pending_inputs": [
            {"agent_id": item.agent_id, "action": item.action, "data": item.data}
            for item in world.pending
        ],
        "chat": world.chat.document(),
    }


def without_secrets(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return a snapshot without the ids of sessions and the key that they are made with."""
    ids = {"issued": snapshot["ids"]["issued"]}
    sessions = [
        {"agent_id": session["agent_id"], "name": session["name"]}
        for session in snapshot["sessions"]
    ]
    public = {key: value for key, value in snapshot.items() if key != "ended_sessions"}
    return {**public, "sessions": sessions, "ids": ids}


def with_new_secrets(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return a snapshot of a recording with other ids of sessions, so that it can be restored.

    Raises:
        SnapshotRefusal: It is not such a snapshot.
    """
    ids, sessions = _field(snapshot, "ids", dict), _field(snapshot, "sessions", list)
    if not all(isinstance(session, dict) for session in sessions):
        raise SnapshotRefusal("its 'sessions' are malformed: not all are objects")
    return {
        **snapshot,
        "ids": {**ids, "key": secrets.token_hex(32)},
        "sessions": [{**session, "session": secrets.token_hex(16)} for session in sessions],
    }


def restore_snapshot(world: HostedWorld, body: bytes) -> None:
    """Restore a snapshot into a fresh world.

    Args:
        world: The world, not used before; it must not be used after an error either.
        body: The snapshot, encoded as JSON.

    Raises:
        SnapshotRefusal: ``body`` is not a snapshot of this world.
    """
    try:
        document = json.loads(body, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SnapshotRefusal(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise SnapshotRefusal("it is not a JSON object")
    restore_document(world, document)


def restore_document(world: HostedWorld, document: dict[str, Any]) -> None:
    """Restore an already parsed snapshot, like :func:`restore_snapshot`.

    Raises:
        SnapshotRefusal: It is not a snapshot of this world.
    """
    _check_identity(world, document)
    _restore_kit(world, document)
    _restore_simulation(world, document)


def _check_identity(world: HostedWorld, document: dict[str, Any]) -> None:
    expected = {
        "format": world.simulation.format,
        "version": VERSION,
        "scene_hash": world.simulation.content_hash(),
    }
    for key, ours in expected.items():
        theirs = _field(document, key, type(ours))
        if theirs != ours:
            advice = _ADVICE[key]
            raise SnapshotRefusal(
                f"its {key} is {theirs!r}, and this world's is {ours!r}: {advice}"
            )


def _restore_kit(world: HostedWorld, document: dict[str, Any]) -> None:
    ids, chat = _field(document, "ids", dict), _field(document, "chat", dict)
    world.tick = _field(document, "tick", int)
    world.seed = _seed(document)
    world.ids.restore(_read_hex(_field(ids, "key", str)), _field(ids, "issued", int))
    world.sessions = Sessions(_entries(document, "sessions", AgentSession), _ended(document))
    world.chat = Chat(_entries(chat, "messages", ChatMessage), _field(chat, "posted", int))
    world.pending = _entries(document, "pending_inputs", PendingInput)


def _restore_simulation(world: HostedWorld, document: dict[str, Any]) -> None:
    time = _field(document, "time", (int, float))
    if "state" not in document:
        raise SnapshotRefusal("it has no 'state'")
    try:
        world.simulation.restore(document["state"])
    except ValueError as error:
        raise SnapshotRefusal(f"its state cannot be restored: {error}") from error
    except Exception as error:
        _log.exception("restoring the state failed")
        raise SnapshotRefusal(
            f"its state cannot be restored: {type(error).__name__}: {error}"
        ) from error
    world.time = world.simulation.time
    if world.time != time:
        raise SnapshotRefusal(
            f"it was taken at time {time}, but the restored world is at {world.time}"
        )


def _field(document: dict[str, Any], key: str, kind: type[_T] | tuple[type[_T], ...]) -> _T:
    if key not in document:
        raise SnapshotRefusal(f"it has no {key!r}")
    value = document[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise SnapshotRefusal(f"its {key!r} is of the wrong type: {type(value).__name__}")
    return value


def _entries(document: dict[str, Any], key: str, build: Callable[..., _T]) -> list[_T]:
    entries = _field(document, key, list)
    try:
        return [build(**entry) for entry in entries]
    except (TypeError, ValueError) as error:
        raise SnapshotRefusal(f"its {key!r} are malformed: {error}") from error


def _ended(document: dict[str, Any]) -> list[str]:
    """Return the ids of ended sessions; older snapshots have none."""
    ended = _field(document, "ended_sessions", list) if "ended_sessions" in document else []
    if not all(isinstance(session_id, str) for session_id in ended):
        raise SnapshotRefusal("its 'ended_sessions' are malformed: not all are strings")
    return ended


def _seed(document: dict[str, Any]) -> int | None:
    """Return the last seed of the saved world; older snapshots have none."""
    if document.get("seed") is None:
        return None
    seed = _field(document, "seed", int)
    if seed not in SEEDS:
        raise SnapshotRefusal(f"its 'seed' is not from 0 to 2**64-1: {str(seed)[:40]}")
    return seed


def _read_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise SnapshotRefusal(f"its 'ids' are malformed: {error}") from error
