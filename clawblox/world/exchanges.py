"""Requests of agents with the answers of a world, as records of a recording. Pure.

Agents and worlds may send anything, so sizes are limited here, and an answer is recorded only if
every reader of recordings can parse it. Sessions and tokens are kept out of the records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

import attrs
import msgspec

from clawblox import protocol
from clawblox.foreign_values import (
    MAX_DEPTH,
    MAX_MEMBERS,
    clean_text,
    finite_number,
    parse_json,
    require_few_members,
    whole_number,
)
from clawblox.recording.blocks import (
    MAX_BLOCK_BYTES,
    MAX_TIME_S,
    Moment,
    Track,
    format_moment_utc,
)
from clawblox.recording.writer import observation_fields
from clawblox.world.access import Actor

_MAX_NAME_CHARS: Final = 200
_MAX_TEXT_CHARS: Final = 4000
"""Maximum length of a refusal, and of an input that is not JSON, in characters."""
_MAX_VALUES: Final = MAX_MEMBERS // 2
_MAX_FIELDS_BYTES: Final = MAX_BLOCK_BYTES - 1024
_SHORT_CHARS: Final = 8
"""Secrets shorter than this occur in other texts by chance, so only whole texts are masked."""
_BREAKS: Final = (b"\n", b"\r")

_encode_text: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class ExchangeKind(StrEnum):
    """The kind of an agent's request."""

    JOIN = "join"
    LEAVE = "leave"
    OBSERVE = "observe"
    INPUT = "input"
    CHAT = "chat"


def route_kinds(api: Mapping[str, Any]) -> dict[tuple[str, str], ExchangeKind]:
    """Return the kind of request for each method and route; joins are recorded elsewhere.

    Args:
        api: The routes of the world, from ``[api]`` of the ``world.toml``.
    """
    return {
        ("POST", protocol.LEAVE_ROUTE): ExchangeKind.LEAVE,
        ("POST", protocol.CHAT_ROUTE): ExchangeKind.CHAT,
        ("GET", api["observe"]): ExchangeKind.OBSERVE,
        ("POST", api["input"]): ExchangeKind.INPUT,
    }


@attrs.frozen(kw_only=True)
class AgentExchange:
    """A request of an agent, and the answer of the world.

    Attributes:
        kind: Kind of the request.
        actor: The agent.
        utc: Time of the request by the host's clock.
        at: The same time in seconds of ``time.monotonic``.
        body: Body of the request; None without a body.
        status: Status of the answer; None if there was no usable answer, in which case the request
            may have taken effect.
        answer: Body of the answer.
        rejoined: Whether a joining agent was in the world before.
    """

    kind: ExchangeKind
    actor: Actor
    utc: datetime
    at: float
    body: bytes | None = attrs.field(default=None, repr=False)
    status: int | None = None
    answer: bytes = attrs.field(default=b"", repr=False)
    rejoined: bool = False

    @property
    def is_accepted(self) -> bool:
        """True if the answer means success."""
        return (
            self.status is not None and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES
        )

    @property
    def size_bytes(self) -> int:
        """Approximate size in memory, in bytes."""
        return len(self.body or b"") + len(self.answer) + 512


@attrs.frozen
class NewRecord:
    """A record to write.

    Attributes:
        track: Track of the record.
        moment: Time at which the record was made.
        fields: The other fields, encoded.
    """

    track: Track
    moment: Moment
    fields: bytes


class Transcript:
    """Turns the exchanges of one recording into records, in order.

    Simulation time comes from the latest answer that contained it, and never goes back.

    Args:
        secrets: Sessions and tokens that must not be recorded; sessions of agents are added.
        time: Simulation time before the first answer, in seconds.

    Attributes:
        left_out: Number of answers and requests that could not be recorded.
    """

    def __init__(self, secrets: Iterable[str] = (), *, time: float = 0.0) -> None:
        self.left_out = 0
        self._tick, self._time = 0, time
        self._inputs = 0
        self._present: set[str] = set()
        self._seen: dict[str, tuple[int, bytes]] = {}
        self._secrets: dict[str, bytes] = {}
        for secret in secrets:
            self._hide(secret)

    def event(self, event: str, utc: datetime, **fields: object) -> Iterator[NewRecord]:
        """Yield the record of an event unless it is too long or not JSON."""
        try:
            encoded = _encode_text({"event": event, **fields}).encode("ascii")
        except (ValueError, TypeError, RecursionError):
            encoded = b""
        if not encoded or len(encoded) > _MAX_FIELDS_BYTES:
            self.left_out += 1
            return
        self._inputs += 1
        yield NewRecord(Track.INPUTS, self.moment(utc), encoded)

    def moment(self, utc: datetime) -> Moment:
        """Return the moment for a record made now."""
        return Moment(self._tick, self._time, format_moment_utc(utc))

    def records(self, exchange: AgentExchange) -> Iterator[NewRecord]:
        """Yield the records of an exchange."""
        actor, utc, kind = exchange.actor, exchange.utc, exchange.kind
        self._hide(actor.session)
        name = self.mask(clean_text(actor.name, max_chars=_MAX_NAME_CHARS))
        agent = self._read_id(actor) or name
        is_joining = kind is ExchangeKind.JOIN and not exchange.rejoined
        if is_joining or agent not in self._present:
            self._present.add(agent)
            again = {} if is_joining else {"rejoined": True}
            yield from self.event("join", utc, agent_id=agent, name=name, **again)
        if kind is ExchangeKind.LEAVE and exchange.is_accepted:
            self._present.discard(agent)
            yield from self.event("leave", utc, agent_id=agent)
        elif kind is ExchangeKind.INPUT:
            yield from self.event("input", utc, agent_id=agent, **self._read_input(exchange))
        elif kind is ExchangeKind.CHAT:
            chat = self._read_chat(exchange)
            yield from self.event("chat", utc, agent_id=agent, agent_name=name, **chat)
        if (
            kind in (ExchangeKind.OBSERVE, ExchangeKind.INPUT)
            and exchange.is_accepted
            and exchange.answer
        ):
            yield from self._observation(agent, exchange.answer, utc)

    def _read_id(self, actor: Actor) -> str:
        """Return the world's id of an agent; empty if it gave none."""
        if not isinstance(actor.agent_id, str) or actor.agent_id == actor.session:
            return ""
        return str(self.mask(clean_text(actor.agent_id, max_chars=_MAX_NAME_CHARS)))

    def _read_input(self, exchange: AgentExchange) -> dict[str, Any]:
        message = _parse_body(exchange.body)
        action = message.get("type") if isinstance(message, dict) else None
        is_usual = isinstance(message, dict) and isinstance(action, str)
        return {
            "action": self.mask(action) if is_usual else None,
            "data": self.mask(message.get("data") if is_usual else message),
            **self._outcome(exchange),
        }

    def _read_chat(self, exchange: AgentExchange) -> dict[str, Any]:
        message, answer = _parse_body(exchange.body), _parse_body(exchange.answer)
        given = answer if exchange.is_accepted and isinstance(answer, dict) else {}
        content = message.get("content") if isinstance(message, dict) else message
        facts = {"content": content, "id": given.get("id"), "created_at": given.get("created_at")}
        return {**{key: self.mask(fact) for key, fact in facts.items()}, **self._outcome(exchange)}

    def _outcome(self, exchange: AgentExchange) -> dict[str, Any]:
        refusal = None
        if exchange.status is not None and not exchange.is_accepted:
            refusal = self.mask(_read_text(exchange.answer) or f"status {exchange.status}")
        return {"refusal": refusal, "status": exchange.status}

    # Observations

    def _observation(self, agent: str, body: bytes, utc: datetime) -> Iterator[NewRecord]:
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if self._seen.get(agent) == (self._inputs, digest):
            return
        try:
            value = _parse_observation(body)
            encoded = self._line(body, value)
        except (ValueError, RecursionError):
            self.left_out += 1
            return
        self._seen[agent] = (self._inputs, digest)
        self._advance(value)
        fields = observation_fields(_encode_text(agent).encode("ascii"), self._inputs, encoded)
        if len(fields) > _MAX_FIELDS_BYTES:
            self.left_out += 1
            return
        yield NewRecord(Track.OBSERVATIONS, self.moment(utc), fields)

    def _line(self, body: bytes, value: Any) -> bytes:  # noqa: ANN401 - JSON
        """Return an observation as one line of ASCII, unchanged if it already is."""
        is_line = body.isascii() and not any(end in body for end in _BREAKS)
        # JSON can encode a text in several ways, but all others contain a backslash.
        plain = body if is_line and b"\\" not in body else _encode_text(value).encode("ascii")
        if any(secret in plain for secret in self._secrets.values()):
            return _encode_text(self.mask(value)).encode("ascii")
        return body if is_line else plain

    def _advance(self, value: Any) -> None:  # noqa: ANN401 - JSON
        if isinstance(value, dict):
            tick = whole_number(value.get("tick"))
            time = finite_number(value.get("time"), low=-MAX_TIME_S, high=MAX_TIME_S)
            self._tick = max(self._tick, tick or 0)
            self._time = max(self._time, time or 0.0)

    # Secrets

    def _hide(self, secret: str) -> None:
        if secret and secret not in self._secrets:
            text = _encode_text(secret)
            self._secrets[secret] = (text[1:-1] if _is_long(secret) else text).encode("ascii")

    def mask(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Return a JSON value with the secrets in its texts replaced."""
        if isinstance(value, str):
            for secret in self._secrets:
                if value == secret or (_is_long(secret) and secret in value):
                    value = value.replace(secret, protocol.MASK)
            return value
        if isinstance(value, dict):
            return {self.mask(key): self.mask(member) for key, member in value.items()}
        if isinstance(value, list):
            return [self.mask(member) for member in value]
        return value


def _is_long(secret: str) -> bool:
    return len(secret) >= _SHORT_CHARS


def _parse_observation(body: bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse an answer strictly.

    Raises:
        ValueError: The body is not JSON that every reader can parse.
    """
    require_few_members(body, _MAX_VALUES)
    value = msgspec.json.decode(body)
    nested: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        nested = [
            member
            for outer in nested
            for member in (outer if type(outer) is list else outer.values())
            if type(member) is list or type(member) is dict
        ]
        if not nested:
            return value
    raise ValueError(f"it has more than {MAX_DEPTH} levels")


def _parse_body(body: bytes | None) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON value of a body, or its text if it is not JSON; None if it is empty."""
    if not body:
        return None
    try:
        return parse_json(body, max_members=_MAX_VALUES)
    except ValueError:
        return _read_text(body)


def _read_text(body: bytes) -> str:
    text = body[: 4 * _MAX_TEXT_CHARS].decode(errors="replace")
    return clean_text(text, max_chars=_MAX_TEXT_CHARS)
