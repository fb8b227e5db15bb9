"""Recorded runs for the tests of verified replays: two agents, and a kill between two lives."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
from anyio import to_thread

from clawblox import AsyncWorld
from clawblox.errors import WorldCallError, WorldError
from clawblox.recording.blocks import Track
from clawblox.replay import VerifiedRun, verify_run
from clawblox.rundir.records import InstanceRecord, read_records
from tests.recording.files import Records, reading, rewrite
from tests.support.waiting import HANG_S, POLL_INTERVAL_S

HOME = Path(__file__).parents[2]
DICE = HOME / "tests" / "server" / "dice.py"

Action = tuple[str, Any]
BETS: list[Action] = [("Bet", 3), ("Bet", 8), ("Bet", "all")]


def dice_world(parent: Path, *changes: tuple[str, str], name: str = "dice") -> Path:
    """Write a world on the kit, on a socket that is open before it starts.

    Args:
        parent: Where its directory is made.
        *changes: Text in its program, and what replaces it.
        name: Name of the directory.
    """
    directory = parent / name
    directory.mkdir()
    command = 'command = ["{python}", "world.py"]\nlisten = "inherit"\nreseed = true\n'
    (directory / "world.toml").write_text(f'name = "dice"\n[run]\n{command}')
    text = DICE.read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (directory / "world.py").write_text(text)
    return directory


def copied(directory: Path, target: Path, file: str, old: str, new: str) -> Path:
    """Copy a world with one change in a file."""
    shutil.copytree(directory, target, ignore=shutil.ignore_patterns(".clawblox"))
    text = (target / file).read_text()
    assert text.count(old) == 1
    (target / file).write_text(text.replace(old, new))
    return target


async def play(agents: Sequence[Any], actions: Sequence[Action], rounds: int, seed: int) -> None:
    """Let agents act by turns, look and talk."""
    random = Random(seed)
    for number in range(rounds):
        for agent in agents:
            action, data = random.choice(actions)
            with contextlib.suppress(WorldCallError):  # refused
                await agent.act(action, data)
            await agent.observe()
        if number % 5 == 0:
            await agents[0].say(f"message {number}")


def is_written(run_dir: Path, tick: int) -> bool:
    """Return whether the inputs and frames of a tick are on disk."""
    with reading(run_dir / "recordings" / "recording-0001.jsonl.zst") as recorded:
        written = {entry.header.track: entry.header.last.tick for entry in recorded.index}
    return min(written.get(Track.INPUTS, -1), written.get(Track.FRAMES, -1)) >= tick


async def answers(agent: Any) -> bool:
    """Return whether the world of an agent is ready."""
    try:
        await agent.observe()
    except WorldError:
        return False
    return True


async def record_lives(
    directory: Path,
    run_dir: Path,
    actions: Sequence[Action],
    *,
    rounds: int,
    later: Sequence[Action] | None = None,
    **options: Any,
) -> None:
    """Record a world that is saved, killed and restored from the save, with two agents."""

    async def read_record() -> InstanceRecord:
        return (await to_thread.run_sync(read_records, run_dir))[0]

    async with AsyncWorld(dir=directory, run_dir=run_dir) as world:
        await world.start(record=True, restart="checkpoint", **options)
        agents = [await world.join("Ada"), await world.join("Bo")]
        await play(agents, actions, rounds, 1)
        await world.save()
        reached = (await agents[0].observe())["tick"]
        with anyio.fail_after(HANG_S):
            while not await to_thread.run_sync(is_written, run_dir, reached):
                await play(agents, actions, 1, 2)
        first = await read_record()
        os.kill(first.pid, signal.SIGKILL)
        with anyio.fail_after(HANG_S):
            while (await read_record()).pid == first.pid or not await answers(agents[0]):
                await anyio.sleep(POLL_INTERVAL_S)
        await play(agents, later or actions, rounds, 3)


def recorded_lives(
    directory: Path, run_dir: Path, actions: Sequence[Action], **options: Any
) -> Path:
    anyio.run(partial(record_lives, directory, run_dir, actions, **options))
    return run_dir


def verified(run: Path, **options: Any) -> VerifiedRun:
    return anyio.run(partial(verify_run, run, **options))


def with_changed(run: Path, target: Path, number: int, edit: Callable[[Records], Records]) -> Path:
    """Copy a run directory with one changed recording."""
    shutil.copytree(run, target, symlinks=True)
    path = target / "recordings" / f"recording-{number:04}.jsonl.zst"
    path.unlink()
    return rewrite(run / "recordings" / path.name, path, edit).parents[1]


def first_input(records: Records, since: int) -> dict[str, Any]:
    """Return the first input at a tick or later."""
    return next(f for _, f in records if f.get("event") == "input" and f["tick"] >= since)
