"""Option classes that only the command line has, beside those of ``clawblox.config.options``."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from clawblox.config.arguments import check_count, check_env, check_seconds
from clawblox.config.options import DEFAULT_GRACE_S, DEFAULT_KEEP

__all__ = ["OrchestratorOptions", "ResumeOptions", "StopOptions"]


def _check_wait(_owner: object, field: attrs.Attribute[float], value: float) -> None:
    check_seconds(value, field.name, may_be_zero=True)


def _check_interval(
    _owner: object, field: attrs.Attribute[float | None], value: float | None
) -> None:
    if value is not None:
        check_seconds(value, field.name)


def _check_count(_owner: object, field: attrs.Attribute[int], value: int) -> None:
    check_count(value, field.name)


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
        save_at_end: Whether the first signal saves the instances before it stops them.
        metrics_port: Where metrics are served, 0 for any free port; None serves none.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    autosave: float | None = attrs.field(default=None, validator=_check_interval)
    keep: int = attrs.field(default=DEFAULT_KEEP, validator=_check_count)
    save_at_end: bool = False
    metrics_port: int | None = attrs.field(default=None, validator=_check_port)
