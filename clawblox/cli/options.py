"""Option classes of the command line; ``clawblox.config.options`` has the others."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from clawblox.config.arguments import (
    ANY_SECONDS,
    COUNT,
    OPTIONAL_SECONDS,
    OPTIONAL_SIZE,
    SECONDS,
    check_count,
    checked,
)
from clawblox.config.options import (
    DEFAULT_CHECK_TIMEOUT_S,
    DEFAULT_GRACE_S,
    DEFAULT_HEALTH_TIMEOUT_S,
    DEFAULT_KEEP,
    DEFAULT_STALL_TIMEOUT_S,
    to_env,
)


@attrs.frozen(kw_only=True)
class StopOptions:
    """How instances are stopped.

    Attributes:
        grace_seconds: Seconds between TERM and KILL.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    grace_seconds: float = attrs.field(default=DEFAULT_GRACE_S, validator=ANY_SECONDS)


@attrs.frozen(kw_only=True)
class ResumeOptions:
    """Options of a resume, in addition to the records of the instances.

    Attributes:
        env: Values of their environment variables; they override the environment of this process.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    env: Mapping[str, str] = attrs.field(default=None, converter=to_env, repr=False)


@attrs.frozen(kw_only=True)
class OrchestratorOptions(StopOptions):
    """Duties of an orchestrator apart from starting its instances.

    Attributes:
        autosave: Seconds from one round of saves to the next; None makes none.
        keep: How many of these saves each instance keeps.
        min_free: Free disk space below which these saves are skipped: bytes, or text with a unit;
            None for no limit.
        save_at_end: Whether the first signal saves the instances before it stops them.
        metrics_port: Where metrics are served, 0 for any free port; None serves none.
        detach: Whether it runs in the background.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    autosave: float | None = attrs.field(default=None, validator=OPTIONAL_SECONDS)
    keep: int = attrs.field(default=DEFAULT_KEEP, validator=COUNT)
    min_free: str | None = attrs.field(default=None, validator=OPTIONAL_SIZE)
    save_at_end: bool = False
    metrics_port: int | None = attrs.field(
        default=None, validator=checked(check_count, at_least=0, at_most=65535, optional=True)
    )
    detach: bool = False


@attrs.frozen(kw_only=True)
class VerifyOptions:
    """How recordings are verified.

    Attributes:
        env: Additional environment variables of the world.
        in_place: Whether the world runs in its own directory instead of a private copy.
        health_timeout: Seconds until a new process must be ready.
        stall_timeout: Seconds without any progress after which a replay is given up.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    env: Mapping[str, str] = attrs.field(default=None, converter=to_env, repr=False)
    in_place: bool = False
    health_timeout: float = attrs.field(default=DEFAULT_HEALTH_TIMEOUT_S, validator=SECONDS)
    stall_timeout: float = attrs.field(default=DEFAULT_STALL_TIMEOUT_S, validator=SECONDS)


@attrs.frozen(kw_only=True)
class CheckOptions:
    """How a world is checked.

    Attributes:
        seed: Seed of all choices; None draws one.
        in_place: Whether the world runs in its own directory instead of a private copy.
        strict: Whether recommendations, and checks that could not run, count too.
        health_timeout: Seconds until an instance must be ready.
        check_timeout: Longest time for one check, in seconds.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    seed: int | None = attrs.field(
        default=None, validator=checked(check_count, at_least=0, optional=True)
    )
    in_place: bool = False
    strict: bool = False
    health_timeout: float = attrs.field(default=DEFAULT_HEALTH_TIMEOUT_S, validator=SECONDS)
    check_timeout: float = attrs.field(default=DEFAULT_CHECK_TIMEOUT_S, validator=SECONDS)
