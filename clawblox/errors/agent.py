"""Errors of one agent."""

from __future__ import annotations

from pathlib import Path

from clawblox.errors.general import VALUE_CHARS, ClawbloxError, shorten


class AgentError(ClawbloxError):
    """An error of one agent.

    Args:
        message: What happened, in one sentence.
        agent: Name of the agent.
        agent_dir: Its directory.
        log_file: The log of its program.
        status: Exit status of the program, or the negative number of the signal that ended it.
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
        log_lines: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.agent = agent
        self.agent_dir = agent_dir
        self.log_file = log_file
        self.status = status
        self.log_lines = log_lines

    @property
    def subject(self) -> str | None:
        """The agent."""
        return f"agent {self.agent}" if self.agent else None

    def details(self) -> list[str]:
        """Show the program's last lines, then the paths of its files."""
        facts = {
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
    """The agent's program did not start, or did not confirm its session; nothing remains of it."""


class AgentResumeError(AgentError):
    """The agent's conversation cannot be continued exactly; it is never replaced by a new one."""


class AgentExitedError(AgentError):
    """The agent's program ended by itself, and is not restarted."""


class AgentStallError(AgentError):
    """The agent's program was silent for too long."""
