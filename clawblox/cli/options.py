"""Option classes for the command line only; ``clawblox.config.options`` has the others."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from clawblox.config.arguments import (
    ANY_SECONDS,
    COUNT,
    OPTIONAL_SECONDS,
    OPTIONAL_SIZE,
    check_count,
    checked,
)
from clawblox.config.options import (
    DEFAULT_GRACE_S,
    DEFAULT_KEEP,
    to_env,
)


@attrs.frozen(kw_only=True)
class StopOptions:
    """Options of a stop.

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
        env: Environment variables of the instances; they override the environment of this process.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    env: Mapping[str, str] = attrs.field(default=None, converter=to_env, repr=False)


@attrs.frozen(kw_only=True)
class OrchestratorOptions(StopOptions):
    """Options of an orchestrator, apart from the start of its instances.

    Attributes:
        autosave: Seconds from one round of saves to the next; None makes no autosaves.
        keep: Number of autosaves that each instance keeps.
        min_free: Free disk space below which autosaves are skipped: bytes, or text with a unit;
            None for no limit.
        save_at_end: Whether the first signal saves the instances before stopping them.
        metrics_port: Port that serves metrics, 0 for any free port; None serves no metrics.
        detach: Whether the orchestrator runs in the background.

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
