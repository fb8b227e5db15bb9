"""The examples continue exactly in another process: in lock-step, and in real time.

In lock-step every answer must be the same, with its status, its headers and each byte of its body.
In real time, two processes do not answer at the same tick, so the documents of equal simulated
times are compared; a run with too few equal times is skipped as inconclusive.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.engine.torture import ROOT
from tests.server.conftest import SAME_SESSIONS, TOKEN, LaunchedWorld
from tests.support.waiting import wait_until
from tests.support.worlds import Answer

NAMES = ("platform_race", "workshop")
COMMON = 20
"""Minimum number of equal times for a comparison in real time."""
POLLS = 60
START_S = 60.0
TRIES = 3
Launch = Callable[..., LaunchedWorld]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start an engine world in its own process."""
    with ExitStack() as stack:

        def start(directory: Path, *flags: str, resume: Path | None = None) -> LaunchedWorld:
            log_file = tmp_path / f"world-{len(list(tmp_path.glob('world-*.log')))}.log"
            log = stack.enter_context(log_file.open("wb"))
            environment = {
                "PATH": os.defpath,
                "PYTHONPATH": str(ROOT),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", ""),
                "WORLD_PORT": "0",
                "WORLD_OPERATOR_TOKEN": TOKEN,
                **SAME_SESSIONS,
            }
            if resume is not None:
                environment["WORLD_RESUME_PATH"] = str(resume)
            process = subprocess.Popen(
                [sys.executable, "-m", "clawblox.engine", str(directory), *flags],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            world = LaunchedWorld(process, log_file)
            wait_until(
                lambda: "Listening on http://" in world.log or process.poll() is not None,
                START_S,
                "the world listens",
            )
            return world

        yield start


class Player:
    """Acts on a world over HTTP and keeps every answer."""

    def __init__(self, world: LaunchedWorld) -> None:
        self.world = world
        self.trace: list[Answer] = []

    def do(self, session: str | None, method: str, target: str, body: Any = None) -> Answer:
        headers = {"X-Session": session} if session else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        encoded = None if body is None else json.dumps(body).encode()
        answer = self.world.ask(method, target, headers=headers, body=encoded)
        self.trace.append(answer)
        return answer

    def join(self, name: str) -> str:
        session: str = self.do(None, "POST", f"/join?name={name}").json()["session"]
        return session


def act(player: Player, sessions: list[str]) -> None:
    """Run a fixed sequence of agent actions: act, look, talk, fail, join and leave."""
    dice = random.Random(5)
    kinds = ("MoveTo", "MoveTo", "Leap", "Jump", "Gather", "Craft", "Place", "Stop", "Nonsense")
    for turn in range(24):
        session = dice.choice(sessions)
        position = [dice.uniform(-40, 40), 2, dice.uniform(-30, 30)]
        data = {"position": position, "item": "Plank", "block": "Plank"}
        player.do(session, "POST", "/input", {"type": dice.choice(kinds), "data": data})
        if turn % 8 == 0:
            player.do(session, "GET", "/observe")
            player.do(session, "POST", "/chat", {"content": f"turn {turn}"})
            player.do(session, "POST", "/input", {"type": "MoveTo", "data": {"position": [1]}})
            player.do(None, "GET", "/spectate")
    newcomer = player.join("Newcomer")
    player.do(newcomer, "POST", "/input", {"type": "Jump"})
    player.do(newcomer, "POST", "/chat", {"content": "here I am"})
    player.do(None, "GET", "/chat/messages")
    player.do(newcomer, "POST", "/leave")
    player.do(newcomer, "GET", "/observe")


def copy(source: Path, to: Path) -> Path:
    return Path(shutil.copytree(source, to))


@pytest.mark.parametrize(
    "name", ["platform_race", pytest.param("workshop", marks=pytest.mark.thorough)]
)
def test_example_gives_the_same_answers_after_a_restore(
    launch: Launch, tmp_path: Path, name: str
) -> None:
    directory = copy(ROOT / "examples" / name, tmp_path / "original")
    original = launch(directory, "--clock", "lockstep")
    player = Player(original)
    sessions = [player.join("Ada"), player.join("Bo")]
    act(player, sessions)
    saved = original.snapshot().body
    twin = copy(directory, tmp_path / "twin")
    player.trace.clear()
    act(player, sessions)
    ended = original.snapshot().body
    assert original.stop() == 0

    path = tmp_path / "snapshot.json"
    path.write_bytes(saved)
    resumed = launch(twin, "--clock", "lockstep", resume=path)
    assert resumed.snapshot().body == saved
    again = Player(resumed)
    act(again, sessions)
    for expected, found in zip(player.trace, again.trace, strict=True):
        assert found == expected
    assert resumed.snapshot().body == ended != saved
    assert {answer.status for answer in player.trace} == {200, 400, 401}


def poll(
    world: LaunchedWorld, enough: Callable[[Mapping[float, bytes]], bool]
) -> dict[float, bytes]:
    """Return the documents of a running world by time."""
    found: dict[float, bytes] = {}
    while not enough(found):
        body = world.snapshot().body
        found[json.loads(body)["time"]] = body
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_an_example_continues_exactly_at_equal_times_in_real_time(
    launch: Launch, tmp_path: Path, name: str
) -> None:
    directory = copy(ROOT / "examples" / name, tmp_path / "original")
    original = launch(directory, "--clock", "realtime")
    player = Player(original)
    for place, agent in enumerate(("Ada", "Bo")):
        session = player.join(agent)
        data = {"position": [6, 2, 4 * place]}
        player.do(session, "POST", "/input", {"type": "MoveTo", "data": data})
        player.do(session, "POST", "/chat", {"content": "off I go"})
    documents = poll(original, lambda found: len(found) >= POLLS)
    assert original.stop() == 0

    first, last = min(documents), max(documents)
    path = tmp_path / "snapshot.json"
    path.write_bytes(documents[first])
    common: set[float] = set()
    for number in range(TRIES):
        resumed = launch(copy(directory, tmp_path / f"twin-{number}"), resume=path)
        again = poll(resumed, lambda found: bool(found) and max(found) >= last)
        assert resumed.stop() == 0
        for time in again.keys() & documents.keys():
            assert again[time] == documents[time], f"the documents of {time} s differ"
        common |= again.keys() & documents.keys()
        if len(common) >= COMMON:
            return
    pytest.skip(f"could not compare: {len(common)} equal times, {COMMON} are needed")
