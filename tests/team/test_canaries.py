"""Secrets are known to those that need them, and an agent's world hears its policy only."""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from clawblox import AsyncCheckpointer, AsyncWorld, StartedWorld
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.status import read_status
from clawblox.agents.trajectory import export_trajectory
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentResumeError
from tests.agents.access.test_refusals import TARGETS
from tests.agents.standins import common, install, misbehave
from tests.support.running import requests
from tests.support.tmux import Tmux
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

TARGETS_TRIED = 60

OPERATOR, FOREIGN, OWN = (f"canary-{name}-0123456789abcdef" for name in ("op", "foreign", "own"))
CANARY = re.compile(rb"canary-([a-z]+)-[0-9a-f]{16}")
KEYS = {
    "ANTHROPIC_API_KEY": "claude",
    "OPENAI_API_KEY": "codex",
    "CODEX_API_KEY": "codex",
    "KIMI_MODEL_API_KEY": None,
    "OPENCODE_API_KEY": None,
    "AWS_SECRET_ACCESS_KEY": None,
    "GITHUB_TOKEN": None,
    "CLAUDE_CODE_SESSION_ACCESS_TOKEN": None,
    "WORLD_OPERATOR_TOKEN": None,
}
"""Variables of the orchestrator, and the agent whose own key each is."""

SPY = r"""
import json, os, re, socket, stat, sys

SYSTEM = "/proc", "/usr", sys.base_prefix
found, statuses = {}, []

def look(place, name):
    try:
        if stat.S_ISREG(os.stat(name).st_mode):
            with open(name, "rb") as file:
                for canary in re.findall(rb"canary-([a-z]+)-[0-9a-f]{16}", file.read(1 << 20)):
                    found.setdefault(canary.decode(), []).append(place)
    except OSError:
        pass

for pid in filter(str.isdigit, os.listdir("/proc")):
    for what in ("environ", "cmdline"):
        try:
            environ = open(f"/proc/{pid}/environ", "rb").read()
        except OSError:
            continue
        if sys.argv[1] == "/" or os.environ["CLAWBLOX_INSTANCE"].encode() in environ:
            look(what, f"/proc/{pid}/{what}")
for directory, inner, names in os.walk(sys.argv[1]):
    inner[:] = [each for each in inner if os.path.join(directory, each) not in SYSTEM]
    for name in names:
        look(os.path.join(directory, name), os.path.join(directory, name))
host, port, authority, targets = json.load(open("spy.json"))
for target in targets:
    with socket.create_connection((host, port), 20) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        try:
            statuses.append(connection.recv(64).split()[1].decode())
        except (OSError, IndexError):
            statuses.append("closed")
json.dump([found, statuses], open("report.json", "w"))
"""


def processes() -> Iterator[tuple[int, int, bytes]]:
    """Yield pid, parent, and environment with arguments of each process that can be read."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1]
                data = [
                    Path(f"/proc/{entry}/{name}").read_bytes() for name in ("environ", "cmdline")
                ]
            except OSError:
                continue
            yield int(entry), int(parent), b"\0".join(data)


def holders() -> dict[str, set[int]]:
    """Return the processes that hold each canary."""
    held: dict[str, set[int]] = {"op": set(), "own": set(), "foreign": set()}
    for pid, _, data in processes():
        for name in CANARY.findall(data):
            held[name.decode()].add(pid)
    return held


def tree(pid: int | None) -> set[int]:
    """Return a process and all that descend from it."""
    parents = {child: parent for child, parent, _ in processes()}
    found = {pid} if pid else set()
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def canaries_in(place: Path) -> dict[str, set[str]]:
    """Return the files below a directory that hold each canary, those in archives too."""
    found: dict[str, set[str]] = {}

    def look(name: str, data: bytes) -> None:
        for canary in CANARY.findall(data):
            found.setdefault(canary.decode(), set()).add(name)

    for path in place.rglob("*"):
        if path.is_file():
            look(str(path), path.read_bytes())
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    for member in archive.namelist():
                        look(f"{path}/{member}", archive.read(member))
    return found


async def spy(agent: AsyncAgent, url: str) -> tuple[dict[str, Any], list[str]]:
    """Have the agent look around in all that it sees, and try the spellings of the snapshot."""
    parts = urlsplit(url)
    workspace = agent.dir / "workspace"
    (workspace / "spy.py").write_text(SPY)
    targets = [target for target in TARGETS if target.isprintable()][:TARGETS_TRIED]
    (workspace / "spy.json").write_text(
        json.dumps([parts.hostname, parts.port or 80, parts.netloc, targets])
    )
    # Without a sandbox all processes of this user can be read, those of the world too.
    root = "/" if agent.sandbox == "bwrap" else str(agent.dir)
    command = f"RUN {os.path.realpath(sys.executable)} -I spy.py '{root}'\nGET {url}/observe"
    await agent.start(initial_prompt=command, system_prompt="Look around.")
    report = workspace / "report.json"
    assert (await agent.wait()).state == "idle"
    assert report.exists(), (agent.dir / "logs" / "agent.log").read_text()
    found, statuses = json.loads(report.read_text())
    assert len(statuses) == TARGETS_TRIED
    return found, statuses


@pytest.fixture(
    params=[
        pytest.param("none", marks=pytest.mark.thorough),
        pytest.param("bwrap", marks=pytest.mark.needs("bwrap")),
    ]
)
def sandbox(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "bwrap")


@pytest.mark.parametrize("driver", ["claude", pytest.param("codex", marks=pytest.mark.thorough)])
async def test_secrets_stay_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: Tmux, driver: str, sandbox: bool
) -> None:
    for name, owner in KEYS.items():
        value = OWN if owner == driver else OPERATOR if name.startswith("WORLD_") else FOREIGN
        monkeypatch.setenv(name, value)
    run_dir = tmp_path / "run"
    agent = AsyncAgent(
        agent=driver,
        name="Eko",
        dir=run_dir / "agents" / "Eko",
        binary=install(tmp_path / "bin", driver),
        auto_continue=False,
        sandbox=sandbox,
        tmux="canaries",
    )
    workspace = agent.dir / "workspace"
    workspace.mkdir(parents=True)
    said: list[object] = []
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(make_world(tmp_path)) as world, agent:
            events = agent.events()
            started = await world.start(run_dir=run_dir, env={"WORLD_OPERATOR_TOKEN": OPERATOR})
            access = await world.connect(agent=agent)
            found, statuses = await spy(agent, access["base_url"])
            assert set(found) == {"own"}
            assert set(found["own"]) == {"environ"}
            check_heard(started, access, statuses)
            (workspace / common.HOLD_FILE).touch()
            said += [await agent.send(prompt="Wait."), agent, repr(agent), str(access)]
            await run_blocking(check_holders, agent, started)
            saves = AsyncCheckpointer(world, [agent], dir=run_dir / "checkpoints", idle_wait=0.0)
            said.append(await saves.save())
            (workspace / common.HOLD_FILE).unlink()
            said += [await run_blocking(read_status, agent.dir), await agent.wait()]
            said.append(await run_blocking(export_trajectory, agent.dir))
            await agent.stop(grace_seconds=5)
            misbehave(workspace, wrong_id=True)
            with pytest.raises(AgentResumeError) as caught:
                await agent.send(prompt="Go on.")
            said += [str(caught.value), repr(caught.value), vars(caught.value)]
        said += [event async for event in events]
    assert len(said) > 10
    assert not CANARY.search(repr(said).encode())
    assert await run_blocking(canaries_in, run_dir) == {}


def check_heard(started: StartedWorld, access: Mapping[str, Any], statuses: list[str]) -> None:
    assert set(statuses) <= {"400", "403", "404", "421", "closed"}
    of_agent = [
        one["path"]
        for one in requests(started)
        if one["headers"].get("x-session") == access["session"]
    ]
    assert "/snapshot" not in {one["path"] for one in requests(started)}
    assert set(of_agent) <= {"/observe", "/input", "/api.md"}
    assert of_agent, "the program has acted in its world"


def check_holders(agent: AsyncAgent, started: StartedWorld) -> None:
    status = read_status(agent.dir)
    assert status is not None
    held = holders()
    world = tree(started.pid)  # which inherits the variables of its orchestrator
    assert held["foreign"] <= world
    assert held["op"]
    assert held["op"] <= world
    assert held["own"] - world
    assert held["own"] - world <= tree(status.pid)
