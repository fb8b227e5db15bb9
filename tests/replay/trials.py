"""Experiments of stand-ins on a world of the kit, with a retried attempt and its branches."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from clawblox.experiment import AgentSpec, AsyncExperiment, LiveGeneration, Plan, WorldSpec
from clawblox.recording.blocks import Track
from tests.agents.standins import install, misbehave
from tests.recording.files import reading
from tests.replay.lives import dice_world
from tests.support.waiting import HANG_S, wait_until_async

KEYS = {"ANTHROPIC_API_KEY": "sk-not-a-key-0001"}
TICKS_S = 0.101
"""More than the simulation time of an input."""
CHAIN = "s7"


def bet(number: int) -> str:
    """Return a message that has an agent bet in its world."""
    data = json.dumps({"type": "Bet", "data": number})
    address = "$(grep -o 'http[^\"]*' ../world_access.json)"
    call = f"curl -s -H 'Content-Type: application/json' -d '{data}' {address}/input"
    return f"RUN for i in 1 2 3 4 5 6; do {call}; done"


async def bets(end: LiveGeneration) -> dict[str, float]:
    """Score a generation by the bets of its agent."""
    return {"bets": float(sum((await end.observe())["bets"]))}


def make_plan(
    root: Path,
    *,
    world: Path | None = None,
    world_env: Mapping[str, str] | None = None,
    **changes: Any,
) -> Plan:
    """Return a plan of one chain with one agent, which bets in each turn in a world with dice."""
    template = root / "template"
    template.mkdir()
    misbehave(template, turn_s=0.05)
    agent = AgentSpec(
        "claude",
        name="Eko",
        binary=install(root / "bin", "claude"),
        template=template,
        prompt=f"Begin\n{bet(3)}",
        env=list(KEYS),
    )
    settings: dict[str, Any] = {
        "name": "exp",
        "seeds": [7],
        "duration": 600.0,
        "save": None,
        "checkpoint": {"every": 0.3, "keep": None, "idle_quiet": 0.0, "idle_wait": 10.0},
        "limits": {"min_free": None},
        "retry": {"delay": 0.0},
    }
    spec = WorldSpec(world or dice_world(root), env=world_env or {})
    return Plan(spec, [agent], **{**settings, **changes})


async def run_trial(
    root: Path, *, chain: str = CHAIN, prompts: Sequence[str | None] = (), **changes: Any
) -> Path:
    """Run an experiment whose first attempt loses its world, and branches of its checkpoint.

    Args:
        root: Where everything is made.
        chain: Name of its chain.
        prompts: First messages to the branches.
        **changes: Further fields of the plan.
    """
    directory = root / "exp"

    async def stop(live: LiveGeneration) -> str | None:
        has_failed = live.chain != chain or "failed" in types(experiment)
        return "enough" if has_failed and live.agents[0].usage.turns else None

    async def kill() -> None:
        recording = f"chains/{chain}/runs/exp-{chain}-g001/recordings/recording-0001.jsonl.zst"
        await wait_until_async(lambda: is_saved(experiment, directory / recording))
        working = next(line for line in experiment.record.lines if line.type == "working")
        os.kill(working.data["world"]["pid"], signal.SIGKILL)

    plan = make_plan(root, **changes)
    options: dict[str, Any] = {"dir": directory, "stop": stop, "env": KEYS}
    options["score"] = bets
    with anyio.fail_after(HANG_S):
        async with (
            AsyncExperiment(plan, **options) as experiment,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(kill)
            assert (await experiment.run()).status == "done"
        if prompts:
            async with AsyncExperiment(plan, **options) as experiment:
                source = experiment.find_checkpoint(f"{chain}/g001", at="last")
                await experiment.fork(source, prompts=prompts, parallel=1)
                assert (await experiment.run()).status == "done"
    return directory


def types(experiment: AsyncExperiment) -> list[str]:
    """Return the types of the lines of an experiment."""
    return [line.type for line in experiment.record.lines]


def is_saved(experiment: AsyncExperiment, recording: Path) -> bool:
    """Return whether a checkpoint was made after a turn, up to which the recording is on disk."""
    times = [
        line.data["world_time"]
        for line in experiment.record.lines
        if line.type == "checkpoint" and line.data["world_time"] > 0
    ]
    # An input is recorded before its ticks.
    return bool(times) and written_until(recording) + TICKS_S > times[0]


def written_until(recording: Path) -> float:
    """Return the simulation time up to which the inputs of a recording are on disk."""
    with reading(recording) as recorded:
        inputs = (e.header for e in recorded.index if e.header.track is Track.INPUTS)
        return max(header.last.time for header in inputs)


def ran_trial(root: Path, **options: Any) -> Path:
    """Run an experiment; see :func:`run_trial`."""
    return anyio.run(partial(run_trial, root, **options))
