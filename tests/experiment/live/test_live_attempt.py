"""An attempt on real worlds and agents: starts, checkpoints, ends, and a continuation."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from anyio.abc import TaskStatus

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.usage import Budget
from clawblox.agents.values import Usage
from clawblox.checkpoint import read_metadata
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import CheckpointSecretError, UsageError
from clawblox.experiment.live import live_attempt
from clawblox.experiment.live.attempt_agents import AttemptAgent
from clawblox.experiment.live.live_backend import LiveBackend
from clawblox.experiment.plan import AgentSpec
from clawblox.experiment.schedule.ports import (
    AgentEnded,
    AgentFailed,
    AgentTurned,
    AttemptError,
    ProviderError,
    Signal,
    WorldEnded,
)
from clawblox.protocol import ScriptErrors
from clawblox.rundir.manifest import read_manifest
from clawblox.rundir.operations import stop_instances
from clawblox.team.checkpoints import save_now
from tests.agents.small import until
from tests.agents.standins import hold, install, misbehave
from tests.experiment.attempts import (
    DRIVERS,
    FIRST,
    SAVE,
    Scene,
    alone,
    looks_inside,
    refer,
    scene,
    serving,
    wait_for_turns,
    wait_until_done,
)
from tests.support.waiting import HANG_S, wait_until_async

__all__ = ["alone", "scene"]

pytestmark = pytest.mark.anyio


@pytest.mark.thorough
async def test_checkpoint_time_excludes_the_wait_for_an_idle_moment(alone: Scene) -> None:
    await alone.prepare(alone.order(), turn_s=HANG_S)
    async with alone.open(alone.order()) as attempt:
        await attempt.start()
        await wait_until_async(lambda: attempt.activity()[0].is_working)
        begun_at = anyio.current_time()
        saved = await attempt.checkpoint("periodic", lambda: 1.0, idle_wait=1.0)
        taken_s = anyio.current_time() - begun_at
    assert saved.mid_turn == ("Eko",)
    assert 0.0 < saved.save_s < taken_s - 0.7  # it checks every 0.25 s


@looks_inside
async def test_agents_continue_from_a_checkpoint_in_another_attempt(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = attrs.evolve(scene.order(), generation=3)
    held: list[list[bool]] = []
    ended: list[list[bool]] = []

    async def save_held(*arguments: Any, **options: Any) -> Any:
        held.append([agent.agent._hold.is_on for agent in attempt.agents])
        return await save_now(*arguments, **options)

    monkeypatch.setattr(live_attempt, "save_now", save_held)
    await scene.prepare(order)
    async with scene.open(order) as attempt:
        working = await attempt.start()
        await wait_for_turns(attempt, 2)
        saved = await attempt.checkpoint("periodic", lambda: 12.5, idle_wait=10.0)
        assert (saved.file, saved.mid_turn) == ("gen003-t000012.ckpt", ())
        assert held == [[True, True]]
        assert not any(agent.agent._hold.is_on for agent in attempt.agents)
        metadata = await run_blocking(read_metadata, scene.run_dir() / "checkpoints" / saved.file)
        before = attempt.usage()
        stop = attempt.world.stop

        async def stop_world(*names: Any, **options: Any) -> None:
            ended.append([agent.is_over for agent in attempt.activity()])
            await stop(*names, **options)

        monkeypatch.setattr(attempt.world, "stop", stop_world)
    assert ended == [[True, True]]  # before their world
    facts = {
        "generation": 3,
        "elapsed_seconds": 12,
        "run_id": FIRST,
        "tmux_session": "",
        "world_dir": str(scene.plan.world.dir),
        "model": "",
        "agents_per_world": 2,
        "generation_duration": scene.plan.duration,
        "kind": "periodic",
    }
    assert {name: metadata[name] for name in facts} == facts
    assert {type(signal) for signal in scene.signals} == {AgentTurned}
    assert [agent["name"] for agent in working["agents"]] == [
        f"{name}-r{FIRST}-w0-a{index}" for index, name in enumerate(DRIVERS)
    ]
    used = await scene.backend.usage("r1", FIRST)
    assert [usage.turns for usage in used] >= [usage.turns for usage in before]

    again = scene.order(f"{FIRST}-r2", origin=refer(FIRST, saved), active_s=12.5)
    await scene.prepare(again)
    messages = await scene.told(working, again.attempt_id)
    async with scene.open(again) as attempt:
        assert [usage.turns for usage in attempt.usage()] == [0, 0]  # from the checkpoint on
        continued = await attempt.start()
        await wait_for_turns(attempt, 1)
    for old, new in zip(working["agents"], continued["agents"], strict=True):
        for same in ("name", "session", "conversation", "base_url"):
            assert old[same] == new[same]
    for earlier, later in zip(messages, await scene.told(working, again.attempt_id), strict=True):
        assert later[: len(earlier) + 1] == [*earlier, AUTO_CONTINUE]


@pytest.mark.thorough
async def test_archive_without_its_run_is_continued(alone: Scene) -> None:
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        working = await attempt.start()
        await wait_for_turns(attempt, 1)
        saved = await attempt.checkpoint("periodic", lambda: 1.0, idle_wait=10.0)
    place = alone.run_dir() / "checkpoints"
    for path in alone.run_dir().iterdir():
        if path != place:
            await run_blocking(shutil.rmtree, path)
    again = alone.order(f"{FIRST}-r2", origin=refer(FIRST, saved))
    await alone.prepare(again)
    assert [path.name for path in alone.agent_dirs(again.attempt_id)] == [
        working["agents"][0]["name"]
    ]
    manifest = await run_blocking(read_manifest, alone.run_dir(again.attempt_id))
    assert manifest.resolve(manifest.run["resume_from"]) == place / saved.file


async def test_foreign_directory_in_the_way_fails_the_attempt(alone: Scene) -> None:
    alone.run_dir().mkdir(parents=True)
    with pytest.raises(AttemptError, match="is in the way") as raised:
        await alone.backend.prepare(alone.order())
    assert raised.value.cause == "start"
    assert list(alone.run_dir().iterdir()) == []


@looks_inside
async def test_the_end_of_a_world_is_reported_with_its_log(alone: Scene) -> None:
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        working = await attempt.start()
        token = attempt.started.env["WORLD_OPERATOR_TOKEN"]
        with attempt.started.log_file.open("a") as log:
            log.write(f"the token is {token}\n")
        os.kill(working["world"]["pid"], signal.SIGKILL)
        await wait_until_async(lambda: any(isinstance(s, WorldEnded) for s in alone.signals))
        assert await attempt.world_time() is None
        await attempt.remove_checkpoint("gone.ckpt")
    (end,) = (signal for signal in alone.signals if isinstance(signal, WorldEnded))
    assert "SIGKILL" in end.text
    assert "| counter world, process" in end.text
    assert "| the token is ***" in end.text


@pytest.mark.thorough
@looks_inside
async def test_a_world_stopped_by_another_program_counts_as_ended(alone: Scene) -> None:
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        await attempt.start()
        await stop_instances(attempt.run_dir, grace_seconds=1.0)
        await wait_until_async(lambda: any(isinstance(s, WorldEnded) for s in alone.signals))
    (end,) = (signal for signal in alone.signals if isinstance(signal, WorldEnded))
    assert end.text.startswith("was stopped by another process: ")
    assert "| counter world, process" in end.text


@attrs.define
class Neighbour:
    """The first attempt, open in a task beside another attempt."""

    scene: Scene
    signals: list[Signal] = attrs.field(factory=list)
    may_close: anyio.Event = attrs.field(factory=anyio.Event)
    is_closed: anyio.Event = attrs.field(factory=anyio.Event)

    async def run(self, *, task_status: TaskStatus[Any]) -> None:
        async with self.scene.open(self.scene.order(), self.signals) as attempt:
            task_status.started(await attempt.start())
            await self.may_close.wait()
        self.is_closed.set()

    async def close(self) -> None:
        self.may_close.set()
        await self.is_closed.wait()


SECOND = f"{FIRST}-r20260622T185925Z"


@pytest.mark.thorough
async def test_end_of_a_world_leaves_other_attempts_worlds_running(alone: Scene) -> None:
    await alone.prepare(alone.order())
    await alone.prepare(alone.order(SECOND))
    neighbour = Neighbour(alone)
    async with anyio.create_task_group() as tasks:
        working = await tasks.start(neighbour.run)
        os.kill(working["world"]["pid"], signal.SIGKILL)
        await wait_until_async(lambda: any(isinstance(s, WorldEnded) for s in neighbour.signals))
        async with alone.open(alone.order(SECOND)) as second:
            await second.start()
            await neighbour.close()
            assert await second.world_time() is not None
    assert not any(isinstance(signal, WorldEnded) for signal in alone.signals)


@pytest.mark.thorough
@looks_inside
async def test_the_end_of_another_attempts_world_is_not_reported(alone: Scene) -> None:
    await alone.prepare(alone.order())
    await alone.prepare(alone.order(SECOND))
    neighbour = Neighbour(alone)
    async with anyio.create_task_group() as tasks:
        working = await tasks.start(neighbour.run)
        async with alone.open(alone.order(SECOND)) as second:
            await neighbour.close()  # its end waits among the events of the second
            names = working["name"], (await second.start())["name"]
            await wait_for_turns(second, 1)
    assert not any(isinstance(signal, WorldEnded) for signal in alone.signals)
    assert names == ("w000", "w001")
    async with alone.open(alone.order()) as attempt:
        assert attempt.instance == "w000"


async def test_world_stopped_by_its_own_attempt_is_not_reported(alone: Scene) -> None:
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        await attempt.start()
    assert not any(isinstance(signal, WorldEnded) for signal in alone.signals)


@pytest.mark.thorough
async def test_script_errors_of_a_world_are_found_after_it_has_ended(
    alone: Scene, tmp_path: Path
) -> None:
    world = tmp_path / "engine"
    world.mkdir()
    (world / "world.toml").write_text('name = "engine"\ngame_type = "lua"\n')
    (world / "main.lua").write_text(
        'game:GetService("Players").PlayerAdded:Connect(function() error("no room") end)'
    )
    alone.plan = alone.plan.but(world=world)
    await alone.prepare(alone.order())
    assert await alone.backend.script_errors("r1", FIRST) is None
    async with alone.open(alone.order()) as attempt:
        await attempt.start()
    errors = await alone.backend.script_errors("r1", FIRST)
    assert errors == ScriptErrors(1, "Failed to fire PlayerAdded: main.lua:1: no room")


async def test_each_agent_gets_the_save_prompt_once_and_is_not_asked_to_continue(
    scene: Scene,
) -> None:
    await scene.prepare(scene.order())
    async with scene.open(scene.order()) as attempt:
        working = await attempt.start()
        await wait_for_turns(attempt, 1)
        await attempt.stop_agents()
        assert all(agent.is_over for agent in attempt.activity())
        boundary = await attempt.checkpoint("boundary", lambda: 60.0, idle_wait=0.0)
        await attempt.set_budgets((), is_saving=True)
        await attempt.send(SAVE)
        await wait_until_done(attempt)
        await attempt.stop_agents()
    assert {type(signal) for signal in scene.signals} == {AgentTurned}  # both stops were requested
    assert [messages[-1] for messages in await scene.told(working)] == [SAVE] * 2

    again = scene.order(f"{FIRST}-r2", origin=refer(FIRST, boundary), phase="save")
    await scene.prepare(again)
    async with scene.open(again) as attempt:
        await attempt.set_budgets((), is_saving=True)
        await attempt.start()
        await wait_until_done(attempt)
        await attempt.stop_agents()
        end = await attempt.checkpoint("end", lambda: 60.0, idle_wait=0.0)
    for messages in await scene.told(working, again.attempt_id):
        assert messages.count(SAVE) == 1
        assert messages[-1] == SAVE
    committed = await scene.backend.validate(scene.plan.chains()[0], again.attempt_id)
    assert committed["workspaces"] == [
        f"runs/{again.attempt_id}/agents/{path.name}/workspace"
        for path in scene.agent_dirs(again.attempt_id)
    ]

    scored = scene.order(f"{FIRST}-r3", origin=refer(again.attempt_id, end), phase="score")
    await scene.backend.prepare(scored)
    async with scene.open(scored) as attempt:
        assert (await attempt.start())["agents"] == []
        view = attempt.view()
        assert (await view.observe(agent="Moa")).keys() == (await view.observe()).keys()
        assert [agent.name for agent in view.agents] == list(DRIVERS)
        trajectory = await view.agents[0].trajectory()
        assert SAVE in str(trajectory["steps"][-2:])
    assert await scene.backend.usage("r1", scored.attempt_id) == [Usage(), Usage()]


@pytest.mark.thorough
@looks_inside
async def test_agent_counts_as_ended_only_after_answering_the_save_prompt(alone: Scene) -> None:
    await alone.prepare(alone.order())
    (directory,) = alone.agent_dirs()
    async with alone.open(alone.order()) as attempt:
        working = await attempt.start()
        await wait_for_turns(attempt, 1)
        await attempt.stop_agents()
        misbehave(directory / "workspace", own_turns_before=2)
        await attempt.set_budgets((), is_saving=True)
        turns = attempt.usage()[0].turns
        async with attempt.agents[0].agent.events() as events:
            with hold(directory / "workspace"):
                await attempt.send(SAVE)
                own = await until(events, "turn.finished", 2)
                assert all("origin" in end.data for end in own if end.kind == "turn.finished")
                assert not attempt.activity()[0].is_over
            await wait_until_done(attempt)
        assert attempt.usage()[0].turns == turns + 1
    assert [messages[-1] for messages in await alone.told(working)] == [SAVE]


async def test_an_agent_that_has_used_up_its_budget_has_ended(alone: Scene) -> None:
    spec = alone.plan.agents[0].but(budget=Budget(turns=3))
    alone.plan = alone.plan.but(agents=[spec])
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        used = attrs.evolve(attempt.usage()[0], turns=1)
        await attempt.set_budgets([used], is_saving=False)
        await attempt.start()
        await wait_until_async(lambda: any(isinstance(s, AgentEnded) for s in alone.signals))
        assert attempt.usage()[0].turns == 2
        (end,) = (signal for signal in alone.signals if isinstance(signal, AgentEnded))
        assert (end.name, end.is_budget) == ("Eko", True)


@pytest.mark.thorough
@looks_inside
async def test_the_budget_for_saving_counts_from_the_save_prompt(alone: Scene) -> None:
    alone.plan = alone.plan.but(save={"prompt": SAVE, "budget": {"turns": 1}})
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        working = await attempt.start()
        await wait_for_turns(attempt, 2)
        await attempt.stop_agents()
        boundary = await attempt.checkpoint("boundary", lambda: 1.0, idle_wait=0.0)
        turns = attempt.usage()[0].turns
        await attempt.set_budgets((), is_saving=True)
        assert attempt.agents[0].agent.budget == Budget(turns=turns + 1)
        await attempt.send(SAVE)
        await wait_until_async(lambda: any(isinstance(s, AgentEnded) for s in alone.signals))
        assert attempt.usage()[0].turns == turns + 1
    assert [messages[-1] for messages in await alone.told(working)] == [SAVE]

    again = alone.order(f"{FIRST}-r2", origin=refer(FIRST, boundary), phase="save")
    await alone.prepare(again)
    async with alone.open(again) as attempt:
        await attempt.set_budgets((), is_saving=True)
        assert attempt.agents[0].agent.budget == Budget(turns=turns + 1)


async def test_the_files_of_an_attempt_are_checked_and_pruned_as_the_plan_says(
    alone: Scene,
) -> None:
    await alone.prepare(alone.order())
    (directory,) = alone.agent_dirs()
    cache = directory / "workspace" / ".venv"
    cache.mkdir()
    kept, pruned = (alone.plan.but(prune=prune).chains()[0] for prune in (False, True))
    with pytest.raises(AttemptError, match="is missing or empty") as raised:
        await alone.backend.validate(kept, FIRST)
    assert raised.value.cause == "agent"
    for name in ("claude_session_id.txt", "world_session.txt", "logs/agent.log"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text("text")
    (directory / "runtime").mkdir(exist_ok=True)
    (directory / "runtime" / "system_prompt.md").write_text("text")
    await alone.backend.validate(kept, FIRST)
    assert cache.exists()
    await alone.backend.validate(pruned, FIRST)
    assert not cache.exists()


async def test_an_agent_that_cannot_start_fails_the_attempt(alone: Scene) -> None:
    await alone.prepare(alone.order(), crash_at_start={"status": 3})
    async with alone.open(alone.order()) as attempt:
        with pytest.raises(AttemptError, match="Eko: ") as raised:
            await attempt.start()
    assert raised.value.cause == "start"


async def test_expired_login_is_not_a_failure_of_the_attempt(alone: Scene) -> None:
    await alone.prepare(alone.order(), api_error=401)
    async with alone.open(alone.order()) as attempt:
        await attempt.start()
        await wait_until_async(lambda: any(isinstance(s, AgentFailed) for s in alone.signals))
    (failed,) = (signal for signal in alone.signals if isinstance(signal, AgentFailed))
    assert (failed.kind, failed.account) == ("auth", "claude ANTHROPIC_API_KEY")


async def test_check_without_a_key_is_a_login_failure(alone: Scene, tmp_path: Path) -> None:
    spec = AgentSpec("kimi", name="Eko", binary=install(tmp_path / "bin", "kimi"), model="k3")
    chain = alone.plan.but(agents=[spec]).chains()[0]
    with pytest.raises(ProviderError, match="KIMI_MODEL_API_KEY is not set") as raised:
        await alone.backend.check(chain)
    assert raised.value.failure.kind == "auth"


@pytest.mark.thorough
@looks_inside
async def test_a_defect_in_the_bookkeeping_ends_the_attempt(
    alone: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AttemptAgent, "watch_end", fail)
    await alone.prepare(alone.order())
    with pytest.raises(AttemptError) as raised:  # noqa: PT012 - the block ends with it
        async with alone.open(alone.order()) as attempt:
            await attempt.start()
            await anyio.sleep_forever()
    assert raised.value.cause == "defect"


@pytest.mark.thorough
async def test_checkpoint_of_a_failed_attempt_is_used_from_its_new_place(alone: Scene) -> None:
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        await attempt.start()
        await wait_for_turns(attempt, 1)
        saved = await attempt.checkpoint("periodic", lambda: 1.0, idle_wait=10.0)
    origin = refer(FIRST, saved)
    for _ in range(2):
        await alone.backend.set_aside("r1", FIRST, f"{FIRST}.failed-20260101T000000Z")
    alone.run_dir(FIRST).mkdir()  # the public scripts use the name that is free now
    await alone.backend.set_aside("r1", FIRST, f"{FIRST}.failed-20260101T000000Z")
    alone.run_dir(FIRST).rmdir()
    again = alone.order(f"{FIRST}-r2", origin=origin)
    assert await alone.backend.prepare(again) == {"digests": {"checkpoint": saved.sha256}}
    assert await alone.backend.prepare(again) == {"digests": {"checkpoint": saved.sha256}}
    for wrong in ({"file": "gone.ckpt"}, {"sha256": "0" * 64}):
        lost = alone.order(f"{FIRST}-r3", origin=attrs.evolve(origin, **wrong))
        with pytest.raises(AttemptError, match="was removed or changed"):
            await alone.backend.prepare(lost)
        assert not alone.run_dir(lost.attempt_id).exists()
    validated = await alone.backend.validate(alone.plan.chains()[0], FIRST)
    (workspace,) = validated["workspaces"]
    assert workspace.startswith(f"runs/{FIRST}.failed-20260101T000000Z/agents/")


@pytest.mark.thorough
@looks_inside
async def test_files_with_unusual_names_are_restored_with_their_agent(alone: Scene) -> None:
    names = ("2026-06-22T18:59:24.log", "Foo::Bar.3pm", "dot.", "new\nline", "back\\slash")
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        await attempt.start()
        await wait_for_turns(attempt, 1)
        workspace = alone.agent_dirs()[0] / "workspace"
        for name in names:
            (workspace / name).write_text(name)
        saved = await attempt.checkpoint("periodic", lambda: 1.0, idle_wait=10.0)
    archive = alone.run_dir() / "checkpoints" / saved.file
    metadata = await run_blocking(read_metadata, archive)
    assert not [entry for entry in metadata["excluded"] if "/workspace/" in entry["path"]]
    again = alone.order(f"{FIRST}-r2", origin=refer(FIRST, saved))
    await alone.prepare(again)
    loaded = alone.agent_dirs(again.attempt_id)[0] / "workspace"
    assert [(loaded / name).read_text() for name in names] == list(names)


async def test_new_agents_inherit_workspaces_and_the_world_with_its_players(scene: Scene) -> None:
    await scene.prepare(scene.order())
    async with scene.open(scene.order()) as attempt:
        old = await attempt.start()
        await wait_for_turns(attempt, 1)
        await attempt.stop_agents()
        saved = await attempt.checkpoint("end", lambda: 1.0, idle_wait=0.0)
        time = await attempt.world_time()
    workspace = scene.agent_dirs()[1] / "workspace"
    (workspace / "notes.md").write_text("remember")
    (workspace / "big").touch()
    os.truncate(workspace / "big", 8 << 40)
    order = attrs.evolve(
        scene.order("exp-r1-g002"), generation=2, inherited=FIRST, world=refer(FIRST, saved)
    )
    facts = await scene.backend.prepare(order)
    assert await scene.backend.prepare(order) == facts
    digests = facts["digests"]
    assert digests["world"] == saved.sha256
    moa = scene.agent_dirs(order.attempt_id)[1]
    assert facts["left_out"] == {moa.name: ("big is too large",)}
    assert not (moa / "workspace" / "big").exists()
    assert (moa / "workspace" / "notes.md").read_text() == "remember"
    assert moa.name in digests
    async with scene.open(order) as attempt:
        new = await attempt.start()
        later = await attempt.world_time()
    assert time is not None
    assert later is not None
    assert later >= (saved.world_time or 0.0)
    for before, after in zip(old["agents"], new["agents"], strict=True):
        assert before["session"] == after["session"]
        assert before["conversation"] != after["conversation"]


@pytest.mark.thorough
async def test_program_whose_version_differs_from_the_plan_is_refused(alone: Scene) -> None:
    alone.plan = alone.plan.but(agents=[alone.plan.agents[0].but(version="0.0.1")])
    await alone.backend.check(alone.plan.chains()[0])
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        with pytest.raises(AttemptError, match=r"must be 0\.0\.1") as raised:
            await attempt.start()
    assert raised.value.cause == "setup"


async def test_missing_requirements_are_reported_before_the_start(alone: Scene) -> None:
    alone.plan = alone.plan.but(agents=[alone.plan.agents[0].but(binary="/nowhere/claude")])
    with pytest.raises(AttemptError, match="nowhere") as raised:
        await alone.backend.check(alone.plan.chains()[0])
    assert raised.value.cause == "setup"
    assert not alone.run_dir().parent.exists()


@pytest.mark.thorough
@looks_inside
async def test_a_hook_observes_agents_by_name(scene: Scene) -> None:
    await scene.prepare(scene.order())
    async with scene.open(scene.order()) as attempt:
        await attempt.start()
        await wait_for_turns(attempt, 1)
        view = attempt.view()
        assert (view.chain, view.generation, view.labels) == ("r1", 1, {})
        assert view.elapsed_s > 0
        assert await view.world_time() is not None
        seen = [(await view.observe(agent.name))["agent_id"] for agent in view.agents]
        assert len(set(seen)) == 2
        assert view.agents[0].events[-1].subject == view.agents[0].full_name
        assert view.agents[1].usage.turns >= 1
        assert (await view.snapshot()).path.is_file()
        with pytest.raises(UsageError, match="no agent 'Nobody'"):
            await view.observe("Nobody")
        await attempt.stop_agents()
        (scene.agent_dirs()[0] / "world_session.txt").unlink()
        with pytest.raises(UsageError, match="has not joined"):
            await attempt.view().observe("Eko")


async def test_a_wait_for_the_provider_is_reported_and_counted(alone: Scene) -> None:
    await alone.prepare(alone.order(), api_retry=3)
    async with alone.open(alone.order()) as attempt:
        with hold(alone.agent_dirs()[0] / "workspace"):
            await attempt.start()
            await wait_until_async(lambda: attempt.activity()[0].provider_wait_s > 0)
            await wait_until_async(lambda: len(alone.signals) == 2)  # a turn, and a wait
        await wait_until_async(lambda: attempt.activity()[0].provider_wait_s == 0)


@pytest.mark.thorough
async def test_a_missing_conversation_is_never_replaced_by_a_new_conversation(alone: Scene) -> None:
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        await attempt.start()
        await wait_for_turns(attempt, 1)
        saved = await attempt.checkpoint("periodic", lambda: 1.0, idle_wait=10.0)
    again = alone.order(f"{FIRST}-r2", origin=refer(FIRST, saved))
    await alone.prepare(again)
    (alone.agent_dirs(again.attempt_id)[0] / "claude_session_id.txt").unlink()
    async with alone.open(again) as attempt:
        with pytest.raises(AttemptError, match="not its conversation") as raised:
            await attempt.start()
    assert raised.value.cause == "start"


async def test_a_checkpoint_never_contains_a_secret_of_the_plan(alone: Scene) -> None:
    name, value = "GAME_TOKEN", "a value that looks harmless"
    show = f"RUN printenv {name} > {{}}"
    spec = alone.plan.agents[0].but(env=[name], prompt=show.format("first.txt"))
    alone.plan = alone.plan.but(agents=[spec])
    own = LiveBackend(alone.backend.directory, "chains", {name: value})
    await alone.prepare(alone.order())
    workspace = alone.agent_dirs()[0] / "workspace"
    async with (
        serving(own) as backend,
        backend.open(alone.order(), alone.signals.append) as attempt,
    ):
        await attempt.start()
        await wait_for_turns(attempt, 1)
        assert (workspace / "first.txt").read_text() == f"{value}\n"
        with pytest.raises(CheckpointSecretError):
            await attempt.checkpoint("periodic", lambda: 1.0, idle_wait=10.0)
        await attempt.stop_agents()
        await attempt.send(show.format("again.txt"))
        await wait_until_async((workspace / "again.txt").exists)
        await wait_until_done(attempt)
        assert (workspace / "again.txt").read_text() == f"{value}\n"


@looks_inside
async def test_a_cancelled_start_leaves_no_process_running(alone: Scene) -> None:
    await alone.prepare(alone.order(), slow_start=HANG_S)
    session = alone.agent_dirs()[0] / "world_session.txt"
    async with anyio.create_task_group() as tasks:

        async def cancel() -> None:
            await wait_until_async(session.exists)
            tasks.cancel_scope.cancel()

        tasks.start_soon(cancel)
        async with alone.open(alone.order()) as attempt:
            await attempt.start()
    manifest = await run_blocking(read_manifest, alone.run_dir())
    assert manifest.run["status"] == "interrupted"
