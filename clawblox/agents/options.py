"""The arguments of an agent's constructor, checked when the object is made; no file is read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.agents.usage import Budget
from clawblox.config.arguments import check_count, check_path, check_seconds, describe_mismatch
from clawblox.errors import ConfigError
from clawblox.foreign_values import finite_number

DEFAULT_MAX_RESTARTS: Final = 3
DEFAULT_REQUEST_RATE: Final = 1000.0
DEFAULT_RESTART_WINDOW_S: Final = 600.0
DEFAULT_STALL_TIMEOUT_S: Final = 600.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,127}")

SandboxChoice: TypeAlias = bool | Literal["strict"]
"""Whether a program runs in our sandbox, and whether a weaker level is refused."""

_Field: TypeAlias = "attrs.Attribute[Any]"


def _to_dir(value: str | Path) -> Path:
    return check_path(value, "dir").absolute()


def _to_binary(value: str | Path | None) -> Path | None:
    """Keep a bare name, which is looked up in PATH."""
    if value is None:
        return None
    path = check_path(value, "binary")
    return path.absolute() if os.sep in os.fspath(value) else path


def _check_name(_owner: Any, field: _Field, value: object) -> None:  # noqa: ANN401
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        message = "a name of 1 to 128 letters, digits, '_', '.', '-' or blanks"
        raise ConfigError(describe_mismatch(message, value), key=field.name, value=value)


def _check_text(_owner: Any, field: _Field, value: object) -> None:  # noqa: ANN401
    is_text = isinstance(value, str) and value and value.isprintable()
    if value is not None and not is_text:
        expected = "printable text, not empty"
        raise ConfigError(describe_mismatch(expected, value), key=field.name, value=value)


def _check_sandbox(_owner: Any, field: _Field, value: object) -> None:  # noqa: ANN401
    if not isinstance(value, bool) and value != "strict":
        message = describe_mismatch("True, False or 'strict'", value)
        raise ConfigError(message, key=field.name, value=value)


def _check_flag(_owner: Any, field: _Field, value: object) -> None:  # noqa: ANN401
    if not isinstance(value, bool):
        raise ConfigError(describe_mismatch("True or False", value), key=field.name, value=value)


def _check_budget(_owner: Any, field: _Field, value: object) -> None:  # noqa: ANN401
    if value is not None and not isinstance(value, Budget):
        expected = "a Budget, for example Budget(turns=20)"
        raise ConfigError(describe_mismatch(expected, value), key=field.name, value=value)


def _check_restarts(_owner: Any, field: _Field, value: object) -> None:  # noqa: ANN401
    check_count(value, field.name, at_least=0)


def _check_seconds(_owner: Any, field: _Field, value: object) -> None:  # noqa: ANN401
    check_seconds(value, field.name)


def _check_stall_timeout(_owner: Any, field: _Field, value: object) -> None:  # noqa: ANN401
    if value is not None:
        check_seconds(value, field.name)


def _check_request_rate(_owner: Any, field: _Field, value: object) -> None:  # noqa: ANN401
    if value is not None and not finite_number(value):
        expected = "a number of requests a second above 0, or None for no limit"
        raise ConfigError(describe_mismatch(expected, value), key=field.name, value=value)


@attrs.frozen(kw_only=True)
class AgentOptions:
    """The arguments of ``AsyncAgent`` and ``Agent``.

    Attributes:
        agent: Name of the driver.
        name: Full name of the agent.
        dir: Its directory, absolute.
        model: Model to use; None leaves the choice to the program.
        binary: The program: a path, or a name to look up in PATH; None means the usual name.
        permission_mode: What the program may do unasked, in its own words; None means everything.
        tmux: tmux session for a window to watch the agent in; None opens no window.
        sandbox: Whether its program runs in a sandbox; ``"strict"`` refuses a weaker one.
        claude_native_sandbox: Whether Claude Code encloses its commands in its own sandbox, too.
        bare: Whether the program leaves out hooks and what it reads by itself.
        auto_continue: Whether it is told to go on after each turn.
        budget: What it may use; None sets no limit.
        max_restarts: Number of restarts allowed within ``restart_window``.
        restart_window: Length of that window in seconds.
        stall_timeout: Seconds of silence within a turn after which its program is restarted; None
            waits for ever.
        request_rate: Requests a second that it may send its world for any length of time; None sets
            no limit.
        command: What the ``command`` and ``acp`` drivers run.

    Raises:
        ConfigError: A value is wrong; names the argument and the value.
    """

    agent: str = attrs.field(validator=_check_name)
    name: str = attrs.field(validator=_check_name)
    dir: Path = attrs.field(converter=_to_dir)
    model: str | None = attrs.field(default=None, validator=_check_text)
    binary: Path | None = attrs.field(default=None, converter=_to_binary)
    permission_mode: str | None = attrs.field(default=None, validator=_check_text)
    tmux: str | None = attrs.field(default=None, validator=_check_text)
    sandbox: SandboxChoice = attrs.field(default=False, validator=_check_sandbox)
    claude_native_sandbox: bool = attrs.field(default=False, validator=_check_flag)
    bare: bool = attrs.field(default=False, validator=_check_flag)
    auto_continue: bool = attrs.field(default=True, validator=_check_flag)
    budget: Budget | None = attrs.field(default=None, validator=_check_budget)
    max_restarts: int = attrs.field(default=DEFAULT_MAX_RESTARTS, validator=_check_restarts)
    restart_window: float = attrs.field(default=DEFAULT_RESTART_WINDOW_S, validator=_check_seconds)
    stall_timeout: float | None = attrs.field(
        default=DEFAULT_STALL_TIMEOUT_S, validator=_check_stall_timeout
    )
    request_rate: float | None = attrs.field(
        default=DEFAULT_REQUEST_RATE, validator=_check_request_rate
    )
    command: Mapping[str, Any] | Sequence[str] | None = None
