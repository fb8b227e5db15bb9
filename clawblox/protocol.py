"""The wire contract between an orchestrator, a world and its agents. No I/O.

Routes, headers and environment names are defined by the Clawblox world interface; worlds and
clients outside this package rely on every literal here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Self

import attrs

from clawblox.foreign_values import clean_text, finite_number, parse_json, whole_number

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
REPLAY_ROUTE: Final = "/replay"
"""Route for the progress of a replay; the only other route of a replaying world."""

SESSION_HEADER: Final = "X-Session"
OPERATOR_HEADER: Final = "X-Operator-Token"
DATASTORE_HEADER: Final = "X-Datastore-Copy"
"""In a request for a snapshot: the path for the world's copy of its rows, percent-encoded. In the
answer: confirmation of the copy."""

HOST_ENV: Final = "WORLD_HOST"
PORT_ENV: Final = "WORLD_PORT"
BASE_PATH_ENV: Final = "WORLD_BASE_PATH"
RECORD_ENV: Final = "WORLD_RECORD"
RECORD_DIR_ENV: Final = "WORLD_RECORD_DIR"
FILES_ENV: Final = "WORLD_FILES_SHA256"
"""Digest of the world's files, for the first record of its recording."""
RESUME_ENV: Final = "WORLD_RESUME_PATH"
RESEED_ENV: Final = "WORLD_RESEED"
REPLAY_ENV: Final = "WORLD_REPLAY_PATH"
"""Script of a replay, which the world performs and records instead of serving agents."""
DATASTORE_ENV: Final = "WORLD_DATASTORE_PATH"
OPERATOR_TOKEN_ENV: Final = "WORLD_OPERATOR_TOKEN"  # noqa: S105 - a name, not a token
SPECTATOR_TOKEN_ENV: Final = "WORLD_SPECTATOR_TOKEN"  # noqa: S105 - a name, not a token
MANIFEST_ENV: Final = "CLAWBLOX_MANIFEST_PATH"
BIN_ENV: Final = "CLAWBLOX_BIN"
LEASE_ENV: Final = "CLAWBLOX_LEASE"
"""Token with which a world that is itself an orchestrator uses its leased port."""

ARCHIVE_SUFFIX: Final = ".ckpt"
"""Suffix of an archive of world and agents; a world's snapshot never has it."""

INSTANCE_ENV: Final = "CLAWBLOX_INSTANCE"
"""Marks every process of an instance; see ``docs/architecture.md``."""

WORLD_URL_ENV: Final = "CLAWBLOX_WORLD_URL"
AGENT_NAME_ENV: Final = "CLAWBLOX_AGENT_NAME"
"""Variables with the world and the name of a program other than a language model; not secret."""

SEEDS: Final = range(2**64)
"""All valid values of ``WORLD_RESEED``, as decimal numbers."""

# A socket that the world inherits: the convention of sd_listen_fds(3).
LISTEN_FDS_ENV: Final = "LISTEN_FDS"
LISTEN_PID_ENV: Final = "LISTEN_PID"
LISTEN_FDNAMES_ENV: Final = "LISTEN_FDNAMES"
LISTEN_FD: Final = 3
"""Descriptor of the only inherited socket of a world."""
LISTEN_FD_NAME: Final = "world"

SECRET_ENV: Final = (OPERATOR_TOKEN_ENV, SPECTATOR_TOKEN_ENV)
MASK: Final = "***"
SECRET_NAME: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|COOKIE|AUTHORIZATION", re.IGNORECASE
)
"""Matches names of variables whose values are secret."""

DEFAULT_SNAPSHOT_FORMAT: Final = "world-snapshot"
"""Format of a snapshot that does not name its own."""

WATCHDOG_STATUS: Final = 57
"""Exit status of an engine world ended by its watchdog; also the number of the signal for it."""
WATCHDOG_MARK: Final = "[Watchdog] The world was ended: "
"""Start of the log line with the reason for the end."""
HALTED: Final = "halted"
"""The ``status`` of a world that has stopped permanently but still answers."""

_SESSION_ID = re.compile(r"[!-~]{1,512}")
_RUN_SUFFIX = re.compile(r"-r(\d.*|.+-w\d+-a\d+)$")
"""The run suffix of an agent's full name: ``-r003``, or ``-rexp-g001-w0-a0``: run, world, agent."""
_MAX_REASON_CHARS = 1000
_MAX_REPORT_BYTES = 4096
_MAX_ERROR_BYTES = 3072
_LEAST_RATE_HZ, _MAX_RATE_HZ = 1e-3, 1e6
_MAX_TICK_COST_S = 1e4


class MaskedEnvironment(Mapping[str, str]):
    """Environment variables whose representation shows no secrets.

    The mapping can be used as the environment of a process: keys, ``items``, ``values`` and copies
    give the actual values. ``repr``, ``str`` and logs mask the variables with a secret name. The
    class is not a ``dict``, so that an encoder refuses it or shows its ``repr``; write
    :meth:`masked` instead.

    Args:
        variables: The variables with their values.
    """

    __slots__ = ("_variables",)

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

    def __getitem__(self, name: str) -> str:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __or__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**other, **self}

    def __repr__(self) -> str:
        return repr(self.masked())

    def copy(self) -> dict[str, str]:
        """Return a mutable copy of the actual values."""
        return dict(self._variables)

    def masked(self) -> dict[str, str]:
        """Return the variables, with a mask in place of each value with a secret name."""
        return {
            name: MASK if SECRET_NAME.search(name) else value
            for name, value in self._variables.items()
        }


@attrs.frozen
class WorldEnvironment:
    """The environment variables of a world process.

    All paths are absolute, because the world chooses its own working directory. Variables that do
    not apply are left unset, except for a blank ``WORLD_BASE_PATH``; worlds treat blank as unset.

    Attributes:
        host: Address to bind.
        port: Port to bind.
        base_path: Prefix of every route, without a trailing slash, or empty.
        record: Whether to record.
        record_dir: Directory for recordings; None if the world does not record.
        resume_path: Snapshot to restore before serving; None starts fresh.
        manifest_path: Manifest of the run, to which the world may append.
        clawblox_bin: The ``clawblox`` executable.
        operator_token: Secret required for ``GET /snapshot``.
        spectator_token: Secret required for spectator feeds.
        datastore_path: File for the rows of an instance with its own rows; None lets the world
            choose.
        reseed: Seed of the world's randomness, for a fresh world or after restoring; one of
            :data:`SEEDS`. None continues exactly.
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
    datastore_path: Path | None = None

    def public(self) -> dict[str, str]:
        """Return the variables without secrets."""
        named = {
            HOST_ENV: self.host,
            PORT_ENV: str(self.port),
            BASE_PATH_ENV: self.base_path,
            RECORD_ENV: "1" if self.record else "0",
            RECORD_DIR_ENV: str(self.record_dir or ""),
            RESUME_ENV: str(self.resume_path or ""),
            RESEED_ENV: "" if self.reseed is None else str(self.reseed),
            DATASTORE_ENV: str(self.datastore_path or ""),
            MANIFEST_ENV: str(self.manifest_path),
            BIN_ENV: self.clawblox_bin,
        }
        # A program may read WORLD_BASE_PATH without checking that it is set.
        return {name: value for name, value in named.items() if value or name == BASE_PATH_ENV}

    def secrets(self) -> dict[str, str]:
        """Return the variables that must never be stored."""
        return {
            OPERATOR_TOKEN_ENV: self.operator_token,
            SPECTATOR_TOKEN_ENV: self.spectator_token,
        }

    def complete(self) -> dict[str, str]:
        """Return all variables, including secrets."""
        return {**self.public(), **self.secrets()}


@attrs.frozen
class JoinAnswer:
    """A world's answer to ``POST /join``.

    Attributes:
        session: The session id, to be sent as ``X-Session``.
        agent_id: The world's id of the agent; empty if the answer contains no id.
        fields: The whole answer.
    """

    session: str
    agent_id: str
    fields: Mapping[str, Any]

    @classmethod
    def of_session(cls, session: str) -> Self:
        """Return an answer with only the session."""
        return cls(session, "", {"session": session})


def parse_join_answer(body: bytes) -> JoinAnswer:
    """Parse the body of a ``/join`` answer.

    Raises:
        ValueError: The body is not a JSON object with a usable ``session``; the error explains why.
    """
    try:
        fields = parse_json(body)
    except ValueError as error:
        raise ValueError("the answer to /join is not JSON") from error
    if not isinstance(fields, dict):
        raise ValueError("the answer to /join is not a JSON object")
    return read_join_answer(fields)


def read_join_answer(fields: Mapping[str, Any]) -> JoinAnswer:
    """Read the object of a ``/join`` answer.

    Raises:
        ValueError: The object has no usable ``session``.
    """
    session = fields.get("session")
    if not isinstance(session, str) or not is_session_id(session):
        raise ValueError("the answer to /join has no usable 'session'")
    agent_id = fields.get("agent_id")
    return JoinAnswer(session, agent_id if isinstance(agent_id, str) else "", fields)


def parse_halt(body: bytes) -> str | None:
    """Return the reason for a world's halt from the body of a 503; None without a halt.

    Such a body is a JSON object with the ``status`` ``halted`` and a text as ``reason``.
    """
    fields = _parse_fields(body)
    if fields.get("status") != HALTED:
        return None
    reason = fields.get("reason")
    return reason[:_MAX_REASON_CHARS] if isinstance(reason, str) and reason else "no reason given"


def _parse_fields(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; an empty one for any other body."""
    try:
        fields = parse_json(body)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


@attrs.frozen(kw_only=True)
class TickRate:
    """The speed of a world in real time, reported to its operator.

    Attributes:
        nominal_hz: Target rate in ticks per second of real time.
        achieved_hz: Recently achieved rate in ticks per second.
        tick_cost_s: Mean processor time of a tick, in seconds; None if unknown.
    """

    nominal_hz: float
    achieved_hz: float
    tick_cost_s: float | None = None

    @property
    def share(self) -> float:
        """The achieved rate as a share of the nominal rate."""
        return self.achieved_hz / self.nominal_hz

    @property
    def cores(self) -> float | None:
        """Number of processors that the ticks need at the nominal rate; None if unknown."""
        return None if self.tick_cost_s is None else self.tick_cost_s * self.nominal_hz


@attrs.frozen
class ScriptErrors:
    """The non-fatal errors of a world's scripts, reported to its operator.

    Attributes:
        count: Number of errors since the world started, including errors before its snapshot.
        last: Text of the last error; may be empty.
    """

    count: int
    last: str

    def __str__(self) -> str:
        number = "1 script error" if self.count == 1 else f"{self.count} script errors"
        return f"{number}, the last: {self.last}" if self.last else number


@attrs.frozen(kw_only=True)
class HealthReport:
    """The facts that a world reports about itself in an answer of its liveness route.

    Attributes:
        halt: Reason for a halt; None without a halt.
        rate: Speed of the world; None if not reported.
        errors: The script errors; None without errors.
    """

    halt: str | None = None
    rate: TickRate | None = None
    errors: ScriptErrors | None = None


def parse_report(status: int | None, body: bytes) -> HealthReport:
    """Return the report in an answer of a liveness route.

    A 503 may contain a halt (see `parse_halt`). A 200 may contain a rate and errors in a JSON
    object of at most 4096 bytes. A rate consists of the numbers ``tick_rate_hz`` and
    ``achieved_rate_hz``, and optionally ``tick_cost_s``; errors consist of the integer ``errors``
    and optionally the string ``last_error``. A value outside of its limits counts as missing.

    Args:
        status: Status of the answer; None without a status.
        body: Body of the answer.
    """
    if status == 503:
        return HealthReport(halt=parse_halt(body))
    if status != 200 or not body.startswith(b"{") or len(body) > _MAX_REPORT_BYTES:
        return HealthReport()  # many worlds answer with a text
    fields = _parse_fields(body)
    errors = parse_errors(fields.get("errors"), fields.get("last_error"))
    return HealthReport(rate=_parse_rate(fields), errors=errors)


def _parse_rate(fields: Mapping[str, Any]) -> TickRate | None:
    nominal = finite_number(fields.get("tick_rate_hz"), low=_LEAST_RATE_HZ, high=_MAX_RATE_HZ)
    achieved = finite_number(fields.get("achieved_rate_hz"), high=_MAX_RATE_HZ)
    if nominal is None or achieved is None:
        return None
    cost = finite_number(fields.get("tick_cost_s"), high=_MAX_TICK_COST_S)
    return TickRate(nominal_hz=nominal, achieved_hz=achieved, tick_cost_s=cost)


def parse_errors(count: object, last: object) -> ScriptErrors | None:
    """Return script errors from foreign values; None unless the count is 1 or more.

    Args:
        count: Number of errors.
        last: Text of the last error.
    """
    if (number := whole_number(count, low=1)) is None:
        return None
    text = clean_text(last, max_chars=_MAX_REPORT_BYTES) if isinstance(last, str) else ""
    return ScriptErrors(number, text)


def report_fields(rate: TickRate | None, errors: ScriptErrors | None) -> dict[str, float | str]:
    """Return the fields of a health answer for an operator, which `parse_report` can read.

    The text of the last error is cut if the answer would become too long.
    """
    fields: dict[str, float | str] = {}
    if rate is not None:
        fields |= {"tick_rate_hz": rate.nominal_hz, "achieved_rate_hz": rate.achieved_hz}
        fields |= {} if rate.tick_cost_s is None else {"tick_cost_s": rate.tick_cost_s}
    if errors is not None:
        fields |= {"errors": errors.count, "last_error": _cut_encoded(errors.last)}
    return fields


def _cut_encoded(text: str) -> str:
    """Return the longest prefix of a text with at most 3072 bytes as ASCII JSON."""
    text = text[:_MAX_ERROR_BYTES]
    sizes = accumulate(len(json.dumps(char)) - 2 for char in text)
    return text[: sum(size <= _MAX_ERROR_BYTES for size in sizes)]


def display_name(run_name: str) -> str:
    """Return the name of an agent in worlds: its full name without the run suffix."""
    return _RUN_SUFFIX.sub("", run_name) or run_name


def is_session_id(text: str) -> bool:
    """Return whether ``text`` can be sent in an ``X-Session`` header."""
    return _SESSION_ID.fullmatch(text) is not None


def normalise_base_path(text: str) -> str:
    """Normalise a base path to '' or a path with a leading but no trailing slash."""
    parts = [part for part in text.split("/") if part]
    return "/" + "/".join(parts) if parts else ""
