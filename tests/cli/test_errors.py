"""Errors at the edge of the command line: each is reported by its text."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from clawblox.cli import main
from clawblox.errors import ClawbloxError, ControlError, UsageError
from clawblox.rundir.status import read_run
from tests.cli.conftest import Start
from tests.support.waiting import wait_until
from tests.support.worlds import make_world

LOST = "the orchestrator went away"


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], Result]:
    """Run a command that raises an error."""

    def run(error: BaseException) -> Result:
        @click.command()
        def trial() -> None:
            raise error

        monkeypatch.setattr(main, "resolve_command", lambda ctx, args: ("trial", trial, args[1:]))
        return CliRunner().invoke(main, ["trial"], prog_name="clawblox")

    return run


def group(*errors: BaseException) -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup("unhandled errors in a TaskGroup", errors)


@pytest.mark.parametrize(
    "wrap", [lambda error: error, group, lambda error: group(group(error))], ids=["bare", "1", "2"]
)
def test_a_group_with_a_single_error_is_reported_as_that_error(
    fail: Callable[..., Result], wrap: Callable[..., BaseException]
) -> None:
    done = fail(wrap(ControlError(LOST, hint="look at its log")))
    assert (done.exit_code, done.stderr) == (1, f"Error: {LOST}\n  hint: look at its log\n")
    done = fail(wrap(UsageError("no such instance")))
    assert (done.exit_code, done.stderr) == (2, "Error: no such instance\n")
    done = fail(wrap(OSError(errno.ENOSPC, "No space left on device", "/full")))
    assert (done.exit_code, done.stderr) == (1, "Error: /full: No space left on device\n")
    done = fail(wrap(click.UsageError("wrong")))
    assert done.exit_code == 2
    assert done.stderr.endswith("Error: wrong\n")
    assert fail(wrap(KeyboardInterrupt())).exit_code == 130
    assert isinstance(fail(wrap(ZeroDivisionError())).exception, ZeroDivisionError)


def test_every_error_of_a_group_is_reported_once(fail: Callable[..., Result]) -> None:
    errors = [ControlError(LOST), ClawbloxError("another"), UsageError("a third")]
    done = fail(group(errors[0], group(ControlError(LOST), errors[1]), errors[2]))
    assert done.stderr == f"Error: {LOST}\nError: another\nError: a third\n"
    assert done.exit_code == 2


def test_a_defect_among_several_errors_is_not_hidden(fail: Callable[..., Result]) -> None:
    done = fail(group(ControlError(LOST), ZeroDivisionError()))
    assert isinstance(done.exception, BaseExceptionGroup)
    assert fail(group(ControlError(LOST), KeyboardInterrupt())).exit_code == 130


@pytest.mark.thorough
def test_a_restart_reports_that_the_orchestrator_died(
    start: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = make_world(tmp_path, "--slow-stop", "60")
    up = start("up", str(world), "-n", "2", "--run-dir", str(run_dir))
    up.wait_for("ready after")
    orchestrator = read_run(run_dir).instances[0].orchestrator_pid
    restart = start("restart", str(run_dir), "--grace", "60")
    wait_until(lambda: up.out.count(" saved ") == 2, what="they are saved, and being stopped")
    assert orchestrator is not None
    os.kill(orchestrator, signal.SIGKILL)
    assert restart.wait() == 1
    assert "Traceback" not in restart.err
    assert "ExceptionGroup" not in restart.err
    assert restart.err.startswith("Error: ")
    up.wait()
