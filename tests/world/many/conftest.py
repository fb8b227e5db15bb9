"""Fixtures and helpers for the tests of many worlds, in addition to ``tests.support.crowd``."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.world.test_cancellation import Interrupted, run_and_cancel

CROWD_OF = """
async def main():
    async with AsyncWorld(dir=world_dir) as world:
        batch = await world.start_many(int(arguments[0]), run_dir=run_dir, restart="checkpoint")
        batch.raise_if_failed()
        tell(*(started.port for started in batch))
        await hear_async()
anyio.run(main)
"""
"""An orchestrator of ``arguments[0]`` worlds, which prints their ports and ends on request."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """Set an open umask, so that files have the modes that their creators request."""
    before = os.umask(0)
    yield
    os.umask(before)


async def cancel_after(seconds: float, kind: str, operation: Callable[[], Awaitable[Any]]) -> bool:
    """Cancel an operation after some seconds; return whether it was cancelled before its end."""
    interrupted = Interrupted(0)

    async def strike() -> None:
        await anyio.sleep(seconds)
        interrupted.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(strike)
        was_cancelled = await run_and_cancel(interrupted, kind, operation)
        tasks.cancel_scope.cancel()
    return was_cancelled
