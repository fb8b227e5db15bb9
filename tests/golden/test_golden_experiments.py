"""The experiment of an earlier version opens, and that of a later version is refused.

Every change of the journal's format adds a directory here; none is ever replaced. Fakes of worlds
and agents left the directory of version 1: two chains with a dead world, a limit, a defect and
waiting for the provider, an amendment, and a fork with two branches. Then its paths were replaced.
"""

from __future__ import annotations

import csv
import io
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from clawblox import ClawbloxError
from clawblox.experiment.history.journal import JOURNAL_NAME, Journal, read_lines
from clawblox.experiment.history.machine import Finished, next_step
from clawblox.experiment.reading.record import read_experiment
from tests.experiment.test_async_experiment import Scene, run
from tests.golden.test_golden_run_directory import ADVICE

V1 = Path(__file__).parent / "experiment" / "v1"
V1_SCORED = V1.with_name("v1_scored")
FUNCTION = "scores:points@f09b10704300"


@pytest.fixture
def experiment_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(V1, tmp_path / "exp"))


@pytest.mark.parametrize("name", ["results.csv", "agents.csv"])
def test_experiment_of_format_1_has_its_original_rows(experiment_dir: Path, name: str) -> None:
    recorded = list(csv.DictReader(io.StringIO((experiment_dir / name).read_text())))
    results = read_experiment(experiment_dir).results()
    now = list(csv.DictReader(io.StringIO(results.to_csv(agents=name == "agents.csv"))))
    assert [{column: row[column] for column in recorded[0]} for row in now] == recorded


def test_experiment_of_format_1_has_its_original_state(experiment_dir: Path) -> None:
    record = read_experiment(experiment_dir)
    assert [plan.duration for plan in record.plans.revisions] == [3600.0, 1800.0]
    chains = record.state.chains
    assert list(chains) == ["r1", "r2", "r1-f1-1", "r1-f1-2"]
    assert {name: [a.outcome for a in chain.attempts] for name, chain in chains.items()} == {
        "r1": ["failed", "committed", "paused", "committed", "committed"],
        "r2": ["paused", "committed", "failed", "committed", "committed"],
        "r1-f1-1": ["committed"],
        "r1-f1-2": ["committed"],
    }
    for chain in chains.values():
        planned = record.chains[chain.name]
        assert next_step(record.plans, planned) == Finished(status="done")
        assert list(chain.generations)[-1] == record.plans.last_generation(planned)
    assert record.state.accounts == {}
    assert record.find_checkpoint("r1/g001", at="20m").active_s == 900.0
    with Journal(experiment_dir) as journal:
        assert journal.lines == record.lines


def test_scores_that_an_earlier_version_has_erased_come_back() -> None:
    first, second, third = read_experiment(V1_SCORED).results().rows()
    assert first.scores == {"cubes": 4.0, "speed": 1.5}
    assert first.error == "KeyError: 'cubes'"
    assert second.scores == {"cubes": 5.0, "speed": 1.5, "cubes_per_hour": 9.0}
    assert second.score_versions == {"cubes": FUNCTION, "speed": FUNCTION, "cubes_per_hour": ""}
    assert (third.status, third.scores) == ("working", {})
    assert {row.kept_scores for row in (first, second, third)} == {()}


@pytest.mark.anyio
async def test_an_experiment_that_an_earlier_version_left_killed_is_resumed_and_rescored(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    shutil.copytree(V1_SCORED, scene.directory)
    recorded = read_experiment(scene.directory).state
    scene.backend.archives = {
        (point.ref.chain, point.ref.attempt, point.ref.file) for point in recorded.checkpoints()
    }
    scene.backend.directories = {
        (attempt.chain, attempt.attempt_id) for attempt in recorded.chain("r1").attempts
    }

    async def cubes(end: Any) -> dict[str, float]:
        return {"cubes": 10.0 + end.order.generation}

    async def cubes_of_some(end: Any) -> dict[str, float]:
        return {"cubes": math.nan if end.order.generation == 1 else 20.0, "size": 1.0}

    outcome = await run(scene, None, score=cubes, accept=["world"])
    assert (outcome.status, [row.generation for row in outcome.rows]) == ("done", [3])
    resumed = read_experiment(scene.directory).results().rows()
    assert [row.scores["cubes"] for row in resumed] == [4.0, 5.0, 13.0]
    assert [row.kept_scores for row in resumed] == [("cubes",), ("cubes",), ()]
    async with scene.experiment(None) as exp:
        rows = await exp.rescore(cubes_of_some)
    assert [row.scores["cubes"] for row in rows] == [4.0, 20.0, 20.0]
    assert [row.scores["size"] for row in rows] == [1.0, 1.0, 1.0]
    assert [row.scores.get("speed") for row in rows] == [1.5, 1.5, None]
    assert [row.kept_scores for row in rows] == [("cubes",), (), ()]
    place = f"{__file__}:{cubes_of_some.__code__.co_firstlineno}"
    fault = f"score.cubes: must be a finite number, not nan ({place})"
    assert [row.error for row in rows] == [fault, "", ""]


def test_an_experiment_of_a_later_format_is_refused_with_advice(experiment_dir: Path) -> None:
    path = experiment_dir / JOURNAL_NAME
    first, *others = path.read_text().splitlines(keepends=True)
    later = first.replace('"format": 1', '"format": 2')
    assert later != first
    path.write_text("".join([later, others[0].replace("session.begun", "an.event.of.later")]))
    advice = pytest.raises(ClawbloxError, match=f"format 2, and this .* 1\n.*{ADVICE}")
    with advice:
        read_lines(experiment_dir)
    with advice:
        read_experiment(experiment_dir)
    with advice, Journal(experiment_dir):
        pass
