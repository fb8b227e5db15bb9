"""``clawblox experiment``: the effects of its options, with limits that prevent attempts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.lines import About
from clawblox.experiment.plan import Cluster, Plan
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.running.opening import begin_or_continue
from tests.cli.commands.test_experiment import KEYS, write_plan
from tests.cli.conftest import Start
from tests.support.terminals import CTRL_C, terminal

FULL = f"limits.min_free={1 << 60}"
"""A setting that makes every disk too full."""
DIRECTORY = "experiments/memory"
FIRST = About("r1", 1, "memory-r1-g001")
OPENED: tuple[Any, dict[str, Any]] = ("opened", {"phase": "work", "revision": 0})
SAVED: tuple[Any, dict[str, Any]] = (
    "checkpoint",
    {"file": "t1.ckpt", "sha256": "ab" * 32, "kind": "periodic", "elapsed_s": 1.0},
)

COMMITTED: tuple[Any, dict[str, Any]] = (
    "committed",
    {
        "usage": [],
        "used": [],
        "agents": [],
        "workspaces": [],
        "ended_by": "duration",
        "started_at": "2026-06-22T18:00:00Z",
        "ended_at": "2026-06-22T19:00:00Z",
    },
)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write_plan(tmp_path / "cwd")


def begin(plan: Path, *lines: tuple[Any, dict[str, Any]]) -> Path:
    """Start an experiment, and write journal lines about an attempt that never ran."""
    directory = plan.parent / DIRECTORY
    directory.mkdir(parents=True)
    limited = Plan.load(plan).but(limits={"min_free": 1 << 60})
    with Journal(directory) as journal:
        begin_or_continue(journal, directory, limited)
        for type_, data in lines:
            journal.append(type_, data, FIRST)
    return directory


def test_a_change_that_is_accepted_becomes_a_revision(plan: Path, call: Start) -> None:
    directory = begin(plan)
    words = ("--set", "duration=2h", "--accept", "duration")
    command = call("experiment", "resume", DIRECTORY, *words, env=KEYS)
    assert command.wait() == 75, command.err
    assert "limits.min_free is" in command.out
    assert [plan.duration for plan in read_experiment(directory).plans.revisions] == [1.0, 7200.0]


def test_a_chain_that_failed_is_tried_again_only_on_request(plan: Path, call: Start) -> None:
    failed = {"cause": "setup", "text": "no program", "usage": [], "moved_to": "a.failed-1"}
    directory = begin(plan, OPENED, ("failed", failed))
    for words, status in (((), 1), (("--retry-failed",), 75)):
        command = call("experiment", "resume", DIRECTORY, *words, env=KEYS)
        assert command.wait() == status, command.err
    types = [line.type for line in read_experiment(directory).lines]
    assert types.count("chain.retried") == 1


@pytest.mark.thorough
def test_a_plan_in_another_file_continues_the_experiment(plan: Path, call: Start) -> None:
    directory = begin(plan)
    text = plan.read_text().replace('name = "memory"', 'name = "other"')
    Path("other.toml").write_text(text.replace("generations = 1", "generations = 3"))
    words = ("--plan", "other.toml", "--set", FULL)
    assert call("experiment", "resume", DIRECTORY, *words, env=KEYS).wait() == 75
    record = read_experiment(directory)
    assert (record.plan.name, record.plan.generations) == ("memory", 3)


@pytest.mark.thorough
def test_resume_without_cluster_runs_on_this_machine(plan: Path, call: Start) -> None:
    plan.write_text(plan.read_text() + "\n[cluster]\ncpus = 2\n")
    directory = begin(plan)
    command = call("experiment", "resume", DIRECTORY, "--cluster", "none", env=KEYS)
    assert command.wait() == 75, command.err
    clusters = [plan.cluster for plan in read_experiment(directory).plans.revisions]
    assert clusters == [Cluster(cpus=2), None]


@pytest.mark.usefixtures("plan")
def test_ray_client_address_is_refused_before_the_start(call: Start) -> None:
    command = call("experiment", "run", "exp.toml", "--cluster", "ray://head:10001", env=KEYS)
    assert command.wait() == 2
    assert 'cluster.address: must be "auto" or "host:port"' in command.err
    command = call("experiment", "run", "exp.toml", "--set", "cluster.cpus=-1", env=KEYS)
    assert command.wait() == 2
    assert command.err.startswith("Error: cluster.cpus: must be a number, 0 or more")


@pytest.mark.usefixtures("plan")
def test_a_job_of_a_cluster_needs_a_directory_that_outlives_it(call: Start, tmp_path: Path) -> None:
    job = {**KEYS, "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}
    for words in ((), ("--dir", "here")):
        command = call("experiment", "run", "exp.toml", "--dry-run", *words, env=job)
        assert command.wait() == 2
        assert "--dir: must be an absolute path in a Ray job" in command.err
    place = str(tmp_path / "outside")
    command = call("experiment", "run", "exp.toml", "--dry-run", "--dir", place, env=job)
    assert command.wait() == 0, command.err


@pytest.mark.thorough
@pytest.mark.usefixtures("plan")
def test_experiment_is_named_after_its_directory(call: Start) -> None:
    words = ("--name", "m2", "--set", "limits.wall=0.000001", "--json")
    command = call("experiment", "run", "exp.toml", *words, env=KEYS)
    assert command.wait() == 75, command.err
    outcome = json.loads(command.out)
    assert (outcome["status"], outcome["exit_status"]) == ("paused", 75)
    assert [path.name for path in Path("experiments").iterdir()] == ["m2"]
    assert read_experiment("experiments/m2").plan.name == "m2"


def test_branches_get_the_given_messages_and_duration(plan: Path, call: Start) -> None:
    directory = begin(plan, OPENED, SAVED, ("paused", {"reason": "request", "usage": []}))
    Path("storm.md").write_text("A storm is coming.")
    messages = ("--prompt", "-", "--prompt", "Hm.", "--prompt-file", "storm.md")
    numbers = ("--duration", "15m", "--generations", "2", "--parallel", "1")
    command = call("experiment", "fork", DIRECTORY, "r1/g001", *messages, *numbers, env=KEYS)
    assert command.wait() == 75, command.err
    state = read_experiment(directory).state
    branches = {name: chain.branch for name, chain in state.chains.items() if chain.branch}
    assert list(branches) == ["r1-f1-1", "r1-f1-2", "r1-f1-3"]
    assert [branch.prompt for branch in branches.values()] == [None, "Hm.", "A storm is coming."]
    assert {(branch.duration_s, branch.generations) for branch in branches.values()} == {(900.0, 2)}
    waiting = [
        line.partition(":")[0] for line in command.out.splitlines() if "limits.min_free is" in line
    ]
    assert waiting == list(branches)  # only the branches were requested


def leave_archive(plan: Path) -> Path:
    """Leave a periodic checkpoint of a committed generation, and return its archive."""
    directory = begin(plan, OPENED, SAVED, COMMITTED)
    archive = directory / "chains" / "r1" / "runs" / "memory-r1-g001" / "checkpoints" / "t1.ckpt"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"x" * 100)
    return archive


def test_unneeded_files_are_removed_after_confirmation(plan: Path, call: Start) -> None:
    archive = leave_archive(plan)
    for words, typed, status in ((("--dry-run",), "", 0), ((), "n\n", 1), ((), "y\n", 0)):
        assert archive.exists()
        command = call("experiment", "clean", DIRECTORY, *words, typed=typed)
        assert command.wait() == status, command.err
        assert str(archive.relative_to(Path.cwd())) in command.out
    assert command.err.endswith("Removed 1 item.\n")
    assert not archive.exists()


def test_unanswered_question_removes_no_files(plan: Path, call: Start) -> None:
    archive = leave_archive(plan)
    command = call("experiment", "clean", DIRECTORY)
    assert command.wait() == 1
    last = command.err.splitlines()[-1]
    assert last == "Nothing was removed without an answer: --yes does not ask."
    assert archive.exists()


@pytest.mark.thorough
def test_ctrl_c_at_a_question_is_an_interrupt(plan: Path) -> None:
    archive = leave_archive(plan)
    with terminal("experiment", "clean", DIRECTORY) as screen:
        screen.wait_for_question("Remove them? [y/N]:")
        screen.type(CTRL_C)
        assert screen.wait() == 130
    assert archive.exists()


def test_unneeded_files_are_removed_without_a_question_with_option_yes(
    plan: Path, call: Start
) -> None:
    archive = leave_archive(plan)
    command = call("experiment", "clean", DIRECTORY, "--yes")
    assert command.wait() == 0, command.err
    assert not archive.exists()
