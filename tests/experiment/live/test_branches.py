"""Branches of a checkpoint: other agents with the same memory, in their own world."""

from __future__ import annotations

import anyio
import attrs
import pytest

from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.status import read_agents
from clawblox.agents.values import Usage
from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.history.checkpoints import Branch
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.branches import source_dir
from clawblox.experiment.schedule.ports import AttemptError
from clawblox.rundir.manifest import read_manifest
from tests.experiment.attempts import FIRST, Scene, alone, refer, scene, wait_for_turns
from tests.support.files import look_at

__all__ = ["alone", "scene"]

pytestmark = pytest.mark.anyio

STORM = "A storm is coming."


def branch_order(
    scene: Scene, order: AttemptOrder, number: int, prompt: str | None
) -> AttemptOrder:
    assert order.origin is not None
    branch = Branch(source=order.origin, group=1, number=number, prompt=prompt, label="storm")
    name = f"r1-f1-b{number}"
    chain = attrs.evolve(scene.plan.chains()[0], name=name)
    return attrs.evolve(order, chain=chain, attempt_id=f"exp-{name}-g001", branch=branch)


@pytest.mark.thorough
async def test_branches_share_only_the_past_of_the_original(scene: Scene) -> None:
    await scene.prepare(scene.order())
    async with scene.open(scene.order()) as attempt:
        original = await attempt.start()
        await wait_for_turns(attempt, 1)
        saved = await attempt.checkpoint("periodic", lambda: 5.0, idle_wait=10.0)
    before = await run_blocking(look_at, scene.run_dir())
    past = await scene.told(original)

    source = scene.order(origin=refer(FIRST, saved), active_s=5.0)
    for number, prompt in ((1, STORM), (2, None)):
        order = branch_order(scene, source, number, prompt)
        await scene.backend.prepare(order)
        async with scene.open(order) as attempt:
            assert [usage.turns for usage in attempt.usage()] == [0, 0]
            working = await attempt.start()
            await wait_for_turns(attempt, 1)
            later = await attempt.checkpoint("periodic", lambda: 9.0, idle_wait=10.0)
        for old, new in zip(original["agents"], working["agents"], strict=True):
            assert (old["session"], old["base_url"]) == (new["session"], new["base_url"])
            assert old["conversation"] != new["conversation"]
            assert new["name"].endswith(old["name"][-6:])
        messages = await scene.told(working, order.attempt_id, order.chain.name)
        for earlier, own in zip(past, messages, strict=True):
            first = own.index(prompt or AUTO_CONTINUE, 1)
            assert own[:first] == earlier[:first]
        run_dir = scene.run_dir(order.attempt_id, order.chain.name)
        eko = scene.agent_dirs(order.attempt_id, order.chain.name)[0]
        transcripts = await run_blocking(find_driver("claude").transcripts, AgentDir(eko))
        assert transcripts is not None
        for path in transcripts.values():
            assert str(scene.run_dir()) not in await anyio.Path(path).read_text()
        manifest = await run_blocking(read_manifest, run_dir)
        save = manifest.resolve(manifest.run["resume_from"])
        assert (save.parent.parent, save.suffix) == (scene.run_dir(), ".json")  # not the archive
        archive = manifest.resolve(manifest.run["resume_archive"])
        assert archive == scene.run_dir() / "checkpoints" / saved.file
        assert not source_dir(run_dir).exists()
        assert manifest.run["branch"]["label"] == "storm"
        forked = [agent["forked_from"] for agent in manifest.agents]
        assert [agent["session"] for agent in forked] == [
            agent["conversation"] for agent in original["agents"]
        ]
        again = attrs.evolve(
            order,
            attempt_id=f"{order.attempt_id}-r2",
            branch=None,
            origin=attrs.evolve(refer(order.attempt_id, later), chain=order.chain.name),
        )
        await scene.backend.prepare(again)
        async with scene.open(again) as attempt:
            continued = await attempt.start()
            await wait_for_turns(attempt, 1)
            await attempt.stop_agents()
            used = attempt.usage()
        branched = await run_blocking(read_agents, run_dir)
        resumed = await run_blocking(read_agents, scene.run_dir(again.attempt_id, order.chain.name))
        assert [agent.inherited for agent in branched] == [Usage(), Usage()]
        assert [agent.own_usage for agent in resumed] == used
        assert all(agent.inherited.turns >= 1 for agent in resumed)
        assert [agent["conversation"] for agent in continued["agents"]] == [
            agent["conversation"] for agent in working["agents"]
        ]
    assert await run_blocking(look_at, scene.run_dir()) == before


@pytest.mark.needs("bwrap")
@pytest.mark.thorough
async def test_branches_in_sandboxes_run_at_the_same_time_as_their_original(scene: Scene) -> None:
    agents = [agent.but(sandbox=True) for agent in scene.plan.agents]
    scene.plan = scene.plan.but(agents=agents)
    await scene.prepare(scene.order())
    addresses = []

    async def run(order: AttemptOrder) -> None:
        await scene.backend.prepare(order)
        async with scene.open(order) as branch:
            addresses.append([agent["base_url"] for agent in (await branch.start())["agents"]])
            await wait_for_turns(branch, 1)

    async with scene.open(scene.order()) as attempt:
        working = await attempt.start()
        await wait_for_turns(attempt, 1)
        saved = await attempt.checkpoint("periodic", lambda: 5.0, idle_wait=10.0)
        source = scene.order(origin=refer(FIRST, saved))
        async with anyio.create_task_group() as tasks:
            for number in (1, 2):
                tasks.start_soon(run, branch_order(scene, source, number, STORM))
        assert not any(agent.is_over for agent in attempt.activity())
    assert addresses == [[agent["base_url"] for agent in working["agents"]]] * 2


@pytest.mark.thorough
async def test_a_branch_without_a_sandbox_waits_for_the_address_of_its_original(
    alone: Scene,
) -> None:
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        await attempt.start()
        await wait_for_turns(attempt, 1)
        saved = await attempt.checkpoint("periodic", lambda: 5.0, idle_wait=10.0)
        order = branch_order(alone, alone.order(origin=refer(FIRST, saved)), 1, STORM)
        await alone.backend.prepare(order)
        async with alone.open(order) as branch:
            with pytest.raises(AttemptError, match="that address is taken") as raised:
                await branch.start()
    assert raised.value.cause == "address"
