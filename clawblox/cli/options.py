"""Option classes that only the command line has, beside those of ``clawblox.config.options``."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from clawblox.config.arguments import (
    check_count,
    check_env,
    check_read_path,
    check_seconds,
    check_size,
)
from clawblox.config.options import DEFAULT_GRACE_S, DEFAULT_KEEP
from clawblox.errors import ConfigError


def _check_wait(_owner: object, field: attrs.Attribute[float], value: float) -> None:
    check_seconds(value, field.name, may_be_zero=True)


def _check_interval(
    _owner: object, field: attrs.Attribute[float | None], value: float | None
) -> None:
    if value is not None:
        check_seconds(value, field.name)


def _check_count(_owner: object, field: attrs.Attribute[int], value: int) -> None:
    check_count(value, field.name)


def _check_size(_owner: object, field: attrs.Attribute[str | None], value: str | None) -> None:
    if value is not None:
        check_size(value, field.name)


def _check_port(_owner: object, field: attrs.Attribute[int | None], value: int | None) -> None:
    if value is not None:
        check_count(value, field.name, at_least=0, at_most=65535)


@attrs.frozen(kw_only=True)
class StopOptions:
    """How instances are stopped.

    Attributes:
        grace: Seconds from SIGTERM to SIGKILL.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    grace: float = attrs.field(default=DEFAULT_GRACE_S, validator=_check_wait)


def _to_env(value: Mapping[str, str] | None) -> Mapping[str, str]:
    return dict(check_env(value))


def _check_amount(
    _owner: object, field: attrs.Attribute[float | None], value: float | None
) -> None:
    if value is not None:
        check_seconds(value, field.name)


def _check_whole(_owner: object, field: attrs.Attribute[int | None], value: int | None) -> None:
    if value is not None:
        check_count(value, field.name)


def _check_file(_owner: object, field: attrs.Attribute[str | None], value: str | None) -> None:
    if value is not None:
        check_read_path(value, field.name)


def _check_prompt(_owner: object, field: attrs.Attribute[str], value: str) -> None:
    if value in ("", "@"):  # as from a shell variable that is not set
        message = "a text, or '@' and a file, not an empty one"
        raise ConfigError(message, key=field.name, value=value)


@attrs.frozen(kw_only=True)
class AgentRunOptions:
    """An agent that acts in the world of ``clawblox run``.

    Attributes:
        agent: Name of its driver; None runs the world alone.
        agent_name: Its name.
        agent_command: What the ``acp`` and ``command`` drivers run.
        model: Model to use; None leaves the choice to the program.
        prompt: What it is told first, after where its world is: a text, or ``@`` and a file.
        system_prompt: File with its system prompt; None means the default one.
        sandbox: Whether its program runs in a sandbox.
        strict_sandbox: Whether it runs in a sandbox, and a weaker level of that is refused.
        max_turns: Turns after which it is stopped; None sets no limit.
        max_tokens: Tokens after which it is stopped; None sets no limit.
        max_usd: Cost after which it is stopped, in US dollars; None sets no limit.
        max_minutes: Minutes after which it is stopped; None sets no limit.
        checkpoint_every: Seconds from one checkpoint to the next; 0 makes none.
        min_free: Free disk space below which none is made: bytes, or text with a unit; None for no
            limit.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    agent: str | None = None
    agent_name: str = "Eko"
    agent_command: str | None = None
    model: str | None = None
    prompt: str = attrs.field(default="Begin", validator=_check_prompt)
    system_prompt: str | None = attrs.field(default=None, validator=_check_file)
    sandbox: bool = False
    strict_sandbox: bool = False
    max_turns: int | None = attrs.field(default=None, validator=_check_whole)
    max_tokens: int | None = attrs.field(default=None, validator=_check_whole)
    max_usd: float | None = attrs.field(default=None, validator=_check_amount)
    max_minutes: float | None = attrs.field(default=None, validator=_check_amount)
    checkpoint_every: float = attrs.field(default=900.0, validator=_check_wait)
    min_free: str | None = attrs.field(default=None, validator=_check_size)


@attrs.frozen(kw_only=True)
class ResumeOptions:
    """How instances are brought back, beside what their records say.

    Attributes:
        env: Values of their environment variables, before those of this process.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    env: Mapping[str, str] = attrs.field(default=None, converter=_to_env, repr=False)


@attrs.frozen(kw_only=True)
class OrchestratorOptions(StopOptions):
    """What an orchestrator does for its instances besides starting them.

    Attributes:
        autosave: Seconds from one round of saves to the next; None makes none.
        keep: How many of these saves each instance keeps.
        min_free: Free disk space below which no such save is made: bytes, or text with a unit;
            None for no limit.
        save_at_end: Whether the first signal saves the instances before it stops them.
        metrics_port: Where metrics are served, 0 for any free port; None serves none.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    autosave: float | None = attrs.field(default=None, validator=_check_interval)
    keep: int = attrs.field(default=DEFAULT_KEEP, validator=_check_count)
    min_free: str | None = attrs.field(default=None, validator=_check_size)
    save_at_end: bool = False
    metrics_port: int | None = attrs.field(default=None, validator=_check_port)
