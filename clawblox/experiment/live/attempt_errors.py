"""The causes of errors of an attempt."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from clawblox.errors import (
    AgentError,
    AgentResumeError,
    AgentSetupError,
    AgentStartError,
    ClawbloxError,
    ConfigError,
    PortInUseError,
    WorldCommandError,
    WorldError,
    WorldSessionError,
)
from clawblox.errors.general import shorten
from clawblox.experiment.history.lines import FailureCause
from clawblox.experiment.schedule.ports import AttemptError, ProviderError
from clawblox.system.ports import PortBusy
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

MAX_REASON_CHARS: Final = 4000
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def failure_cause(error: Exception) -> FailureCause:
    """Return the cause of an error, as the journal records it."""
    match error:
        case WorldCommandError() | AgentSetupError():
            return "setup"
        case ConfigError():
            return "plan"
        case PortInUseError() | AgentResumeError(__cause__=PortBusy()):
            return "address"
        case AgentStartError() | AgentResumeError() | WorldSessionError():
            return "start"
        case WorldError():
            return "world"
        case AgentError():
            return "agent"
        case ClawbloxError() | OSError():
            return "start"
    return "defect"


@contextmanager
def as_attempt_errors(what: str) -> Iterator[None]:
    """Raise every error of the block as an error that ends only this attempt.

    Args:
        what: The step that failed, for the log of a defect.

    Raises:
        AttemptError: The block raised another error.
        ProviderError: The block raised it.
        OSError: The disk is full.
    """
    try:
        yield
    except (AttemptError, ProviderError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            raise
        cause = failure_cause(error)
        if cause == "defect":
            _log.defect(what, error)
        text = str(error) if isinstance(error, ClawbloxError | OSError) else repr(error)
        raise AttemptError(cause, shorten(text, MAX_REASON_CHARS)) from error
