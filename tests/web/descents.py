"""A recorded run with a crash, a pause and a fork, for the tests of the time axis."""

from __future__ import annotations

import os
import re
import signal
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from clawblox import AsyncWorld
from clawblox.recording.blocks import (
    Block,
    Moment,
    encode_block,
    require_zstandard,
)
from clawblox.rundir.records import read_records
from tests.recording.files import reading
from tests.replay.lives import answers, dice_world, play
from tests.support.waiting import HANG_S, POLL_INTERVAL_S

PAUSE = timedelta(hours=6)
_ACTIONS = [("Bet", 3), ("Bet", 4)]
_STAMP = re.compile(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")


class BlockError(Exception):
    """Ends the block of an orchestrator, so that its instances can be resumed."""


def record_descent(parent: Path) -> Path:
    """Return the directory of a run whose instance is killed, restored, paused and forked."""
    run = parent / "run"
    anyio.run(partial(_record, dice_world(parent), run))
    return run


async def _record(directory: Path, run: Path) -> None:
    try:
        async with AsyncWorld(dir=directory) as world:
            await world.start_many(
                [{"name": "alpha"}], run_dir=run, record=True, restart="checkpoint"
            )
            agents = [await world.join("Ada"), await world.join("Bo")]
            await play(agents, _ACTIONS, 12, 1)
            await world.save(instance="alpha")
            await play(agents, _ACTIONS, 8, 2)
            await _kill(run, agents[0])
            await play(agents, _ACTIONS, 10, 3)
            await world.save(instance="alpha")
            raise BlockError
    except BlockError:
        stopped_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
        while datetime.now(UTC) < stopped_at:  # manifests have whole seconds
            await anyio.sleep(POLL_INTERVAL_S)
    async with AsyncWorld(dir=directory) as world:
        await world.resume_all(run)
        agents = [await world.join(name, instance="alpha") for name in ("Ada", "Bo")]
        await play(agents, _ACTIONS, 10, 4)
        saved = await world.save(instance="alpha")
        await world.fork(saved, run_dir=run, record=True)
        branched = [await world.join(name, instance="w000") for name in ("Ada", "Bo")]
        await play(agents, _ACTIONS, 6, 5)
        await play(branched, _ACTIONS, 3, 5)
        await branched[0].act("Bet", 99)
        await play(branched, _ACTIONS, 3, 6)
    await to_thread.run_sync(shift, run, stopped_at)


async def _kill(run: Path, agent: Any) -> None:
    async def read_pid() -> int | None:
        return (await to_thread.run_sync(read_records, run))[0].pid

    recording = run / "worlds/alpha/recordings/recording-0001.jsonl.zst"
    tick = (await agent.observe())["tick"]

    def is_written() -> bool:
        with reading(recording) as recorded:
            return recorded.index[-1].header.last.tick >= tick

    with anyio.fail_after(HANG_S):
        while not await to_thread.run_sync(is_written):
            await anyio.sleep(POLL_INTERVAL_S)
        first = await read_pid()
        os.kill(first, signal.SIGKILL)
        while await read_pid() == first or not await answers(agent):
            await anyio.sleep(POLL_INTERVAL_S)


def shift(run: Path, since: datetime) -> None:
    """Shift host times after a moment by six hours, as if the run had paused."""

    def later(match: re.Match[bytes]) -> bytes:
        stamp = datetime.fromisoformat(match[0].decode())
        if stamp < since:
            return match[0]
        moved = (stamp + PAUSE).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{moved}{(match[1] or b'').decode()}Z".encode()

    def later_moment(moment: Moment) -> Moment:
        return Moment(moment.tick, moment.time, _STAMP.sub(later, moment.utc.encode()).decode())

    for path in run.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".index") and path.is_file():
            path.write_bytes(_STAMP.sub(later, path.read_bytes()))
    for path in run.rglob("*.jsonl.zst"):
        blocks = []
        with reading(path) as recording:
            for entry in recording.index:
                head = entry.header
                lines = [_STAMP.sub(later, line) + b"\n" for line in recording.read_lines(entry)]
                moments = later_moment(head.first), later_moment(head.last)
                blocks.append(Block(head.track, head.records, *moments, b"".join(lines)))
        path.write_bytes(b"".join(encode_block(block, require_zstandard()) for block in blocks))
