"""The run directory of an earlier version opens, and that of a later version is refused.

Every change of a format adds a directory here; none is ever replaced. A real run left the
directory of version 1: ``w001`` was forked from a save of ``w000``, saved and restarted, and the
agent ``Eko`` had one turn. Then locks and scripts were removed, and the paths of the machine
replaced.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clawblox import ClawbloxError, World
from clawblox.agents.layout import AgentDir
from clawblox.agents.status import read_status
from clawblox.agents.trajectory.history import read_history
from clawblox.agents.usage import Ledger
from clawblox.rundir.lineage import read_lineage
from clawblox.rundir.manifest import read_manifest
from clawblox.rundir.status import read_run, read_runs
from clawblox.telemetry.log_times import LogTimes
from tests.agents.small import SmallDriver
from tests.support.worlds import make_world

V1 = Path(__file__).parent / "run_directory" / "v1"
RECORDS = ".clawblox/instances/records.jsonl"
ADVICE = "pip install --upgrade clawblox"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(V1, tmp_path / "run"))


def raise_version(path: Path) -> None:
    """Replace the version that a file names by a later one."""
    old = path.read_text()
    new = old.replace('"schema_version": 1', '"schema_version": 2')
    new = new.replace('"schema_version":1', '"schema_version":2')
    assert new != old, f"{path} names no version"
    path.write_text(new)


def test_a_run_directory_of_version_1_opens(run_dir: Path) -> None:
    assert [one.name for one in read_runs([run_dir])[0].instances] == ["w000", "w001"]
    first, fork = read_run(run_dir).instances
    assert (first.state, first.labels) == ("exited", {"arm": "a"})
    assert (fork.state, fork.restarts) == ("exited", 1)
    manifest = read_manifest(run_dir / "worlds" / "w001")
    assert (manifest.run["status"], len(manifest.checkpoints)) == ("complete", 2)
    assert all(manifest.resolve(entry["path"]).is_file() for entry in manifest.checkpoints)
    lineage = read_lineage(run_dir)
    assert [(one.name, one.depth, len(one.lives)) for one in lineage.instances] == [
        ("w000", 0, 1),
        ("w001", 1, 2),
    ]
    assert lineage.problems == ()


def test_log_index_and_events_of_version_1_open(run_dir: Path) -> None:
    times = LogTimes(run_dir / "worlds/w001/logs/w001.log")
    times.read_on()
    assert times.arrival(0) == "2026-11-24T07:51:48.733Z"
    assert [note.event for note in times.notes_after(None)] == ["stopped", "restarted", "stopped"]
    directory = AgentDir(run_dir / "agents" / "Eko")
    history = [moment.report.type for moment in read_history(directory, SmallDriver(), None)]
    assert (history[0], history[-1]) == ("process.started", "process.exited")


def test_usage_and_status_of_an_agent_of_version_1_open(run_dir: Path) -> None:
    directory = AgentDir(run_dir / "agents" / "Eko")
    assert Ledger.load(directory.usage_file).usage.turns == 1
    status = read_status(directory.path)
    assert status is not None
    assert (status.name, status.state, status.turn) == ("Eko", "interrupted", 1)


def test_later_usage_and_status_of_an_agent_are_refused_with_advice(run_dir: Path) -> None:
    directory = AgentDir(run_dir / "agents" / "Eko")
    raise_version(directory.usage_file)
    raise_version(directory.status_file)
    advice = pytest.raises(ClawbloxError, match=f"(?s)schema_version 2, and this .* 1\n.*{ADVICE}")
    with advice:
        Ledger.load(directory.usage_file)
    with advice:
        read_status(directory.path)


def test_a_later_manifest_is_refused_with_advice(run_dir: Path) -> None:
    raise_version(run_dir / ".clawblox" / "manifest.json")
    with pytest.raises(ClawbloxError, match=f"schema_version 2, and this .* 1\n.*{ADVICE}"):
        read_manifest(run_dir)


def test_later_records_are_refused_with_advice(run_dir: Path, tmp_path: Path) -> None:
    raise_version(run_dir / RECORDS)
    advice = pytest.raises(ClawbloxError, match=f"schema_version 2, and this .* 1\n.*{ADVICE}")
    with advice:
        read_run(run_dir)
    with advice:
        read_lineage(run_dir)
    with advice, World(make_world(tmp_path), run_dir=run_dir) as world:
        world.start()


def test_later_records_do_not_hide_other_runs(run_dir: Path, tmp_path: Path) -> None:
    later = Path(shutil.copytree(V1, tmp_path / "later"))
    raise_version(later / RECORDS)
    assert [run.directory for run in read_runs([later, run_dir])] == [run_dir]


def test_a_later_log_index_gives_no_times_and_a_warning_with_advice(
    run_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = run_dir / "worlds/w001/logs/w001.log"
    raise_version(log.with_name("w001.log.index"))
    times = LogTimes(log)
    times.read_on()
    assert times.is_empty
    output = capfd.readouterr()
    assert ADVICE in output.out + output.err


def test_later_events_of_an_agent_are_refused_with_advice(run_dir: Path) -> None:
    directory = AgentDir(run_dir / "agents" / "Eko")
    raise_version(directory.events_file)
    with pytest.raises(ClawbloxError, match=f"schema_version 2, and this .* 1\n.*{ADVICE}"):
        list(read_history(directory, SmallDriver(), None))
