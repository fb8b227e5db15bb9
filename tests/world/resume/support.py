"""Helpers for the tests of resumes: interrupted runs, and their continuation."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, StartedWorld, WorldEvent
from clawblox.concurrency.batch import Batch
from clawblox.rundir.records import InstanceRecord, read_record
from tests.support.crowd import past
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until_async

Body = Callable[[AsyncWorld, Batch[StartedWorld]], Awaitable[None]]


class BlockError(Exception):
    """An exception that ends the block of a world like any error of a program."""


async def nothing(_world: AsyncWorld, _batch: Batch[StartedWorld]) -> None:
    """Do nothing before the interrupt."""


async def interrupt(
    directory: Path, run: Path, instances: Any, body: Body = nothing, **options: Any
) -> Batch[StartedWorld]:
    """Start many instances, and leave the block with an exception after ``body``."""
    with anyio.fail_after(HANG_S):
        try:
            async with AsyncWorld(dir=directory) as world:
                batch = await world.start_many(instances, run_dir=run, **options)
                await body(world, batch)
                raise BlockError
        except BlockError:
            return batch


async def resume(
    directory: Path, run: Path, body: Body = nothing, **options: Any
) -> tuple[Batch[StartedWorld], dict[str, WorldEvent]]:
    """Resume a run, and interrupt it again; return the batch and the events by name."""
    with anyio.fail_after(HANG_S):
        try:
            async with AsyncWorld(dir=directory) as world, world.events() as events:
                batch = await world.resume_all(run, **options)
                await body(world, batch)
                seen = await past(events)
                raise BlockError
        except BlockError:
            return batch, {one.subject: one for one in seen if one.kind == "resuming"}


async def find_record(run: Path, name: str) -> InstanceRecord:
    record = await run_sync(read_record, run, name)
    assert record is not None
    return record


async def until_over(run: Path, name: str) -> None:
    """Wait until an orchestrator has noted the end of an instance."""

    def is_noted() -> bool:
        record = read_record(run, name)
        return record is not None and record.state in ("exited", "failed")

    with anyio.fail_after(HANG_S):
        while not await run_sync(is_noted):
            await anyio.sleep(0.01)


def home(run: Path, name: str) -> Path:
    return run / "worlds" / name


def run_of(run: Path, name: str) -> Any:
    return manifest_of(home(run, name))["run"]


def edges(run: Path, name: str) -> list[Any]:
    """Return the restarts that the manifest of an instance lists."""
    return list(manifest_of(home(run, name)).get("restarts", ()))


def rewrite_records(run: Path, **changes: Any) -> None:
    """Append records that another machine or version might have written."""
    journal = run / ".clawblox" / "instances" / "records.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    last = {record["name"]: record for record in lines}
    text = "".join(f"{json.dumps({**record, **changes})}\n" for record in last.values())
    with journal.open("a") as file:
        file.write(text)


__all__ = [
    "BlockError",
    "edges",
    "find_record",
    "home",
    "interrupt",
    "resume",
    "rewrite_records",
    "run_of",
    "until_over",
    "wait_until_async",
]
