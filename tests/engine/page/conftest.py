"""A browser and a stub of a world, shared by the tests of this directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.page.chromium import PROGRAM, Chromium
from tests.support import Answer, ask, free_port, is_listening, wait_until

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """Return a browser of this module; skip its tests where there is none."""
    if PROGRAM is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    profile = Path(tempfile.mkdtemp(prefix="clawblox-chromium-", dir="/tmp"))
    chromium = Chromium(profile)
    yield chromium
    chromium.close()
    shutil.rmtree(profile, ignore_errors=True)


class World:
    """A stub of a world, as a process."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/"

    def posted(self, kind: str) -> list[dict[str, object]]:
        """Return the inputs of one type that the page has sent."""
        return [entry for entry in self._ask("GET", "/posted").json() if entry["type"] == kind]

    def order(self, word: str) -> None:
        self._ask("POST", f"/orders/{word}")

    def _ask(self, method: str, path: str) -> Answer:
        return ask(self.port, method, path)


Serve = Callable[..., World]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return what starts a stub, with a directory of renderer files or without."""
    started: list[subprocess.Popen[bytes]] = []

    def start(renderer: Path | None = None) -> World:
        port = free_port()
        command = [sys.executable, "-m", "tests.engine.page.stub_world", str(port)]
        command += [str(renderer)] if renderer else []
        started.append(subprocess.Popen(command, cwd=ROOT))
        wait_until(lambda: is_listening(port), what="the stub to listen")
        return World(port)

    yield start
    for process in started:
        process.kill()
        process.wait()
