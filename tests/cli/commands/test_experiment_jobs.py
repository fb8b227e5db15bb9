"""``clawblox experiment`` in a batch job: continued in its directory, paused by SIGTERM."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from clawblox.experiment.reading.record import read_experiment
from clawblox.rundir.experiments import JOURNAL_NAME
from tests.agents.standins import misbehave
from tests.cli.commands.test_experiment import KEYS, refuse, wait_for_work, write_plan
from tests.cli.conftest import API_KEY, Command, Start, assert_nothing_runs, read_instances
from tests.support.waiting import HANG_S, wait_until

RUN = ("experiment", "run", "exp.toml", "--continue", "--pause-on-term")
EXPERIMENT = "experiments/memory"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write_plan(tmp_path / "cwd", duration="1h")


def terminate(command: Command) -> int:
    """Send SIGTERM; return the exit status."""
    command.send(signal.SIGTERM)
    return command.wait()


def kinds() -> list[str]:
    """Return the kinds of the checkpoints of the latest attempt."""
    latest = list(read_experiment(EXPERIMENT).state.chain("r1").attempts)[-1]
    return [point.kind for point in latest.checkpoints]


@pytest.mark.thorough
def test_repeated_command_continues_a_run_paused_by_sigterm_to_its_end(
    tmp_path: Path, start: Start, call: Start
) -> None:
    write_plan(tmp_path / "cwd", duration="3s")
    run = start(*RUN, env=KEYS)
    wait_for_work(run)
    assert terminate(run) == 75, run.out + run.err
    assert kinds() == ["pause"]
    dry_run = call(*RUN, "--dry-run")
    assert dry_run.wait() == 0, dry_run.err
    assert "Pause: about " in dry_run.out
    assert {"pause_s", "lead_s"} <= json.loads(call(*RUN, "--dry-run", "--json").out).keys()
    again = call(*RUN, env=KEYS)
    assert again.wait() == 0, again.out + again.err
    (first, second) = read_experiment(EXPERIMENT).state.chain("r1").attempts
    assert second.origin == first.checkpoints[0].ref
    last = call(*RUN)  # also needs no keys
    assert last.wait() == 0, last.out + last.err
    assert "Nothing was left to do: all generations are committed." in last.err
    assert_nothing_runs()


@pytest.mark.thorough
@pytest.mark.usefixtures("plan")
def test_without_the_option_the_status_after_a_sigterm_is_143(start: Start) -> None:
    run = start(*RUN[:-1], env=KEYS)
    wait_for_work(run)
    assert terminate(run) == 128 + signal.SIGTERM
    assert kinds() == ["pause"]
    resumed = start("experiment", "resume", EXPERIMENT, "--pause-on-term", env=KEYS)
    wait_for_work(resumed)
    assert terminate(resumed) == 75


@pytest.mark.thorough
@pytest.mark.usefixtures("plan")
def test_other_signals_have_their_own_status(start: Start) -> None:
    run = start(*RUN, env=KEYS)
    wait_for_work(run)
    assert run.interrupt() == 128 + signal.SIGINT


@pytest.mark.thorough
def test_a_pause_without_its_checkpoint_has_the_status_of_the_signal(
    plan: Path, start: Start
) -> None:
    (plan.parent / "template" / "key").write_text(API_KEY)  # must not be in any checkpoint
    run = start(*RUN, env=KEYS)
    wait_for_work(run)
    assert terminate(run) == 128 + signal.SIGTERM
    assert kinds() == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("boundary", "status"),
    [("true", 75), pytest.param("false", 143, marks=pytest.mark.thorough)],
)
@pytest.mark.usefixtures("plan")
def test_a_pause_while_agents_save_needs_the_checkpoint_before_their_save_prompt(
    boundary: str, status: int, start: Start
) -> None:
    settings = (
        *("save.before=3597s", "save.full=true"),
        *("checkpoint.every=0.5s", f"checkpoint.boundary={boundary}"),
    )
    run = start(*RUN, *(word for text in settings for word in ("--set", text)), env=KEYS)
    run.wait_for("closes: duration")
    assert terminate(run) == status, run.out + run.err
    assert kinds()[-1] == ("boundary" if status == 75 else "periodic")


@pytest.mark.thorough
@pytest.mark.usefixtures("plan")
def test_an_attempt_that_failed_before_the_sigterm_does_not_change_the_status(start: Start) -> None:
    run = start(*RUN, "--set", "retry.delay=0.1s", env=KEYS)
    wait_for_work(run)
    (run_dir,) = Path(EXPERIMENT, "chains", "r1", "runs").iterdir()
    os.kill(read_instances(run_dir)["w000"]["pid"], signal.SIGKILL)
    wait_until(lambda: run.out.count("generation 1 works") == 2)
    assert terminate(run) == 75, run.out + run.err
    attempts = read_experiment(EXPERIMENT).state.chain("r1").attempts
    assert [attempt.outcome for attempt in attempts] == ["failed", "paused"]


@pytest.mark.thorough
def test_a_second_sigterm_kills_without_a_checkpoint(plan: Path, start: Start) -> None:
    misbehave(plan.parent / "template", turn_s=HANG_S)  # delays the checkpoint
    run = start(*RUN, env=KEYS)
    wait_for_work(run)
    run.send(signal.SIGTERM)
    run.wait_for("Saving and stopping.")
    assert terminate(run) == 128 + signal.SIGTERM
    assert kinds() == []
    assert_nothing_runs()


# -- --continue ---------------------------------------------------------------------------------


@pytest.mark.thorough
def test_continue_starts_an_experiment_whose_first_process_was_killed_early(
    tmp_path: Path, call: Start
) -> None:
    write_plan(tmp_path / "cwd")
    Path(EXPERIMENT).mkdir(parents=True)
    Path(EXPERIMENT, JOURNAL_NAME).touch()
    run = call(*RUN, env=KEYS)
    assert run.wait() == 0, run.err


@pytest.mark.usefixtures("plan")
def test_continue_refuses_a_directory_with_other_files(call: Start) -> None:
    Path(EXPERIMENT).mkdir(parents=True)
    Path(EXPERIMENT, "notes.md").touch()
    assert refuse(call, *RUN[1:]).startswith("the directory of the experiment exists: ")
    error = refuse(call, *RUN[1:], "--smoke")
    assert error.startswith("--smoke: must be given without --continue")


def test_continue_refuses_another_plan_even_in_a_dry_run(
    plan: Path, start: Start, call: Start
) -> None:
    run = start(*RUN, env=KEYS)
    wait_for_work(run)
    assert terminate(run) == 75
    shutil.copy(Path(EXPERIMENT, JOURNAL_NAME), "before")
    other = ("--set", "agents.Eko.model=other")
    for more in ((), ("--dry-run",)):
        assert "the plan differs in 1 field" in refuse(call, *RUN[1:], *other, *more)
    assert Path(EXPERIMENT, JOURNAL_NAME).read_bytes() == Path("before").read_bytes()
    assert plan.exists()
