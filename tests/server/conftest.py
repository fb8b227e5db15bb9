"""A world of the kit, in this process and in one of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import httpx
import pytest

from clawblox.server import HostedWorld, Settings, create_app
from clawblox.server.launch_settings import SESSION_NONCE_ENV
from tests.server.tally import Tally
from tests.support.template import ForkedProgram, Template, running_template
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import Answer, ask

TALLY = Path(__file__).with_name("tally.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
TOKEN = "canary-token"
PROTECTION = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "frame-ancestors 'self'",
}
"""Headers of every answer that sets none of them itself."""
SAME_SESSIONS = {SESSION_NONCE_ENV: "fixed"}
"""Environment with which a restored world issues the same session ids as the original."""


@pytest.fixture
def simulation() -> Tally:
    return Tally()


@pytest.fixture
def hosted(simulation: Tally) -> HostedWorld:
    return HostedWorld(simulation)


@pytest.fixture
def settings() -> Settings:
    return Settings(operator_token=TOKEN.encode())


@pytest.fixture
async def client(hosted: HostedWorld, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """Speak to the routes of ``hosted``, over no network."""
    transport = httpx.ASGITransport(create_app(hosted, settings), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        yield client


@attrs.define
class LaunchedWorld:
    """A world's program in a process of its own."""

    process: subprocess.Popen[bytes] | ForkedProgram
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    @property
    def port(self) -> int:
        """The port it announced; waits for it."""
        url = wait_until(self._announcement, what="the world listens")
        return urlsplit(url).port or 0

    def _announcement(self) -> str:
        assert self.process.poll() is None, f"the world has ended:\n{self.log}"
        lines = [line for line in self.log.splitlines() if "Listening on http://" in line]
        return lines[0].partition("Listening on ")[2] if lines else ""

    def ask(self, method: str, target: str, **options) -> Answer:
        return ask(self.port, method, target, **options)

    def snapshot(self) -> Answer:
        return self.ask("GET", "/snapshot", headers={"X-Operator-Token": TOKEN})

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.terminate()
        return self.process.wait(HANG_S)


Launch = Callable[..., LaunchedWorld]


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    """Run the process that is forked for each world."""
    with running_template("server") as template:
        yield template


@pytest.fixture
def launch(tmp_path: Path, template: Template) -> Iterator[Launch]:
    """Start a world's program on a port that the system chooses, or on a descriptor of ours."""
    with contextlib.ExitStack() as stack:

        def start(
            program: Path = TALLY,
            *flags: str,
            env: Mapping[str, str] | None = None,
            descriptor: int | None = None,
        ) -> LaunchedWorld:
            log_file = tmp_path / f"world-{len(list(tmp_path.glob('world-*.log')))}.log"
            log = stack.enter_context(log_file.open("wb"))
            variables = {
                "PATH": os.defpath,
                "PYTHONDONTWRITEBYTECODE": "1",
                "WORLD_PORT": "0",
                "WORLD_OPERATOR_TOKEN": TOKEN,
                **(env or {}),
            }
            with open(os.devnull, "r+b") as nothing:
                streams = [stream.fileno() for stream in (nothing, nothing, log)]
                if descriptor is not None:
                    streams.append(descriptor)
                process = template.start(program.name, flags, streams, variables, program.parent)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return LaunchedWorld(process, log_file)

        yield start
