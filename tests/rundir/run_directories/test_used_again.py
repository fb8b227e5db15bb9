"""A reused run directory: the entries of the current run and of earlier runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, async_read_metadata, async_save_checkpoint
from clawblox.checkpoint import repair_checkpoints
from clawblox.rundir.status import InstanceStatus, read_run
from tests.instance.supervision.support import kill, now
from tests.support.crowd import join, past, until
from tests.support.running import Bot, manifest_of
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

SECTIONS = ("agents", "checkpoints", "restarts")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def ids(instance_dir: Path, section: str = "checkpoints") -> list[str]:
    """Return the ids of the runs that the entries of a manifest belong to, in order."""
    return [entry["run_id"] for entry in manifest_of(instance_dir)[section]]


async def statuses_of(run: Path) -> list[InstanceStatus]:
    return (await run_sync(read_run, run)).instances


# ------------------------------------------------------------------------------------- many


async def test_a_fresh_world_does_not_inherit_the_saves_of_an_earlier_run(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (first,) = await world.start_many(1, run_dir=run)
        saved = await world.save()
        (before,) = await statuses_of(run)
        await world.stop()
        (ended,) = await statuses_of(run)
        assert before.saved_path == ended.saved_path == saved.path
        await world.start_many(1, run_dir=run)
        (fresh,) = await statuses_of(run)
        assert (fresh.name, fresh.saved_path, fresh.saved_at) == (first.name, None, None)
        assert fresh.run_id != before.run_id == ended.run_id
        again = await world.save()
        assert (await now(run)).saved_path == again.path
    manifest = manifest_of(first.instance_dir)
    assert ids(first.instance_dir) == [before.run_id, fresh.run_id]
    assert manifest["run"]["id"] == fresh.run_id


@pytest.mark.thorough
async def test_agents_and_restarts_name_their_run(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        known: list[str] = []
        for _ in range(2):
            (started,) = await world.start_many(1, run_dir=run, restart="checkpoint")
            await world.connect(Bot(f"Rocky-{len(known)}", tmp_path / f"bot-{len(known)}"))
            saved = await world.save()
            await past(events)
            await kill(run)
            seen = await until(events, "ready", ["w000"])
            (restarting,) = (one for one in seen if one.kind == "restarting")
            assert restarting.data["resume_path"] == saved.path
            status = await now(run)
            assert status.saved_path == saved.path  # a restart continues the run
            known.append(status.run_id)
            await world.stop()
    assert len(set(known)) == 2
    for section in SECTIONS:
        assert ids(started.instance_dir, section) == known


@pytest.mark.thorough
async def test_an_earlier_save_can_be_forked_by_path(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start_many(1, run_dir=run)
        saved = await world.save()
        await world.stop()
        await world.start_many(1, run_dir=run)
        (fork,) = await world.fork(saved.path, run_dir=run)
        assert fork.resume_path == saved.path
        assert (await now(run, fork.name)).saved_path is None


# ----------------------------------------------------------------------------------- single


@pytest.mark.thorough
async def test_a_single_start_also_starts_a_new_run(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        found: list[str] = []
        for _ in range(2):
            await world.start(run_dir=run)
            assert (await now(run)).saved_path is None
            found.append((await now(run)).run_id)
            await world.save()
            await world.stop()
    assert ids(run) == found
    assert len(set(found)) == 2
    assert "run" not in manifest_of(run)  # its caller labels it


@pytest.mark.thorough
@pytest.mark.parametrize("when", ["before the save", "after the save", "after the end"])
async def test_entries_of_a_run_have_its_id(tmp_path: Path, run: Path, when: str) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        resume: Path | None = None
        for label in ("r001", "r002"):
            started = await world.start(run_dir=run, resume=resume)
            if when == "before the save":
                await world.record_run(id=label)
            await join(world, started)
            saved = await world.save()
            resume = saved.path
            if when == "after the save":
                await world.record_run(id=label)
            await world.stop()
            await world.record_run(id=label, status="complete")
            assert manifest_of(run)["run"] == {"id": label, "status": "complete"}
            status = await now(run)
            assert (status.run_id, status.saved_path) == (label, saved.path)
    assert ids(run) == ["r001", "r002"]
    assert ids(run, "agents") == ["r002"]  # it is one agent that joined again


@pytest.mark.thorough
async def test_a_label_applies_to_all_instances_of_the_manifest_and_run(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for name in ("gone", "a", "b"):
            await world.start(run_dir=run, name=name)
            await world.save(instance=name)
        await world.stop(instance="gone")
        await world.record_run(id="r001")
        found = {one.name: one.run_id for one in await statuses_of(run)}
        assert found == {"gone": ids(run)[0], "a": "r001", "b": "r001"}
        assert ids(run)[1:] == ["r001", "r001"]
        await world.save(instance="a")
        assert ids(run)[-1] == "r001"


async def test_a_label_without_an_id_changes_only_itself(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run)
        await world.save()
        before = ids(run)
        await world.record_run(index=3)
        await world.record_run(id="other", run_dir=tmp_path / "other")
        assert ids(run) == before == [(await now(run)).run_id]


async def test_labelling_an_instance_of_many_keeps_its_saves(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (started,) = await world.start_many(1, run_dir=run)
        await world.save()
        await world.record_run(id="r001", status="running")
        assert ids(started.instance_dir) == [(await now(run)).run_id] == ["r001"]
    assert manifest_of(started.instance_dir)["run"]["status"] == "complete"


async def test_an_attached_instance_continues_its_run(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        await world.start(run_dir=run, detach=True)
        await world.record_run(id="r001")
    async with AsyncWorld.attach(run) as world:
        saved = await world.save()
        assert (await now(run)).saved_path == saved.path
        await world.record_run(id="r002")
        assert (await now(run)).run_id == "r002"
        await world.stop()
    assert ids(run) == ["r002"]


# -------------------------------------------------------------------------- older versions


@pytest.mark.thorough
async def test_entries_without_run_ids_of_an_older_version_are_read(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run)
        saved = await world.save()
        await world.stop()
        await run_sync(_forget_ids, run)
        status = await now(run)
        assert (status.run_id, status.saved_path) == ("", saved.path)
        await world.start(run_dir=run)
        assert (await now(run)).saved_path is None
        assert len(manifest_of(run)["checkpoints"]) == 1


def _forget_ids(run: Path) -> None:
    for path in (run / ".clawblox").rglob("*.json"):
        document: Any = json.loads(path.read_text())
        document.pop("run_id", None)
        for entry in document.get("checkpoints", ()):
            del entry["run_id"]
        path.write_text(json.dumps(document))
    for path in (run / ".clawblox").rglob("*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(each | {"run_id": ""}) + "\n" for each in records))


# --------------------------------------------------------------------------------- archives


@pytest.mark.thorough
async def test_an_archive_belongs_to_the_run_of_its_snapshot(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run)
        await world.record_run(id="r001", resume_from=run / "s0.json")
        first = (await world.save()).path
        await world.stop()
        await world.start(run_dir=run)
        second = (await world.save()).path
        run_id = (await now(run)).run_id
    archives = [run / "checkpoints" / f"{name}.ckpt" for name in ("a", "b")]
    for path, snapshot in zip(archives, (first, second), strict=True):
        await async_save_checkpoint(path, world_snapshot=snapshot)
    lineages = [(await async_read_metadata(path))["lineage"] for path in archives]
    assert lineages == [
        {"run_id": "r001", "resume_from": "s0.json", "parent_sha256": None},
        {"run_id": run_id, "resume_from": None, "parent_sha256": None},
    ]
    assert ids(run)[-2:] == ["r001", run_id]
    await run_sync(_forget_archives, run)
    await run_sync(repair_checkpoints, run)
    assert ids(run)[-2:] == ["r001", run_id]


def _forget_archives(run: Path) -> None:
    path = run / ".clawblox" / "manifest.json"
    document = json.loads(path.read_text())
    document["checkpoints"] = document["checkpoints"][:2]
    path.write_text(json.dumps(document))
