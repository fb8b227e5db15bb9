"""Frozen values of agents: what happens to them and what they use. No behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.foreign_values import clean_text, clean_value
from clawblox.results import Event

AgentState: TypeAlias = Literal["new", "starting", "working", "idle", "stopped", "failed"]
"""How an agent is: ``working`` within a turn, ``idle`` between two, with a program or without."""

SandboxLevel: TypeAlias = Literal[
    "none", "native", "bwrap", "bwrap+native", "bwrap-root", "bwrap-root+native"
]
"""Level of the sandbox around an agent's program; with ``root`` in its name, the program
is user 0 outside, because this machine cannot run root's sandboxes as another user."""

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

ErrorKind: TypeAlias = Literal[
    "auth", "rate_limit", "overloaded", "invalid", "model", "crash", "resume", "stall", "limit"
]
"""Kinds of failures, the ``kind`` of an ``error`` event."""

UsageScope: TypeAlias = Literal["turn", "process", "session", "recorded"]
"""Scope of a reading of usage: one turn, all since the process or the session began, or all
that is recorded in files of the session."""

_MAX_TEXT_CHARS: Final = 8 << 20
"""Length of the longest line that a program's output is read in, and so of any text in it."""


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens, turns and money.

    Attributes:
        input_tokens: Tokens of prompts that no cache had.
        cached_tokens: Tokens of prompts that were read from a cache.
        cache_write_tokens: Tokens of prompts that were written to a cache.
        output_tokens: Tokens of answers, reasoning included.
        reasoning_tokens: Those of the answers' tokens that were reasoning.
        cost_usd: What the program reported as cost, in US dollars; None if it reports none.
        turns: Turns that have ended.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    turns: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, cached ones included."""
        return self.input_tokens + self.cached_tokens + self.cache_write_tokens + self.output_tokens


def _clean_members(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: _clean_member(value) for key, value in data.items()}


def _clean_member(value: Any) -> Any:  # noqa: ANN401 - any value of a program
    if type(value) is str:  # as most are, and there are thousands a second
        is_plain = value.isascii() and len(value) <= _MAX_TEXT_CHARS
        return value if is_plain else clean_text(value, max_chars=_MAX_TEXT_CHARS)
    if value is None or isinstance(value, bool | Usage):
        return value
    if isinstance(value, dict) and value and all(isinstance(u, Usage) for u in value.values()):
        return value  # by the names that a driver has checked
    return clean_value(value, max_chars=_MAX_TEXT_CHARS)


@attrs.frozen
class Report:
    """Report that a driver read in a line of its program's output, before it becomes an event.

    Whatever the program wrote, its members are values that every writer can write.

    The members of ``data`` by type:

    - ``session.confirmed``: ``session_id``; ``version`` and ``model`` where the program names them.
    - ``turn.started``: nothing.
    - ``turn.finished``: ``ok``; ``text``, the last words of the turn.
    - ``message``: ``role`` (``assistant``, ``user`` or ``system``), ``text``.
    - ``reasoning``: ``text``.
    - ``tool.called``: ``id``, ``name``, ``arguments``.
    - ``tool.returned``: ``id``, ``content``, ``is_error``.
    - ``usage``: ``usage`` (a :class:`Usage` without turns) with its ``scope`` (:data:`UsageScope`),
      and ``cost_scope`` where the scope of the cost differs; with the scope ``recorded`` also
      ``files``, what each file that has grown records, by its name.
    - ``retry``: ``attempt``, ``max_attempts``, ``delay_s``, ``status``, ``error``: the program
      itself tries again.
    - ``limit``: ``kind``, ``message``.
    - ``error``: ``kind`` (:data:`ErrorKind`), ``message``; ``status`` where an API gave one.
    """

    type: EventType
    data: Mapping[str, Any] = attrs.field(factory=dict, converter=_clean_members)


@attrs.frozen(kw_only=True)
class AgentEvent(Event):
    """Something that happened to an agent; see :class:`~clawblox.results.Event`.

    ``data`` has the members that :class:`Report` lists; of ``process.started`` ``pid``,
    ``command``, ``version``; of ``process.exited`` ``status``, ``exit_code``, ``error``; of
    ``turn.started`` ``prompt``, unless the program has begun it by itself.

    Attributes:
        kind: Type of the event.
        seq: Number of the event, from 1, over all starts of the agent; it always grows, and leaves
            some out after the orchestrator was killed.
        session_id: Its conversation; None before that is confirmed.
        turn: Number of the turn under way, from 1, else of the latest that has ended. A turn that
            was cut off does not count: the next one has its number.
        raw_offset: Offset in ``logs/agent.log``, counted from its first segment, of the line that
            it was read in, or of ``process.started`` where the process begins to write; None for
            any other event.
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
        pid: Process of the program; None between two processes of a turn each.
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
    """How an agent's work ended, or why it pauses.

    Attributes:
        name: Its full name.
        state: ``idle``, ``stopped`` or ``failed``; ``new`` if it was never started.
        reason: Why, in a few words: ``stopped on request``, ``budget of 20 turns used up``.
        exit_code: Exit status of its last process, negative for a signal; None if there was none.
        usage: Its usage.
    """

    name: str
    state: AgentState
    reason: str
    exit_code: int | None
    usage: Usage
