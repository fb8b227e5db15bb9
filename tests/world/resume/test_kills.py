"""Orchestrators are killed repeatedly at random moments, and the run continues."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import AsyncWorld
from tests.support.crowd import leftovers, look, seeded
from tests.support.orchestrators import Orchestrator, orchestrator
from tests.support.processes import all_processes, command_line
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world
from tests.world.resume.support import edges, find_record, home, run_of

pytestmark = pytest.mark.anyio

PROGRAM = """
import json, pathlib
from tests.support.crowd import act

agents = pathlib.Path(run_dir, "agents.json")

def act_for_ever(batch):
    sessions = json.loads(agents.read_text())
    while True:
        for started in batch:
            act(started.port, sessions[started.name])

async def main():
    count = int(arguments[0])
    async with AsyncWorld(dir=world_dir) as world:
        tell("begin")
        if arguments[1] == "start":
            batch = await world.start_many(count, run_dir=run_dir, restart="checkpoint")
            sessions = {}
            for started in batch:
                access = await world.connect("Rocky", instance=started.name)
                sessions[started.name] = access["session"]
            agents.write_text(json.dumps(sessions))
        else:
            batch = await world.resume_all(run_dir)
        batch.raise_if_failed()
        threading.Thread(target=act_for_ever, args=(batch,), daemon=True).start()
        await world.autosave(every=0.05, keep=2)
        await hear_async()
anyio.run(main)
"""


def worlds_running(run: Path) -> dict[str, list[int]]:
    """Return the processes of worlds by the directory of their instance."""
    found: dict[str, list[int]] = {}
    for pid in all_processes():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        place = re.search(rb"CLAWBLOX_MANIFEST_PATH=(\S+?)/\.clawblox", environ)
        if place and place[1].startswith(os.fsencode(run)) and "misbehaving" in command_line(pid):
            found.setdefault(Path(os.fsdecode(place[1])).name, []).append(pid)
    return found


def has_gone_on(instance_dir: Path) -> bool:
    """Return whether the last save of an instance has a later time than the first."""
    try:
        saves = manifest_of(instance_dir).get("checkpoints")
    except FileNotFoundError:
        return False
    return bool(saves) and saves[-1]["time"] > saves[0]["time"]


def kill_somewhere(chance: random.Random, program: Orchestrator) -> None:
    """Kill an orchestrator at a random moment, sometimes with its guard and some worlds."""
    time.sleep(chance.uniform(0.0, 0.8))
    victims = [program.pid]
    if chance.random() < 0.5:
        victims += program.guards()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    program.process.wait()


async def survive(tmp_path: Path, count: int, kills: int) -> None:
    chance = seeded()
    directory, run = make_world(tmp_path), tmp_path / "run"
    names = [f"w{at:03}" for at in range(count)]
    with orchestrator(PROGRAM, directory, run, str(count), "start") as program:
        assert program.hear() == "begin"
        wait_until(lambda: all(has_gone_on(home(run, name)) for name in names), HANG_S)
        kill_somewhere(chance, program)
    begun = {name: run_of(run, name) for name in names}
    reached = {name: save_times(run, name)[-1] for name in names}
    for _ in range(kills - 1):
        with orchestrator(PROGRAM, directory, run, str(count), "resume") as program:
            assert program.hear() == "begin"
            kill_somewhere(chance, program)
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=directory) as world:
            batch = await world.resume_all(run)
            batch.raise_if_failed()
            assert sorted(batch.done) == names
            running = worlds_running(run)
            assert running == {started.name: [started.pid] for started in batch}
            for name, started in batch.done.items():
                check_state(run, name, started.port, begun[name])
                assert save_times(run, name)[-1] >= reached[name] > 0
                check_lineage(run, name)
                assert (await find_record(run, name)).restarts == edges(run, name)[-1]["number"]
    assert leftovers(run) == []


def save_times(run: Path, name: str) -> list[float]:
    """Return the world's times at the saves that the manifest lists."""
    return [save["time"] for save in manifest_of(home(run, name))["checkpoints"]]


def check_state(run: Path, name: str, port: int, begun: Mapping[str, Any]) -> None:
    """Check that an instance has its agents, its run, and the state of its last save."""
    session = json.loads((run / "agents.json").read_text())[name]
    saves = manifest_of(home(run, name))["checkpoints"]
    last, edge = [one for one in saves if "removed_at" not in one][-1], edges(run, name)[-1]
    assert (edge["resume_from"], edge["parent_sha256"]) == (last["path"], last["sha256"])
    document = json.loads((home(run, name) / last["path"]).read_text())
    assert look(port, session)["counter"] == document["counter"]
    # Each state is at least as old as the states saved before it.
    assert save_times(run, name) == sorted(save_times(run, name))
    kept = {key: begun[key] for key in ("id", "started_at", "index")}
    assert run_of(run, name) == {**kept, "status": "running"}


def check_lineage(run: Path, name: str) -> None:
    """Check that each restart is listed once, in order, from a save of the run."""
    told = edges(run, name)
    assert [edge["number"] for edge in told] == list(range(1, len(told) + 1))
    assert {edge["by"] for edge in told} == {"resume"}
    known = {one["path"]: one["sha256"] for one in manifest_of(home(run, name))["checkpoints"]}
    for edge in told:
        assert known[edge["resume_from"]] == edge["parent_sha256"]


@pytest.mark.thorough
async def test_a_run_survives_its_orchestrators(tmp_path: Path) -> None:
    await survive(tmp_path, 4, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("round_", range(3))
async def test_a_crowd_survives_its_orchestrators(tmp_path: Path, round_: int) -> None:
    await survive(tmp_path, 24, 3)
