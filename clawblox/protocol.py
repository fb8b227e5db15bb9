"""The wire contract between an orchestrator, a world and its agents. No I/O.

Routes, headers and environment names are those of the Clawblox world interface; worlds and
clients that this package does not control rely on every literal here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.foreign_values import parse_json

__all__ = [
    "API_ROUTE",
    "ARCHIVE_SUFFIX",
    "DEFAULT_SNAPSHOT_FORMAT",
    "HEALTH_ROUTE",
    "INSTANCE_ENV",
    "JOIN_ROUTE",
    "LEAVE_ROUTE",
    "MASK",
    "OPERATOR_HEADER",
    "SECRET_ENV",
    "SECRET_NAME",
    "SEEDS",
    "SESSION_HEADER",
    "SNAPSHOT_ROUTE",
    "JoinAnswer",
    "WorldEnvironment",
    "is_session_id",
    "join_base_path",
    "normalise_base_path",
    "parse_halt",
    "parse_join_answer",
]

API_ROUTE: Final = "/api.md"
API_ALIAS_ROUTE: Final = "/skill.md"
HEALTH_ROUTE: Final = "/health"
JOIN_ROUTE: Final = "/join"
LEAVE_ROUTE: Final = "/leave"
OBSERVE_ROUTE: Final = "/observe"
INPUT_ROUTE: Final = "/input"
CHAT_ROUTE: Final = "/chat"
CHAT_MESSAGES_ROUTE: Final = "/chat/messages"
SNAPSHOT_ROUTE: Final = "/snapshot"

SESSION_HEADER: Final = "X-Session"
OPERATOR_HEADER: Final = "X-Operator-Token"

HOST_ENV: Final = "WORLD_HOST"
PORT_ENV: Final = "WORLD_PORT"
BASE_PATH_ENV: Final = "WORLD_BASE_PATH"
RECORD_ENV: Final = "WORLD_RECORD"
RECORD_DIR_ENV: Final = "WORLD_RECORD_DIR"
RESUME_ENV: Final = "WORLD_RESUME_PATH"
RESEED_ENV: Final = "WORLD_RESEED"
OPERATOR_TOKEN_ENV: Final = "WORLD_OPERATOR_TOKEN"  # noqa: S105 - a name, not a token
SPECTATOR_TOKEN_ENV: Final = "WORLD_SPECTATOR_TOKEN"  # noqa: S105 - a name, not a token
MANIFEST_ENV: Final = "CLAWBLOX_MANIFEST_PATH"
BIN_ENV: Final = "CLAWBLOX_BIN"
ARCHIVE_SUFFIX: Final = ".ckpt"
"""Ends the name of an archive of world and agents; that of a world's snapshot does not."""

INSTANCE_ENV: Final = "CLAWBLOX_INSTANCE"
"""Marks every process of an instance; see ``docs/architecture.md``."""

SEEDS: Final = range(2**64)
"""Every seed that ``WORLD_RESEED`` may carry, as a decimal number."""

# A socket that the world inherits: the convention of sd_listen_fds(3).
LISTEN_FDS_ENV: Final = "LISTEN_FDS"
LISTEN_PID_ENV: Final = "LISTEN_PID"
LISTEN_FDNAMES_ENV: Final = "LISTEN_FDNAMES"
LISTEN_FD: Final = 3
"""The descriptor of the inherited socket: the first, and the only one that a world gets."""
LISTEN_FD_NAME: Final = "world"

SECRET_ENV: Final = (OPERATOR_TOKEN_ENV, SPECTATOR_TOKEN_ENV)
MASK: Final = "***"
SECRET_NAME: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|COOKIE|AUTHORIZATION", re.IGNORECASE
)
"""Found in the names of variables whose values are secret."""

DEFAULT_SNAPSHOT_FORMAT: Final = "world-snapshot"
"""Format of a snapshot that does not name its own."""

HALTED: Final = "halted"
"""The ``status`` of a world that has stopped for good and still answers."""

_SESSION_ID = re.compile(r"[!-~]{1,512}")
_MAX_REASON_CHARS = 1000


@attrs.frozen
class WorldEnvironment:
    """What a world process learns from its environment.

    Every path is absolute: the world's working directory is its own. Variables that do not apply
    are left unset, and worlds treat a blank value as unset.

    Attributes:
        host: Address to bind.
        port: Port to bind.
        base_path: Prefix of every route, without a trailing slash; empty for none.
        record: Whether to record.
        record_dir: Where to record, when recording.
        resume_path: Snapshot to restore before serving.
        manifest_path: Manifest of the run, which the world may append to.
        clawblox_bin: The ``clawblox`` executable.
        operator_token: Secret that gates ``GET /snapshot``.
        spectator_token: Secret that gates spectator feeds.
        reseed: New seed of the world's randomness after restoring, one of :data:`SEEDS`; None
            continues exactly.
    """

    host: str
    port: int
    base_path: str
    record: bool
    record_dir: Path | None
    resume_path: Path | None
    manifest_path: Path
    clawblox_bin: str
    operator_token: str = attrs.field(repr=False)
    spectator_token: str = attrs.field(repr=False)
    reseed: int | None = None

    def public(self) -> dict[str, str]:
        """Return the variables that hold no secret."""
        named = {
            HOST_ENV: self.host,
            PORT_ENV: str(self.port),
            BASE_PATH_ENV: self.base_path,
            RECORD_ENV: "1" if self.record else "0",
            RECORD_DIR_ENV: str(self.record_dir or ""),
            RESUME_ENV: str(self.resume_path or ""),
            RESEED_ENV: "" if self.reseed is None else str(self.reseed),
            MANIFEST_ENV: str(self.manifest_path),
            BIN_ENV: self.clawblox_bin,
        }
        return {name: value for name, value in named.items() if value}

    def secrets(self) -> dict[str, str]:
        """Return the variables that must never be written down."""
        return {
            OPERATOR_TOKEN_ENV: self.operator_token,
            SPECTATOR_TOKEN_ENV: self.spectator_token,
        }

    def masked(self) -> dict[str, str]:
        """Return every variable, fit to be shown: secrets are masked."""
        return {**self.public(), **dict.fromkeys(self.secrets(), MASK)}


@attrs.frozen
class JoinAnswer:
    """What a world answered to ``POST /join``.

    Attributes:
        session: The session id, to be sent as ``X-Session``.
        agent_id: The world's id of the agent; empty when the answer has none.
        fields: The whole answer.
    """

    session: str
    agent_id: str
    fields: Mapping[str, Any]


def parse_join_answer(body: bytes) -> JoinAnswer:
    """Read the body of a ``/join`` answer.

    Raises:
        ValueError: It is not a JSON object with a usable ``session``; says what is missing.
    """
    try:
        fields = parse_json(body)
    except ValueError as error:
        raise ValueError("the answer to /join is not JSON") from error
    if not isinstance(fields, dict):
        raise ValueError("the answer to /join is not a JSON object")
    session = fields.get("session")
    if not isinstance(session, str) or not is_session_id(session):
        raise ValueError("the answer to /join has no usable 'session'")
    agent_id = fields.get("agent_id")
    return JoinAnswer(session, agent_id if isinstance(agent_id, str) else "", fields)


def parse_halt(body: bytes) -> str | None:
    """Return why a world has halted, from the body of a 503; None if it has not halted.

    Such a body is a JSON object with the ``status`` ``halted`` and a text as ``reason``.
    """
    try:
        fields = parse_json(body)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("status") != HALTED:
        return None
    reason = fields.get("reason")
    return reason[:_MAX_REASON_CHARS] if isinstance(reason, str) and reason else "no reason given"


def is_session_id(text: str) -> bool:
    """Return whether ``text`` can be sent in an ``X-Session`` header."""
    return _SESSION_ID.fullmatch(text) is not None


def normalise_base_path(text: str) -> str:
    """Return a base path as worlds get it: with a leading slash, without a trailing one, or ''."""
    parts = [part for part in text.split("/") if part]
    return "/" + "/".join(parts) if parts else ""


def join_base_path(base_path: str, route: str) -> str:
    """Put ``route`` (with its leading slash) below a normalised base path."""
    return f"{base_path}{route}"
