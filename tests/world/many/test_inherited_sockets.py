"""Many worlds that inherit their listening sockets."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld
from clawblox.rundir.status import read_run
from tests.support.crowd import until, variables_of
from tests.support.sockets import is_listening
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


def listeners_of(pid: int, port: int) -> set[int]:
    """Return the descriptors of a process that are listening sockets of a port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"}
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread may open and close
            if os.readlink(path).removeprefix("socket:[")[:-1] in inodes:
                found.add(int(path.name))
    return found


@pytest.mark.thorough
async def test_worlds_alone_hold_their_inherited_sockets_after_one_probe(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(
        tmp_path, "--listen", "inherit", "--slow-boot", "0.2", toml_extra='listen = "inherit"'
    )
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(4, run_dir=run, restart="fresh")
        batch.raise_if_failed()
        for started in batch:
            asked = ask(started.port, "GET", "/__requests").json()
            assert [one["path"] for one in asked] == ["/api.md"]
            assert listeners_of(started.pid, started.port) == {3}
            assert listeners_of(os.getpid(), started.port) == set()
            told = variables_of(started.pid)
            assert (told["LISTEN_PID"], told["LISTEN_FDS"]) == (str(started.pid), "1")
        victim = batch["w001"]
        os.kill(victim.pid, signal.SIGKILL)
        await until(events, "restarting", [victim.name])
        await until(events, "ready", [victim.name])
        (entry,) = (await run_sync(read_run, run, ["w001"])).instances
        assert entry.port == victim.port
        assert entry.pid is not None
        assert listeners_of(entry.pid, victim.port) == {3}


async def test_no_process_holds_the_socket_of_a_dead_world(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path, "--listen", "inherit", toml_extra='listen = "inherit"')
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(3, run_dir=run)
        os.kill(batch["w000"].pid, signal.SIGKILL)
        await until(events, "exited", ["w000"])
        with pytest.raises(ConnectionRefusedError):
            ask(batch["w000"].port, "GET", "/api.md")
        assert not is_listening(batch["w000"].port)
        assert ask(batch["w002"].port, "GET", "/api.md").status == 200
