"""Fixtures that spawn processes and end them after each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.system.process import Process, spawn
from tests.support.processes import kill_processes, processes_in
from tests.system.process.support import Spawn


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    yield fd
    os.close(fd)


@pytest.fixture
async def start(tmp_path: Path, log: int) -> AsyncIterator[Spawn]:
    """Spawn processes below ``tmp_path``; kill, reap and release them at the end."""
    spawned: list[Process] = []

    async def start_one(*command: str, listener: int | None = None, **env: str) -> Process:
        given = {"PATH": os.defpath, **env}
        job = partial(spawn, command, cwd=tmp_path, env=given, output=log, listener=listener)
        spawned.append(process := await run_blocking(job))
        return process

    yield start_one
    kill_processes(lambda: processes_in(tmp_path))
    for process in spawned:
        await process.wait()
        process.release()


@pytest.fixture
def cookie() -> str:
    return uuid.uuid4().hex
