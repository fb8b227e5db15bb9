"""``clawblox experiment``: scores in plans and on command lines, and when they are imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox.experiment.history.journal import Journal
from clawblox.experiment.reading.record import read_experiment
from tests.cli.commands.test_experiment import KEYS, refuse, write_plan
from tests.cli.commands.test_experiment_options import (
    COMMITTED,
    DIRECTORY,
    OPENED,
    SAVED,
    begin,
)
from tests.cli.conftest import Start, assert_nothing_runs

POINTS = """\
from pathlib import Path

Path(__file__).with_name("imported").touch()

def points(end):
    agent, _ = end.agents[0], end.elapsed_s
    assert end.snapshot().path.is_file() and end.world_time() is not None
    assert agent.trajectory()["steps"] and agent.workspace.is_dir() and end.chain == "r1"
    return {"counter": end.observe()["counter"], "broken": float("nan")}

def agents(end):
    return len(end.agents)

async def fails(end):
    await end.world_time()
    raise KeyError("points")
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    plan = write_plan(tmp_path / "cwd")
    (plan.parent / "scores.py").write_text(POINTS)
    plan.write_text(f'score = "scores:points"\n{plan.read_text()}')
    return plan


@pytest.mark.thorough
@pytest.mark.usefixtures("plan")
def test_scores_are_computed_and_kept_without_the_secrets_of_agents(call: Start) -> None:
    run = call("experiment", "run", "exp.toml", env=KEYS)
    assert run.wait() == 0, run.out + run.err
    file = Path("scores.py").absolute()
    first = POINTS.splitlines().index("def points(end):") + 1
    fault = f"score.broken: must be a finite number, not nan ({file}:{first})"
    assert f"r1 generation 1 scored: counter 0; {fault}" in run.out
    why = f"clawblox experiment show {DIRECTORY} r1/g001"
    assert run.out.splitlines()[-3:-1] == [
        "1 of 1 committed · 1 score failed; $0.008.",
        f"scores:   {why}",
    ]
    status = call("experiment", "status", DIRECTORY).out.splitlines()
    assert (status[1], status[-1]) == ("1 of 1 committed · 1 score failed", f"scores:   {why}")
    shown = call("experiment", "results", DIRECTORY)
    assert shown.err == f"1 score failed. To see why:  {why}\n"
    assert fault in call(*why.split()[1:]).out
    failed = call("experiment", "rescore", DIRECTORY, "scores:fails")
    line = POINTS.splitlines().index('    raise KeyError("points")') + 1
    assert failed.wait() == 1, failed.err
    assert failed.out == f"r1 generation 1: counter 0; KeyError: 'points' ({file}:{line})\n"
    assert failed.err == ""
    added = call("experiment", "rescore", DIRECTORY, "scores:agents")
    assert (added.wait(), added.out) == (0, "r1 generation 1: counter 0, score 1\n")
    assert call("experiment", "results", DIRECTORY).err == ""
    again = call("experiment", "rescore", DIRECTORY)
    assert (again.wait(), again.out) == (1, f"r1 generation 1: counter 0, score 1; {fault}\n")
    (row,) = json.loads(call("experiment", "results", DIRECTORY, "--json").out)["rows"]
    assert row["scores"] == {"counter": 0.0, "score": 1.0}
    names = {name: version.partition("@")[0] for name, version in row["score_versions"].items()}
    assert names == {"counter": "scores:points", "score": "scores:agents"}
    assert_nothing_runs()


# -- before anything runs -------------------------------------------------------------------------


def test_a_score_that_cannot_be_imported_is_reported_once_with_its_line(
    plan: Path, call: Start
) -> None:
    (plan.parent / "scores.py").write_text("import os\n\npoints = no_such_name\n")
    for more in ((), ("--dry-run",), ("--detach",)):
        error = refuse(call, "run", "exp.toml", *more)
        assert error.count("NameError: name 'no_such_name' is not defined") == 1
        assert error.startswith("score: cannot be imported: ")
        assert f"file: {plan.parent}/scores.py:3\n" in error
        assert not Path("experiments").exists()
    plan.write_text(plan.read_text().replace("bin/claude", "bin/nothing"))
    error = refuse(call, "run", "exp.toml", "--score", "scores:points")
    assert error.startswith("--score: cannot be imported: ")


def test_score_fault_is_reported_with_all_other_faults(plan: Path, call: Start) -> None:
    plan.write_text(plan.read_text().replace("bin/claude", "bin/nothing"))
    error = refuse(call, "run", "exp.toml", "--set", "score=scores:pionts")
    assert "score: there is no such function" in error
    assert "agents.Eko:" in error


@pytest.mark.usefixtures("plan")
def test_dry_run_needs_no_secrets_and_names_the_required_ones(
    call: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    command = call("experiment", "run", "exp.toml", "--dry-run")
    assert command.wait() == 0, command.err
    needed = "score scores:points   a run needs values of ANTHROPIC_API_KEY   copied: template"
    assert any(line.endswith(needed) for line in command.out.splitlines())
    facts = json.loads(call("experiment", "run", "exp.toml", "--dry-run", "--json").out)
    assert facts["missing_env"] == ["ANTHROPIC_API_KEY"]
    assert "agents.Eko.env" in refuse(lambda *words, **_: call(*words), "run", "exp.toml")


# -- options --------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_an_option_replaces_the_score_of_the_plan_and_is_recorded(plan: Path, call: Start) -> None:
    place = plan.parent
    (place / "other.py").write_text(POINTS)
    words = ("--name", "m2", "--set", "limits.wall=0.000001", "--score", "other:agents")
    command = call("experiment", "run", "exp.toml", *words, env=KEYS)
    assert command.wait() == 75, command.err
    assert read_experiment("experiments/m2").plan.score == f"{place}/other:agents"


@pytest.mark.thorough
def test_resume_can_change_or_add_the_score(plan: Path, call: Start) -> None:
    place, text = plan.parent, plan.read_text()
    plan.write_text(text.replace('score = "scores:points"', ""))
    directory = begin(plan)
    (place / "moved").mkdir()
    (place / "moved" / "scores.py").write_text(POINTS)
    changes = {
        ("--score", "scores:points"): f"{place}/scores:points",
        ("--score", "moved/scores:points"): f"{place}/moved/scores:points",
        (): f"{place}/moved/scores:points",
        ("--set", "score=false"): None,
    }
    for words, score in changes.items():
        command = call("experiment", "resume", DIRECTORY, *words, env=KEYS)
        assert command.wait() == 75, command.err
        assert read_experiment(directory).plan.score == score
    assert len(read_experiment(directory).plans.revisions) == 4
    refuse(call, "resume", DIRECTORY, "--score", "scores:pionts")
    refuse(call, "resume", DIRECTORY, "--set", "score=scores:pionts")
    assert len(read_experiment(directory).plans.revisions) == 4


@pytest.mark.thorough
def test_branches_are_scored_by_the_function_of_the_option(plan: Path, call: Start) -> None:
    directory = begin(plan, OPENED, SAVED, ("paused", {"reason": "request", "usage": []}))
    words = ("fork", DIRECTORY, "r1/g001", "--parallel", "1", "--score", "scores:agents")
    with Journal(directory):
        assert refuse(call, *words).startswith("--score: must be left out while a process runs")
    command = call("experiment", *words, env=KEYS)
    assert command.wait() == 75, command.err
    assert read_experiment(directory).plan.score == f"{plan.parent}/scores:agents"


def test_a_generation_without_its_checkpoint_is_not_scored_again(plan: Path, call: Start) -> None:
    begin(plan, OPENED, ("scored", {"scores": {"counter": 3.0}}), COMMITTED)
    command = call("experiment", "rescore", DIRECTORY)
    why = "not scored again, for lack of a checkpoint at its end"
    assert (command.wait(), command.out) == (1, f"r1 generation 1: counter 3; {why}\n")


# -- commands that do not import scores -----------------------------------------------------------


def test_only_commands_that_score_import_the_score(plan: Path, call: Start) -> None:
    directory = begin(plan, OPENED, COMMITTED)
    mark = plan.parent / "imported"
    for words in (
        ("status",),
        ("status", "--json"),
        ("results",),
        ("results", "--csv"),
        ("clean", "--yes"),
        ("stop",),
    ):
        command = call("experiment", words[0], DIRECTORY, *words[1:])
        assert command.wait() == 0, command.err
    assert read_experiment(directory).results().rows()
    assert not mark.exists()
    assert call("experiment", "rescore", DIRECTORY).wait() == 1
    assert mark.exists()


def test_a_function_in_a_downloaded_experiment_is_not_imported(plan: Path, call: Start) -> None:
    directory = begin(plan)
    (directory / "evil.py").write_text(POINTS)
    recorded = (directory / "plan.toml").read_text()
    lines = [
        'score = "./evil:points"' if line.startswith("score = ") else line
        for line in recorded.splitlines()
    ]
    (directory / "plan.toml").write_text("\n".join(lines))
    for words in (("resume", DIRECTORY), ("rescore", DIRECTORY)):
        assert "must be outside of the directory of an experiment" in refuse(call, *words)
    assert not (directory / "imported").exists()
