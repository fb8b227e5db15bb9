"""Experiments in directories, over fakes of worlds and agents: started, resumed, paused, forked."""

from __future__ import annotations

import csv
import errno
import hashlib
import inspect
import io
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import (
    ConfigError,
    ControlError,
    JournalLostError,
    PlanChangedError,
    RunLockedError,
    UsageError,
)
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.history.journal import read_lines
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan import AgentSpec, Condition, Plan
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.running.open_experiment import ask_experiment
from clawblox.experiment.schedule.ports import Room
from clawblox.system.append_log import OwnedLog
from tests.experiment.fakes import FakeBackend, FakedExperiment, Fault
from tests.support.simulated_clock import SimulatedClock
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


class Scene:
    """A world directory, an experiment's directory, and fakes that outlive an orchestrator."""

    def __init__(self, root: Path) -> None:
        self.world = make_world(root)
        self.directory = root / "exp"
        self.clock = SimulatedClock()
        self.backend = FakeBackend(self.clock)

    def plan(self, **changes: Any) -> Plan:
        settings: dict[str, Any] = {
            "name": "exp",
            "generations": 2,
            "duration": 3600.0,
            "limits": {"min_free": None},
            "checkpoint": {"every": 900.0, "idle_wait": 0.0},
        }
        agents = [AgentSpec("claude", name="Eko")]
        return Plan(self.world, **{"agents": agents, **settings, **changes})

    def experiment(self, plan: Plan | None, **options: Any) -> AsyncExperiment:
        return FakedExperiment(self.clock, self.backend, plan, dir=self.directory, **options)

    async def tick(self) -> None:
        while True:
            await anyio.sleep(0)
            await self.clock.jump()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def run(scene: Scene, plan: Plan | None, **options: Any) -> Any:
    async with scene.experiment(plan, **options) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        outcome = await exp.run()
        tasks.cancel_scope.cancel()
    return outcome


async def test_an_experiment_runs_and_leaves_readable_tables(scene: Scene) -> None:
    outcome = await run(scene, scene.plan(repeats=2))
    assert (outcome.status, outcome.exit_status) == ("done", 0)
    assert [(row.chain, row.generation) for row in outcome.rows] == [
        ("r1", 1),
        ("r2", 1),
        ("r1", 2),
        ("r2", 2),
    ]
    rows = list(csv.DictReader(io.StringIO((scene.directory / "results.csv").read_text())))
    assert [row["status"] for row in rows] == ["committed"] * 4
    table = (scene.directory / "chains" / "r1" / "generation_chain.csv").read_text()
    assert table.startswith("generation,agent_index,agent_name")
    record = read_experiment(scene.directory)
    assert record.plan == scene.plan(repeats=2)
    assert record.results().rows() == read_experiment(scene.directory).results().rows()


async def test_the_lines_of_a_record_never_differ_from_its_state(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, ahead = ExperimentState.apply, set()
    async with scene.experiment(scene.plan(generations=1)) as exp:

        def compare(state: ExperimentState, line: JournalLine) -> None:
            ahead.add(len(exp.record.lines) - exp.record.state.seq)
            apply(state, line)

        monkeypatch.setattr(ExperimentState, "apply", compare)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.tick)
            await exp.run()
            tasks.cancel_scope.cancel()
    assert ahead == {0}


async def test_leftover_processes_are_ended_when_an_experiment_is_opened(scene: Scene) -> None:
    await run(scene, scene.plan(generations=1))
    await run(scene, scene.plan(generations=2))
    assert scene.backend.ends == [0, 1]


async def test_rows_are_yielded_as_generations_are_committed(scene: Scene) -> None:
    async with scene.experiment(scene.plan()) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        seen = [(row.generation, row.status) async for row in exp.run()]
        tasks.cancel_scope.cancel()
    assert seen == [(1, "committed"), (2, "committed")]


async def test_leaving_the_block_makes_a_checkpoint_and_the_same_call_continues(
    scene: Scene,
) -> None:
    async with scene.experiment(scene.plan()) as exp, anyio.create_task_group() as tasks:
        rows = aiter(exp.run())
        tasks.start_soon(scene.tick)
        await anext(rows)
        tasks.cancel_scope.cancel()
    paused = [line for line in read_lines(scene.directory) if line.type == "paused"]
    assert [line.data["reason"] for line in paused] == ["request"]
    outcome = await run(scene, scene.plan())
    assert outcome.status == "done"
    assert [row.generation for row in outcome.rows] == [2]


async def test_only_the_chosen_chains_run(scene: Scene) -> None:
    async with scene.experiment(scene.plan(repeats=3)) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        await exp.run(["r2"])
        with pytest.raises(ConfigError, match="did you mean"):
            exp.run(["r22"])
        tasks.cancel_scope.cancel()
    assert {row.chain for row in read_experiment(scene.directory).results().rows()} == {"r2"}


async def test_a_second_process_is_refused_while_status_and_results_can_be_read(
    scene: Scene,
) -> None:
    async with scene.experiment(scene.plan()):
        with pytest.raises(RunLockedError):
            async with scene.experiment(scene.plan()):
                pass
        assert read_experiment(scene.directory).results().rows() == []


async def test_a_changed_plan_is_refused_field_by_field_and_accepted_by_name(scene: Scene) -> None:
    await run(scene, scene.plan(generations=1))
    with pytest.raises(PlanChangedError) as caught:
        await run(scene, scene.plan(duration=1800.0))
    assert [change.field for change in caught.value.changes] == ["duration"]
    outcome = await run(scene, scene.plan(duration=1800.0), accept=["duration"])
    assert outcome.status == "done"
    record = read_experiment(scene.directory)
    assert [plan.duration for plan in record.plans.revisions] == [3600.0, 1800.0]
    first, second = record.results().rows()
    assert (first.plan_revision, second.plan_revision) == (0, 1)
    assert (first.active_s, second.active_s) == (3300.0, 1500.0)


async def test_a_generation_keeps_the_plan_revision_under_which_it_started(
    scene: Scene,
) -> None:
    async with scene.experiment(scene.plan(generations=3)) as exp, anyio.create_task_group() as t:
        rows = aiter(exp.run())
        t.start_soon(scene.tick)
        await anext(rows)
        t.cancel_scope.cancel()
    changed = scene.plan(generations=3, duration=1800.0)
    assert (await run(scene, changed, accept=["duration"])).status == "done"
    rows = read_experiment(scene.directory).results().rows()
    assert [(row.plan_revision, row.active_s) for row in rows] == [
        (0, 3300.0),
        (0, 3300.0),
        (1, 1500.0),
    ]


async def test_accepted_change_stays_accepted(scene: Scene) -> None:
    await run(scene, scene.plan(generations=1))
    (scene.world / "cubes.xml").write_text("<cubes/>")
    changed = scene.plan(duration=1800.0)
    assert (await run(scene, changed, accept=["duration", "world"])).status == "done"
    assert (await run(scene, changed)).status == "done"
    assert (await run(scene, None)).status == "done"
    assert len(read_experiment(scene.directory).plans.revisions) == 2


async def test_a_world_whose_files_changed_is_refused_with_their_names(scene: Scene) -> None:
    await run(scene, scene.plan(generations=1))
    (scene.world / "cubes.xml").write_text("<cubes/>")
    with pytest.raises(PlanChangedError, match=r"cubes\.xml"):
        await run(scene, None)
    outcome = await run(scene, scene.plan(), accept=["world"])
    assert outcome.status == "done"


async def test_changed_prompts_and_templates_are_used_once_they_are_accepted(
    scene: Scene, tmp_path: Path
) -> None:
    prompt, template = tmp_path / "system.md", tmp_path / "template"
    template.mkdir()
    agent = AgentSpec("claude", name="Eko", system_prompt=prompt, template=template)
    for number, accept in ((1, []), (2, ["prompts", "templates"])):
        prompt.write_text(f"Build {number}.")
        (template / "notes.md").write_text(f"Notes {number}.")
        plan = scene.plan(generations=number, agents=[agent])
        if accept:
            with pytest.raises(PlanChangedError, match=r"(?s)prompts.*templates"):
                await run(scene, plan)
        assert (await run(scene, plan, accept=accept)).status == "done"
    (old,), (new,) = (plan.agents for plan in read_experiment(scene.directory).plans.revisions)
    for spec, number in ((old, 1), (new, 2)):
        assert spec.system_prompt.read_text() == f"Build {number}."  # type: ignore[union-attr]
        assert (spec.template / "notes.md").read_text() == f"Notes {number}."  # type: ignore[operator]
        assert spec.template.parent == scene.directory / "inputs"  # type: ignore[union-attr]


async def test_more_generations_and_repeats_need_no_acceptance(scene: Scene) -> None:
    await run(scene, scene.plan(generations=1))
    outcome = await run(scene, scene.plan(generations=2, repeats=3))
    assert outcome.status == "done"
    assert len(read_experiment(scene.directory).results().rows()) == 6


async def test_an_experiment_of_an_earlier_version_keeps_the_names_of_its_chains(
    scene: Scene,
) -> None:
    prompts = ["Get behind a marble, then push it.", "Push it."]
    sweep = {"agents.*.prompt": prompts}
    await run(scene, scene.plan(generations=1, sweep=sweep, naming=1))
    file = scene.directory / "plan.toml"
    text = file.read_text()
    file.write_text(text.replace("naming = 1\n", ""))
    assert file.read_text() != text
    sweep = {"agents.*.prompt": [*prompts, "Get behind a marble, and wait there."]}
    for plan in (scene.plan(generations=2, sweep=sweep), None):
        assert (await run(scene, plan)).status == "done"
        names = {row.chain for row in read_experiment(scene.directory).results().rows()}
        assert names == {"push-r1", "Push-r1", "there-r1"}
    assert "naming = 1\n" in (scene.directory / "plan-1.toml").read_text()


async def test_an_experiment_without_recorded_naming_rules_keeps_its_condition_labels(
    scene: Scene,
) -> None:
    push = Condition("push", {"agents.*.prompt": "Push it."})
    await run(scene, scene.plan(generations=1, conditions=[push]))
    file = scene.directory / "plan.toml"
    assert "naming = 2\n" in file.read_text()
    file.write_text(file.read_text().replace("naming = 2\n", ""))
    (row,) = read_experiment(scene.directory).results().rows()
    assert row.labels == {"prompt": "Push it."}


async def test_a_moved_directory_is_resumed_without_the_files_of_the_author(
    scene: Scene, tmp_path: Path
) -> None:
    prompt = tmp_path / "system.md"
    prompt.write_text("Build.")
    agent = AgentSpec("claude", name="Eko", system_prompt=prompt)
    await run(scene, scene.plan(generations=1, agents=[agent]))
    prompt.unlink()
    scene.directory = scene.directory.rename(tmp_path / "moved")
    assert (await run(scene, None)).status == "done"
    (copy,) = (scene.directory / "inputs").iterdir()
    assert read_experiment(scene.directory).plan.agents[0].system_prompt == copy


async def test_pause_that_needs_a_person_ends_the_run_with_75_and_a_reason(scene: Scene) -> None:
    scene.backend.faults["r1"] = [Fault(1e9, "secret")]
    outcome = await run(scene, scene.plan())
    assert outcome.exit_status == 75
    assert "r1: a secret" in outcome.text


@pytest.mark.parametrize("room", [1, 9])
async def test_a_run_whose_journal_cannot_be_written_ends_with_75_and_can_continue(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    is_full = True

    def append_until_full(log: OwnedLog, lines: bytes) -> None:
        if is_full and len(read_lines(scene.directory)) >= room:
            raise OSError(errno.ENOSPC, "no space")
        append(log, lines)

    append = OwnedLog.append
    monkeypatch.setattr(OwnedLog, "append", append_until_full)
    outcome = await run(scene, scene.plan())
    assert outcome.exit_status == 75
    assert "the journal cannot be written" in outcome.text
    is_full = False
    assert (await run(scene, None)).status == "done"


async def test_a_run_whose_journal_is_replaced_stops_everything_and_keeps_its_history(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scene.directory / "journal.jsonl"

    def replace() -> None:
        path.rename(scene.directory / "before.jsonl")
        path.touch()

    async def prepare(order: AttemptOrder) -> Mapping[str, Any]:
        if (order.chain.name, order.generation) == ("r1", 2):
            await run_blocking(replace)
        return await FakeBackend.prepare(scene.backend, order)

    with monkeypatch.context() as patch:
        patch.setattr(scene.backend, "prepare", prepare)
        async with (
            scene.experiment(scene.plan(repeats=2)) as exp,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(scene.tick)
            with pytest.raises(JournalLostError, match="changed by another program") as raised:
                await exp.run()
            tasks.cancel_scope.cancel()
    assert scene.backend.open_now == []
    assert path.read_text() == ""
    kept = raised.value.kept
    assert kept is not None
    with pytest.raises(UsageError, match="lost its journal"):
        await run(scene, None)
    with pytest.raises(UsageError, match="lost its journal"):
        await run_blocking(read_experiment, scene.directory)
    await run_blocking(partial(kept.rename, path))  # as the hint says
    assert (await run(scene, None)).status == "done"


async def test_a_chain_that_failed_is_tried_again_only_on_request(scene: Scene) -> None:
    scene.backend.faults["r1"] = [Fault(10.0, "world")] * 4
    assert (await run(scene, scene.plan())).exit_status == 1
    assert (await run(scene, scene.plan())).exit_status == 1
    assert (await run(scene, scene.plan(), retry_failed=True)).exit_status == 0


async def test_hooks_get_events_and_rows_and_their_errors_do_not_end_the_run(scene: Scene) -> None:
    kinds: list[str] = []
    errors: list[str] = []
    rows: list[int] = []

    async def on_event(event: Any) -> None:
        kinds.append(event.kind)
        if event.kind == "hook.failed":
            errors.append(f"{event.data['hook']}: {event.data['error']}")
        raise ValueError("a broken hook")

    async def on_generation_end(row: Any) -> None:
        rows.append(row.generation)
        raise ValueError("another broken hook")

    outcome = await run(scene, scene.plan(), on_event=on_event, on_generation_end=on_generation_end)
    assert outcome.status == "done"
    assert rows == [1, 2]
    assert {"experiment.started", "generation.working", "generation.committed"} <= set(kinds)
    assert len(errors) < len(kinds)  # an error in a report of an error is not another event
    assert set(errors) == {
        "on_event: ValueError: a broken hook",
        "on_generation_end: ValueError: another broken hook",
    }


async def test_an_outcome_says_how_many_scores_failed(scene: Scene) -> None:
    async def bad(end: Any) -> float:
        raise KeyError("points")

    outcome = await run(scene, scene.plan(), score=bad)
    assert str(outcome) == "done: 2 generations committed, 2 scores failed"


async def test_a_run_with_changed_hooks_is_reported(scene: Scene) -> None:
    async def points(_end: Any) -> dict[str, float]:
        return {"points": 1.0}

    async def more_points(_end: Any) -> dict[str, float]:
        return {"points": 2.0}

    async def runs(*scores: Any) -> list[str]:
        texts: list[str] = []

        async def on_event(event: Any) -> None:
            if event.kind == "hook.changed":
                texts.append(event.data["text"])

        for score in scores:
            await run(scene, scene.plan(), score=score, on_event=on_event)
        return texts

    own = f"{__name__}:{runs.__qualname__.rpartition('.')[0]}"
    assert await runs(None, points, points, partial(points)) == []
    assert await runs(more_points) == [f"score: {own}.more_points differs from the previous run"]
    assert await runs(None) == [f"score: {own}.more_points of the previous run was not given again"]
    (hooks, *_others) = [
        line.data["hooks"] for line in read_lines(scene.directory) if line.data.get("hooks")
    ]
    digest = hashlib.sha256(inspect.getsource(points).encode()).hexdigest()
    assert hooks == {"score": {"name": f"{own}.points", "digest": digest}}


async def test_a_fork_is_one_call_and_runs_in_the_same_run(scene: Scene) -> None:
    plan = scene.plan(generations=1, save=None)
    sandboxed = plan.but(agents=[agent.but(sandbox=True) for agent in plan.agents])
    async with scene.experiment(sandboxed) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        await exp.run()
        source = exp.find_checkpoint("r1/g001", at="20m")
        assert source.active_s == 900.0
        names = await exp.fork(source, 2, prompts=[None, "A storm is coming."], duration="15m")
        assert names == [f"r1-f1-{number}" for number in range(1, 5)]
        await exp.run()
        tasks.cancel_scope.cancel()
        rows = exp.results(forked_from=source).rows()
    assert [row.branch for row in rows] == ["control", "a-storm-is-coming"] * 2
    sent = [attempt.messages[:1] for attempt in scene.backend.attempts if attempt.order.branch]
    assert sent == [[], ["A storm is coming."]] * 2


async def test_branches_outside_a_sandbox_run_one_by_one_or_not_at_all(scene: Scene) -> None:
    await run(scene, scene.plan(generations=1))
    async with scene.experiment(None) as exp:
        source = exp.find_checkpoint("r1")
        with pytest.raises(UsageError, match="parallel=1"):
            await exp.fork(source, 2)
        assert len(await exp.fork(source, 2, parallel=1)) == 2


async def test_removed_checkpoint_cannot_be_forked(scene: Scene) -> None:
    checkpoint = {"every": 900.0, "keep": 1, "idle_wait": 0.0}
    await run(scene, scene.plan(generations=1, checkpoint=checkpoint))
    async with scene.experiment(None) as exp:
        source = exp.find_checkpoint("r1")
        gone = attrs.evolve(source, ref=attrs.evolve(source.ref, file="gen001-t000900.ckpt"))
        with pytest.raises(ConfigError, match=r"still exists(?s:.*)those of r1/g001: \d+s"):
            await exp.fork(gone, parallel=1)


async def test_a_missing_checkpoint_is_refused_with_the_existing_checkpoints(
    scene: Scene,
) -> None:
    await run(scene, scene.plan(generations=1))
    record = read_experiment(scene.directory)
    with pytest.raises(ConfigError, match="did you mean"):
        record.find_checkpoint("r11/g001")
    with pytest.raises(ConfigError, match=r"900s \(periodic\)"):
        record.find_checkpoint("r1/g001", at="5m")
    assert record.find_checkpoint("r1/g001@end").kind == "end"


async def test_scores_can_be_computed_again(scene: Scene) -> None:
    async def score(_end: Any) -> dict[str, float]:
        return {"cubes": 7.0}

    await run(scene, scene.plan(repeats=3, limits={"worlds": 2, "min_free": None}))
    scene.backend.faults = {"r2": [Fault(0, "world")]}
    scene.backend.most_open = 0
    before = set(scene.backend.directories)
    async with scene.experiment(None) as exp:
        told: list[tuple[int, int]] = []
        rows = await exp.rescore(score, on_scored=lambda *how: told.append(how))
        assert (told[0][0], told[-1][0]) == (0, told[-1][1])
        assert len(told) == told[-1][1] + 1
    texts = {(row.chain, row.generation): row.error or row.scores["cubes"] for row in rows}
    assert [*texts.values()].count(7.0) == 5
    assert "the world did not start" in {texts["r2", 1], texts["r2", 2]}
    assert scene.backend.most_open == 2
    assert scene.backend.directories == before


async def test_another_process_sees_live_facts_and_pauses_chains(scene: Scene) -> None:
    async with scene.experiment(scene.plan(repeats=2)) as exp, anyio.create_task_group() as tasks:
        rows = aiter(exp.run())
        tasks.start_soon(scene.tick)
        await anext(rows)
        answer = await ask_experiment(scene.directory, "status")
        assert answer is not None
        assert set(answer["live"]) <= {"r1", "r2"}
        json.dumps(answer)
        assert await ask_experiment(scene.directory, "pause", {"chains": ["r2"]}) == {}
        with pytest.raises(ControlError, match="pause takes no 'now'; it takes: chains"):
            await ask_experiment(scene.directory, "pause", {"now": True})
        tasks.cancel_scope.cancel()
    assert await ask_experiment(scene.directory, "status") is None


async def test_the_status_shows_why_chains_wait_and_on_which_nodes_others_run(
    scene: Scene,
) -> None:
    scene.backend.rooms = {name: Room(node="n1", lease_s=30.0) for name in ("r1", "r2")}
    scene.backend.has_room = False
    async with scene.experiment(scene.plan(repeats=2)) as exp, anyio.create_task_group() as tasks:
        aiter(exp.run())
        tasks.start_soon(scene.tick)

        async def look_when(state: str, waiting: int) -> list[tuple[Any, ...]]:
            chains = exp.status().chains
            while len(scene.backend.waiting) != waiting or {chain.state for chain in chains} != {
                state
            }:
                await scene.clock.sleep_until(scene.clock.monotonic() + 1.0)
                chains = exp.status().chains
            return [(chain.cause, chain.reason, chain.node, chain.mirror_age_s) for chain in chains]

        assert await look_when("waiting", 2) == [("node", "for a node", "", None)] * 2
        scene.backend.has_room = True
        await look_when("working", 0)
        scene.backend.attempts[0].mirror_age_s = 7.0
        facts = await look_when("working", 0)
        assert sorted(facts, key=str) == [("", "", "n1", 7.0), ("", "", "n1", None)]
        tasks.cancel_scope.cancel()


async def test_a_generation_is_scored_again_where_there_is_room(scene: Scene) -> None:
    async def score(_end: Any) -> float:
        return 7.0

    await run(scene, scene.plan(repeats=2, generations=1))
    scene.backend.rooms = {"r2": Room(node="n1", lease_s=30.0)}
    scene.backend.attempts.clear()
    async with scene.experiment(None) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        await exp.rescore(score)
        tasks.cancel_scope.cancel()
    rooms = {attempt.order.chain.name: attempt.room.node for attempt in scene.backend.attempts}
    assert rooms == {"r1": "", "r2": "n1"}


async def test_experiment_needs_a_plan_or_a_recorded_one(scene: Scene) -> None:
    with pytest.raises(UsageError, match="no experiment"):
        async with scene.experiment(None):
            pass


def test_environment_values_are_checked() -> None:
    values: Mapping[str, Any] = {"A": 1}
    with pytest.raises(ConfigError):
        AsyncExperiment(None, dir="x", env=values)


def test_results_outside_the_block_are_refused_with_a_hint(
    tmp_path: Path,
) -> None:
    closed = AsyncExperiment.open(tmp_path / "exp")
    with pytest.raises(UsageError) as caught:
        closed.results()
    assert f"read_experiment('{tmp_path / 'exp'}')" in (caught.value.hint or "")
