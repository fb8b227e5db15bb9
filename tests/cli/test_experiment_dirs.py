"""The directory of an experiment in place of a run's directory, and vice versa."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.commands.test_experiment import KEYS, wait_for_work, write_plan
from tests.cli.conftest import Start, assert_nothing_runs
from tests.golden.test_golden_experiments import V1
from tests.rundir.support import make_record
from tests.support.worlds import make_world

EXPERIMENT = "experiments/memory"
CHAIN = f"{EXPERIMENT}/chains/r1"
ARCHIVE = V1.parent.parent / "archives" / "v1.ckpt"
ATTEMPT = f"{CHAIN}/runs/memory-r1-g001"


@pytest.fixture
def experiment() -> Path:
    """Return an experiment without its runs, with an empty directory of a chain."""
    directory = Path(shutil.copytree(V1, EXPERIMENT))
    Path(CHAIN, "runs").mkdir(parents=True)
    return directory


def refuse(call: Start, *words: str) -> tuple[str, str]:
    """Return the error and the hint of a wrongly used command."""
    command = call(*words)
    assert command.wait() == 2, (words, command.out, command.err)
    assert command.out == ""
    error, _, hint = command.err.rstrip("\n").removeprefix("Error: ").partition("\n  hint: ")
    return error, hint


COUNTERPARTS = {
    ("resume",): "resume",
    ("stop",): "stop",
    ("clean",): "clean",
    ("wait",): "status --watch",
    ("fork", "w000"): "fork CHECKPOINT",
    ("run",): "resume",
    ("up",): "resume",
    **dict.fromkeys(
        [
            (name,)
            for name in (
                "save",
                "logs",
                "restart",
                "lineage",
                "act",
                "play",
                "trajectory",
                "replay",
            )
        ],
        "status",
    ),
    ("ckpt repair",): "status",
    ("agent status",): "status",
    ("agent stop",): "status",
    ("agent send", "hello"): "status",
}


@pytest.mark.thorough
@pytest.mark.usefixtures("experiment")
def test_a_command_for_runs_names_the_command_for_experiments(call: Start) -> None:
    for (name, *others), counterpart in COUNTERPARTS.items():
        meant = "a world" if name in ("run", "up") else "a run directory"
        command, *words = counterpart.split()
        error, hint = refuse(call, *name.split(), EXPERIMENT, *others)
        assert error == f"'{EXPERIMENT}' is the directory of an experiment, not {meant}", name
        assert hint == " ".join(["use clawblox experiment", command, EXPERIMENT, *words]), name
        error, hint = refuse(call, *name.split(), CHAIN, *others)
        assert error == f"'{CHAIN}' is part of the experiment in '{EXPERIMENT}', not {meant}", name
        assert f"clawblox experiment {command} {EXPERIMENT}" in hint, name
    assert refuse(call, "stop", CHAIN)[1] == f"use clawblox experiment stop {EXPERIMENT} r1"


@pytest.mark.usefixtures("experiment")
@pytest.mark.parametrize("place", [EXPERIMENT, f"{EXPERIMENT}/chains", CHAIN, ATTEMPT])
def test_new_run_is_refused_in_a_directory_of_an_experiment(call: Start, place: str) -> None:
    make_world(Path())
    for name in ("run", "up"):
        error, _ = refuse(call, name, "counter", "--run-dir", place)
        assert error == (
            f"--run-dir: must be outside of the experiment in '{EXPERIMENT}', not '{place}'"
        )
    error, _ = refuse(call, "ckpt", "extract", str(ARCHIVE), place)
    assert error.startswith("DIR: must be outside of the experiment")
    assert not Path(ATTEMPT).exists()


@pytest.mark.usefixtures("experiment")
def test_agents_and_worlds_of_an_experiment_may_start_runs_in_their_directories(
    call: Start,
) -> None:
    workspace = Path(ATTEMPT, "agents", "Eko", "workspace")
    workspace.mkdir(parents=True)
    for place, env in ((str(workspace / "run"), {}), (ATTEMPT, {"CLAWBLOX_INSTANCE": "cookie"})):
        extract = call("ckpt", "extract", str(ARCHIVE), place, env=env)
        assert extract.wait() == 0, extract.err


@pytest.mark.usefixtures("experiment")
def test_a_run_does_not_continue_from_an_experiment(call: Start) -> None:
    make_world(Path())
    _, hint = refuse(call, "run", "counter", "--resume", EXPERIMENT)
    assert hint == f"use clawblox experiment resume {EXPERIMENT}"


@pytest.mark.usefixtures("experiment")
def test_ps_of_an_experiment_without_runs_names_the_status_command(call: Start) -> None:
    shown = call("ps", EXPERIMENT)
    assert shown.wait() == 0
    status = f"clawblox experiment status {EXPERIMENT}"
    assert shown.out.endswith(f"or below. --all shows ended runs, and {status} the chains.\n")
    assert call("ps", EXPERIMENT, "--all").out.endswith(f"or below. See {status}.\n")


# -- the reverse ----------------------------------------------------------------------------------

COMMANDS: Sequence[tuple[str, ...]] = (
    *(("status",), ("results",), ("resume",), ("stop",), ("clean",)),
    *(("fork", "r1/g001"), ("rescore", "scores:points")),
)


@pytest.mark.usefixtures("experiment")
def test_part_of_an_experiment_is_refused_and_the_experiment_named(call: Start) -> None:
    Path(ATTEMPT).mkdir()
    for place in (CHAIN, ATTEMPT):
        for name, *others in COMMANDS:
            error, hint = refuse(call, "experiment", name, place, *others)
            assert error == f"'{place}' is part of the experiment in '{EXPERIMENT}'"
            assert hint == f"use clawblox experiment {name} {EXPERIMENT}"


def test_the_directory_of_a_run_is_refused_with_the_command_for_runs(call: Start) -> None:
    make_record(Path("runs/r1"), 0, state="exited")
    meant = {"status": "ps", "results": "ps", "fork": "ps", "rescore": "ps"}
    for name, *others in COMMANDS:
        error, hint = refuse(call, "experiment", name, "runs/r1", *others)
        assert error == "'runs/r1' is a run directory, not the directory of an experiment"
        assert hint == f"use clawblox {meant.get(name, name)} runs/r1"


@pytest.mark.usefixtures("experiment")
def test_a_directory_of_experiments_is_refused_with_their_names(call: Start) -> None:
    for place in ("experiments", "."):
        error, hint = refuse(call, "experiment", "status", place)
        assert error.startswith("there is no experiment in '")
        if place == "experiments":
            assert hint == f"give the directory of an experiment; there are: {EXPERIMENT}"


@pytest.mark.usefixtures("experiment")
def test_plans_worlds_and_experiments_are_distinguished(call: Start) -> None:
    make_world(Path())
    Path("exp.toml").touch()
    for name in ("run", "up"):
        error, hint = refuse(call, name, "exp.toml")
        assert error == "'exp.toml' is a file, not the directory of a world"
        assert hint == "if it is the plan of an experiment: clawblox experiment run exp.toml"
    for place, command in ((EXPERIMENT, "experiment resume"), ("counter", "run")):
        error, hint = refuse(call, "experiment", "run", place)
        assert error == f"PLAN: must be a TOML file, not the directory '{place}'"
        assert hint.endswith(f": clawblox {command} {place}")
    error, _ = refuse(call, "experiment", "resume", EXPERIMENT, "--plan", "counter")
    assert error == "--plan: must be a TOML file, not the directory 'counter'"


# -- an attempt of a running experiment -----------------------------------------------------------


@pytest.mark.thorough
def test_worlds_of_a_running_experiment_are_refused(
    tmp_path: Path, start: Start, call: Start
) -> None:
    write_plan(tmp_path / "cwd", duration="1h")
    run = start("experiment", "run", "exp.toml", env=KEYS)
    wait_for_work(run)
    for name in ("resume", "restart", "stop"):
        error, hint = refuse(call, name, ATTEMPT)
        assert f"is part of the experiment in '{EXPERIMENT}', which runs as pid " in error
        command = f"stop {EXPERIMENT} r1" if name == "stop" else f"status {EXPERIMENT}"
        assert hint == f"use clawblox experiment {command}"
    refuse(call, "fork", ATTEMPT, "w000")
    assert "ready" in call("ps", ATTEMPT).out
    assert run.interrupt() == 128 + signal.SIGINT
    resume = call("resume", ATTEMPT, "w000", "--dry-run")
    assert resume.wait() == 0, resume.err
    assert "Not resumed: 1 agent, Eko-rmemory-r1-g001-w0-a0.\n" in resume.out
    command = f"clawblox experiment resume {EXPERIMENT}"
    assert resume.out.endswith(f"The experiment, with its agents:  {command}\n")
    assert_nothing_runs()
