"""Errors of one agent."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from clawblox.errors.general import VALUE_CHARS, ClawbloxError, shorten

if TYPE_CHECKING:
    from pathlib import Path

ErrorKind: TypeAlias = Literal[
    "auth", "rate_limit", "overloaded", "invalid", "model", "crash", "resume", "stall", "limit"
]
"""Kinds of failures of an agent's program: login; too many requests; a busy model; a request that
can never succeed; another error of the model's API; a crash; a conversation that cannot be
continued; silence; an exhausted usage limit."""


class AgentError(ClawbloxError):
    """An error of one agent.

    Args:
        message: Description of the problem, in one sentence.
        agent: Name of the agent.
        agent_dir: Directory of the agent.
        log_file: Log of the program.
        status: Exit status of the program, or the negative number of the signal that ended it.
        kind: Kind of the program's failure; None if unknown, or if the program did not fail.
        retry_at: UTC time at which the limit of the kind ``limit`` ends, as the program reports it;
            None if it does not.
        log_lines: The last lines that the program wrote.
        hint: How to solve the problem.
    """

    def __init__(
        self,
        message: str,
        *,
        agent: str | None = None,
        agent_dir: Path | None = None,
        log_file: Path | None = None,
        status: int | None = None,
        kind: ErrorKind | None = None,
        retry_at: datetime | None = None,
        log_lines: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.agent = agent
        self.agent_dir = agent_dir
        self.log_file = log_file
        self.status = status
        self.kind = kind
        self.retry_at = retry_at
        self.log_lines = log_lines

    @property
    def subject(self) -> str | None:
        """The agent."""
        return f"agent {self.agent}" if self.agent else None

    def details(self) -> list[str]:
        """Return the program's last lines, then the paths of the agent's files."""
        facts = {
            "kind": self.kind,
            "retry_at": self.retry_at and f"{self.retry_at:%Y-%m-%dT%H:%M:%SZ}",
            "status": self.status,
            "agent_dir": self.agent_dir,
            "log_file": self.log_file,
        }
        return [
            *(f"| {shorten(line, VALUE_CHARS)}" for line in self.log_lines),
            *(f"{key}: {value}" for key, value in facts.items() if value is not None),
        ]


class AgentSetupError(AgentError):
    """The agent's program is missing, too old, not logged in, or cannot be isolated here."""


class AgentStartError(AgentError):
    """The agent's program did not start, or did not confirm its conversation; it has ended."""


class AgentResumeError(AgentError):
    """The agent's conversation cannot be continued exactly; it is never replaced by a new one."""


class AgentExitedError(AgentError):
    """The agent's program ended by itself, and is not restarted."""


class AgentStallError(AgentError):
    """The agent's program was silent for too long."""
