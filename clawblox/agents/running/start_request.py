"""The values of a start: an agent, its driver, its first message."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import attrs

from clawblox.agents.drivers.driver import Driver, Fork
from clawblox.agents.layout import AgentDir
from clawblox.agents.options import AgentOptions
from clawblox.agents.running.agenda import Hold
from clawblox.agents.running.hooks import Hooks


@attrs.frozen(kw_only=True)
class ProgramLimits:
    """Limits of an agent's program.

    Attributes:
        confirm_timeout: Seconds within which its conversation must be confirmed.
        leave_timeout: Seconds within which a finished process must exit.
        pass_over_timeout: Seconds within which a program must start on a waiting message after a
            turn of its own; otherwise the message counts as part of that turn.
        drain_timeout: Maximum seconds for reading the rest of its output after its end.
        max_log_bytes: Maximum bytes that it may add to each of its logs in one turn.
        segment_bytes: Length of a log after which the next process starts another segment.
    """

    confirm_timeout: float = 90.0
    leave_timeout: float = 15.0
    pass_over_timeout: float = 60.0
    drain_timeout: float = 5.0
    max_log_bytes: int = 2 << 30
    segment_bytes: int = 1 << 30


class Start(Enum):
    """Kinds of starts, apart from branches."""

    BEGIN = "begin"
    """The agent starts a new conversation."""
    CONTINUE = "continue"
    """The agent continues the conversation recorded in the agent's directory."""


@attrs.frozen(kw_only=True)
class StartRequest:
    """One start of an agent, in a new, recorded or branched conversation.

    Attributes:
        options: The agent's options.
        directory: Its directory.
        driver: Its driver.
        program: Its program as named by the driver: a path, or a name to look up.
        prompt: Its first message.
        start: Begins a conversation, continues the recorded conversation, or branches a
            conversation.
        system_prompt: Its system prompt; None uses the recorded system prompt.
        env: Variables from the caller, in memory only.
        inherited: The environment of this process.
        secrets: Secrets in ``env`` and ``inherited`` to redact everywhere, the longest first.
        hooks: Its environment: sandbox, access to worlds, window, status.
        limits: Limits of its program.
        resume_text: Message after an interrupted turn.
        hold: Suspends automatic continuation.
    """

    options: AgentOptions
    directory: AgentDir
    driver: Driver
    program: str
    prompt: str
    start: Start | Fork
    system_prompt: str | None
    env: Mapping[str, str] = attrs.field(repr=False)
    inherited: Mapping[str, str] = attrs.field(repr=False)
    secrets: tuple[str, ...] = attrs.field(repr=False)
    hooks: Hooks
    limits: ProgramLimits = attrs.field(factory=ProgramLimits)
    resume_text: str
    hold: Hold
