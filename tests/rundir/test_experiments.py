"""Directories of experiments are recognised by their paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.experiment.history.journal import Journal
from clawblox.rundir.experiments import (
    JOURNAL_NAME,
    PLAN_NAME,
    ExperimentPart,
    find_experiment_owner,
    find_experiment_part,
)
from clawblox.system.process_tree import read_process


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    directory = tmp_path.resolve() / "m1"
    directory.mkdir()
    for name in (JOURNAL_NAME, PLAN_NAME):
        (directory / name).touch()
    return directory


@pytest.mark.parametrize(
    ("path", "chain", "attempt"),
    [
        ("", None, None),
        ("chains", None, None),
        ("chains/r1", "r1", None),
        ("chains/r1/runs", "r1", None),
        ("chains/r1/runs/g1", "r1", "g1"),
        ("runs", None, None),
        ("runs/g1", None, "g1"),
    ],
)
def test_the_role_of_a_directory_follows_from_its_path(
    experiment: Path, path: str, chain: str | None, attempt: str | None
) -> None:
    assert find_experiment_part(experiment / path) == ExperimentPart(experiment, chain, attempt)
    (experiment / PLAN_NAME).unlink()
    assert find_experiment_part(experiment / path) is None


@pytest.mark.parametrize(
    "path", ["..", "inputs", "analysis/runs/g1", "runs/g1/agents", "chains/r1/runs/g1/agents"]
)
def test_other_directories_do_not_belong_to_an_experiment(experiment: Path, path: str) -> None:
    assert find_experiment_part(experiment / path) is None


def test_a_link_to_an_experiment_is_resolved(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(experiment)
    part = find_experiment_part(tmp_path / "link" / "runs" / "g1")
    assert part == ExperimentPart(experiment, attempt="g1")


def test_the_owner_of_an_experiment_is_the_process_with_its_journal_open(experiment: Path) -> None:
    assert find_experiment_owner(experiment) is None
    with Journal(experiment):
        pid = find_experiment_owner(experiment)
        assert pid is not None
        assert read_process(pid) is not None
    assert find_experiment_owner(experiment) is None
