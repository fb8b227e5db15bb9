"""Helpers for the tests of many worlds: counting agents, and contents of run directories."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import anyio

from clawblox import AsyncWorld, StartedWorld, WorldEvent
from clawblox.telemetry.events import EventStream
from tests.support.processes import marked_processes
from tests.support.running import Bot, manifest_of
from tests.support.sockets import is_listening
from tests.support.waiting import HANG_S
from tests.support.worlds import ask, make_world, world_command


def seeded() -> random.Random:
    """Return a random generator whose seed is in the output of a failed test."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def make_motley_world(parent: Path, *flags: str, toml_extra: str = "") -> Path:
    """Write a world that takes further flags at each start.

    The flags come from the variable ``FLAGS``, which can differ between instances, and from the
    file ``flags`` in the world directory, which can change before an instance is restarted.
    """
    directory = make_world(parent, *flags, name="motley", toml_extra=toml_extra)
    command = world_command(*flags)
    motley = ["/bin/sh", "-c", 'exec "$@" $FLAGS $(cat flags)', "sh", *command]
    toml = directory / "world.toml"
    toml.write_text(toml.read_text().replace(json.dumps(command), json.dumps(motley)))
    (directory / "flags").touch()
    return directory


def variables_of(pid: int) -> dict[str, str]:
    """Return the environment of a process at its start."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


# --------------------------------------------------------------------------------- agents


async def join(world: AsyncWorld, started: StartedWorld) -> str:
    """Join as the agent whose directory is in the instance's directory; return its session."""
    bot = Bot("Rocky", started.instance_dir / "agents" / "rocky")
    return str((await world.connect(bot, instance=started.name))["session"])


async def join_all(world: AsyncWorld, batch: Iterable[StartedWorld]) -> dict[str, str]:
    """Join each instance with :func:`join`; return the sessions by instance name."""
    sessions: dict[str, str] = {}

    async def join_one(started: StartedWorld) -> None:
        sessions[started.name] = await join(world, started)

    async with anyio.create_task_group() as joins:
        for started in batch:
            joins.start_soon(join_one, started)
    return sessions


def act(port: int, session: str, number: int = 1) -> bytes:
    """Add to the counter of a world; return its answer."""
    body = json.dumps({"type": "add", "data": number}).encode()
    answer = ask(port, "POST", "/input", body=body, headers={"X-Session": session})
    assert answer.status == 200
    return answer.body


def look(port: int, session: str) -> Any:
    """Return an agent's observation."""
    return ask(port, "GET", "/observe", headers={"X-Session": session}).json()


# --------------------------------------------------------------------------------- events


async def until(events: EventStream, kind: str, names: Iterable[str]) -> list[WorldEvent]:
    """Return the events up to the first of a kind for each of the instances."""
    missing = set(names)
    seen: list[WorldEvent] = []
    with anyio.fail_after(HANG_S):
        while missing:
            event = await anext(events)
            seen.append(event)
            if event.kind == kind:
                missing.discard(event.subject)
    return seen


def kinds(events: Iterable[WorldEvent], instance: str) -> list[str]:
    """Return the kinds of an instance's events, in order."""
    return [event.kind for event in events if event.subject == instance]


async def past(events: EventStream) -> list[WorldEvent]:
    """Return the events that have already arrived."""
    seen: list[WorldEvent] = []
    with anyio.move_on_after(0):
        async for event in events:
            seen.append(event)  # noqa: PERF401 - keeps events after a timeout
    return seen


# ----------------------------------------------------------------------------------- disk


def registered(instance_dir: Path) -> dict[Path, str]:
    """Return the digests of the saves that a manifest lists as existing, by path."""
    entries = manifest_of(instance_dir).get("checkpoints", ())
    there = [entry for entry in entries if "removed_at" not in entry]
    return {instance_dir / entry["path"]: entry["sha256"] for entry in there}


def on_disk(instance_dir: Path) -> dict[Path, str]:
    """Return the digests of the save files of an instance, by path."""
    files = (instance_dir / "checkpoints").glob("*")
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def leftovers(run_dir: Path, ports: Iterable[int] = ()) -> list[str]:
    """Return leftovers of ended instances: processes, ports, locks, sockets."""
    files = [
        str(path)
        for path in run_dir.rglob("*")
        if path.suffix in (".lock", ".partial", ".sock", ".status", ".tmp")
        and path.name != "manifest.json.lock"
    ]
    listening = [f"port {port}" for port in ports if is_listening(port)]
    return [*files, *listening, *(f"process {pid}" for pid in marked_processes())]


def exposed(run_dir: Path) -> list[str]:
    """Return the files that users other than the owner may read or write."""
    paths = (run_dir, *run_dir.rglob("*"))
    return [str(path) for path in paths if path.lstat().st_mode & 0o077]


def ports_of(batch: Iterable[StartedWorld]) -> list[int]:
    return [started.port for started in batch]


def statuses(run_dir: Path, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return the section ``run`` of each instance's manifest."""
    return {name: manifest_of(run_dir / "worlds" / name)["run"] for name in names}
