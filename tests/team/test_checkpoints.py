"""Checkpoints of a running world and its agents: their times, retention and pointer."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest

from clawblox import (
    AsyncCheckpointer,
    AsyncWorld,
    Checkpointer,
    CheckpointSecretError,
    ConfigError,
    SavedCheckpoint,
    StartedWorld,
    UsageError,
    World,
    read_metadata,
)
from clawblox.checkpoint import verify_checkpoint
from clawblox.checkpoint.collect.plan import LOOK_S
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError
from clawblox.team.checkpoints import check_agents
from tests.checkpoint.agents import build_agent
from tests.checkpoint.runs import fake_token
from tests.support.crowd import act
from tests.support.running import manifest_of, next_event
from tests.support.starting import add
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio

SOON_S = 0.01
NEVER_S = 3600.0


@attrs.define
class FakeAgent:
    """An agent with a state."""

    name: str
    dir: Path
    state: str = "idle"


@attrs.frozen
class Scene:
    """A world that runs, with an agent that tells its state and one that does not."""

    world: AsyncWorld
    started: StartedWorld
    eko: FakeAgent
    moa: Path
    dir: Path

    def checkpointer(self, **options: Any) -> AsyncCheckpointer:
        arguments = {"dir": self.dir, "every": NEVER_S, "idle_wait": 0.0, **options}
        return AsyncCheckpointer(self.world, [self.eko], **arguments)

    def archives(self) -> list[str]:
        return sorted(path.name for path in self.dir.glob("*.ckpt"))

    def pointed(self) -> dict[str, Any]:
        pointer: dict[str, Any] = json.loads((self.dir / "checkpoint.json").read_text())
        assert not Path(pointer["checkpoint"]).is_absolute()
        pointer["checkpoint"] = str(self.dir / pointer["checkpoint"])
        assert Path(pointer["checkpoint"]).is_file()
        return pointer


def make_agent(run_dir: Path, name: str, *, mid_turn: bool = False) -> Path:
    agent = build_agent(run_dir / "agents" / name, "claude", mid_turn=mid_turn)
    (agent.dir / "home" / ".netrc").unlink()
    return agent.dir


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    run_dir = tmp_path / "run"
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            started = await world.start(run_dir=run_dir)
            eko = FakeAgent("Eko", await anyio.to_thread.run_sync(make_agent, run_dir, "Eko"))
            moa = await anyio.to_thread.run_sync(make_agent, run_dir, "Moa")
            yield Scene(world, started, eko, moa, run_dir / "checkpoints")


async def is_sound(path: Path) -> bool:
    return (await anyio.to_thread.run_sync(verify_checkpoint, path)).is_verified


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


class Outcomes:
    """Collects what a checkpointer tells."""

    def __init__(self) -> None:
        self.saved: list[SavedCheckpoint] = []
        self.errors: list[Exception] = []

    def __call__(self, outcome: SavedCheckpoint | Exception) -> None:
        (self.errors if isinstance(outcome, Exception) else self.saved).append(outcome)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- contents


async def test_a_checkpoint_is_an_archive_of_the_world_and_its_agents(scene: Scene) -> None:
    before = contents(scene.eko.dir)
    checkpointer = scene.checkpointer(metadata={"generation": 3}, elapsed=900.0)
    saved = await checkpointer.save()
    assert saved.path == scene.dir / "t000900.ckpt"
    assert (saved.metadata["elapsed_seconds"], saved.mid_turn) == (900, ())
    assert checkpointer.latest == saved
    assert await is_sound(saved.path)
    metadata = await anyio.to_thread.run_sync(read_metadata, saved.path)
    assert (metadata["generation"], metadata["elapsed_seconds"]) == (3, 900)
    assert metadata["agents"]["Eko"]["mid_turn"] is False
    assert scene.pointed().items() >= {"generation": 3, "elapsed_seconds": 900}.items()
    assert contents(scene.eko.dir) == before
    formats = [entry["format"] for entry in manifest_of(scene.started.run_dir)["checkpoints"]]
    assert formats == ["counter-v1", "clawblox-ckpt-v1"]


@pytest.mark.thorough
async def test_a_world_and_its_agents_continue_from_the_archive_that_the_pointer_names(
    scene: Scene, tmp_path: Path
) -> None:
    access = await scene.world.connect("Rocky")
    add(scene.started, access["headers"], 5)
    await scene.checkpointer().save()
    add(scene.started, access["headers"], 7)
    again = await scene.world.start(
        resume=scene.pointed()["checkpoint"], run_dir=tmp_path / "again", name="again"
    )
    assert json.loads(act(again.port, access["session"], 0))["counter"] == 5
    assert again.loaded is not None
    assert set(again.loaded["agents"]) == {"Eko"}


@pytest.mark.thorough
async def test_checkpoints_within_a_second_have_different_names(scene: Scene) -> None:
    checkpointer = scene.checkpointer(elapsed=7.2)
    paths = [(await checkpointer.save()).path.name for _ in range(2)]
    assert paths[0] == "t000007.ckpt"
    assert len(set(paths)) == 2
    assert scene.pointed()["checkpoint"].endswith(paths[1])


async def test_checkpoints_are_made_at_an_interval_until_the_block_is_left(scene: Scene) -> None:
    outcomes = Outcomes()
    async with scene.checkpointer(every=SOON_S, on_outcome=outcomes):
        await wait_until_async(lambda: len(outcomes.saved) >= 3)
    made = scene.archives()
    assert len(made) >= 3
    assert outcomes.errors == []
    for name in made:
        assert await is_sound(scene.dir / name)
    scene.pointed()


async def test_agents_may_be_directories_by_name(scene: Scene) -> None:
    agents = {"Eko": scene.eko.dir, "Moa": str(scene.moa)}
    saved = await AsyncCheckpointer(scene.world, agents, dir=scene.dir, idle_quiet=0.0).save()
    metadata = await anyio.to_thread.run_sync(read_metadata, saved.path)
    assert set(metadata["agents"]) == {"Eko", "Moa"}


# ---------------------------------------------------------------------------- the idle moment


async def test_checkpoint_waits_for_an_agent_that_reports_work(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.eko.state = "working"
    os.utime(scene.eko.dir / "logs" / "agent.log")
    looks: list[str] = []
    checkpointer = scene.checkpointer(idle_wait=NEVER_S, idle_quiet=NEVER_S)
    sleep = anyio.sleep

    async def look(delay: float) -> None:
        if delay != LOOK_S:
            return await sleep(delay)
        looks.append(scene.eko.state)
        assert checkpointer.latest is None
        if len(looks) == 3:
            scene.eko.state = "idle"
        return await sleep(0.001)

    monkeypatch.setattr("clawblox.team.checkpoints.anyio.sleep", look)
    saved = await checkpointer.save()
    assert looks == ["working"] * 3
    assert saved.mid_turn == ()


async def test_quiet_log_alone_does_not_mean_an_idle_agent(scene: Scene, tmp_path: Path) -> None:
    directory = await anyio.to_thread.run_sync(
        lambda: make_agent(tmp_path / "run", "Rua", mid_turn=True)
    )
    scene.eko.dir, scene.eko.state = directory, "working"
    os.utime(directory / "logs" / "agent.log", (0, 0))
    agents = {"Rua": directory, "Moa": scene.moa}
    for name, is_idle in {"Rua": False, "Moa": True}.items():
        (watched,) = check_agents({name: agents[name]})
        assert await run_blocking(watched.is_idle, 0.0) is is_idle
    saved = await scene.checkpointer(idle_wait=0.0).save()
    assert saved.mid_turn == ("Eko",)


async def test_an_agent_between_two_turns_whose_log_is_quiet_is_not_waited_for(
    scene: Scene,
) -> None:
    os.utime(scene.moa / "logs" / "agent.log", (0, 0))
    checkpointer = AsyncCheckpointer(
        scene.world, {"Moa": scene.moa}, dir=scene.dir, idle_wait=NEVER_S, idle_quiet=60.0
    )
    assert (await checkpointer.save()).mid_turn == ()


@attrs.define
class TurnKeeper:
    """An agent's object that knows its turns."""

    name: str
    dir: Path
    is_between_turns: bool = False
    hold_turns: Any = contextlib.nullcontext


async def test_an_agent_that_begins_a_turn_is_waited_for_though_its_files_look_idle(
    scene: Scene,
) -> None:
    os.utime(scene.moa / "logs" / "agent.log", (0, 0))
    keeper = TurnKeeper("Moa", scene.moa)
    (watched,) = check_agents([keeper])
    assert not watched.is_idle(0.0)
    keeper.is_between_turns = True
    assert watched.is_idle(0.0)


async def test_checkpoint_waiting_for_an_idle_moment_can_be_cancelled(scene: Scene) -> None:
    scene.eko.state = "working"
    checkpointer = scene.checkpointer(idle_wait=NEVER_S, idle_quiet=NEVER_S)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(checkpointer.save)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert not scene.dir.exists()
    scene.eko.state = "idle"
    assert await is_sound((await checkpointer.save()).path)


# ------------------------------------------------------------------------------------ retention


@pytest.mark.thorough
async def test_oldest_checkpoints_are_removed_except_the_one_in_the_pointer(
    scene: Scene,
) -> None:
    checkpointer = scene.checkpointer(keep=2)
    foreign = scene.dir / "mine.ckpt"
    await scene.world.checkpoint(foreign)
    for _ in range(5):
        await checkpointer.save()
        scene.pointed()
    assert len(scene.archives()) == 3
    assert foreign.exists()
    snapshots = [path for path in scene.dir.glob("*.json") if path.name != "checkpoint.json"]
    assert len(snapshots) == 3
    entries = manifest_of(scene.started.run_dir)["checkpoints"]
    kept = {Path(entry["path"]).name for entry in entries if "removed_at" not in entry}
    assert kept == {path.name for path in [*snapshots, *scene.dir.glob("*.ckpt")]}


async def test_failed_save_removes_no_checkpoint(scene: Scene) -> None:
    checkpointer = scene.checkpointer(keep=1)
    first = await checkpointer.save()
    notes = scene.eko.dir / "workspace" / "notes.md"
    notes.write_text(fake_token())
    with pytest.raises(CheckpointSecretError):
        await checkpointer.save()
    assert scene.archives() == [first.path.name]
    assert scene.pointed()["checkpoint"] == str(first.path)
    notes.unlink()
    second = await checkpointer.save()
    assert scene.archives() == [second.path.name]


@pytest.mark.thorough
async def test_unwritable_pointer_keeps_the_previous_archive(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer = scene.checkpointer(keep=1)
    first = await checkpointer.save()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("clawblox.team.pointer.publish_changed", full)
        with pytest.raises(ClawbloxError, match="No space left on device"):
            await checkpointer.save()
    assert scene.pointed()["checkpoint"] == str(first.path)
    last = await checkpointer.save()
    assert scene.archives() == [last.path.name]
    assert scene.pointed()["checkpoint"] == str(last.path)


@pytest.mark.thorough
async def test_save_needed_by_a_restart_is_kept(tmp_path: Path, scene: Scene) -> None:
    other = await scene.world.start(run_dir=tmp_path / "run2", name="r", restart="checkpoint")
    checkpointer = AsyncCheckpointer(scene.world, {}, dir=tmp_path / "out", instance="r", keep=1)
    await checkpointer.save()
    async with scene.world.events() as events:
        ask(other.port, "POST", "/__die?status=9")
        await next_event(events, "restarting")
        await next_event(events, "ready")
    for _ in range(3):
        await checkpointer.save()
    names = {path.name for path in (tmp_path / "run2" / "checkpoints").glob("*.json")}
    assert len(names) == 2  # the latest, and the one that it was restored from


# ------------------------------------------------------------------------------------- failures


@pytest.mark.thorough
async def test_a_failed_checkpoint_is_reported_and_the_next_follows(scene: Scene) -> None:
    outcomes = Outcomes()
    notes = scene.eko.dir / "workspace" / "notes.md"
    notes.write_text(fake_token())
    async with scene.checkpointer(every=SOON_S, on_outcome=outcomes):
        await wait_until_async(lambda: outcomes.errors)
        assert scene.archives() == []
        notes.unlink()
        await wait_until_async(lambda: outcomes.saved)
    assert isinstance(outcomes.errors[0], CheckpointSecretError)
    scene.pointed()


async def test_checkpoint_is_skipped_while_the_disk_is_low(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 10**9
    monkeypatch.setattr("clawblox.team.checkpoints.available_bytes", lambda _: free)
    outcomes = Outcomes()
    async with scene.checkpointer(every=SOON_S, min_free=free + 1, on_outcome=outcomes) as made:
        await wait_until_async(lambda: outcomes.errors)
        assert "only 1.0 GB are free" in str(outcomes.errors[0])
        assert scene.archives() == []
        assert (await made.save()).path.exists()  # a person asked for it
        assert outcomes.saved == []
        free += 1
        await wait_until_async(lambda: outcomes.saved)


async def test_end_of_the_world_ends_the_checkpointer(scene: Scene) -> None:
    checkpointer = scene.checkpointer(every=SOON_S)
    ask(scene.started.port, "POST", "/__die?status=9")
    await checkpointer.run()
    scene.dir.mkdir(exist_ok=True)
    left = [path.name for path in scene.dir.iterdir() if path.name.startswith(".")]
    assert left == []


async def test_stop_within_the_block_ends_the_checkpointer(scene: Scene) -> None:
    async with scene.checkpointer(every=SOON_S):
        await scene.world.stop()


@pytest.mark.thorough
async def test_checkpointer_continues_after_a_restart(tmp_path: Path, scene: Scene) -> None:
    other = await scene.world.start(run_dir=tmp_path / "run2", name="r", restart="checkpoint")
    outcomes = Outcomes()
    checkpointer = AsyncCheckpointer(
        scene.world, {}, dir=tmp_path / "out", instance="r", every=SOON_S, on_outcome=outcomes
    )
    async with checkpointer, scene.world.events() as events:
        await wait_until_async(lambda: outcomes.saved)
        ask(other.port, "POST", "/__die?status=9")
        await next_event(events, "ready")
        count = len(outcomes.saved)
        await wait_until_async(lambda: len(outcomes.saved) > count)


async def test_checkpointer_without_a_single_instance_is_an_error(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(UsageError, match="needs one instance; there are 0"):
            await AsyncCheckpointer(world, {}, dir=tmp_path).save()
        with pytest.raises(UsageError, match="needs one instance; there are 0"):
            async with AsyncCheckpointer(world, {}, dir=tmp_path):
                pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 0},
        {"every": "soon"},
        {"idle_wait": -1},
        {"idle_quiet": float("nan")},
        {"keep": 0},
        {"elapsed": -1},
        {"agents": ["Eko"]},
        {"agents": {"Eko": 3}},
    ],
    ids=str,
)
async def test_a_wrong_argument_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        agents = wrong.pop("agents", {})
        with pytest.raises(ConfigError) as caught:
            AsyncCheckpointer(world, agents, dir=tmp_path, **wrong)
    assert caught.value.key in {*wrong, "agents", "agents.Eko"}


# ----------------------------------------------------------------------------------------- sync


@pytest.mark.thorough
def test_a_script_makes_checkpoints(tmp_path: Path) -> None:
    out = tmp_path / "out"
    outcomes = Outcomes()
    with World(dir=make_world(tmp_path)) as world:
        world.start(run_dir=tmp_path / "run")
        agents = {"Eko": make_agent(tmp_path / "run", "Eko")}
        options: dict[str, Any] = {"idle_quiet": 0.0, "on_outcome": outcomes, "every": SOON_S}
        with Checkpointer(world, agents, dir=out, **options) as checkpoints:
            wait_until(lambda: outcomes.saved)
            saved = checkpoints.save()
            assert checkpoints.latest == saved
        assert json.loads((out / "checkpoint.json").read_text())["checkpoint"]
    assert saved.path.exists()
