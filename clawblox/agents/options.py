"""The arguments of an agent's constructor, checked when the object is made; no file is read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.agents.usage import Budget
from clawblox.config.arguments import (
    check_choice,
    check_count,
    check_flag,
    check_kind,
    check_path,
    check_seconds,
    checked,
    mismatch,
)
from clawblox.foreign_values import finite_number

DEFAULT_MAX_RESTARTS: Final = 3
DEFAULT_REQUEST_RATE: Final = 1000.0
DEFAULT_RESTART_WINDOW_S: Final = 600.0
DEFAULT_STALL_TIMEOUT_S: Final = 600.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,127}")

SandboxChoice: TypeAlias = bool | Literal["strict"]
"""Whether a program runs in our sandbox, and whether a weaker level is refused."""


def _to_dir(value: str | Path) -> Path:
    return check_path(value, "dir").absolute()


def _to_binary(value: str | Path | None) -> Path | None:
    """Keep a bare name, which is looked up in PATH."""
    if value is None:
        return None
    path = check_path(value, "binary")
    return path.absolute() if os.sep in os.fspath(value) else path


def _check_name(value: object, key: str) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise mismatch(key, "a name of 1 to 128 letters, digits, '_', '.', '-' or blanks", value)


def _check_text(value: object, key: str) -> None:
    if not (isinstance(value, str) and value and value.isprintable()):
        raise mismatch(key, "printable text, not empty", value)


def _check_rate(value: object, key: str) -> None:
    if not finite_number(value):
        raise mismatch(key, "a number of requests a second above 0, or None for no limit", value)


@attrs.frozen(kw_only=True)
class AgentOptions:
    """The arguments of ``AsyncAgent`` and ``Agent``.

    Attributes:
        agent: Driver of its program: ``claude``, ``codex``, ``kimi``, ``opencode``, ``acp`` or
            ``command``.
        name: Full name of the agent.
        dir: Its directory. What is in its ``workspace`` already stays as it is.
        model: Model to use; None leaves the choice to the program.
        binary: The program: a path, or a name to look up in PATH; None means the usual name.
        permission_mode: What the program may do unasked, in its own words; None means everything.
        tmux: tmux session, which need not exist yet, for a window to watch the agent in; None opens
            no window.
        sandbox: Whether its program runs in a sandbox; ``"strict"`` refuses a sandbox that leaves
            it user 0 of this machine, or that does not filter its system calls.
        claude_native_sandbox: Whether Claude Code encloses its commands in its own sandbox, too.
        bare: Whether Claude Code leaves out hooks and what it reads by itself.
        auto_continue: Whether it is asked to continue after each turn, until it is stopped.
        budget: What it may use before it is stopped, over all starts; None sets no limit.
        max_restarts: Number of restarts allowed within ``restart_window``; after that the agent
            has failed.
        restart_window: Length of that window in seconds.
        stall_timeout: Seconds of silence within a turn after which its program is restarted; None
            waits forever.
        request_rate: Requests a second to its world, after a burst; None sets no limit.
        command: What the drivers ``command`` (a table) and ``acp`` (words) run; None for others.

    Raises:
        ConfigError: A value is wrong; names the argument and the value.
    """

    agent: str = attrs.field(validator=checked(_check_name))
    name: str = attrs.field(validator=checked(_check_name))
    dir: Path = attrs.field(converter=_to_dir)
    model: str | None = attrs.field(default=None, validator=checked(_check_text, optional=True))
    binary: Path | None = attrs.field(default=None, converter=_to_binary)
    permission_mode: str | None = attrs.field(
        default=None, validator=checked(_check_text, optional=True)
    )
    tmux: str | None = attrs.field(default=None, validator=checked(_check_text, optional=True))
    sandbox: SandboxChoice = attrs.field(
        default=False, validator=checked(check_choice, choices=(True, False, "strict"))
    )
    claude_native_sandbox: bool = attrs.field(default=False, validator=checked(check_flag))
    bare: bool = attrs.field(default=False, validator=checked(check_flag))
    auto_continue: bool = attrs.field(default=True, validator=checked(check_flag))
    budget: Budget | None = attrs.field(
        default=None,
        validator=checked(
            check_kind, kind=Budget, expected="a Budget, such as Budget(turns=20)", optional=True
        ),
    )
    max_restarts: int = attrs.field(
        default=DEFAULT_MAX_RESTARTS, validator=checked(check_count, at_least=0)
    )
    restart_window: float = attrs.field(
        default=DEFAULT_RESTART_WINDOW_S, validator=checked(check_seconds)
    )
    stall_timeout: float | None = attrs.field(
        default=DEFAULT_STALL_TIMEOUT_S, validator=checked(check_seconds, optional=True)
    )
    request_rate: float | None = attrs.field(
        default=DEFAULT_REQUEST_RATE, validator=checked(_check_rate, optional=True)
    )
    command: Mapping[str, Any] | Sequence[str] | None = None
