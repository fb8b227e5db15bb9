"""Labels of instances, from the start to every output about the instance."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, ConfigError, InstanceSpec
from clawblox.rundir.records import read_record
from clawblox.rundir.status import read_run
from tests.support.running import manifest_of, next_event
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

LABELS = {"model": "fable-5", "seed": 3, "temperature": 0.5, "control": False}


async def test_labels_of_a_start_are_in_results_events_records_manifest_and_status(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(make_world(tmp_path)) as world, world.events() as events:
        started = await world.start(run_dir=run, labels=LABELS)
        assert started.labels == LABELS
        assert world.labels == {"w000": LABELS}
        assert (await next_event(events, "ready")).labels == LABELS
        await world.save()
        assert (await next_event(events, "saved")).labels == LABELS
        assert manifest_of(run)["run"]["labels"] == LABELS
        await world.stop()
        assert (await next_event(events, "stopped")).labels == LABELS
    record = await anyio.to_thread.run_sync(read_record, run, "w000")
    assert record is not None
    assert record.labels == LABELS
    (status,) = (await anyio.to_thread.run_sync(read_run, run)).instances
    assert status.labels == LABELS


@pytest.mark.thorough
async def test_a_spec_adds_its_labels_to_the_shared_ones(tmp_path: Path) -> None:
    run = tmp_path / "run"
    specs = [InstanceSpec(labels={"model": "opus", "seed": 1}), {"labels": {}}, {}]
    async with AsyncWorld(make_world(tmp_path)) as world:
        batch = await world.start_many(specs, run_dir=run, labels={"model": "fable"})
        own = {"model": "opus", "seed": 1}
        assert [one.labels for one in batch] == [own, {"model": "fable"}, {"model": "fable"}]
        assert manifest_of(batch["w000"].instance_dir)["run"]["labels"] == own
        listed = {entry["name"]: entry.get("labels") for entry in manifest_of(run)["instances"]}
        assert listed["w000"] == own
        saved = await world.save(instance="w000")
        (fork,) = await world.fork(saved, labels={"branch": "a"})
        assert fork.labels == {"branch": "a"}


async def test_a_later_start_does_not_inherit_labels(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(make_world(tmp_path), run_dir=run) as world:
        await world.start(labels=LABELS)
        await world.stop()
        started = await world.start()
        assert started.labels == {}
        assert "labels" not in manifest_of(run)["run"]


async def test_an_attached_instance_has_the_labels_of_its_start(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(make_world(tmp_path)) as world:
        await world.start(run_dir=run, labels=LABELS, detach=True)
    async with AsyncWorld.attach(run) as attached:
        assert attached.labels == {"w000": LABELS}
        await attached.stop()


async def test_invalid_labels_prevent_a_start(tmp_path: Path) -> None:
    async with AsyncWorld(make_world(tmp_path)) as world:
        with pytest.raises(ConfigError, match=r"^labels\.model: "):
            await world.start(run_dir=tmp_path / "run", labels={"model": ["a"]})  # type: ignore[dict-item]
        with pytest.raises(ConfigError, match=r"^labels: "):
            await world.start_many([{"labels": {"a b": 1}}], run_dir=tmp_path / "run")
        assert world.instances == ()
    assert not (tmp_path / "run").exists()
