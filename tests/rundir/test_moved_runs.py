"""Run directories that were moved or copied, or made by a stranger."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import attrs
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld
from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord, StatusWriter, read_agents
from clawblox.rundir.find_runs import add_run, shown_log
from clawblox.rundir.lineage import read_lineage
from clawblox.rundir.recordings import list_recordings
from clawblox.rundir.records import read_located
from clawblox.rundir.status import Run, read_runs
from clawblox.telemetry.logs import last_lines
from tests.rundir.support import make_record
from tests.support.lineages import make_restart, run_of, save_of, write_manifest
from tests.support.worlds import make_world

ENDED = {"state": "exited", "ended_at": "2026-06-22T19:30:02Z"}


def write_agent(directory: Path) -> None:
    directory.joinpath("runtime").mkdir(parents=True)
    record = AgentRecord(name=directory.name, driver="claude", state="stopped")
    StatusWriter(AgentDir(directory)).write(record)


def make_run(run: Path, *, resume: Path | None = None) -> Path:
    """Write a run of one of many whose manifest has absolute paths outside of its directory."""
    home = run / "worlds" / "w000"
    make_record(
        run,
        0,
        name="w000",
        run_id="w000-run",
        instance_dir=str(home),
        log_file=str(run / "w000.log"),
        datastore_path=str(home / "datastore" / "rows.db"),
        resume_path=None if resume is None else str(resume),
        options={} if resume is None else {"resume": str(resume)},
        **ENDED,
    )
    (run / "w000.log").write_text(f"of {run.name}\n")
    save = {**save_of("w000", 7), "path": str(run / "saves" / "w000-7.json")}
    archive = {"path": str(run / "saves" / "a.ckpt")}
    (run / "saves").mkdir()
    (run / "saves" / "w000-7.json").write_text("{}")
    write_agent(run / "agents" / "Eko")
    top = {"instances": [{"name": "w000", "dir": "worlds/w000"}], "checkpoints": [archive]}
    write_manifest(run, top)
    document = {
        "run": run_of("w000", resume_archive=archive["path"]),
        "agents": [{"id": "1", "name": "Eko", "dir": str(run / "agents" / "Eko")}],
        "recordings": [{"path": str(run / "tapes" / "a"), "format": "other"}],
        "checkpoints": [save],
        "restarts": [make_restart("w000", 20, None, resume_from=save["path"])],
    }
    write_manifest(home, document)
    return run


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_copied_or_moved_run_is_complete_and_independent(tmp_path: Path, is_copy: bool) -> None:
    resume = tmp_path / "run" / "saves" / "w000-7.json"
    run, moved = make_run(tmp_path / "run", resume=resume), tmp_path / "moved"
    if is_copy:
        shutil.copytree(run, moved)
    else:
        run.rename(moved)
    ((status,),) = [found.instances for found in read_runs([moved])]
    assert (status.instance_dir, status.saved_path) == (
        moved / "worlds" / "w000",
        moved / "saves" / "w000-7.json",
    )
    assert status.sim_time == 7.0
    log = shown_log(moved, status.log_file)
    assert log == moved / "w000.log"
    assert last_lines(log) == ("of run",)
    assert [agent.dir for agent in read_agents(moved)] == [moved / "agents" / "Eko"]
    assert [found.path for found in list_recordings(moved)] == [moved / "tapes" / "a"]
    lineage = read_lineage(moved)
    assert [save.path for save in lineage.archives] == [moved / "saves" / "a.ckpt"]
    assert [origin.path for origin in lineage.origins] == [moved / "saves" / "a.ckpt"]
    assert lineage.former_dirs == (run,)
    (instance,) = lineage.instances
    assert [save.path for save in instance.saves] == [moved / "saves" / "w000-7.json"]
    assert instance.parent is not None
    assert (instance.parent.path, instance.parent.time) == (moved / "saves" / "w000-7.json", 7.0)
    assert instance.lives[1].origin == instance.parent
    (record,) = read_located(moved)
    assert record.datastore_path == str(moved / "worlds" / "w000" / "datastore" / "rows.db")


@pytest.mark.thorough
@pytest.mark.anyio
async def test_a_copy_of_a_real_run_shows_the_same_as_the_original(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        batch = await world.start_many(2, run_dir=run, record=True)
        saved = await world.save_all()
        await world.fork(saved["w000"])
        assert len(batch.done) == 2
    await run_sync(shutil.copytree, run, copy)

    def facts(place: Path) -> str:
        (found,) = read_runs([place])
        lineage = attrs.evolve(read_lineage(place), former_dirs=())
        recordings = [recording.path for recording in list_recordings(place)]
        logs = [last_lines(status.log_file, count=1) for status in found.instances]
        text = repr((found.instances, lineage, recordings, logs))
        assert all(shown_log(place, status.log_file) for status in found.instances)
        return text.replace(str(place), "PLACE")

    assert await run_sync(facts, copy) == await run_sync(facts, run)
    shutil.move(run, tmp_path / "gone")
    assert str(run) not in await run_sync(facts, copy)


def test_a_relative_or_linked_run_directory_has_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run")
    (tmp_path / "link").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    for place in (Path("run"), Path("link"), tmp_path / "link"):
        assert [agent.dir for agent in read_agents(place)] == [run / "agents" / "Eko"]
        (found,) = read_runs([place])
        (status,) = found.instances
        assert status.instance_dir == run / "worlds" / "w000"
        assert status.saved_path == run / "saves" / "w000-7.json"
        assert status.log_file == shown_log(place, status.log_file) == run / "w000.log"


# ---------------------------------------------------------------------- runs that a stranger made


def test_no_log_outside_of_a_strangers_run_directory_is_shown(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "secret"
    outside.write_text("secret\n")
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "w000.log").symlink_to(outside)
    (run / "parent").symlink_to(tmp_path)
    for log in (
        outside,
        Path("/etc/passwd"),
        run / ".." / "secret",
        run / "logs" / "w000.log",
        run / "parent" / "secret",
        Path(),
    ):
        assert shown_log(run, log) is None
    assert shown_log(run, run / "logs" / "w001.log") == run / "logs" / "w001.log"


def test_a_log_outside_of_a_run_directory_of_this_user_is_shown(tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "own.log"
    run.mkdir()
    assert shown_log(run, log) is None
    add_run(run)
    assert shown_log(run, log) == log
    assert shown_log(run.rename(tmp_path / "moved"), log) is None


# ---------------------------------------------------------------------- manifests without records


def strip(run: Path) -> Path:
    shutil.rmtree(run / ".clawblox" / "instances")
    return run


def only(run: Path) -> Run:
    (found,) = read_runs([run])
    return found


def test_a_run_without_records_is_shown_from_its_manifests(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    home = run / "worlds" / "w000"
    (home / "logs").mkdir()
    (home / "logs" / "w000.log").write_text("bye\n")
    before = only(run).instances[0]
    found = only(strip(run))
    (status,) = found.instances
    assert (status.name, status.state, status.run_id) == ("w000", "exited", "w000-run")
    assert (status.instance_dir, status.saved_path) == (home, before.saved_path)
    assert (status.sim_time, status.saved_sha256) == (7.0, before.saved_sha256)
    assert status.started_at == "2026-06-22T18:00:00Z"
    assert last_lines(status.log_file) == ("bye",)
    assert (status.pid, status.url, status.has_died) == (None, "", False)
    assert (found.interrupted, found.owner_pid, found.waiting) == ((), None, 0)
    assert [agent.name for agent in read_agents(run)] == ["Eko"]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("complete", "exited"),
        ("failed", "failed"),
        ("interrupted", "interrupted"),
        ("running", "unknown"),
        (None, "unknown"),
        (["x"], "unknown"),
    ],
)
def test_the_state_of_an_instance_without_a_record_is_that_of_its_manifest(
    tmp_path: Path, status: object, state: str
) -> None:
    run = {"status": status, "started_at": "soon", "ended_at": "2026-06-22T18:00:00Z", "seed": "x"}
    write_manifest(tmp_path / "r1", {"run": run, "restarts": [5, {}]})
    (found,) = only(tmp_path / "r1").instances
    assert (found.name, found.state, found.started_at) == ("r1", state, "")
    assert (found.uptime_s, found.seed, found.restarts) == (None, None, 1)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 99}', "\ud800"])
def test_an_unreadable_manifest_is_shown_as_an_unknown_instance(
    tmp_path: Path, content: str
) -> None:
    write_manifest(tmp_path / "r1", {})
    path = tmp_path / "r1" / ".clawblox" / "manifest.json"
    path.write_bytes(content.encode(errors="surrogatepass"))
    (found,) = only(tmp_path / "r1").instances
    assert (found.name, found.state) == ("r1", "unknown")


def test_a_torn_record_is_replaced_by_the_manifest(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    journal = run / ".clawblox" / "instances" / "records.jsonl"
    os.truncate(journal, journal.stat().st_size // 2)
    (status,) = only(run).instances
    assert (status.name, status.state, status.sim_time) == ("w000", "exited", 7.0)


def test_a_directory_without_records_and_manifest_has_no_instances(tmp_path: Path) -> None:
    assert attrs.astuple(only(tmp_path)) == (tmp_path, (), 0, None, ())
