"""A browser and a stub of a world, shared by the tests of this directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.page.chromium import DEADLINE_S, Chromium
from tests.optional import require_program
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import wait_until
from tests.support.worlds import Answer, ask

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """Return the browser of this module; skip its tests without a browser."""
    program = require_program("chromium")
    profile = Path(tempfile.mkdtemp(prefix="clawblox-chromium-", dir="/tmp"))
    chromium = Chromium(program, profile)
    yield chromium
    chromium.close()
    shutil.rmtree(profile, ignore_errors=True)


class World:
    """A world, or a stub of one, as a process.

    Args:
        port: A free port.
        *words: Arguments for ``python``.
    """

    def __init__(self, port: int, *words: str) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/"
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=quiet)

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until an action of the page or the world is visible to the test."""
        wait_until(condition, DEADLINE_S, what)

    def posted(self, kind: str) -> list[dict[str, object]]:
        """Return the inputs of one type that the page has sent to a stub."""
        return [entry for entry in self._ask("GET", "/posted").json() if entry["type"] == kind]

    def position(self) -> tuple[float, float, float]:
        """Return the position of the first player."""
        (x, y, z) = self._ask("GET", "/spectate").json()["players"][0]["position"]
        return x, y, z

    def order(self, word: str) -> None:
        """Send an order to a stub."""
        self._ask("POST", f"/orders/{word}")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, method: str, path: str) -> Answer:
        return ask(self.port, method, path)


Serve = Callable[..., World]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a stub, with optional renderer files, or an engine world."""
    started: list[World] = []

    def start(renderer: Path | None = None, *, world: Path | None = None) -> World:
        port = free_port()
        if world is not None:
            words = ["clawblox.engine", str(world), "--port", str(port), "--datastore", "none"]
        else:
            files = [str(renderer)] if renderer else []
            words = ["tests.engine.page.stub_world", str(port), *files]
        started.append(World(port, "-m", *words))
        started[-1].wait_for(lambda: is_listening(port), "the world to listen")
        return started[-1]

    yield start
    for each in started:
        each.end()
