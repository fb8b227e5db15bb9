"""Spawning, watching and ending single processes and trees, below any world."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import finder
from clawblox.model import WorldExit
from clawblox.process import (
    CannotExecute,
    Grace,
    Process,
    TreeEnd,
    adopt,
    end_tree,
    require_executable,
    signal_name,
    spawn,
    start_limiter,
)
from clawblox.proctree import Mark, Proc, Search, find_trees
from clawblox.threads import run_blocking
from tests.support import (
    command_line,
    descendants,
    is_alive,
    kill_processes,
    marked_processes,
    processes_in,
    read_process,
    wait_until_async,
)

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0
SLEEP = ("sleep", "60")
STUBBORN = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done")

TELL = """
import json, os, sys
told = {"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ), "sid": os.getsid(0)}
told["stdin"] = os.read(0, 1).decode()
told["pid"] = os.getpid()
listed = "/proc/self/fd/"
told["fds"] = sorted(int(fd) for fd in os.listdir(listed) if os.path.exists(listed + fd))
print(json.dumps(told), flush=True)
print("to standard error", file=sys.stderr)
"""

SERVE = """
import json, os, socket
connection = socket.socket(fileno=3).accept()[0]
told = {name: value for name, value in os.environ.items() if name.startswith("LISTEN_")}
connection.sendall(json.dumps(told).encode() + b"\\n")
"""

LISTEN = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID")

Spawn = Callable[..., Awaitable[Process]]


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
        spawned.append(process := await run_blocking(job, limiter=start_limiter()))
        return process

    yield start_one
    kill_processes(lambda: processes_in(tmp_path))
    for process in spawned:
        await process.wait()
        process.release()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture(params=["directly", "with a socket"])
def hand_over(request: pytest.FixtureRequest, listener: socket.socket) -> dict[str, Any]:
    """Ways to spawn that must not differ in what else they do."""
    return {"listener": listener.fileno()} if request.param == "with a socket" else {}


@pytest.fixture
def cookie() -> str:
    return uuid.uuid4().hex


def mark_of(cookie: str, *leaders: Process) -> Mark:
    identities = tuple((leader.pid, leader.start_time) for leader in leaders)
    return Mark(f"CLAWBLOX_INSTANCE={cookie}".encode(), identities)


def children() -> set[int]:
    """Return the children of this process, zombies included."""
    return {pid for pid in descendants(os.getpid()) if "clawblox-guard" not in command_line(pid)}


@contextlib.contextmanager
def reaping_everything() -> Iterator[set[int]]:
    """Have a thread that waits for every child, as some libraries do; yield what it reaped."""
    reaped: set[int] = set()
    is_over = threading.Event()

    def reap() -> None:
        while not is_over.is_set():
            with contextlib.suppress(ChildProcessError):
                pid, _ = os.waitpid(-1, os.WNOHANG)
                reaped.add(pid)
            time.sleep(0.001)

    thread = threading.Thread(target=reap)
    thread.start()
    try:
        yield reaped
    finally:
        is_over.set()
        thread.join()


# -------------------------------------------------------------------------------- spawning


async def test_a_process_gets_what_it_was_given_and_nothing_else(
    tmp_path: Path, start: Spawn, hand_over: dict[str, Any]
) -> None:
    with open(os.devnull) as inheritable:
        os.set_inheritable(inheritable.fileno(), True)
        program = (sys.executable, "-I", "-S", "-c", TELL, "a b", "", "ü", "$HOME")
        process = await start(*program, COLOUR="a\nb", **hand_over)
        assert await process.wait() == WorldExit(status=0)
    first, second = (tmp_path / "log").read_text().splitlines()
    told = json.loads(first)
    assert told["argv"] == ["-c", "a b", "", "ü", "$HOME"]
    assert told["cwd"] == str(tmp_path)
    assert told["env"].items() >= {"COLOUR": "a\nb", "PATH": os.defpath}.items()
    own = {"LC_CTYPE", "PWD", "SHLVL", "_"}  # what python sets itself, and a shell
    assert told["env"].keys() - own == {"COLOUR", "PATH", *(LISTEN if hand_over else ())}
    assert told["pid"] == told["sid"] == process.pid
    assert told["stdin"] == ""
    assert told["fds"] == ([0, 1, 2, 3] if hand_over else [0, 1, 2])
    assert second == "to standard error"


async def test_a_socket_is_handed_over_as_systemd_does(
    tmp_path: Path, start: Spawn, listener: socket.socket
) -> None:
    with socket.create_connection(listener.getsockname()) as early:
        process = await start(
            sys.executable, "-I", "-S", "-c", SERVE, listener=listener.fileno(), LISTEN_PID="1"
        )
        told = json.loads(early.makefile().readline())
    assert told == {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "world", "LISTEN_PID": str(process.pid)}
    assert await process.wait() == WorldExit(status=0)
    assert os.get_inheritable(listener.fileno()) is False


async def test_no_shell_stays_between_us_and_a_program_with_a_socket(
    start: Spawn, listener: socket.socket
) -> None:
    before = children()
    process = await start(*SLEEP, listener=listener.fileno())
    await wait_until_async(lambda: command_line(process.pid) == " ".join(SLEEP))
    assert children() - before == {process.pid}
    os.kill(process.pid, signal.SIGTERM)
    assert await process.wait() == WorldExit(signal="SIGTERM")


async def test_what_only_the_shell_finds_out_is_in_the_log(
    tmp_path: Path, start: Spawn, listener: socket.socket
) -> None:
    program = script_of(str(tmp_path))(tmp_path / "program")
    process = await start(program, listener=listener.fileno())
    assert await process.wait() in (WorldExit(status=126), WorldExit(status=127))
    assert program in (tmp_path / "log").read_text()


async def test_a_relative_program_is_taken_from_the_working_directory(
    tmp_path: Path, start: Spawn, hand_over: dict[str, Any]
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "seven"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o700)
    assert await (await start("bin/seven", **hand_over)).wait() == WorldExit(status=7)


def text_file(path: Path) -> str:
    path.write_text("neither a script nor a program\n")
    path.chmod(0o700)
    return str(path)


def private_file(path: Path) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o600)
    return str(path)


def script_of(interpreter: str) -> Callable[[Path], str]:
    def write(path: Path) -> str:
        path.write_text(f"#!{interpreter}\n")
        path.chmod(0o700)
        return str(path)

    return write


BAD_PROGRAMS: dict[str, tuple[Callable[[Path], str], int]] = {
    "missing": (str, errno.ENOENT),
    "not on the path": (lambda path: "no-such-program", errno.ENOENT),
    "not executable": (private_file, errno.EACCES),
    "a directory": (lambda path: str(path.parent), errno.EACCES),
    "below a file": (lambda path: private_file(path) + "/program", errno.ENOTDIR),
    "of no format": (text_file, errno.ENOEXEC),
    "without its interpreter": (script_of("/no/such/interpreter"), errno.ENOENT),
    "with too long a name": (lambda path: str(path) + "x" * 5000, errno.ENAMETOOLONG),
}


@pytest.mark.parametrize(("write", "number"), BAD_PROGRAMS.values(), ids=BAD_PROGRAMS)
async def test_a_program_that_cannot_be_executed_is_named_with_the_reason(
    tmp_path: Path,
    start: Spawn,
    hand_over: dict[str, Any],
    write: Callable[[Path], str],
    number: int,
) -> None:
    program = write(tmp_path / "program")
    before = children()
    with pytest.raises(CannotExecute) as caught:
        await start(program, **hand_over)
    assert str(caught.value) == f"cannot execute {program!r}: {os.strerror(number)}"
    assert children() == before


def test_a_program_is_searched_for_in_the_whole_path(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        directory.mkdir()
    path = {"PATH": f"{tmp_path / 'missing'}:first:{second}:{tmp_path}"}
    private_file(first / "program")
    with pytest.raises(CannotExecute, match="Permission denied"):
        require_executable("program", tmp_path, path)
    script_of("/bin/sh")(second / "program")
    require_executable("program", tmp_path, path)
    with pytest.raises(CannotExecute, match="No such file"):
        require_executable("other", tmp_path, path)


def test_a_program_need_not_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> None:  # as for everybody but root
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    program = script_of("/bin/sh")(tmp_path / "program")
    monkeypatch.setattr(Path, "open", refuse)
    require_executable(program, tmp_path, {})


async def test_arguments_that_are_too_long_are_said_to_be(
    start: Spawn, hand_over: dict[str, Any]
) -> None:
    with pytest.raises(CannotExecute, match=r"'true': Argument list too long$"):
        await start("true", "x" * (1 << 20), **hand_over)


def test_a_working_directory_that_is_missing_is_named(
    tmp_path: Path, log: int, hand_over: dict[str, Any]
) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(CannotExecute) as caught:
        spawn(SLEEP, cwd=missing, env={"PATH": os.defpath}, output=log, **hand_over)
    assert str(caught.value) == f"cannot execute 'sleep': No such file or directory: {missing}"


async def test_a_process_that_cannot_be_watched_does_not_stay(
    tmp_path: Path, start: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = children()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", fail)
        with pytest.raises(OSError, match="Too many open files"):
            await start(*SLEEP)
    assert children() == before


async def test_many_are_spawned_two_at_a_time(start: Spawn) -> None:
    assert start_limiter() is start_limiter()
    assert start_limiter().total_tokens == 2
    spawned: list[Process] = []

    async def one() -> None:
        spawned.append(await start("true"))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(one)
    assert len({process.pid for process in spawned}) == 20
    assert [await process.wait() for process in spawned] == [WorldExit(status=0)] * 20


# -------------------------------------------------------------------------------- watching


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("exit 0", WorldExit(status=0)),
        ("exit 3", WorldExit(status=3)),
        ("exit 255", WorldExit(status=255)),
        ("kill -TERM $$", WorldExit(signal="SIGTERM")),
        ("kill -SEGV $$", WorldExit(signal="SIGSEGV")),
        ("kill -KILL $$", WorldExit(signal="SIGKILL")),
        ("kill -35 $$", WorldExit(signal="signal 35")),
    ],
)
async def test_the_exit_is_known_by_its_status_or_the_name_of_its_signal(
    start: Spawn, ending: str, expected: WorldExit
) -> None:
    process = await start("sh", "-c", ending)
    assert await process.wait() == expected
    assert await process.wait() == expected


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (64, "SIGRTMAX"), (99, "signal 99")])
def test_every_signal_has_a_name(number: int, name: str) -> None:
    assert signal_name(number) == name


async def test_an_ended_process_is_a_zombie_until_it_is_released(start: Spawn) -> None:
    process = await start("true")
    await process.wait()
    zombie = read_process(process.pid)
    assert zombie is not None
    assert zombie.state == "Z"
    assert zombie.start_time == process.start_time
    process.release()
    assert read_process(process.pid) is None
    process.release()
    assert process.has_exited
    assert await process.wait() == WorldExit(status=0)


async def test_a_process_has_exited_once_it_has(start: Spawn) -> None:
    process = await start(*SLEEP)
    assert not process.has_exited
    os.kill(process.pid, signal.SIGKILL)
    await wait_until_async(lambda: process.has_exited)
    await process.wait()
    assert process.has_exited


async def test_several_tasks_may_wait_and_one_that_is_cancelled_harms_no_other(
    start: Spawn,
) -> None:
    process = await start(*SLEEP)
    exits: list[WorldExit] = []

    async def wait() -> None:
        exits.append(await process.wait())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0) as scope:
            await process.wait()
        assert scope.cancelled_caught
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        os.kill(process.pid, signal.SIGKILL)
    assert exits == [WorldExit(signal="SIGKILL")] * 2


async def test_a_foreign_wait_for_every_child_only_hides_the_status(start: Spawn) -> None:
    with reaping_everything() as reaped:
        process = await start(*SLEEP)
        os.kill(process.pid, signal.SIGKILL)
        await wait_until_async(lambda: process.pid in reaped)
        assert process.has_exited
        with anyio.fail_after(DEADLINE_S):
            assert await process.wait() == WorldExit()
        process.release()


async def test_a_process_that_was_reaped_before_it_was_watched_has_exited(
    start: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_pidfd = os.pidfd_open

    def reap_first(pid: int) -> int:
        os.waitpid(pid, 0)
        return open_pidfd(pid)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", reap_first)
        process = await start("true")
    assert process.has_exited
    assert await process.wait() == WorldExit()
    process.release()


async def test_a_process_that_was_reaped_while_it_was_opened_has_exited(
    start: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_pidfd = os.pidfd_open

    def reap_then(pid: int) -> int:
        pidfd = open_pidfd(pid)
        os.waitpid(pid, 0)
        return pidfd

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", reap_then)
        process = await start("true")
    assert await process.wait() == WorldExit()


async def test_the_process_of_somebody_else_is_adopted_without_its_status(
    tmp_path: Path,
) -> None:
    script = "sleep 60 & echo $! >pid.part; mv pid.part pid; wait; touch waited"
    with subprocess.Popen(["sh", "-c", script], cwd=tmp_path) as parent:
        await wait_until_async((tmp_path / "pid").exists)
        process = await run_blocking(adopt, int((tmp_path / "pid").read_text()))
        assert not process.is_child
        assert not process.has_exited
        os.kill(process.pid, signal.SIGKILL)
        assert await process.wait() == WorldExit()
        process.release()
        await wait_until_async(lambda: parent.poll() is not None)
    assert (tmp_path / "waited").exists()  # its parent has reaped it, not we


async def test_a_process_of_our_own_is_adopted_again_with_its_status(start: Spawn) -> None:
    let_go = await start("sh", "-c", "exec sleep 60")
    process = await run_blocking(adopt, let_go.pid)
    assert process.is_child
    os.kill(process.pid, signal.SIGKILL)
    assert await process.wait() == WorldExit(signal="SIGKILL")
    process.release()
    assert read_process(process.pid) is None


async def test_a_process_that_does_not_exist_cannot_be_adopted(start: Spawn) -> None:
    process = await start("true")
    await process.wait()
    process.release()
    with pytest.raises(ProcessLookupError):
        await run_blocking(adopt, process.pid)


# ------------------------------------------------------------------------------ the ladder


async def test_the_grace_is_only_ever_shortened() -> None:
    grace = Grace(600)
    end = grace.scope.deadline
    grace.shorten(6000)
    assert grace.scope.deadline == end
    grace.shorten(60)
    assert grace.scope.deadline <= end - 530
    with anyio.fail_after(DEADLINE_S), grace.scope:
        grace.shorten(0)
        await anyio.sleep_forever()
    assert grace.scope.cancelled_caught


async def test_a_tree_of_nobody_has_exited_already(cookie: str) -> None:
    end = await end_tree(mark_of(cookie), None, Grace(10))
    assert (end.rung, end.killed, end.survivors) == ("already_exited", (), ())


async def test_a_leader_that_died_without_children_has_exited_already(
    start: Spawn, cookie: str
) -> None:
    leader = await start("true")
    await leader.wait()
    assert (await end_tree(mark_of(cookie, leader), leader, Grace(10))).rung == "already_exited"


async def test_a_tree_that_obeys_is_terminated(start: Spawn, cookie: str) -> None:
    leader = await start("sh", "-c", "sleep 60 & sleep 60 & wait")
    await wait_until_async(lambda: len(descendants(leader.pid)) == 2)
    tree = descendants(leader.pid)
    assert (await end_tree(mark_of(cookie, leader), leader, Grace(60))).rung == "terminated"
    assert await leader.wait() == WorldExit(signal="SIGTERM")
    assert not {pid for pid in tree if is_alive(pid)}


async def test_what_ignores_the_signal_is_killed_and_named(
    tmp_path: Path, start: Spawn, cookie: str
) -> None:
    leader = await start(*STUBBORN)
    await wait_until_async(lambda: "ready" in (tmp_path / "log").read_text())
    with anyio.fail_after(DEADLINE_S):
        end = await end_tree(mark_of(cookie, leader), leader, Grace(0))
    assert end.rung == "killed"
    assert f"{leader.pid} {' '.join(STUBBORN)}" in end.killed
    assert await leader.wait() == WorldExit(signal="SIGKILL")


async def test_an_orphan_that_carries_nothing_is_killed_since_it_was_seen_before(
    tmp_path: Path, start: Spawn, cookie: str
) -> None:
    # It has a session and an environment of its own, and outlives the parent that led to it.
    script = "trap '' TERM; echo $$; while :; do sleep 0.01; done"
    leader = await start("sh", "-c", f'setsid env -i sh -c "{script}" & wait')
    await wait_until_async(lambda: (tmp_path / "log").read_text().endswith("\n"))
    orphan = int((tmp_path / "log").read_text())
    end = await end_tree(mark_of(cookie, leader), leader, Grace(0.2))
    assert end.rung == "killed"
    assert not is_alive(orphan)


async def test_a_leader_whose_pid_was_recycled_is_left_alone(start: Spawn, cookie: str) -> None:
    stranger = await start(*SLEEP)
    mark = Mark(f"CLAWBLOX_INSTANCE={cookie}".encode(), ((stranger.pid, stranger.start_time + 1),))
    assert (await end_tree(mark, None, Grace(0))).rung == "already_exited"
    assert is_alive(stranger.pid)


async def test_a_tree_ends_even_where_somebody_else_reaps_its_leader(
    start: Spawn, cookie: str
) -> None:
    with reaping_everything():
        leader = await start("sh", "-c", "sleep 60 & wait", CLAWBLOX_INSTANCE=cookie)
        await wait_until_async(lambda: len(marked_processes(cookie)) == 2)
        with anyio.fail_after(DEADLINE_S):
            end = await end_tree(mark_of(cookie, leader), leader, Grace(60))
        assert end.rung == "terminated"
        assert not marked_processes(cookie)
        leader.release()


# ------------------------------------------------------------------------- many at one time

OBEYS = "sleep 60 & sleep 60 & wait"
DAEMON = r"trap '' TERM; echo \$\$ >part; mv part daemon; while :; do sleep 0.01; done"
LEAVES_A_DAEMON = f'setsid sh -c "{DAEMON}" & sleep 60'
IGNORES = "trap '' TERM; echo >ready; while :; do sleep 0.01; done"

both_backends = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


async def end_all(
    leaders: dict[str, Process], grace: float, ends: dict[str, TreeEnd] | None = None
) -> dict[str, TreeEnd]:
    """End several trees at once; return how each ended, by its cookie."""
    found: dict[str, TreeEnd] = {} if ends is None else ends

    async def end(cookie: str, leader: Process) -> None:
        found[cookie] = await end_tree(mark_of(cookie, leader), leader, Grace(grace))

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for cookie, leader in leaders.items():
                tasks.start_soon(end, cookie, leader)
    return found


def note_passes(
    monkeypatch: pytest.MonkeyPatch,
    after: Callable[[list[list[Proc]]], None] = lambda found: None,
) -> list[int]:
    """Note how many share each look for processes; ``after`` is told what each has found."""
    passes: list[int] = []

    def find(searches: Sequence[Search]) -> list[list[Proc]]:
        passes.append(len(searches))
        found = find_trees(searches)
        after(found)
        return found

    monkeypatch.setattr(finder, "find_trees", find)
    return passes


@both_backends
async def test_trees_that_are_ended_together_are_kept_apart(
    tmp_path: Path, start: Spawn, cookie: str
) -> None:
    scripts = {"obeys": OBEYS, "daemon": LEAVES_A_DAEMON, "ignores": IGNORES, "gone": "exit"}
    leaders = {
        name: await start("sh", "-c", script, CLAWBLOX_INSTANCE=cookie + name)
        for name, script in scripts.items()
    }
    by_name = {cookie + name: leader for name, leader in leaders.items()}
    await leaders["gone"].wait()
    await wait_until_async(lambda: len(descendants(leaders["obeys"].pid)) == 2)
    for file in ("daemon", "ready"):
        await wait_until_async((tmp_path / file).exists)
    daemon = int((tmp_path / "daemon").read_text())
    ends = {name.removeprefix(cookie): e for name, e in (await end_all(by_name, 0.3)).items()}
    assert {name: end.rung for name, end in ends.items()} == {
        "obeys": "terminated",
        "daemon": "killed",
        "ignores": "killed",
        "gone": "already_exited",
    }
    assert ends["obeys"].killed == ()
    assert pids_of(ends["daemon"]) & {daemon, leaders["daemon"].pid} == {daemon}
    assert leaders["ignores"].pid in pids_of(ends["ignores"])
    assert not pids_of(ends["daemon"]) & pids_of(ends["ignores"])
    assert not any(end.survivors for end in ends.values())
    assert not any(marked_processes(name) for name in by_name)


def pids_of(end: TreeEnd) -> set[int]:
    return {int(described.split()[0]) for described in end.killed}


@both_backends
async def test_many_stops_share_two_passes(
    start: Spawn, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder, "_GATHER_S", 2 * DEADLINE_S)
    leaders = {f"{cookie}{number}": await start(*SLEEP) for number in range(20)}
    passes = note_passes(monkeypatch)
    ends = await end_all(leaders, 60)
    assert [end.rung for end in ends.values()] == ["terminated"] * 20
    assert passes == [20, 20]


@both_backends
async def test_many_that_have_to_be_killed_are_killed_together(
    tmp_path: Path, start: Spawn, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders = {f"{cookie}{number}": await start(*STUBBORN) for number in range(8)}
    await wait_until_async(lambda: (tmp_path / "log").read_text().count("ready") == 8)
    passes = note_passes(monkeypatch)
    ends = await end_all(leaders, 0.1)
    for name, leader in leaders.items():
        assert ends[name].rung == "killed"
        assert leader.pid in pids_of(ends[name])
        assert await leader.wait() == WorldExit(signal="SIGKILL")
    assert len({pid for end in ends.values() for pid in pids_of(end)}) == sum(
        len(end.killed) for end in ends.values()
    )
    assert max(passes[1:]) > 1


@both_backends
async def test_a_tree_that_dies_during_the_pass_is_over(
    start: Spawn, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies, stays = await start(*SLEEP), await start(*SLEEP)

    def kill_one(found: list[list[Proc]]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(dies.pid, signal.SIGKILL)

    note_passes(monkeypatch, kill_one)
    ends = await end_all({f"{cookie}0": dies, f"{cookie}1": stays}, 60)
    assert [ends[f"{cookie}{number}"].rung for number in range(2)] == ["terminated"] * 2
    assert await dies.wait() == WorldExit(signal="SIGKILL")
    assert await stays.wait() == WorldExit(signal="SIGTERM")


@both_backends
async def test_a_stop_that_is_cancelled_leaves_the_others_to_end(
    tmp_path: Path, start: Spawn, cookie: str
) -> None:
    leaders = {f"{cookie}{number}": await start(*STUBBORN) for number in range(3)}
    given_up, *others = leaders
    await wait_until_async(lambda: (tmp_path / "log").read_text().count("ready") == 3)
    ends: dict[str, TreeEnd] = {}
    scope = anyio.CancelScope()

    async def end_one(name: str) -> None:
        leader = leaders[name]
        with scope if name == given_up else contextlib.nullcontext():
            ends[name] = await end_tree(mark_of(name, leader), leader, grace_of[name])

    grace_of = {name: Grace(60) for name in leaders}
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for name in leaders:
                tasks.start_soon(end_one, name)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            for name in others:
                grace_of[name].shorten(0)
    assert {name: end.rung for name, end in ends.items()} == dict.fromkeys(others, "killed")
    assert is_alive(leaders[given_up].pid)
