"""Experiments in Slurm jobs, with the scripts in ``examples`` and stand-ins for Slurm."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeAlias

import pytest

from clawblox.experiment.reading.record import read_experiment
from tests.agents.standins import misbehave
from tests.cli import slurm
from tests.cli.commands.test_experiment import KEYS, write_plan
from tests.cli.conftest import Start, assert_nothing_runs, environment
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world

EXAMPLES = Path(__file__).parents[2] / "examples"
STEP = """\
#SBATCH --job-name=step
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --output=step.out
srun clawblox experiment run "$@" --continue --pause-on-term
"""
Submit: TypeAlias = Callable[..., "Job"]


class Job:
    """A job, from its submission to its end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdin is not None
        self._moments: IO[str] = process.stdin

    def tell(self, moment: str) -> None:
        """Trigger an event of the job."""
        self._moments.write(f"{moment}\n")
        self._moments.flush()

    def wait_for(self, output: str, text: str, count: int = 1) -> None:
        """Wait until the job has written a text ``count`` times."""
        path = Path(output)
        wait_until(
            lambda: (
                (path.exists() and path.read_text().count(text) >= count)
                or self.process.poll() is not None
            ),
            what=f"{text!r} in {output}",
        )
        assert path.read_text().count(text) >= count, path.read_text()

    def wait(self) -> int:
        return self.process.wait(HANG_S)


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Submit]:
    """Submit scripts, and kill the remaining jobs at the end."""
    programs = tmp_path / "programs"
    env = slurm.install(programs, tmp_path / "slurm")
    clawblox = programs / "clawblox"
    clawblox.write_text(f'#!/bin/sh\nexec {sys.executable} -m clawblox "$@"\n')
    clawblox.chmod(0o755)
    env = {**environment(KEYS), **env}
    env["PATH"] = f"{programs}:{env['PATH']}"
    jobs: list[subprocess.Popen[str]] = []

    def submit_one(script: Path, *words: str, options: tuple[str, ...] = ()) -> Job:
        command = ["sbatch", "--wait", *options, str(script), *words]
        jobs.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=env, text=True))
        return Job(jobs[-1])

    yield submit_one
    for process in jobs:
        assert process.stdin is not None
        if process.poll() is None:
            process.stdin.write("killwait\n")
            process.stdin.flush()
            process.wait(HANG_S)
        process.stdin.close()


def outcomes(directory: str, chain: str = "r1") -> list[str | None]:
    """Return how each attempt of a chain ended."""
    return [attempt.outcome for attempt in read_experiment(directory).state.chain(chain).attempts]


@pytest.mark.parametrize("name", ["slurm.sbatch", "slurm-array.sbatch"])
def test_the_scripts_are_valid_for_bash(name: str) -> None:
    checked = subprocess.run(["bash", "-n", EXAMPLES / name], check=True, capture_output=True)
    assert checked.stderr == b""


@pytest.mark.thorough
def test_paused_job_is_requeued_and_continues_until_it_is_done(
    tmp_path: Path, submit: Submit
) -> None:
    write_plan(tmp_path / "cwd", duration="4s")
    job = submit(EXAMPLES / "slurm.sbatch", "exp.toml")
    job.wait_for("clawblox-100.out", "generation 1 works")
    job.tell("signal")
    job.wait_for("clawblox-100.out", "generation 1 works", 2)  # both write to the same file
    assert job.wait() == 0
    assert outcomes("experiments/memory") == ["paused", "committed"]
    assert_nothing_runs()


@pytest.mark.thorough
def test_a_job_whose_node_has_died_continues_from_its_last_checkpoint(
    tmp_path: Path, submit: Submit
) -> None:
    write_plan(tmp_path / "cwd", duration="6s")
    words = ("exp.toml", "--set", "checkpoint.every=1s", "--set", "checkpoint.keep=false")
    job = submit(EXAMPLES / "slurm.sbatch", *words)
    job.wait_for("clawblox-100.out", "saved")
    job.tell("lost")
    assert job.wait() == 0, Path("clawblox-100.out").read_text()
    first, second = read_experiment("experiments/memory").state.chain("r1").attempts
    assert (first.outcome, second.outcome) == ("interrupted", "committed")
    assert second.origin == first.checkpoints[-1].ref


@pytest.mark.thorough
def test_a_job_that_waits_for_a_person_is_not_requeued(tmp_path: Path, submit: Submit) -> None:
    write_plan(tmp_path / "cwd", generations=2)  # the limit may end the first attempt as finished
    job = submit(EXAMPLES / "slurm.sbatch", "exp.toml", "--set", "limits.wall=0.1s")
    assert job.wait() == 75
    assert "limits.wall" in Path("clawblox-100.out").read_text()


@pytest.mark.thorough
def test_job_step_gets_the_signal_if_the_script_requests_no_shell_signal(
    tmp_path: Path, submit: Submit
) -> None:
    write_plan(tmp_path / "cwd", duration="1h")
    Path("step.sbatch").write_text(STEP)
    job = submit(Path("step.sbatch"), "exp.toml")
    job.wait_for("step.out", "generation 1 works")
    job.tell("signal")
    assert job.wait() == 75
    assert outcomes("experiments/memory") == ["paused"]


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["limit", "killwait"])
def test_job_that_saves_until_its_time_limit_is_not_requeued(
    moment: str, tmp_path: Path, submit: Submit
) -> None:
    plan = write_plan(tmp_path / "cwd", duration="1h")
    misbehave(plan.parent / "template", turn_s=HANG_S)  # delays the checkpoint
    job = submit(EXAMPLES / "slurm.sbatch", "exp.toml")
    job.wait_for("clawblox-100.out", "generation 1 works")
    job.tell("signal")
    job.wait_for("clawblox-100.out", "Saving and stopping.")
    job.tell(moment)
    assert job.wait() == (143 if moment == "limit" else 247)
    assert_nothing_runs()
    assert outcomes("experiments/memory") == [None]


@pytest.mark.thorough
def test_array_tasks_continue_in_their_directories_and_results_are_joined(
    tmp_path: Path, submit: Submit, call: Start
) -> None:
    plan = write_plan(tmp_path / "cwd", duration="5s")
    shutil.rmtree(plan.parent / "counter")
    make_world(plan.parent, toml_extra="reseed = true")
    options = ("--array=3-4", "--job-name=seeds")
    job = submit(EXAMPLES / "slurm-array.sbatch", "exp.toml", options=options)
    for task in (3, 4):
        job.wait_for(f"seeds-100_{task}.out", "generation 1 works")
    job.tell("signal")
    assert job.wait() == 0, Path("seeds-100_4.out").read_text()
    places = [f"experiments/seeds-{task}" for task in (3, 4)]
    for task, place in zip((3, 4), places, strict=True):
        assert outcomes(place, f"s{task}") == ["paused", "committed"]
    joined = call("experiment", "results", *places, "--csv")
    rows = list(csv.DictReader(io.StringIO(joined.out)))
    assert [(row["experiment"], row["seed"]) for row in rows] == [*zip(places, "34", strict=True)]
    assert_nothing_runs()
