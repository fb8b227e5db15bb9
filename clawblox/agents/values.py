"""Frozen values of agents: states, events, usage and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.foreign_values import MAX_NUMBER, clean_text, clean_value
from clawblox.results import Event

AgentState: TypeAlias = Literal["new", "starting", "working", "idle", "stopped", "failed"]
"""State of an agent: ``working`` within a turn; ``idle`` between turns, with or without a
running program."""

MOVES: Final[dict[AgentState, frozenset[AgentState]]] = {
    "new": frozenset({"starting"}),
    "starting": frozenset({"working", "stopped", "failed"}),
    "working": frozenset({"idle", "stopped", "failed"}),
    "idle": frozenset({"working", "stopped", "failed"}),
    "stopped": frozenset({"starting"}),
    "failed": frozenset({"starting"}),
}
"""All legal moves between states. A restart after a crash is part of ``working``."""

EndCause: TypeAlias = Literal["request", "budget", "failure"]
"""Cause of an agent's end: a call of ``stop``, its used-up budget, or a failure."""

SandboxLevel: TypeAlias = Literal[
    "none", "native", "bwrap", "bwrap+native", "bwrap-root", "bwrap-root+native"
]
"""Level of the sandbox around an agent's program. ``root`` means that the program is user 0
outside, because this machine cannot run root's sandboxes as another user."""

EventType: TypeAlias = Literal[
    "process.started",
    "process.exited",
    "session.confirmed",
    "turn.started",
    "turn.finished",
    "message",
    "reasoning",
    "tool.called",
    "tool.returned",
    "usage",
    "retry",
    "limit",
    "error",
    "oversized",
    "stalled",
    "sandbox",
]
"""Types of an :class:`AgentEvent`."""

UsageScope: TypeAlias = Literal["turn", "process", "session", "cumulative", "recorded"]
"""Scope of a reading of usage.

One turn, everything since the process or the conversation started, either of the two (unknown
which), or everything recorded in the files of the conversation.
"""

_MAX_TEXT_CHARS: Final = 8 << 20
"""Maximum characters of a text: the length of the longest output line that is read."""


TOKEN_KINDS: Final = (
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
)
"""Members of :class:`Usage` that count tokens."""
_COUNTS: Final = (*TOKEN_KINDS, "turns", "missing_costs")

STOPPED: Final = "stopped on request"
"""Default reason of a stop."""


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens, turns and money.

    Attributes:
        input_tokens: Prompt tokens outside the cache.
        cached_tokens: Prompt tokens read from a cache.
        cache_write_tokens: Prompt tokens written to a cache.
        output_tokens: Answer tokens, including reasoning.
        reasoning_tokens: Reasoning tokens among the answer tokens.
        cost_usd: Cost reported by the program, in US dollars; None without a reported cost.
        turns: Finished turns.
        missing_costs: Number of times that the program mixed earlier costs with the cost of a turn,
            as after a kill; each time, the cost of up to one turn is missing in ``cost_usd``.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    turns: int = 0
    missing_costs: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, including cached tokens."""
        cached = self.cached_tokens + self.cache_write_tokens
        return self.input_tokens + cached + self.output_tokens

    @property
    def tokens_by_kind(self) -> dict[str, int]:
        """Tokens by kind, such as ``cache_write``; each token has one kind."""
        kinds = ("input", "cached", "cache_write", "output")
        return {kind: getattr(self, f"{kind}_tokens") for kind in kinds}

    @property
    def is_unreported(self) -> bool:
        """True if turns have ended but the program has reported neither tokens nor a cost."""
        return self.turns > 0 and self.cost_usd is None and not self.tokens

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both; a missing cost counts as 0 if the other reports a cost."""
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        cost_usd = min(float(MAX_NUMBER), sum(costs)) if costs else None
        return Usage(**self._counts(other, 1), cost_usd=cost_usd)

    def minus(self, other: Usage) -> Usage:
        """Return the difference to another usage; members are at least 0."""
        cost = self.cost_usd
        cost_usd = None if cost is None else max(0.0, cost - (other.cost_usd or 0.0))
        return Usage(**self._counts(other, -1), cost_usd=cost_usd)

    def _counts(self, other: Usage, sign: int) -> dict[str, int]:
        sums = {name: getattr(self, name) + sign * getattr(other, name) for name in _COUNTS}
        return {name: min(MAX_NUMBER, max(0, count)) for name, count in sums.items()}


def sum_usage(parts: Iterable[Usage]) -> Usage:
    """Return the sum of the usage of several agents; unreported if any part is unreported."""
    usages = tuple(parts)
    total = reduce(Usage.plus, usages, Usage())
    if any(usage.is_unreported for usage in usages):
        return Usage(turns=total.turns)
    return total


def _clean_members(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: _clean_member(value) for key, value in data.items()}


def _clean_member(value: Any) -> Any:  # noqa: ANN401 - any value of a program
    if type(value) is str:  # the common case, thousands of times a second
        is_plain = value.isascii() and len(value) <= _MAX_TEXT_CHARS
        return value if is_plain else clean_text(value, max_chars=_MAX_TEXT_CHARS)
    if value is None or isinstance(value, bool | Usage):
        return value
    if isinstance(value, dict) and value and all(isinstance(u, Usage) for u in value.values()):
        return value  # a driver has checked the names that are its keys
    return clean_value(value, max_chars=_MAX_TEXT_CHARS)


@attrs.frozen
class DriverReport:
    """A driver's report on a line of its program's output, before it becomes an event.

    The members can always be encoded as JSON.

    The members of ``data`` by type:

    - ``session.confirmed``: ``session_id``; ``version`` and ``model`` if the program names them.
    - ``turn.started``: no members.
    - ``turn.finished``: ``ok``; ``text``, the last message of the turn. ``origin`` if the program
    started the turn by itself: the cause, such as ``task-notification``, or ``unknown``. Such a
    turn answers no message and is not counted.
    - ``message``: ``role`` (``assistant``, ``user`` or ``system``), ``text``.
    - ``reasoning``: ``text``.
    - ``tool.called``: ``id``, ``name``, ``arguments``.
    - ``tool.returned``: ``id``, ``content``, ``is_error``.
    - ``usage``: ``usage`` (a :class:`Usage` without turns) with its ``scope`` (:data:`UsageScope`),
      and ``cost_scope`` if the scope of the cost differs; with the scope ``recorded`` also
      ``files``, the usage recorded in each grown file, by file name.
    - ``retry``: ``attempt``, ``max_attempts``, ``delay_s``, ``status``, ``error``: the program
      retries by itself.
    - ``limit``: ``kind``, ``message``; ``resets_at``, a UTC time, if the program reports it.
    - ``error``: ``kind`` (:data:`~clawblox.errors.agent.ErrorKind`), ``message``; ``status`` if an
    API returned one.
    """

    type: EventType
    data: Mapping[str, Any] = attrs.field(factory=dict, converter=_clean_members)


@attrs.frozen(kw_only=True)
class AgentEvent(Event):
    """An event of an agent; see :class:`~clawblox.results.Event`.

    ``data`` has the members that :class:`DriverReport` lists. ``process.started`` has ``pid``,
    ``command``, ``version``; ``process.exited`` has ``status``, ``exit_code``, ``error``;
    ``turn.started`` has ``prompt``, unless the program started the turn by itself.

    Attributes:
        kind: Type of the event.
        seq: Number of the event, from 1, over all starts of the agent. It always increases; numbers
            may be missing after the orchestrator was killed.
        session_id: Its conversation; None before the conversation is confirmed.
        turn: Number of the current turn, from 1, or of the latest finished turn. An interrupted
            turn does not count: the next turn has the same number.
        raw_offset: Offset in ``logs/agent.log``, counted from its first segment, of the line that
            reported the event; for ``process.started``, the offset at which the output of the
            process starts; None for other events.
    """

    kind: EventType
    seq: int
    session_id: str | None
    turn: int
    raw_offset: int | None = None


@attrs.frozen(kw_only=True)
class StartedAgent:
    """The facts of an agent whose program runs.

    Attributes:
        name: Its full name.
        agent_dir: Its directory.
        command_file: Script that reruns this start by hand, without secrets.
        log_file: Output of its program.
        session_id: Its conversation.
        pid: Process of the program; None while no process runs between two turns.
        version: Version of the program; None if unknown.
        tmux_window: Name of its tmux window; None without tmux.
        tmux_pane_id: Id of the pane there; None without tmux.
        sandbox: Level of its sandbox.
    """

    name: str
    agent_dir: Path
    command_file: Path
    log_file: Path
    session_id: str
    pid: int | None
    version: str | None
    tmux_window: str | None
    tmux_pane_id: str | None
    sandbox: SandboxLevel


@attrs.frozen(kw_only=True)
class AgentResult:
    """State of an agent that has ended or pauses, and the reason.

    Attributes:
        name: Its full name.
        state: ``idle``, ``stopped`` or ``failed``; ``new`` if it was never started.
        reason: Reason in a few words: ``stopped on request``, ``budget of 20 turns used up``.
        ended_by: Cause of its end (:data:`EndCause`); None if it has not ended.
        exit_code: Exit status of its last process, negative for a signal; None if unknown.
        usage: Its usage.
    """

    name: str
    state: AgentState
    reason: str
    ended_by: EndCause | None
    exit_code: int | None
    usage: Usage
