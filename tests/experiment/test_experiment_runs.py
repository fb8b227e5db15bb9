"""Sessions of experiments, over fakes: one at a time, stopped, cancelled, or after a crash."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox.agents.values import Usage
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError, JournalLostError, UsageError
from clawblox.experiment.history.journal import Journal, read_lines
from clawblox.experiment.history.lines import encode
from clawblox.experiment.plan import AgentSpec
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.running.open_experiment import ask_experiment
from clawblox.experiment.schedule.ports import AttemptError, Room
from clawblox.rundir import driver_lease
from clawblox.rundir.driver_lease import DriverLease
from tests.experiment.fakes import Fault
from tests.experiment.test_async_experiment import Scene, run
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_cancelled_run_makes_checkpoints_first(scene: Scene) -> None:
    async with scene.experiment(scene.plan(generations=9)) as exp:
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:

                async def cancel() -> None:
                    await wait_until_async(lambda: scene.backend.open_now)
                    scope.cancel()
                    tasks.start_soon(scene.tick)  # time stands still until the cancellation

                tasks.start_soon(cancel)
                await exp.run()
            tasks.cancel_scope.cancel()
        assert exp.record.lines[-2].type == "paused"


async def test_one_run_runs_at_a_time_and_its_errors_end_the_iteration(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ConfigError("a program is missing", key="agents.Eko")

    async with scene.experiment(scene.plan()) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        with monkeypatch.context() as failing:
            failing.setattr(scene.backend, "survey", fail)
            with pytest.raises(ConfigError, match="a program is missing"):
                assert [row async for row in exp.run()] == []
        rows = aiter(exp.run())
        await anext(rows)
        with pytest.raises(UsageError, match="is running already"):
            exp.run()
        assert [row.generation async for row in rows] == [2]
        tasks.cancel_scope.cancel()


async def test_unawaited_run_does_not_block_the_end(scene: Scene) -> None:
    with anyio.fail_after(HANG_S):
        async with scene.experiment(scene.plan()) as exp:
            exp.run()
            await exp.stop()
            exp.run()
            assert exp.status().pid is None
    assert "session.begun" not in [line.type for line in read_experiment(scene.directory).lines]


async def test_a_run_without_its_lease_ends_its_attempts_even_if_it_writes_no_line(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_lease, "LEASE_S", 0.4)

    async def lose() -> None:
        await wait_until_async(lambda: scene.backend.open_now)
        await run_blocking((scene.directory / ".clawblox" / "driver.json").unlink)

    # Time stands still, so that nothing is written.
    async with scene.experiment(scene.plan()) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(lose)
        with pytest.raises(JournalLostError):
            await exp.run()
        assert not scene.backend.open_now


async def test_the_status_counts_an_attempt_left_on_a_node_by_a_killed_driver(
    scene: Scene,
) -> None:
    scene.backend.rooms["r1"] = Room(node="n1", lease_s=30.0)
    await run(scene, scene.plan())
    lines = await run_blocking(read_lines, scene.directory)
    count = [line.type for line in lines].index("working") + 1
    text = b"".join(map(encode, lines[:count]))
    await run_blocking((scene.directory / "journal.jsonl").write_bytes, text)
    scene.backend.ledgers["r1", lines[count - 1].attempt or ""] = [Usage(cost_usd=3.0)]
    scene.backend.left.clear()  # time stands still
    async with scene.experiment(scene.plan()) as exp, anyio.create_task_group() as tasks:

        async def drive() -> None:
            await exp.run()

        tasks.start_soon(drive)
        await wait_until_async(lambda: exp.status().chains[0].cause == "node")
        status = exp.status()
        await exp.stop(now=True)
    assert status.spent_usd == 3.0


async def test_the_wait_for_a_driver_on_another_machine_can_be_cancelled(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(scene, scene.plan(generations=1))
    lease = DriverLease(scene.directory)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(driver_lease, "LEASE_S", 9000.0)  # a renewal would end the wait
        elsewhere.setattr(driver_lease, "boot_id", lambda: "another boot")
        await run_blocking(lease.take)
    try:
        waits = threading.Event()
        monkeypatch.setattr(driver_lease._log, "warning", lambda *_, **__: waits.set())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, scene, scene.plan(generations=1))
            await wait_until_async(waits.is_set)
            tasks.cancel_scope.cancel()
    finally:
        await run_blocking(lease.release)
    assert not list((scene.directory / ".clawblox").glob("*driver*"))


async def test_logins_are_checked_until_agents_have_worked(scene: Scene) -> None:
    for generations in (1, 2):
        await run(scene, scene.plan(generations=generations))
    assert scene.backend.surveys == [True, False]


async def test_run_without_agent_starts_does_not_check_agents(scene: Scene) -> None:
    await run(scene, scene.plan())
    scene.backend.surveys.clear()
    outcome = await run(scene, scene.plan())
    assert (outcome.status, scene.backend.surveys) == ("done", [])


async def test_attempt_killed_while_scoring_resumes_without_checking_agents(
    scene: Scene,
) -> None:
    attempts = []

    async def score(end: Any) -> float:
        attempts.append(end)
        if len(attempts) == 1:
            await exp.stop(now=True)
        return 7.0

    plan = scene.plan(generations=1)
    async with scene.experiment(plan, score=score) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        assert (await exp.run()).status == "stopped"
        tasks.cancel_scope.cancel()
    last = [line.type for line in read_lines(scene.directory)][-2:]
    assert last == ["checkpoint", "session.ended"]
    scene.backend.surveys.clear()
    outcome = await run(scene, plan, score=score)
    assert (outcome.status, scene.backend.surveys) == ("done", [])
    assert [row.scores for row in outcome.rows] == [{"score": 7.0}]


async def test_an_open_experiment_has_its_tables_and_the_end_of_a_killed_run(
    scene: Scene,
) -> None:
    await run(scene, scene.plan())
    (scene.directory / "results.csv").unlink()
    await run_blocking(begin_run, scene.directory)
    async with scene.experiment(None) as exp:
        assert (scene.directory / "results.csv").exists()
        assert exp.record.lines[-1].data["reason"] == "killed"


def begin_run(directory: Path) -> None:
    """Leave the files of an orchestrator that was killed immediately after its start."""
    with Journal(directory) as killed:
        killed.append("session.begun")


async def test_the_rename_of_a_failed_attempt_is_repeated_after_a_crash(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None:
        pass

    scene.backend.faults["r1"] = [Fault(10.0, "world")]
    with monkeypatch.context() as crashing:
        crashing.setattr(scene.backend, "set_aside", crash)
        await run(scene, scene.plan(generations=1))
    (failed,) = (line for line in read_lines(scene.directory) if line.type == "failed")
    place = "r1", failed.data["moved_to"]
    assert place not in scene.backend.directories
    async with scene.experiment(None):
        assert place in scene.backend.directories


async def test_run_stopped_by_a_person_ends_with_130(scene: Scene) -> None:
    async with scene.experiment(scene.plan()) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        running = exp.run()
        async for _ in running:
            await exp.stop()
        outcome = await running
        tasks.cancel_scope.cancel()
    assert (outcome.status, outcome.exit_status) == ("stopped", 130)
    assert outcome.text == "r1: stopped on request"


async def test_stop_ends_a_check_waiting_for_a_node(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.experiment(scene.plan()) as exp:

        async def wait(*_: object, **__: object) -> None:
            await exp.pause()
            await anyio.sleep_forever()

        monkeypatch.setattr(scene.backend, "survey", wait)
        with anyio.fail_after(HANG_S):
            outcome = await exp.run()
        assert [line.type for line in exp.record.lines] == ["experiment.begun"]
    assert (outcome.status, outcome.exit_status) == ("stopped", 130)


@pytest.mark.parametrize(
    ("faults", "changes", "seen"),
    [
        (
            {"r1": [Fault(100.0, "limit", lasts=1e6)]},
            {"retry": {"longest_pause": 3600.0}, "limits": {"min_free": None, "worlds": 1}},
            [("paused", "limit"), ("waiting", "limit")],
        ),
        (
            {},
            {"limits": {"dollars": 0.3, "min_free": None, "worlds": 1}},
            [("waiting", "dollars"), ("waiting", "dollars")],
        ),
        ({}, {"limits": {"min_free": 10**13}}, [("waiting", "disk")] * 2),
        ({"r1": [Fault(100.0, "secret")]}, {}, [("paused", "secret"), ("done", "")]),
    ],
)
async def test_after_a_pause_every_process_sees_why_each_chain_waits(
    scene: Scene, faults: Any, changes: dict[str, Any], seen: list[tuple[str, str]]
) -> None:
    scene.backend.faults = faults
    async with scene.experiment(scene.plan(repeats=2, **changes)) as exp:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.tick)
            assert (await exp.run()).status == "paused"
            tasks.cancel_scope.cancel()
        here = exp.status()
        answer = await ask_experiment(scene.directory, "status")
    assert [(chain.state, chain.cause) for chain in here.chains] == seen
    assert all(chain.reason or chain.state == "done" for chain in here.chains)
    elsewhere = (await run_blocking(read_experiment, scene.directory)).status()
    for one, other in zip(here.chains, elsewhere.chains, strict=True):
        assert one == attrs.evolve(other, last_checkpoint_age_s=one.last_checkpoint_age_s)
    assert (here.pid, answer and answer["pid"]) == (None, None)


async def test_defect_ends_only_its_chain(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def name_accounts(chain: Any) -> list[str]:
        if chain.name == "r1":
            raise ZeroDivisionError("a defect")
        return ["claude"]

    monkeypatch.setattr(scene.backend, "accounts", name_accounts)
    outcome = await run(scene, scene.plan(generations=1, repeats=2))
    assert (outcome.exit_status, outcome.text) == (1, "r1: ZeroDivisionError: a defect")
    assert [row.chain for row in outcome.rows] == ["r2"]


async def test_branches_of_a_run_with_chosen_chains_count_in_its_outcome(scene: Scene) -> None:
    agents = [AgentSpec("claude", name="Eko", sandbox=True)]
    scene.backend.faults["r1-f1-1"] = [Fault(10.0, "world")] * 9
    plan = scene.plan(agents=agents, repeats=2)
    async with scene.experiment(plan) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        running = exp.run(["r1"])
        await anext(aiter(running))
        await exp.fork(exp.find_checkpoint("r1/g001"))
        outcome = await running
        tasks.cancel_scope.cancel()
    assert (outcome.status, outcome.text) == ("failed", "r1-f1-1: the world has ended")


async def test_rescore_scores_committed_generations_and_refuses_during_a_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def score(_end: Any) -> dict[str, float]:
        return {"cubes": 7.0}

    async def validate(*_: object) -> Any:
        raise AttemptError("plan", "a file is missing")

    async with scene.experiment(scene.plan()) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        rows = aiter(exp.run())
        await anext(rows)
        with pytest.raises(UsageError, match="is running already"):
            await exp.rescore(score)
        monkeypatch.setattr(scene.backend, "validate", validate)
        assert [row async for row in rows] == []
        await exp.rescore(score)
        tasks.cancel_scope.cancel()
    lines = [line for line in read_lines(scene.directory) if line.type == "rescored"]
    scores = [(line.generation, line.data["scores"]) for line in lines]
    assert scores == [(1, {"cubes": 7.0})]
    assert any(
        point.kind == "end"
        for point in read_experiment(scene.directory).state.chain("r1").generations[2].checkpoints()
    )
