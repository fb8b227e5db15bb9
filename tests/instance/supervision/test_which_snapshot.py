"""The snapshot from which a dead world is restarted, and its retention until then."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, StartedWorld, WorldExitedError
from clawblox.instance.supervisor import Supervisor
from clawblox.world.handle import InstanceHandle
from clawblox.world.save import Retention
from tests.instance.supervision.support import LIFE, kill
from tests.support.crowd import (
    act,
    join,
    join_all,
    kinds,
    leftovers,
    look,
    on_disk,
    past,
    registered,
    until,
)
from tests.support.running import manifest_of, switch
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


async def save_as(world: AsyncWorld, started: StartedWorld, session: str, number: int) -> Path:
    act(started.port, session, number)
    return (await world.save(instance=started.name)).path


@pytest.mark.thorough
async def test_a_restart_skips_a_damaged_or_refused_save(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="checkpoint")
        session = await join(world, started)
        good = await save_as(world, started, session, 1)
        switch(started, snapshot="garbage")
        refused = await save_as(world, started, session, 10)
        switch(started, snapshot="sized")
        damaged = await save_as(world, started, session, 100)
        removed = await save_as(world, started, session, 1000)
        damaged.write_bytes(damaged.read_bytes()[:-1])
        removed.unlink()
        await past(events)
        await kill(run)
        seen = await until(events, "ready", ["w000"])
        tries = [one.data["resume_path"] for one in seen if one.kind == "restarting"]
        assert tries == [refused, good]
        assert kinds(seen, "w000") == [
            "exited",
            *("restarting", "started", "start_failed"),
            *LIFE,
        ]
        assert look(started.port, session)["counter"] == 1
        restarts = manifest_of(started.instance_dir)["restarts"]
        assert [one["resume_from"] for one in restarts] == [f"checkpoints/{good.name}"]


@pytest.mark.thorough
async def test_without_a_good_save_a_restart_repeats_the_first_start_and_reports_it(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run, restart="checkpoint")
        sessions = await join_all(world, batch)
        switch(batch["w001"], snapshot="garbage")
        refused = await save_as(world, batch["w001"], sessions["w001"], 1)
        await past(events)
        for name in batch.done:
            await kill(run, name)
        seen = await until(events, "ready", batch.done)
        told = {
            name: [
                (one.data["resume_path"], one.data["reason"])
                for one in seen
                if (one.kind, one.subject) == ("restarting", name)
            ]
            for name in batch.done
        }
        afresh = (None, "there is no good save")
        assert told == {"w000": [afresh], "w001": [(refused, None), afresh]}
        lives = [kind for kind in kinds(seen, "w000") if kind != "session_lost"]
        assert lives == ["exited", *LIFE]
        assert world.instances == ("w000", "w001")
        saved = await world.save(instance="w000")
        await past(events)
        await kill(run)
        seen = await until(events, "ready", ["w000"])
        (restarting,) = (one for one in seen if one.kind == "restarting")
        assert (restarting.data["resume_path"], restarting.data["reason"]) == (saved.path, None)
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_fork_without_a_save_restarts_from_its_own_snapshot_and_seed(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, toml_extra="reseed = true")
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        parent = await world.start(run_dir=run, name="parent")
        session = await join(world, parent)
        saved = await save_as(world, parent, session, 41)
        (fork,) = await world.fork(saved, run_dir=run, reseed=7, restart="checkpoint")
        act(fork.port, session, 1)
        await past(events)
        await kill(run, fork.name)
        seen = await until(events, "ready", [fork.name])
        (restarting,) = (one for one in seen if one.kind == "restarting")
        assert dict(restarting.data)["reason"] == "there is no good save"
        assert restarting.data["resume_path"] == saved
        shown = look(fork.port, session)
        assert (shown["counter"], shown["reseed"]) == (41, 7)


async def test_a_restart_without_its_first_snapshot_never_starts_fresh(
    tmp_path: Path, run: Path
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        parent = await world.start(run_dir=run, name="parent")
        saved = await save_as(world, parent, await join(world, parent), 1)
        (fork,) = await world.fork(saved, run_dir=run, restart="checkpoint")
        saved.unlink()
        await past(events)
        await kill(run, fork.name)
        seen = await until(events, "gave_up", [fork.name])
        assert kinds(seen, fork.name) == ["exited", "gave_up"]
        assert seen[-1].data["reason"] == "there is no good snapshot"
        with pytest.raises(WorldExitedError):
            await world.save(instance=fork.name)
        assert (await world.stop(instance=fork.name)).rung == "already_exited"
        assert manifest_of(fork.instance_dir)["run"]["status"] == "failed"
    assert leftovers(run) == []


@pytest.mark.thorough
async def test_autosave_keeps_the_save_that_a_world_was_restored_from(
    tmp_path: Path, run: Path
) -> None:
    options: dict[str, Any] = {"restart": "checkpoint", "max_restarts": 10}
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, **options)
        await world.autosave(every=0.01, keep=1)
        for _ in range(4):
            await until(events, "saved", ["w000"])
            await kill(run)
            seen = await until(events, "ready", ["w000"])
            (resumed,) = (one.data["resume_path"] for one in seen if one.kind == "restarting")
        for _ in range(4):
            await until(events, "saved", ["w000"])
        await world.autosave(every=None)
        files = on_disk(started.instance_dir)
        assert resumed in files
        assert registered(started.instance_dir) == files
        # The latest save, the save of the latest restart, and a save of an ended round.
        assert len(files) in (2, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("is_killed_first", [True, False])
async def test_autosave_keeps_the_save_that_a_restart_is_about_to_restore(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed_first: bool
) -> None:
    """A save completed after the death makes older saves removable, even the chosen save."""
    is_chosen, is_removed = anyio.Event(), anyio.Event()
    clear_away, retire, remove = Supervisor._clear_away, Retention.retire, Retention.remove_retired

    async def clear_away_late(supervisor: Supervisor) -> bool:
        is_chosen.set()
        await is_removed.wait()
        return await clear_away(supervisor)

    async def retire_late(retention: Retention, instance: InstanceHandle, *args: Any) -> list[Path]:
        if len(await run_sync(on_disk, started.instance_dir)) == 2 and not is_chosen.is_set():
            if not is_killed_first:
                retired = await retire(retention, instance, *args)
            os.kill(started.pid, signal.SIGKILL)
            await is_chosen.wait()
            if not is_killed_first:
                return retired
        return await retire(retention, instance, *args)

    async def remove_and_tell(retention: Retention, *args: Any) -> None:
        await remove(retention, *args)
        if is_chosen.is_set():
            is_removed.set()

    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="checkpoint")
        await past(events)
        monkeypatch.setattr(Supervisor, "_clear_away", clear_away_late)
        monkeypatch.setattr(Retention, "retire", retire_late)
        monkeypatch.setattr(Retention, "remove_retired", remove_and_tell)
        await world.autosave(every=0.01, keep=1)
        seen = await until(events, "ready", ["w000"])
        await world.autosave(every=None)
        lives = [one for one in kinds(seen, "w000") if not one.startswith("save")]
        assert lives == ["exited", *LIFE]
