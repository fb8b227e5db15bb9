"""``clawblox experiment run --smoke``: runs each condition outside of the experiment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox.experiment.reading.record import read_experiment
from tests.agents.standins import misbehave
from tests.cli.commands.test_experiment import KEYS, refuse, write_plan
from tests.cli.conftest import Start, assert_nothing_runs
from tests.support.files import look_at

SMOKE = ("experiment", "run", "exp.toml", "--smoke")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Return a plan of two conditions whose agents end after one turn."""
    plan = write_plan(tmp_path / "cwd", generations=5, duration="1h")
    (plan.parent / "other").mkdir()
    misbehave(plan.parent / "other", turn_s=0.05)
    text = plan.read_text().replace('before = "0.3s"', 'before = "5m"')
    more = 'budget = { turns = 1 }\n[sweep]\n"agents.*.template" = ["template", "other"]\n'
    plan.write_text(f'on_done = ["touch", "told"]\n{text}{more}')
    return plan


@pytest.mark.usefixtures("plan")
def test_successful_smoke_run_leaves_no_files(call: Start) -> None:
    Path("experiments").mkdir()
    before = look_at(Path.cwd()).keys()
    smoke = call(*SMOKE, env=KEYS)
    assert smoke.wait() == 0, smoke.out + smoke.err
    assert smoke.out.splitlines()[-4:] == [
        "CONDITION  RESULT",
        "template   ok",
        "other      ok",
        "2 conditions: all ok. Nothing was kept.",
    ]
    assert look_at(Path.cwd()).keys() == before
    assert_nothing_runs()


@pytest.mark.thorough
def test_a_condition_that_fails_is_named_and_its_files_are_kept(plan: Path, call: Start) -> None:
    misbehave(plan.parent / "other", crash_at_start={"status": 3, "words": "no licence"})
    (plan.parent / "scores.py").write_text("def bad(end):\n    return end.nothing\n")
    smoke = call(*SMOKE, "--json", env=KEYS)
    assert smoke.wait() == 1, smoke.err
    facts = json.loads(smoke.out)
    good, bad = facts["conditions"]
    assert (good["condition"], good["is_ok"], good["reason"]) == ("template", True, "")
    assert (bad["condition"], bad["is_ok"]) == ("other", False)
    assert "no licence" in bad["reason"]
    kept = Path(facts["directory"])
    assert kept.parent == Path.cwd() / "experiments"
    assert kept.name.startswith("memory-smoke-")
    assert {row.chain for row in read_experiment(kept).results().rows()} == {
        "template-r1",
        "other-r1",
    }
    run = call("experiment", "run", "exp.toml", "--dry-run", env=KEYS)
    assert run.wait() == 0, "the experiment itself has not started"
    assert_nothing_runs()


@pytest.mark.thorough
def test_failed_score_fails_the_smoke_run(plan: Path, call: Start) -> None:
    (plan.parent / "scores.py").write_text("def bad(end):\n    return end.nothing\n")
    smoke = call(*SMOKE, "--score", "scores:bad", env=KEYS)
    assert smoke.wait() == 1, smoke.err
    assert "score: AttributeError" in smoke.out
    assert "2 of 2 conditions failed; everything is in experiments/memory-smoke-" in smoke.out
    assert not Path("told").exists()


@pytest.mark.usefixtures("plan")
def test_smoke_is_refused_with_continue_dry_run_and_detach(call: Start) -> None:
    for option in ("--continue", "--dry-run", "--detach"):
        assert "without --continue, --dry-run and --detach" in refuse(call, *SMOKE[1:], option)
