"""The operator token appears only in the log of its world."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from clawblox import AsyncWorld, WorldError
from tests.support.processes import command_line, descendants, marked_processes
from tests.support.running import next_event
from tests.support.starting import world_that_runs
from tests.support.worlds import ask, make_world, world_command

pytestmark = pytest.mark.anyio

CANARY = "canary-2f6c0b9e4d7a4a53"


def shown(value: object) -> str:
    """Return all visible text of a value, including an error's traceback."""
    texts = [repr(value), str(value), repr(getattr(value, "__dict__", ""))]
    if isinstance(value, BaseException):
        texts += [*traceback.format_exception(value), repr(pickle.dumps(value))]
    return "\n".join(texts)


async def failures_of(calls: Sequence[Callable[[], Any]]) -> list[str]:
    """Make calls that fail; return the visible text of each error."""
    seen = []
    for call in calls:
        with pytest.raises(WorldError) as caught:
            await call()
        seen.append(shown(caught.value))
    return seen


async def test_the_operator_token_appears_only_in_the_worlds_own_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory, run = make_world(tmp_path, "--tell-token"), tmp_path / "run"
    seen = []
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        started = await world.start(run_dir=run, env={"WORLD_OPERATOR_TOKEN": CANARY})
        assert CANARY in started.log_file.read_text()
        processes = {os.getpid(), *descendants(os.getpid()), *marked_processes()}
        seen += [command_line(pid) for pid in processes]
        seen += [shown(value) for value in (started, await world.connect("Rocky"))]
        seen += [shown(await world.save())]
        ask(started.port, "POST", "/__set?snapshot=status-500&join=status-500")
        seen += await failures_of([world.save, lambda: world.connect("Bullwinkle")])
        ask(started.port, "POST", "/__die?status=3")
        await next_event(events, "exited")
        dead = await failures_of([world.save, lambda: world.connect("Natasha")])
        assert all("my token is ***" in text for text in dead)
        seen += [*dead, shown(await world.stop())]
    failing = world_that_runs(
        tmp_path, *world_command("--tell-token", "--exit-at-once=1"), name="x"
    )
    async with AsyncWorld(dir=failing) as world:
        env = {"WORLD_OPERATOR_TOKEN": CANARY}
        seen += await failures_of([lambda: world.start(run_dir=run, env=env)])
        assert "my token is ***" in seen[-1]
    seen += [shown(event) async for event in events]
    seen += [
        path.read_text() for path in run.rglob("*") if path.is_file() and path.suffix != ".log"
    ]
    seen += capfd.readouterr()
    assert len(seen) > 15
    assert not [text for text in seen if CANARY in text]
