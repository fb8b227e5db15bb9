"""The causes of errors of attempts."""

from __future__ import annotations

import errno

import pytest

from clawblox.errors import (
    AgentExitedError,
    AgentResumeError,
    AgentSetupError,
    CheckpointError,
    ConfigError,
    PortInUseError,
    WorldCommandError,
    WorldExitedError,
    WorldReadyTimeoutError,
    WorldSessionError,
)
from clawblox.experiment.history.lines import FailureCause
from clawblox.experiment.live.attempt_errors import as_attempt_errors
from clawblox.experiment.schedule.ports import AttemptError


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (WorldExitedError("gone"), "world"),
        (WorldReadyTimeoutError("late"), "world"),
        (WorldCommandError("no such program"), "setup"),
        (PortInUseError("taken"), "address"),
        (WorldSessionError("another session"), "start"),
        (AgentSetupError("too old"), "setup"),
        (AgentResumeError("no transcript"), "start"),
        (AgentExitedError("crashed"), "agent"),
        (CheckpointError("broken"), "start"),
        (ConfigError("must be a seed", key="reseed"), "plan"),
        (PermissionError("no"), "start"),
        (ZeroDivisionError("1/0"), "defect"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_attempt_error_names_its_cause(error: Exception, cause: FailureCause) -> None:
    with pytest.raises(AttemptError) as raised, as_attempt_errors("step failed"):
        raise error
    assert raised.value.cause == cause
    assert raised.value.__cause__ is error


def test_full_disk_is_not_a_failure() -> None:
    with pytest.raises(OSError, match="full") as raised, as_attempt_errors("step failed"):
        raise OSError(errno.ENOSPC, "the disk is full")
    assert raised.value.errno == errno.ENOSPC


def test_long_texts_are_cut() -> None:
    with pytest.raises(AttemptError) as raised, as_attempt_errors("step failed"):
        raise CheckpointError("x" * 10_000)
    assert len(raised.value.text) == 4000
