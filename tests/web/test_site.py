"""The runs and experiments below a directory, as they appear, change and disappear."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord, StatusWriter
from clawblox.cli.commands.ps import command as ps
from clawblox.rundir.experiments import experiment_lock
from clawblox.rundir.find_runs import RunSearch, find_experiments_below, find_runs_below
from clawblox.rundir.status import Run, read_runs
from clawblox.system.files import make_private_dir
from clawblox.system.locks import lock_file, unlock_file
from clawblox.web import site as site_module
from clawblox.web.site import Site
from tests.agents.test_listing import TREES, make_run
from tests.golden.test_golden_experiments import V1
from tests.rundir.support import make_record
from tests.support.lineages import run_of, write_manifest
from tests.web.drawing import draw

SEARCH_S = 5.0
ENDED_S = 10.0
LIVE_S = 0.5


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(tmp_path: Path, clock: Clock) -> Site:
    (tmp_path / "lab").mkdir()
    return Site(tmp_path / "lab", clock)


def states(site: Site) -> dict[str, str]:
    """Return the state of the only instance of each run."""
    return {run.name: run.run.instances[0].state for run in site.runs()}


def settle(root: Path) -> None:
    """Make all files below a directory an hour old, so that later changes are detected."""
    hour_ago = root.stat().st_mtime_ns - 3_600_000_000_000
    for path in [root, *root.rglob("*")]:
        os.utime(path, ns=(hour_ago, hour_ago), follow_symlinks=False)


# -- entries --------------------------------------------------------------------------------


@pytest.mark.parametrize("make", TREES, ids=lambda make: make.__name__)
def test_the_page_lists_the_instances_and_agents_that_ps_lists(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path)
    printed = json.loads(CliRunner().invoke(ps, [str(tmp_path), "--json"]).output)
    site = Site(tmp_path)
    shown = [
        (str(status.run_dir), status.name, status.state)
        for run in sorted(site.runs(), key=lambda run: run.directory)
        for status in run.run.instances
    ]
    assert shown == [(one["run_dir"], one["name"], one["state"]) for one in printed]
    text = draw(site)
    for run in site.runs():
        assert f'href="/run/{run.ident}"' in text
        for agent in run.agents:
            assert f"{agent.name}</a>" in text
    listed = CliRunner().invoke(ps, [str(tmp_path), "--all"]).output
    for agent in (agent for run in site.runs() for agent in run.agents):
        assert f"\n{agent.name} " in listed


def test_run_directory_itself_can_be_a_site(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    make_run(run / "workspace" / "inner")
    assert states(Site(run)) == {".": "exited"}


def test_a_run_with_a_damaged_file_hides_no_other(site: Site, clock: Clock) -> None:
    make_run(site.root / "good")
    damage: dict[str, Callable[[Path], object]] = {
        "torn": lambda path: os.truncate(path, path.stat().st_size - 9),
        "binary": lambda path: path.write_bytes(b"\xff\0" * 4000),
        "list": lambda path: path.write_text("[1, 2]\n"),
        "later": lambda path: path.write_text('{"schema_version": 99, "name": "w000"}\n'),
        "directory": lambda path: (path.unlink(), path.mkdir()),
        "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
        "loop": lambda path: (path.unlink(), path.symlink_to(path)),
    }
    files = (
        ".clawblox/instances/records.jsonl",
        ".clawblox/manifest.json",
        "agents/A/runtime/status.json",
    )
    for name, change in damage.items():
        for number, file in enumerate(files):
            run = site.root / f"{name}-{number}"
            make_record(run, 0, state="exited", orchestrator_pid=0)
            write_manifest(run, {"run": run_of("w000")})
            agent = AgentDir(run / "agents" / "A")
            agent.runtime.mkdir(parents=True)
            StatusWriter(agent).write(AgentRecord(name="A", driver="claude", state="stopped"))
            change(run / file)
    for _ in range(3):
        assert states(site)["good"] == "exited"
        assert "good" in draw(site)
        clock.now += ENDED_S
    named = {run.name for run in site.runs()}
    assert {f"{name}-{number}" for name in damage for number in (1, 2)} <= named


# -- changes --------------------------------------------------------------------------------


def test_site_follows_new_ended_moved_and_removed_runs(site: Site, clock: Clock) -> None:
    make_run(site.root / "first", os.getpid())
    assert states(site) == {"first": "ready"}
    make_run(site.root / "second")
    clock.now += SEARCH_S
    assert states(site) == {"first": "ready", "second": "exited"}
    make_record(site.root / "first", 0, state="exited", orchestrator_pid=0)
    AgentDir(site.root / "first" / "agents" / "of-first").status_file.unlink()
    clock.now += LIVE_S
    assert states(site) == {"first": "exited", "second": "exited"}
    (site.root / "first").rename(site.root / "moved")
    shutil.rmtree(site.root / "second")
    clock.now += SEARCH_S
    assert states(site) == {"moved": "exited"}


def test_an_ended_run_that_starts_again_is_live_within_ten_seconds(
    site: Site, clock: Clock
) -> None:
    run = make_run(site.root / "run")
    settle(site.root)
    assert states(site) == {"run": "exited"}
    clock.now += ENDED_S
    assert states(site) == {"run": "exited"}
    make_record(run, os.getpid())
    clock.now += ENDED_S
    assert states(site) == {"run": "ready"}


@pytest.mark.parametrize("is_settled", [True, False])
def test_every_file_behind_the_summary_of_an_ended_run_is_watched(
    is_settled: bool, site: Site, clock: Clock
) -> None:
    run = make_run(site.root / "run")
    member = run / "worlds" / "w001"
    write_manifest(run, {"run": run_of("w000")})
    write_manifest(member, {"run": run_of("w001")})
    ended = {"state": "exited", "orchestrator_pid": 0, "run_id": "w001-run"}
    make_record(run, 0, name="w001", instance_dir=str(member), **ended)
    saved = {"path": "checkpoints/x", "time": 5.0, "created_at": "2026-11-01T00:00:00Z"}
    (member / "checkpoints").mkdir()
    (member / "checkpoints" / "x").touch()

    def save() -> None:
        entry = {**saved, "instance": "w001", "run_id": "w001-run"}
        write_manifest(member, {"run": run_of("w001"), "checkpoints": [entry]})

    def take_turn() -> None:
        agent = AgentDir(run / "agents" / "of-run")
        record = AgentRecord(name="of-run", driver="claude", state="stopped", turn=7)
        StatusWriter(agent).write(record)

    def join() -> None:
        agent = AgentDir(run / "agents" / "another")
        agent.runtime.mkdir(parents=True)
        StatusWriter(agent).write(AgentRecord(name="another", driver="claude", state="stopped"))

    changes: Iterable[tuple[Callable[[], None], Callable[[], object], object]] = (
        (save, lambda: site.runs()[0].instance("w001").sim_time, 5.0),
        (take_turn, lambda: site.runs()[0].agents[0].turn, 7),
        (join, lambda: len(site.runs()[0].agents), 2),
    )
    for change, read, expected in changes:
        if is_settled:
            settle(site.root)
        clock.now += ENDED_S
        assert read() != expected
        change()
        clock.now += ENDED_S
        assert read() == expected


def test_site_version_changes_with_a_turn_but_not_with_time(site: Site, clock: Clock) -> None:
    run = make_run(site.root / "run", os.getpid())
    version = site.version()
    clock.now += LIVE_S
    assert site.version() == version
    agent = AgentDir(run / "agents" / "of-run")
    StatusWriter(agent).write(AgentRecord(name="of-run", driver="claude", state="working", turn=4))
    clock.now += LIVE_S
    assert site.version() > version
    assert site.runs()[0].agents[0].turn == 4


def test_new_generation_of_an_experiment_is_detected(site: Site, clock: Clock) -> None:
    shutil.copytree(V1, site.root / "exp")
    journal = site.root / "exp" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    last = max(at for at, line in enumerate(lines) if json.loads(line)["type"] == "committed")
    journal.write_bytes(b"".join(lines[:last]))
    (before,) = site.experiments()
    version = site.version()
    with journal.open("ab") as file:
        file.write(b"".join(lines[last:]))
    clock.now += LIVE_S
    (after,) = site.experiments()
    assert after.committed == before.committed + 1
    assert site.version() > version
    shutil.rmtree(site.root / "exp")
    clock.now += SEARCH_S
    assert not site.experiments()


def test_experiment_is_not_live_after_its_process_ended(site: Site, clock: Clock) -> None:
    experiment = shutil.copytree(V1, site.root / "exp")
    lock = experiment_lock(experiment)
    make_private_dir(lock.parent)
    held = lock_file(lock)
    assert held is not None
    assert [one.state for one in site.experiments()] == ["running"]
    unlock_file(lock, held)
    clock.now += LIVE_S
    assert [one.state for one in site.experiments()] == ["done"]


def test_change_within_a_tick_of_the_file_clock_is_detected(site: Site, clock: Clock) -> None:
    run = make_run(site.root / "run")
    status = AgentDir(run / "agents" / "of-run").runtime
    stamps = {path: path.stat().st_mtime_ns for path in (site.root, status)}
    assert states(site) == {"run": "exited"}
    make_run(site.root / "second")
    record = AgentRecord(name="of-run", driver="claude", state="stopped", turn=9)
    StatusWriter(AgentDir(run / "agents" / "of-run")).write(record)
    for path, stamp in stamps.items():
        os.utime(path, ns=(stamp, stamp))
    clock.now += ENDED_S
    assert set(states(site)) == {"run", "second"}
    assert {run.agents[0].turn for run in site.runs()} == {0, 9}


def test_a_directory_becomes_a_run_with_its_first_record(tmp_path: Path) -> None:
    search = RunSearch(tmp_path)
    instances = tmp_path / "run" / ".clawblox" / "instances"
    instances.mkdir(parents=True)
    settle(tmp_path)
    search.search_again()
    assert not search.runs
    (instances / "records.jsonl").touch()
    search.search_again()
    assert search.runs == [tmp_path / "run"]


# -- cost -----------------------------------------------------------------------------------


def test_ended_runs_are_read_once_and_live_ones_again(
    site: Site, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        make_run(site.root / f"ended-{number}")
    make_run(site.root / "live", os.getpid())
    settle(site.root)
    read: list[str] = []

    def note(directories: Iterable[Path]) -> list[Run]:
        wanted = list(directories)
        read.extend(path.name for path in wanted)
        return read_runs(wanted)

    monkeypatch.setattr(site_module, "read_runs", note)
    site.runs()
    assert len(read) >= 6
    read.clear()
    for _ in range(30):
        clock.now += 1.0
        site.runs()
    assert read == ["live"] * 30


def test_site_looks_take_at_most_a_twentieth_of_the_time(
    site: Site, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(site.root / "live", os.getpid())
    site.runs()
    slow: list[float] = []

    def wait(directories: Iterable[Path]) -> list[Run]:
        wanted = list(directories)
        if wanted:
            slow.append(clock.now)
            clock.now += 2.0
        return read_runs(wanted)

    monkeypatch.setattr(site_module, "read_runs", wait)
    end = clock.now + 400.0
    while clock.now < end:
        clock.now += 1.0
        site.runs()
    assert len(slow) == 10


def test_incremental_search_equals_a_full_walk_after_tree_changes(tmp_path: Path) -> None:
    choose = random.Random(7)
    root = tmp_path / "root"
    root.mkdir()
    search = RunSearch(root)
    names = ("a", "b", "runs", "agents", ".clawblox", "chains", "worlds")
    files = ("journal.jsonl", "journal.lost-x.jsonl", ".clawblox/manifest.json",
             ".clawblox/instances/records.jsonl", "other")  # fmt: skip
    for step in range(150):
        place = root.joinpath(*choose.choices(names, k=choose.randint(0, 4)))
        match choose.choice(("make", "write", "write", "remove", "move")):
            case "make":
                place.mkdir(parents=True, exist_ok=True)
            case "write":
                path = place / choose.choice(files)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            case "remove" if place != root:
                shutil.rmtree(place, ignore_errors=True)
            case "move" if place.is_dir() and place != root:
                target = place.with_name(choose.choice(names))
                if not target.exists():
                    place.rename(target)
        search.search_again()
        assert search.runs == find_runs_below(root), step
        assert search.experiments == find_experiments_below(root), step
        if choose.random() < 0.5:
            settle(root)
            search.search_again()


@pytest.mark.thorough
def test_site_lists_only_some_of_ten_thousand_names(site: Site) -> None:
    run = make_run(site.root / "crowded")
    for number in range(10_000):
        (run / "agents" / f"agent-{number}").mkdir()
    manifest = {"run": run_of("w000"), "instances": [
        {"name": f"w{number}" * 20, "dir": f"worlds/w{number}"} for number in range(10_000)
    ]}  # fmt: skip
    write_manifest(site.root / "named", manifest)
    for number in range(300):
        write_manifest(site.root / f"r{number}", {"run": run_of("w000")})
    text = draw(site)
    assert len(text) < 400_000
    assert "302 runs" in text
    assert text.count("<tr>") <= 201
