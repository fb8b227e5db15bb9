"""The runs, instances and agents in a list: the same trees for ``ps`` and for pages."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from clawblox.agents.layout import AgentDir
from clawblox.agents.listing import make_scope
from clawblox.agents.status import AgentRecord, StatusWriter
from clawblox.cli.commands.ps import command as ps
from clawblox.rundir.experiments import JOURNAL_NAME, PLAN_NAME
from tests.rundir.support import make_record
from tests.support.lineages import run_of, write_manifest


def make_run(run: Path, pid: int = 0, **fields: object) -> Path:
    """Write a run with an agent in the same state as its world."""
    ended = {} if pid else {"state": "exited", "orchestrator_pid": 0}
    make_record(run, pid, **{**ended, **fields})
    agent = AgentDir(run / "agents" / f"of-{run.name}")
    agent.runtime.mkdir(parents=True)
    state = "working" if pid else "stopped"
    StatusWriter(agent).write(AgentRecord(name=agent.path.name, driver="claude", state=state))
    return run


def live(place: Path) -> None:
    make_run(place / "live", os.getpid())


def ended(place: Path) -> None:
    make_run(place / "ended")


def moved(place: Path) -> None:
    shutil.copytree(make_run(place / "original"), place / "moved")


def manifest_only(place: Path) -> None:
    run = make_run(place / "old")
    shutil.rmtree(run / ".clawblox" / "instances")
    write_manifest(run, {"run": run_of("w000", status="running")})


def nested_experiment(place: Path) -> None:
    experiment = place / "work" / "experiments" / "X"
    make_run(experiment / "chains" / "C" / "runs" / "R")
    make_run(experiment / "chains" / "D" / "runs" / "S", os.getpid())
    (experiment / JOURNAL_NAME).touch()
    (experiment / PLAN_NAME).touch()


def torn_record(place: Path) -> None:
    run = make_run(place / "torn")
    journal = run / ".clawblox" / "instances" / "records.jsonl"
    os.truncate(journal, journal.stat().st_size - 9)
    write_manifest(run, {"run": run_of("w000")})


def other_boot(place: Path) -> None:
    make_run(place / "boot", os.getpid(), boot_id="another")


Shown = dict[str, str]

TREES: dict[Callable[[Path], None], tuple[Shown, Shown, list[str], list[str]]] = {
    live: ({"live": "ready"}, {"live": "ready"}, ["of-live"], ["of-live"]),
    ended: ({"ended": "exited"}, {}, ["of-ended"], []),
    moved: (
        {"moved": "exited", "original": "exited"},
        {},
        ["of-original", "of-original"],
        [],
    ),
    manifest_only: ({"old": "unknown"}, {}, ["of-old"], []),
    nested_experiment: (
        {"R": "exited", "S": "ready"},
        {"S": "ready"},
        ["of-R", "of-S"],
        ["of-S"],
    ),
    torn_record: ({"torn": "exited"}, {}, ["of-torn"], []),
    other_boot: ({"boot": "interrupted"}, {}, ["of-boot"], ["of-boot"]),
}
"""Per tree: states of all and of running instances, then all and running agents."""


@pytest.mark.parametrize("make", TREES, ids=lambda make: make.__name__)
def test_each_tree_is_listed_completely_or_only_its_running_parts(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path)
    *states, agents, running_agents = TREES[make]
    for wants_ended, expected, names in zip(
        (True, False), states, (agents, running_agents), strict=True
    ):
        scope = make_scope(tmp_path, wants_ended=wants_ended, watches=True, labels={})
        assert not scope.is_one_run
        shown = {status.run_dir.name: status.state for status in scope.read()}
        assert shown == expected
        assert [agent.name for agent in scope.read_agents(scope.find())] == names


@pytest.mark.parametrize("make", TREES, ids=lambda make: make.__name__)
def test_ps_lists_the_instances_of_the_scope(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    printed = json.loads(CliRunner().invoke(ps, [str(tmp_path), "--json"]).output)
    scope = make_scope(tmp_path, wants_ended=True, labels={})
    assert [(one["run_dir"], one["name"], one["state"]) for one in printed] == [
        (str(status.run_dir), status.name, status.state) for status in scope.read()
    ]
    text = CliRunner().invoke(ps, [str(tmp_path), "--all"]).output
    for agent in scope.read_agents(scope.find()):
        assert f"\n{agent.name} " in text


def test_a_single_run_is_listed_completely_with_or_without_records(tmp_path: Path) -> None:
    ended(tmp_path)
    manifest_only(tmp_path)
    for name, state in (("ended", "exited"), ("old", "unknown")):
        scope = make_scope(tmp_path / name, wants_ended=False, watches=True, labels={})
        assert scope.is_one_run
        assert [status.state for status in scope.read()] == [state]
        assert len(scope.read_agents(scope.find())) == 1


def test_a_list_of_a_directory_includes_ended_instances_unless_live(tmp_path: Path) -> None:
    ended(tmp_path)
    scope = make_scope(tmp_path, wants_ended=False, labels={})
    assert [status.state for status in scope.read()] == ["exited"]


def test_an_experiment_is_listed_with_running_instances_by_default(tmp_path: Path) -> None:
    nested_experiment(tmp_path)
    experiment = tmp_path / "work" / "experiments" / "X"
    for wants_ended, names in ((False, ["S"]), (True, ["R", "S"])):
        scope = make_scope(experiment / "chains", wants_ended=wants_ended, labels={})
        assert scope.experiment == experiment
        assert [status.run_dir.name for status in scope.read()] == names


def test_a_list_with_labels_has_only_matching_instances_and_no_agents(tmp_path: Path) -> None:
    make_run(tmp_path / "red", options={"labels": {"team": "red"}})
    make_run(tmp_path / "blue", options={"labels": {"team": "blue"}})
    scope = make_scope(tmp_path, wants_ended=True, labels={"team": "red"})
    assert [status.run_dir.name for status in scope.read()] == ["red"]
    assert scope.read_agents(scope.find()) == []
