"""The arguments of an agent's constructor, checked on construction; no file is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.agents.programs.program import PROGRAMS
from clawblox.agents.usage import Budget
from clawblox.config.arguments import (
    OPTIONAL_AMOUNT,
    OPTIONAL_SECONDS,
    SECONDS,
    check_choice,
    check_count,
    check_flag,
    check_kind,
    check_path,
    checked,
    mismatch,
)
from clawblox.errors import AgentError

DEFAULT_MAX_RESTARTS: Final = 3
DEFAULT_REQUEST_RATE: Final = 1000.0
DEFAULT_RESTART_WINDOW_S: Final = 600.0
DEFAULT_STALL_TIMEOUT_S: Final = 600.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,127}")

DRIVER_NAMES: Final = (*PROGRAMS, "acp", "command")
"""Names of all drivers."""

IN_WORKSPACE: Final = "{workspace}/"
"""Prefix in ``command=`` of the path of a program in the agent's workspace."""

SandboxChoice: TypeAlias = bool | Literal["strict"]
"""Whether the program runs in a sandbox; ``"strict"`` refuses a weaker sandbox."""


def _to_dir(value: str | Path) -> Path:
    return check_path(value, "dir").absolute()


def to_binary(value: str | Path | None) -> Path | None:
    """Return the path of a program, absolute unless it is a bare name to look up in PATH.

    Raises:
        ConfigError: The value is not a path.
    """
    if value is None:
        return None
    path = check_path(value, "binary")
    return path.absolute() if os.sep in os.fspath(value) else path


def check_name(value: object, key: str) -> None:
    """Check that a value can be the name of an agent.

    Raises:
        ConfigError: The value is not a valid name.
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise mismatch(key, "a name of 1 to 128 letters, digits, '_', '.', '-' or blanks", value)


def check_word(value: object, key: str) -> None:
    """Check that a value is printable text, such as the name of a model.

    Raises:
        ConfigError: The value is not printable text.
    """
    if not (isinstance(value, str) and value and value.isprintable()):
        raise mismatch(key, "printable text, not empty", value)


OPTIONAL_WORD: Final = checked(check_word, optional=True)
"""Validates a field with printable text, or None."""


@attrs.frozen(kw_only=True)
class CommonAgentOptions:
    """The options of an agent that are also in the plans of experiments.

    Attributes:
        model: Model to use; None leaves the choice to the program.
        binary: The program: a path, or a name to look up in PATH; None means the usual name.
        permission_mode: The program's own name for a permission mode; None lets it do everything
            without asking.
        sandbox: Whether the program runs in a sandbox; ``"strict"`` refuses a sandbox in which it
            is user 0 of this machine, or whose system calls are not filtered.
        claude_native_sandbox: Whether Claude Code also runs its commands in its own sandbox.
        bare: Whether Claude Code skips hooks and the files that it would read by itself.
        auto_continue: Whether the agent is asked to continue after each turn, until it is stopped.
        max_restarts: Number of restarts allowed within ``restart_window``; the agent fails when
            more are needed.
        stall_timeout: Seconds of silence within a turn after which the program is restarted; None
            waits forever.
        request_rate: Requests per second to the world, after a burst; None sets no limit.
    """

    model: str | None = attrs.field(default=None, validator=OPTIONAL_WORD)
    binary: Path | None = attrs.field(default=None, converter=to_binary)
    permission_mode: str | None = attrs.field(default=None, validator=OPTIONAL_WORD)
    sandbox: SandboxChoice = attrs.field(
        default=False, validator=checked(check_choice, choices=(True, False, "strict"))
    )
    claude_native_sandbox: bool = attrs.field(default=False, validator=checked(check_flag))
    bare: bool = attrs.field(default=False, validator=checked(check_flag))
    auto_continue: bool = attrs.field(default=True, validator=checked(check_flag))
    max_restarts: int = attrs.field(
        default=DEFAULT_MAX_RESTARTS, validator=checked(check_count, at_least=0)
    )
    stall_timeout: float | None = attrs.field(
        default=DEFAULT_STALL_TIMEOUT_S, validator=OPTIONAL_SECONDS
    )
    request_rate: float | None = attrs.field(
        default=DEFAULT_REQUEST_RATE, validator=OPTIONAL_AMOUNT
    )


@attrs.frozen(kw_only=True)
class AgentOptions(CommonAgentOptions):
    """The arguments of ``AsyncAgent`` and ``Agent``.

    Attributes:
        agent: Driver of the program: ``claude``, ``codex``, ``kimi``, ``opencode``, ``acp`` or
            ``command``.
        name: Full name of the agent.
        dir: Directory of the agent. Files already in its ``workspace`` are kept.
        tmux: tmux session for a window that shows the agent, created if needed; None opens no
            window.
        budget: Limits of usage over all starts, after which the agent is stopped; None sets no
            limit.
        restart_window: Length of that window in seconds.
        command: What to run for the drivers ``command`` (a table) and ``acp`` (a list of words);
            None for the others.

    Raises:
        ConfigError: A value is invalid; the error names the argument and the value.
    """

    agent: str = attrs.field(validator=checked(check_name))
    name: str = attrs.field(validator=checked(check_name))
    dir: Path = attrs.field(converter=_to_dir)
    tmux: str | None = attrs.field(default=None, validator=OPTIONAL_WORD)
    budget: Budget | None = attrs.field(
        default=None,
        validator=checked(
            check_kind, kind=Budget, expected="a Budget, such as Budget(turns=20)", optional=True
        ),
    )
    restart_window: float = attrs.field(default=DEFAULT_RESTART_WINDOW_S, validator=SECONDS)
    command: Mapping[str, Any] | Sequence[str] | None = None

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Add the agent and its directory to errors raised in the block."""
        try:
            yield
        except AgentError as error:
            error.agent = error.agent or self.name
            error.agent_dir = error.agent_dir or self.dir
            raise
