"""A world that no longer listens counts as dead, even if one of its processes is running."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld, WorldExitedError
from clawblox.instance import listening
from clawblox.instance.listening import GONE_AFTER_S, ListenerWatch, watch_listeners
from clawblox.system.process_tree import Mark, read_start_time
from clawblox.system.sock_diag import Listener
from tests.instance.supervision.support import LIFE, now
from tests.support.crowd import kinds, leftovers, past, until
from tests.support.processes import descendants
from tests.support.running import manifest_of
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask, make_world, world_command

pytestmark = pytest.mark.anyio

REASON = r"none of its processes has listened on port \d+ for 10 s, although pid \d+ .* is running"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the delays between checks."""
    monkeypatch.setattr(listening, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(listening, "LISTENING_INTERVAL", 1)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("listen", ["bind", "inherit"])
async def test_world_that_closes_its_port_is_ended_with_a_reason_unlike_its_sibling(
    tmp_path: Path, run: Path, listen: str
) -> None:
    directory = make_world(tmp_path, "--listen", listen, toml_extra=f'listen = "{listen}"')
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        await past(events)
        deaf = batch["w001"]
        assert ask(deaf.port, "POST", "/__close-listener").status == 200
        seen = await until(events, "exited", ["w001"])
        assert kinds(seen, "w001") == ["halted", "exited"]
        assert kinds(seen, "w000") == []
        with pytest.raises(WorldExitedError, match=REASON):
            await world.save(instance="w001")
        assert world.instances == ("w000",)
        assert ask(batch["w000"].port, "GET", "/api.md").status == 200
        await world.stop_all()
    status = await now(run, "w001")
    assert status.state == "halted"
    assert status.halt is not None
    assert f"port {deaf.port}" in status.halt
    assert manifest_of(deaf.instance_dir)["run"]["status"] == "failed"
    assert leftovers(run, [deaf.port]) == []


@pytest.mark.usefixtures("quick")
async def test_a_wrapper_whose_server_has_ended_is_brought_back_by_its_policy(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    wrapper = ["/bin/sh", "-c", '"$@" & wait; sleep 600', "sh", *world_command()]
    toml = directory / "world.toml"
    toml.write_text(toml.read_text().replace(json.dumps(world_command()), json.dumps(wrapper)))
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="fresh")
        await past(events)
        (server,) = descendants(started.pid)
        os.kill(server, 9)
        seen = await until(events, "ready", ["w000"])
        assert kinds(seen, "w000") == ["halted", "exited", *LIFE]
        assert ask(started.port, "GET", "/api.md").status == 200
        (entry,) = manifest_of(started.instance_dir)["restarts"]
        assert entry["exit"].startswith("halted: none of its processes has listened on port ")
        await world.stop_all()


@pytest.mark.usefixtures("quick")
async def test_detached_world_with_a_closed_port_is_ended_on_attach(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        (started,) = await world.start_many(1, run_dir=run, detach=True)
    assert ask(started.port, "POST", "/__close-listener").status == 200
    async with AsyncWorld.attach(run) as world, world.events() as events:
        seen = await until(events, "exited", ["w000"])
        assert kinds(seen, "w000")[-2:] == ["halted", "exited"]


@pytest.mark.usefixtures("quick")
async def test_listeners_are_checked_after_another_world_of_the_loop_has_closed(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        async with AsyncWorld(dir=directory) as first:
            await first.start(run_dir=tmp_path / "first")
            (started,) = await world.start_many(1, run_dir=run)
        await past(events)
        assert ask(started.port, "POST", "/__close-listener").status == 200
        seen = await until(events, "exited", ["w000"])
        assert kinds(seen, "w000")[-2:] == ["halted", "exited"]


@pytest.mark.usefixtures("quick")
async def test_world_that_may_stop_listening_continues(tmp_path: Path, run: Path) -> None:
    watched = []

    async def note(watch: ListenerWatch, _: object) -> None:
        watched.append(watch.port)
        await anyio.sleep_forever()

    directory = make_world(tmp_path, toml_extra="[run.liveness]\nlistener = false")
    sibling = make_world(tmp_path, name="sibling")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ListenerWatch, "wait_gone", note)
        async with AsyncWorld(dir=directory) as world, AsyncWorld(dir=sibling) as other:
            await world.start(run_dir=run)
            started = await other.start(run_dir=run)
            await wait_until_async(lambda: watched)
            assert watched == [started.port]


# ------------------------------------------------------------------------------------ looks


class Table:
    """Fake sockets of this machine, per check; None for a failing check."""

    def __init__(self, looks: Iterator[list[int] | None], port: int) -> None:
        self.count = 0
        self._looks = looks
        self._port = port

    def read(self) -> dict[int, list[Listener]]:
        inodes = next(self._looks)
        self.count += 1
        if inodes is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return {self._port: [Listener("127.0.0.1", inode) for inode in inodes]}


async def make_watch(pid: int, port: int, *, is_proven: bool) -> ListenerWatch:
    leader = pid, await run_sync(read_start_time, pid)
    mark = Mark(b"CLAWBLOX_INSTANCE=of-a-test", (leader,))
    return ListenerWatch("127.0.0.1", port, mark, pid, is_proven)


async def wait_gone(watch: ListenerWatch) -> None:
    """Wait as an instance of two worlds in this event loop, of which only one checks."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_listeners)
        tasks.start_soon(watch_listeners)
        assert await watch.wait_gone(anyio.sleep_forever)
        tasks.cancel_scope.cancel()


MISSES = GONE_AFTER_S + 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "looks",
    [
        [[]] * MISSES,
        [[7], *[[]] * (MISSES - 1), [7], *[[]] * MISSES],
        [[7], *[[], None] * (MISSES - 1), []],
    ],
    ids=["at once", "with a listener between", "with looks that failed"],
)
async def test_only_consecutive_checks_without_a_listener_count(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[int] | None]
) -> None:
    table = Table(iter([*looks, [7]]), 20001)
    monkeypatch.setattr(listening, "_read_listeners", table.read)
    await wait_gone(await make_watch(os.getpid(), 20001, is_proven=True))
    assert table.count == len(looks)


@pytest.mark.usefixtures("quick")
async def test_world_with_an_invisible_network_is_not_gone_unless_its_listener_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [*[[]] * 2 * MISSES, [7], *[[]] * MISSES]
    table = Table(iter([*looks, [7]]), 20001)
    monkeypatch.setattr(listening, "_read_listeners", table.read)
    monkeypatch.setattr(listening, "can_list_sockets", lambda pid: False)
    await wait_gone(await make_watch(os.getpid(), 20001, is_proven=False))
    assert table.count == len(looks)


class BrokenWatch(ListenerWatch):
    async def _is_gone(self, listeners: Iterable[Listener]) -> bool:
        raise RuntimeError("a defect")


@pytest.mark.usefixtures("quick")
async def test_defect_in_one_check_ends_its_wait_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_read_listeners", dict)
    sound = await make_watch(os.getpid(), 20001, is_proven=True)
    broken = BrokenWatch(sound.host, 20002, sound.mark, sound.pid, is_proven=True)
    failed = anyio.Event()

    async def fail() -> None:
        with pytest.raises(RuntimeError, match="a defect"):
            await broken.wait_gone(anyio.sleep_forever)
        failed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fail)
        await wait_gone(sound)
        await failed.wait()


async def test_only_urgent_watches_are_checked_in_each_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(listening, "LISTENING_INTERVAL", 3)
    table = Table(iter([[7], [7], *[[]] * MISSES]), 20001)
    monkeypatch.setattr(listening, "_read_listeners", table.read)
    pauses = []
    sleep = anyio.sleep

    async def note(delay: float) -> None:
        pauses.append(table.count)
        await sleep(delay)

    monkeypatch.setattr(listening.anyio, "sleep", note)
    await wait_gone(await make_watch(os.getpid(), 20001, is_proven=True))
    assert pauses[:11] == [0, 1, 1, 1, 2, 2, 2, 3, 4, 5, 6]


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that listens on another socket when it reads a line, and then reports that."""
    code = """
import socket, sys
def listen():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    return listener
port = 0
listener = listen()
port = listener.getsockname()[1]
for line in sys.stdin:
    listener.close()
    if line == "again\\n":
        listener = listen()
    else:
        print("closed", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def say(process: subprocess.Popen[bytes], word: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{word}\n".encode())
    process.stdin.flush()
    process.stdout.readline()


@pytest.mark.usefixtures("quick")
async def test_new_socket_counts_if_it_belongs_to_the_world(
    monkeypatch: pytest.MonkeyPatch, server: tuple[subprocess.Popen[bytes], int]
) -> None:
    process, port = server
    looks = 0
    read = listening._read_listeners

    def note_look() -> dict[int, list[Listener]]:
        nonlocal looks
        looks += 1
        return read()

    monkeypatch.setattr(listening, "_read_listeners", note_look)
    ended = anyio.Event()

    async def watch() -> None:
        await wait_gone(await make_watch(process.pid, port, is_proven=True))
        ended.set()

    async def wait_looks() -> None:
        enough = looks + 2 * MISSES
        await wait_until_async(lambda: looks > enough)

    with ExitStack() as stack:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await wait_looks()
            await run_sync(say, process, "again")
            await wait_looks()
            assert not ended.is_set()
            await run_sync(say, process, "close")
            stranger = stack.enter_context(socket.socket())
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.bind(("127.0.0.1", port))
            stranger.listen()
            with anyio.fail_after(HANG_S):
                await ended.wait()
