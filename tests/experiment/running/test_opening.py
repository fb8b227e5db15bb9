"""Opening an experiment, and the effect of a changed plan on an existing experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.errors import ConfigError, PlanChangedError
from clawblox.experiment.history.journal import read_lines
from clawblox.experiment.plan import AgentSpec
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.running import opening
from tests.experiment.fakes import Fault
from tests.experiment.harness import scripts
from tests.experiment.test_async_experiment import Scene, run
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio

LONG_SAVE: dict[str, Any] = {"duration": 200.0, "save": {"before": 300.0}}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def begin_with_long_save(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create an experiment as earlier versions did, with more saving time than its duration."""
    with monkeypatch.context() as earlier:
        earlier.setattr(opening, "require_time_to_work", lambda *_: None)
        async with scene.experiment(scene.plan(**LONG_SAVE)):
            pass


# -- the time for saving ------------------------------------------------------------------------


async def test_a_plan_without_time_for_work_is_refused_before_anything_is_recorded(
    scene: Scene,
) -> None:
    with pytest.raises(ConfigError, match=r"save\.before: must be less than the duration, 200 s"):
        await run(scene, scene.plan(**LONG_SAVE))
    assert read_lines(scene.directory) == []
    assert (await run(scene, scene.plan(duration=200.0))).status == "done"
    (first, _) = read_experiment(scene.directory).results().rows()
    assert first.active_s == 150.0


async def test_a_recorded_plan_without_time_for_work_is_read_and_continued(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin_with_long_save(scene, monkeypatch)
    for changes in ({}, {"labels": {"a": 1}}, {"repeats": 2}):
        outcome = await run(scene, scene.plan(**LONG_SAVE, **changes))
        assert outcome.status == "done"
    assert (await run(scene, None)).status == "done"
    rows = read_experiment(scene.directory).results().rows()
    assert {row.active_s for row in rows} == {1.0}


@pytest.mark.parametrize(
    ("changes", "accept"),
    [
        ({"save": {"before": 3600.0}}, ["save"]),
        ({"save": {"before": 600.0}, "duration": 600.0}, ["save", "duration"]),
    ],
)
async def test_an_amendment_that_leaves_no_time_for_work_is_refused(
    scene: Scene, changes: dict[str, Any], accept: list[str]
) -> None:
    assert (await run(scene, scene.plan(generations=1))).status == "done"
    with pytest.raises(ConfigError, match=r"save\.before: must be less than"):
        await run(scene, scene.plan(**changes), accept=accept)
    assert len(read_experiment(scene.directory).plans.revisions) == 1


async def test_script_experiments_are_continued_with_any_saving_time(scene: Scene) -> None:
    scripts.begin(scene.directory)
    scripts.complete(scene.directory, 1, run_id="old-g001")
    plan = scene.plan(layout="flat", run_prefix="old", **LONG_SAVE)
    assert (await run(scene, plan)).status == "done"
    assert read_experiment(scene.directory).results().rows()[1].active_s == 1.0


async def test_a_branch_has_time_for_work(scene: Scene) -> None:
    assert (await run(scene, scene.plan(save={"before": 300.0}))).status == "done"
    async with scene.experiment(None) as exp:
        source = exp.find_checkpoint("r1/g002", at="boundary")
        with pytest.raises(ConfigError, match=r"duration: must be more than save\.before"):
            await exp.fork(source, duration="5m", parallel=1)
        assert await exp.fork(source, duration="6m", parallel=1)


async def test_concurrent_forks_have_different_names(scene: Scene) -> None:
    assert (await run(scene, scene.plan())).status == "done"
    names: list[str] = []

    async def fork() -> None:
        names.extend(await exp.fork(exp.find_checkpoint("r1/g001"), count=2, parallel=1))

    async with scene.experiment(None) as exp, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(fork)
    assert len(set(names)) == 6
    assert len(read_experiment(scene.directory).chains) == 7


# -- plans that never worked --------------------------------------------------------------------


async def fail(scene: Scene, **changes: Any) -> None:
    """Run an experiment whose worlds cannot start, until its chains have failed."""
    faults: list[Fault | None] = [Fault(0, "world")] * 2
    scene.backend.faults = {"r1": [*faults], "opus-r1": [*faults], "fable-r1": [*faults]}
    outcome = await run(scene, scene.plan(retry={"attempts": 1}, **changes))
    assert outcome.status == "failed"


@pytest.mark.parametrize(
    "changes",
    [
        {"agents": [AgentSpec("codex", name="Zev"), AgentSpec("claude", name="Oni")]},
        {"agents": [AgentSpec("claude", name="Eko", binary="/other/claude")]},
        {"inherit": {"workspace": False}},
        {"duration": 1800.0},
        {"sweep": {"agents.*.model": ["fable", "opus"]}, "repeats": 2},
    ],
)
async def test_resume_can_amend_a_plan_that_never_worked(
    scene: Scene, changes: dict[str, Any]
) -> None:
    await fail(scene)
    plan = scene.plan(**changes)
    assert (await run(scene, plan)).status == "done"
    record = read_experiment(scene.directory)
    assert record.plan == plan
    chains = [chain.name for chain in plan.chains()]
    assert {row.chain for row in record.results().rows()} == set(chains)
    assert all(row.plan_revision == 1 for row in record.results().rows())
    for attempt in scene.backend.attempts[-len(chains) :]:
        assert attempt.order.chain.plan.agents == plan.chains()[0].plan.agents or plan.sweep


async def test_a_moved_world_is_used_by_the_next_attempts(scene: Scene) -> None:
    async with scene.experiment(scene.plan()) as exp:
        running = exp.run()
        aiter(running)
        await wait_until_async(lambda: scene.backend.open_now)
    elsewhere = scene.world.parent / "elsewhere" / scene.world.name
    elsewhere.parent.mkdir()
    scene.world.rename(elsewhere)
    assert (await run(scene, scene.plan().but(world=elsewhere))).status == "done"
    worlds = [attempt.order.chain.plan.world.dir for attempt in scene.backend.attempts]
    assert worlds == [scene.world, elsewhere, elsewhere]


@pytest.mark.parametrize("changes", [{"name": "other"}, {"layout": "flat"}, {"run_prefix": "x"}])
async def test_files_of_a_plan_that_never_worked_cannot_be_renamed(
    scene: Scene, changes: dict[str, Any]
) -> None:
    await fail(scene)
    with pytest.raises(PlanChangedError):
        await run(scene, scene.plan(**changes))


async def test_resume_cannot_amend_a_plan_that_has_worked(scene: Scene) -> None:
    scene.backend.faults = {"r1": [Fault(1.0, "world"), Fault(0, "world")]}
    assert (await run(scene, scene.plan(retry={"attempts": 1}))).status == "failed"
    with pytest.raises(PlanChangedError):
        await run(scene, scene.plan(inherit={"workspace": False}))


async def test_directory_prepared_under_an_old_plan_is_not_reused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(_order: object) -> Any:
        await anyio.sleep_forever()

    with monkeypatch.context() as patched:
        patched.setattr(scene.backend, "prepare", wait)
        async with scene.experiment(scene.plan()) as exp, anyio.create_task_group() as tasks:
            tasks.start_soon(scene.tick)
            running = aiter(exp.run())
            while not any(line.type == "opened" for line in exp.record.lines):
                await anyio.sleep(0)
            await exp.stop(now=True)
            del running
            tasks.cancel_scope.cancel()
    (name,) = {str(line.attempt) for line in read_lines(scene.directory) if line.type == "opened"}
    assert (await run(scene, scene.plan(inherit={"workspace": False}))).status == "done"
    assert scene.backend.attempts[0].order.attempt_id != name
    assert not scene.backend.attempts[0].order.chain.plan.inherit.workspace
