"""Helpers for the tests of a start: worlds that dump their environment, and its contents."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from clawblox import AsyncWorld, StartedWorld
from tests.support.waiting import wait_until_async
from tests.support.worlds import Answer, ask, make_world


def world_that_runs(parent: Path, *command: str, name: str = "counter") -> Path:
    """Write a world directory whose command is given in full."""
    directory = parent / name
    directory.mkdir()
    text = f"name = {json.dumps(name)}\n[run]\ncommand = {json.dumps(command)}\n"
    (directory / "world.toml").write_text(text)
    return directory


def add(started: StartedWorld, session: Mapping[str, str], number: int) -> Any:
    """Act on a counter world; return the agent's next observation."""
    path = started.url.removeprefix(f"http://127.0.0.1:{started.port}")
    body = json.dumps({"type": "add", "data": number}).encode()
    return ask(started.port, "POST", f"{path}/input", body=body, headers=session).json()


def api_doc(started: StartedWorld) -> Answer:
    return ask(started.port, "GET", "/api.md")


async def read_json(path: Path) -> Any:
    """Return the JSON that a process writes to a file, as soon as the file exists."""
    await wait_until_async(path.exists, what=f"{path} is written")
    return json.loads(path.read_text())


@contextlib.asynccontextmanager
async def dumped(tmp_path: Path, **arguments: Any) -> AsyncIterator[tuple[StartedWorld, Any]]:
    """Start a world that dumps its environment; yield the started world and the dump."""
    directory = make_world(tmp_path, "--dump", str(tmp_path / "dump.json"))
    async with AsyncWorld(dir=directory) as world:
        started = await world.start(**{"run_dir": tmp_path / "run", **arguments})
        yield started, await read_json(tmp_path / "dump.json")
