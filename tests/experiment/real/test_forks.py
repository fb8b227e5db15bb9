"""Forks of a checkpoint in the middle of a generation with two agents."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import load_checkpoint
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.checkpoint import read_metadata
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import UsageError
from clawblox.experiment import AsyncExperiment, LiveGeneration
from clawblox.experiment.history.checkpoints import Checkpoint
from clawblox.experiment.history.state import AttemptState
from clawblox.rundir.manifest import read_manifest
from tests.agents.standins import told
from tests.experiment.real.trials import AGENTS, CUT_OFF, KEYS, SAVE, Trial, act, count_answers
from tests.support.files import look_at
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask

pytestmark = [pytest.mark.anyio, pytest.mark.needs("curl")]

ORIGINAL = "r1"


class Fork:
    """An experiment whose chain closes on request, and whose branches close after one turn."""

    def __init__(self, root: Path, *, sandbox: bool) -> None:
        checkpoint = {"every": 0.5, "keep": None, "idle_quiet": 0.0, "idle_wait": 10.0}
        faults = {"turn_s": 0.2}
        self.trial = Trial.make(
            root, generations=1, sandbox=sandbox, faults=faults, checkpoint=checkpoint
        )
        self.is_closing = anyio.Event()

    async def stop(self, live: LiveGeneration) -> str | None:
        if live.chain == ORIGINAL:
            return "enough" if self.is_closing.is_set() else None
        return "enough" if min(agent.usage.turns for agent in live.agents) else None

    async def score(self, end: LiveGeneration) -> dict[str, float]:
        return {"counter": (await end.observe("Moa"))["counter"]}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncExperiment]:
        experiment = AsyncExperiment(
            self.trial.plan,
            dir=self.trial.directory,
            stop=self.stop,
            score=self.score,
            env=KEYS,
        )
        with anyio.fail_after(HANG_S):
            async with experiment:
                yield experiment

    def chain(self, name: str) -> AttemptState:
        """Return the latest attempt of a chain."""
        return self.trial.attempts(name, 1)[-1]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def check_branch(fork: Fork, name: str, source: Checkpoint, past: Path, prompt: str | None) -> None:
    """Check that a branch continues exactly the state saved at a checkpoint.

    Args:
        fork: The fork.
        name: The branch.
        source: Checkpoint of the fork.
        past: Directory into which the checkpoint was loaded.
        prompt: First message of the branch; None for the control.
    """
    trial, branch, original = fork.trial, fork.chain(name), fork.chain(ORIGINAL)
    agents = original.working["agents"]
    manifest = read_manifest(trial.run_dir(branch))
    assert Path(manifest.run["resume_from"]).is_relative_to(trial.run_dir(original))
    metadata = read_metadata(trial.archive(source))
    assert manifest.run["parent_sha256"] == metadata["files"]["world.snapshot"]["sha256"]
    digest = None if prompt is None else hashlib.sha256(prompt.encode()).hexdigest()
    assert manifest.run["branch"]["prompt_sha256"] == digest
    transcripts = trial.transcripts(branch)
    for old, new, entry, early, late in zip(
        agents,
        branch.working["agents"],
        manifest.agents,
        trial.transcripts_in(past, agents),
        transcripts,
        strict=True,
    ):
        assert (old["session"], old["base_url"]) == (new["session"], new["base_url"])
        assert old["conversation"] != new["conversation"]
        assert entry["forked_from"]["session"] == old["conversation"]
        beginning, messages = told(early), told(late)
        assert messages[: len(beginning)] == beginning
        first, *later, last = messages[len(beginning) :]
        assert first == (prompt or AUTO_CONTINUE)
        assert set(later) <= {AUTO_CONTINUE, CUT_OFF}
        assert last == SAVE
    row = next(row for row in trial.record.results().rows() if row.chain == name)
    before = sum(usage.turns for usage in source.usage)
    answers = sum(map(count_answers, transcripts)) - before
    assert answers - len(AGENTS) <= row.turns <= answers
    assert trial.directory / row.forked_from == trial.archive(source)
    assert (row.branch == "control") is (prompt is None)


def inputs(fork: Fork, chain: str) -> list[int]:
    """Return the numbers that the world of a chain was asked to add."""
    recording = fork.trial.run_dir(fork.chain(chain)) / "recordings" / "counter.jsonl"
    lines = recording.read_text().splitlines() if recording.exists() else []
    return [json.loads(line)["data"] for line in lines]


NUMBERS = [
    pytest.param((10,), id="two"),
    pytest.param((10, 20, 30), id="four"),
]
"""Numbers that each agent adds in each branch except for the control."""


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("numbers", NUMBERS)
async def test_branches_in_sandboxes_run_beside_the_original_and_do_not_touch_it(
    tmp_path: Path, numbers: Sequence[int]
) -> None:
    fork = Fork(tmp_path, sandbox=True)
    trial = fork.trial
    prompts = [None, *(act(number, sandbox=True) for number in numbers)]
    async with fork.open() as experiment, anyio.create_task_group() as tasks:
        tasks.start_soon(run, experiment)
        await wait_until_async(lambda: checkpoints(experiment))
        source = experiment.find_checkpoint("r1/g001")
        archive = trial.archive(source)
        before = await run_blocking(look_at, archive)
        names = await experiment.fork(source, prompts=prompts)
        await wait_until_async(lambda: committed(experiment) == set(names))
        world = fork.chain(ORIGINAL).working["world"]
        received = await run_blocking(ask, world["port"], "GET", "/__requests")
        fork.is_closing.set()
        await wait_until_async(lambda: ORIGINAL in committed(experiment))
    assert str(received.json()).count("/input") == len(AGENTS)
    assert inputs(fork, ORIGINAL) == [1, 1]
    assert await run_blocking(look_at, archive) == before
    await run_blocking(load_checkpoint, archive, tmp_path / "past")
    for name, prompt in zip(names, prompts, strict=True):
        await run_blocking(check_branch, fork, name, source, tmp_path / "past", prompt)
    check_worlds(fork, source, names, numbers)


def check_worlds(
    fork: Fork, source: Checkpoint, names: Sequence[str], numbers: Sequence[int]
) -> None:
    """Check that each world got the inputs of its own agents only."""
    record = fork.trial.record
    for name, number in zip(names, (None, *numbers), strict=True):
        assert inputs(fork, name) == ([] if number is None else [number] * 2)
    scores = [row.scores["counter"] for row in record.results(forked_from=source).rows()]
    assert scores == [2, *(2 + 2 * number for number in numbers)]
    (original,) = (row for row in record.results().rows() if row.chain == ORIGINAL)
    assert original.scores == {"counter": 2}


@pytest.mark.thorough
@pytest.mark.parametrize("numbers", NUMBERS)
async def test_branches_outside_sandboxes_run_one_by_one_after_the_original(
    tmp_path: Path, numbers: Sequence[int]
) -> None:
    fork = Fork(tmp_path, sandbox=False)
    trial = fork.trial
    prompts = [None, *map(act, numbers)]
    async with fork.open() as experiment, anyio.create_task_group() as tasks:
        tasks.start_soon(run, experiment)
        await wait_until_async(lambda: checkpoints(experiment))
        source = experiment.find_checkpoint("r1/g001")
        with pytest.raises(UsageError, match="outside a sandbox"):
            await experiment.fork(source, prompts=prompts)
        with pytest.raises(UsageError, match="outside a sandbox"):
            await experiment.fork(source, prompts=prompts, parallel=1)
        fork.is_closing.set()
    run_dir = trial.run_dir(fork.chain(ORIGINAL))
    before = await run_blocking(look_at, run_dir)
    async with fork.open() as experiment:
        names = await experiment.fork(source, prompts=prompts, parallel=1)
        assert (await experiment.run()).status == "done"
    assert await run_blocking(look_at, run_dir) == before
    assert follow_each_other([fork.chain(name) for name in names])
    await run_blocking(load_checkpoint, trial.archive(source), tmp_path / "past")
    for name, prompt in zip(names, prompts, strict=True):
        await run_blocking(check_branch, fork, name, source, tmp_path / "past", prompt)
    check_worlds(fork, source, names, numbers)


def follow_each_other(attempts: Sequence[AttemptState]) -> bool:
    """Return whether no attempt was opened while another was running."""
    spans = sorted((a.opened.seq, a.ending.seq if a.ending else math.inf) for a in attempts)
    return all(end < begin for (_, end), (begin, _) in itertools.pairwise(spans))


async def run(experiment: AsyncExperiment) -> None:
    await experiment.run()


def committed(experiment: AsyncExperiment) -> set[str | None]:
    """Return the chains with a committed generation."""
    return {line.chain for line in experiment.record.lines if line.type == "committed"}


def checkpoints(experiment: AsyncExperiment) -> list[Any]:
    """Return the checkpoints of the original made after each agent has acted."""
    return [
        line
        for line in experiment.record.lines
        if line.type == "checkpoint" and min(usage["turns"] for usage in line.data["usage"])
    ]
