"""Helpers to run an instance, switch its faults, and read the requests that it received."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import attrs

from clawblox import AsyncWorld, StartedWorld, WorldEvent
from clawblox.telemetry.events import EventStream
from tests.support.waiting import HANG_S
from tests.support.worlds import ask, make_world


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path, *flags: str, **options: Any
) -> AsyncIterator[tuple[AsyncWorld, StartedWorld]]:
    """Run one instance of a counter world."""
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path, *flags), **options) as world:
            yield world, await world.start(run_dir=tmp_path / "run")


def switch(started: StartedWorld, **faults: str) -> None:
    """Switch faults of a running world."""
    query = "&".join(f"{name.replace('_', '-')}={value}" for name, value in faults.items())
    ask(started.port, "POST", f"/__set?{query}")


def requests(started: StartedWorld, path: str = "") -> list[Any]:
    """Return the requests that a world received, to one path or to all."""
    received = ask(started.port, "GET", "/__requests").json()
    return [one for one in received if not path or one["path"] == path]


def manifest_of(run_dir: Path) -> Any:
    return json.loads((run_dir / ".clawblox" / "manifest.json").read_text())


async def next_event(events: EventStream, kind: str) -> WorldEvent:
    """Return the next event of a kind."""
    async for event in events:
        if event.kind == kind:
            return event
    raise AssertionError(f"no event {kind!r}")


@attrs.define
class Bot:
    """A minimal agent with a name and a directory."""

    name: str
    dir: Path
