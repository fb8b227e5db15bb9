"""The common base of the drivers of Claude Code, Codex, Kimi Code and opencode."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from clawblox.agents.drivers.driver import AgentSetup, Conversation, Driver, Requirement
from clawblox.agents.drivers.output import (
    ErrorPatterns,
    Record,
    find_error_kind,
    list_in,
    parse_record,
    report_error,
    text_in,
)
from clawblox.agents.values import DriverReport
from clawblox.errors import ConfigError

MAX_TRANSCRIPT_BYTES: Final = 4 << 30
"""Apparent size above which a file of a conversation is not read."""


def may_lack_login(what: str, hint: str) -> Requirement:
    """Return the requirement of a login that may be missing.

    Args:
        what: The missing part.
        hint: How to log in.
    """
    problem = f"it may not be logged in: {what}"
    return Requirement(problem=problem, hint=hint, kind="auth", is_certain=False)


class KnownProgramDriver(Driver):
    """Drives one program with known versions; it refuses a ``command``.

    Attributes:
        product: Name of the program for people.
        version: Matches the numbers in its version output.
        oldest: The oldest supported version, to the precision that is compared.
        install_hint: How to install it.
        needs_version: Whether a program without a recognizable version is refused.
        modes: Its permission modes; None accepts any.
        modes_hint: Suggestion for another mode.
    """

    product: ClassVar[str]
    version: ClassVar[re.Pattern[str]]
    oldest: ClassVar[tuple[int, ...]]
    install_hint: ClassVar[str]
    needs_version: ClassVar[bool] = True
    modes: ClassVar[Collection[str | None] | None] = None
    modes_hint: ClassVar[str] = ""

    def name_binary(self, binary: str | None, command: object) -> str:
        """Return the program; see :meth:`Driver.name_binary`."""
        if command is not None:
            message = "must be left out: only the command and acp drivers take one"
            raise ConfigError(message, key="command", value=command)
        return binary or self.program.command

    def parse_version(self, text: str) -> tuple[int, ...]:
        """Return the numbers of a version; empty if there are none."""
        match = self.version.search(text)
        return tuple(map(int, match.groups())) if match else ()

    def check(self, setup: AgentSetup, env: Mapping[str, str], version: str) -> list[Requirement]:
        """Return the missing requirements of the program; see :meth:`Driver.check`."""
        missing = [*self.check_version(version), *self.find_problems(setup, env)]
        if self.modes is not None and setup.permission_mode not in self.modes:
            problem = f"it has no permission mode {setup.permission_mode!r}"
            missing.append(Requirement(problem=problem, hint=self.modes_hint))
        return missing

    @abstractmethod
    def find_problems(self, setup: AgentSetup, env: Mapping[str, str]) -> Iterator[Requirement]:
        """Yield the problems with its login, its model or its workspace."""

    def check_version(self, printed: str) -> Iterator[Requirement]:
        """Yield the problem with the version that the program printed, if any."""
        numbers, hint = self.parse_version(printed), self.install_hint
        if not numbers:
            shown = printed.strip().partition("\n")[0]
            problem = f"it does not print a version of {self.product}, but {shown!r:.80}"
            yield Requirement(problem=problem, hint=hint, is_certain=self.needs_version)
        elif numbers < self.oldest:
            needed = ".".join(map(str, self.oldest))
            problem = f"version {printed.strip()} is too old; {needed} is needed"
            yield Requirement(problem=problem, hint=hint)


class RecordConversation(Conversation):
    """A process that writes one JSON object per line."""

    def read(self, line: bytes) -> Sequence[DriverReport]:
        """Return the reports in a line; see :meth:`Conversation.read`."""
        record = parse_record(line)
        return () if record is None else [*self.read_record(record)]

    @abstractmethod
    def read_record(self, record: Record) -> Iterator[DriverReport]:
        """Yield the reports in an object."""


def real_path(setup: AgentSetup, path: Path) -> str:
    """Return a path of the agent as the program resolves it, possibly in a sandbox."""
    is_here = setup.workspace == setup.directory.workspace
    return os.path.realpath(path) if is_here else str(path)


def describe_failure(
    message: str, errors: ErrorPatterns, statuses: re.Pattern[str]
) -> DriverReport:
    """Return an ``error`` report for a message of a program.

    Args:
        message: The message.
        errors: The program's patterns of messages.
        statuses: Matches an HTTP status in a message.
    """
    match = statuses.search(message)
    kind = find_error_kind(errors, message) or "model"
    return report_error(message, kind, int(match[1]) if match else None)


def join_parts(record: Record) -> str:
    """Return the parts of ``content`` as text; a part without text is replaced by its type."""
    parts = list_in(record, "content")
    return "\n".join(
        text_in(part, "text") or f"[{text_in(part, 'type') or 'unknown'}]" for part in parts
    )
