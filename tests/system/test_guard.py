"""The guard of an orchestrator and its client: which processes it ends or keeps."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawblox.system import guard
from clawblox.system.guard import Guard, find_guarded
from clawblox.system.helper import await_end
from clawblox.system.process_tree import Mark
from tests.support.orchestrators import (
    STAY,
    Orchestrator,
    orchestrator,
    wait_for_nothing,
    world_pid,
)
from tests.support.processes import (
    all_processes,
    command_line,
    descendants,
    find_guards,
    is_alive,
    kill_processes,
    marked_processes,
    read_process,
)
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import ask, make_world, world_command

# ------------------------------------------------------------------------------- the guard

SEVERAL = """
async def main():
    async with AsyncWorld(dir=world_dir) as one, AsyncWorld(dir=world_dir) as other:
        while word := await hear_async():
            if word == "start":
                for world in (one, other):
                    await world.start(run_dir=run_dir)
            if word == "stop":
                for world in (one, other):
                    for name in world.instances:
                        await world.stop(instance=name)
            tell("done")
anyio.run(main)
"""


@contextlib.contextmanager
def several(tmp_path: Path, *flags: str) -> Iterator[Callable[[str], Orchestrator]]:
    """Yield an orchestrator of two worlds that starts and stops instances on demand."""
    with orchestrator(SEVERAL, make_world(tmp_path, *flags), tmp_path / "run") as one:

        def command(word: str) -> Orchestrator:
            one.tell(word)
            assert one.hear() == "done"
            return one

        yield command


@pytest.mark.thorough
def test_one_guard_serves_all_worlds_of_its_orchestrator(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        assert command("nothing").guards() == []
        first = command("start").guards()
        assert len(first) == 1
        command("stop")
        assert command("start").guards() == first
        assert command("start").guards() == first
        assert len(marked_processes()) == 4
        command("nothing").kill()
        wait_for_nothing(tmp_path)


@pytest.mark.thorough
def test_a_killed_guard_is_replaced_by_one_with_the_same_state(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        (first,) = command("start").guards()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not is_alive(first))
        one = command("start")
        (second,) = one.guards()
        assert second != first
        assert first not in descendants(one.pid)  # no zombie is left
        assert len(marked_processes()) == 4
        command("nothing").kill()
        wait_for_nothing(tmp_path)


@pytest.mark.thorough
def test_worlds_end_with_their_orchestrator_after_its_guard_was_replaced(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        one = command("start")
        (first,) = one.guards()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: [pid for pid in one.guards() if pid != first and is_alive(pid)])
        assert len(marked_processes()) == 2
        one.kill()
        wait_for_nothing(tmp_path)


def test_a_guard_reads_the_marks_from_its_lifeline_at_its_start(
    client: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifelines = []

    def refuse(*_: object, channel: int, **_others: object) -> int:
        os.set_blocking(channel, False)
        lifelines.append(os.read(channel, 1 << 20))
        raise OSError("no process")

    monkeypatch.setattr(guard, "spawn_detached", refuse)
    for name in ("one", "two"):
        with pytest.raises(OSError, match="no process"):
            client.watch(make_mark(name))
    assert b'=one"' in lifelines[0]
    assert b'=one"' in lifelines[1]
    assert b'=two"' in lifelines[1]


@pytest.mark.thorough
def test_a_guard_that_dies_repeatedly_is_replaced_each_time(client: Guard) -> None:
    client.watch(make_mark("one"))
    seen = {find_pid(client)}
    for _ in range(3):
        os.kill(find_pid(client), signal.SIGKILL)
        wait_until(lambda: find_pid(client) not in {0, *seen} and is_alive(find_pid(client)))
        seen.add(find_pid(client))


def test_a_guard_that_is_killed_is_replaced_once(
    client: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = descendants(os.getpid())  # helpers that earlier tests have started
    spawned, spawn = [], guard._spawn

    def count(*arguments: int) -> int:
        spawned.append(spawn(*arguments))
        return spawned[-1]

    monkeypatch.setattr(guard, "_spawn", count)
    client.watch(make_mark("one"))
    first = find_pid(client)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: find_pid(client) not in (0, first))
    for name in ("one", "two", "three"):
        client.watch(make_mark(name))
    assert len(spawned) == 2
    assert descendants(os.getpid()) <= others  # no guard, and no process that spawned it


def test_a_guard_without_marks_is_not_replaced_after_its_death(client: Guard) -> None:
    client.watch(make_mark("one"))
    client.forget(make_mark("one"))
    (keeper,) = [each for each in threading.enumerate() if each.name == guard.KEEPER_THREAD][-1:]
    os.kill(find_pid(client), signal.SIGKILL)
    keeper.join(HANG_S)
    assert find_pid(client) == 0


@pytest.mark.thorough
def test_a_guard_that_cannot_be_replaced_immediately_is_replaced_later(
    client: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.watch(make_mark("one"))
    first, spawn, failures = find_pid(client), guard._spawn, iter(range(2))

    def seldom(*arguments: int) -> int:
        if next(failures, None) is not None:
            raise OSError(errno.EAGAIN, "no process can be made")
        return spawn(*arguments)

    monkeypatch.setattr(guard, "_spawn", seldom)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: find_pid(client) not in (0, first) and is_alive(find_pid(client)))


@pytest.mark.thorough
def test_a_guard_without_marks_ends_with_its_orchestrator(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        command("start")
        one = command("stop")
        (found,) = one.guards()
        one.kill()
        wait_until(lambda: not is_alive(found))


@pytest.mark.thorough
def test_a_stop_succeeds_after_the_guard_was_killed(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        (found,) = command("start").guards()
        os.kill(found, signal.SIGKILL)
        command("stop")
        assert not marked_processes()


@pytest.mark.thorough
def test_a_guard_ignores_signals_for_its_orchestrator(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        (found,) = command("start").guards()
        polite = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        wait_until(lambda: ignored_signals(found) >= set(polite))
        for number in polite:
            os.kill(found, number)
        one = command("nothing")
        assert one.guards() == [found]
        one.kill()
        wait_for_nothing(tmp_path)


def ignored_signals(pid: int) -> set[int]:
    (mask,) = (line.split()[1] for line in status_of(pid) if line.startswith("SigIgn"))
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


def status_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def kinds_of_descriptors(pid: int) -> list[str]:
    paths = sorted(Path(f"/proc/{pid}/fd").iterdir())
    return [os.readlink(path).partition(":")[0] for path in paths]


CANARY = "canary-8f1d6a0c3b7e4952"


@pytest.mark.thorough
def test_a_guard_is_small_and_inherits_no_secrets_or_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", CANARY)
    monkeypatch.setenv("WORLD_OPERATOR_TOKEN", CANARY)
    handed, write_end = os.pipe()
    body = STAY.replace("start(", f'start(env={{"WORLD_OPERATOR_TOKEN": "{CANARY}"}}, ')
    world = make_world(tmp_path)
    with orchestrator(body, world, tmp_path / "run", pass_fds=[write_end]) as one:
        os.close(write_end)
        one.hear()
        (found,) = one.guards()
        mine = ["pipe", "/dev/null", "/dev/null", "anon_inode"]
        wait_until(lambda: kinds_of_descriptors(found) == mine, what="the guard has settled")
        assert Path(f"/proc/{found}/environ").read_bytes() == f"PATH={os.defpath}\0".encode()
        assert CANARY not in command_line(found)
        assert os.readlink(f"/proc/{found}/cwd") == "/"
        (size,) = (int(line.split()[1]) for line in status_of(found) if line.startswith("VmRSS"))
        assert size < 16 * 1024
        one.kill()
        assert os.read(handed, 1) == b""  # no other process holds its other end
        wait_for_nothing(tmp_path)
    os.close(handed)


@pytest.mark.thorough
def test_a_detached_world_outlives_even_a_killed_orchestrator(tmp_path: Path) -> None:
    world = make_world(tmp_path, sidecars={"feed": []})
    with orchestrator(STAY, world, tmp_path / "run", "detach") as one:
        port = int(one.hear())
        (found,) = one.guards()
        one.kill()
        wait_until(lambda: not is_alive(found))
        assert ask(port, "GET", "/api.md").status == 200
        assert len(marked_processes()) == 2
        kill_processes(marked_processes)


@pytest.mark.thorough
def test_a_detached_world_that_is_not_ready_yet_is_ended(tmp_path: Path) -> None:
    world = make_world(tmp_path, "--never-listen", "--pid-file", "world.pid")
    with orchestrator(STAY, world, tmp_path / "run", "detach") as one:
        pid = world_pid(world)
        one.kill()
        wait_until(lambda: not is_alive(pid))


STUBBORN = world_command("--sidecar", "--ignore-sigterm", "--pid-file", "world.pid")
UNMARKED = {
    "a leader": ["env", "-i", *STUBBORN],
    "an orphan": ["sh", "-c", f"setsid env -i {shlex.join(STUBBORN)} & wait"],
}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(UNMARKED["a leader"], id="a leader", marks=pytest.mark.thorough),
        pytest.param(UNMARKED["an orphan"], id="an orphan"),
    ],
)
def test_processes_without_a_mark_are_ended_with_their_tree(
    tmp_path: Path, command: list[str]
) -> None:
    world = make_world(tmp_path)
    with (world / "world.toml").open("a") as file:
        file.write(f'[[run.sidecar]]\nname = "bare"\ncommand = {json.dumps(command)}\n')
    with orchestrator(STAY, world, tmp_path / "run") as one:
        one.hear()
        pid = world_pid(world)
        assert pid not in marked_processes()
        one.kill()
        wait_until(lambda: not is_alive(pid))
        wait_for_nothing(tmp_path)


# ------------------------------------------------------------------------------ its client


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    """Yield a separate client; at the end, its guard sees the end of the orchestrator."""
    monkeypatch.setattr(guard, "_KEEPER_PAUSE_S", 0.01)
    found = Guard()
    yield found
    pid = find_pid(found)
    with found._lock:
        found._marks.clear()
        found._lease_until = 0.0
        found._close()
    wait_until(lambda: not is_alive(pid))


def find_pid(client: Guard) -> int:
    """Return the pid of a client's guard; 0 without a live guard."""
    with client._lock:
        if client._pidfd < 0:
            return 0
        lines = Path(f"/proc/self/fdinfo/{client._pidfd}").read_text().splitlines()
    return max(0, *(int(line.split()[1]) for line in lines if line.startswith("Pid:")))


def read_start(pid: int) -> int:
    process = read_process(pid)
    assert process is not None
    return process.start_time


def make_mark(name: str) -> Mark:
    return Mark(f"CLAWBLOX_INSTANCE={name}".encode())


def test_forgetting_works_without_a_guard(client: Guard) -> None:
    client.forget(make_mark("one"))
    assert find_pid(client) == 0


SELF_ADOPTED = """
from clawblox.system.guard import guard
from clawblox.system.process_tree import Mark
from tests.support.processes import find_guards
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
guard.watch(Mark(b"CLAWBLOX_INSTANCE=one"))
while not (found := find_guards(os.getpid())):
    pass  # it executes its program
tell(*found)
{body}
signal.pause()
"""
REAP_EVERYTHING = """
hear()
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.001)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("body", ["", REAP_EVERYTHING], ids=["by itself", "by other code"])
def test_the_guard_of_an_orchestrator_that_adopts_orphans_is_reaped_and_replaced(
    tmp_path: Path, body: str
) -> None:
    with orchestrator(SELF_ADOPTED.format(body=body), tmp_path, tmp_path) as one:
        first = int(one.hear())
        assert first in descendants(one.pid)
        one.tell("reap")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: [pid for pid in one.guards() if pid != first])
        wait_until(lambda: read_process(first) is None)  # no zombie is left
        one.kill()


@pytest.mark.thorough
def test_a_guard_that_cannot_be_started_fails_the_start(
    client: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(FileNotFoundError):
            client.watch(make_mark("one"))
    client.watch(make_mark("two"))
    assert is_alive(find_pid(client))


@pytest.mark.thorough
def test_the_last_messages_of_a_dead_orchestrator_are_read(tmp_path: Path) -> None:
    lines = [["watch", f"CLAWBLOX_INSTANCE={tmp_path.name}-{number}", []] for number in range(9999)]
    words = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    read_end, write_end = os.pipe()  # held open, as by a forked child
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert os.write(write_end, words) == len(words) > 65536
    env = {"PATH": os.defpath, "CLAWBLOX_INSTANCE": f"{tmp_path.name}-9998"}
    with subprocess.Popen(["sleep", "60"], env=env) as world, subprocess.Popen(["true"]) as dead:
        wait_until(lambda: not is_alive(dead.pid))
        pidfd = guard._spawn(dead.pid, read_start(dead.pid), read_end)
        assert world.wait() == -signal.SIGTERM
    assert await_end(pidfd)
    for descriptor in (pidfd, read_end, write_end):
        os.close(descriptor)


@pytest.mark.parametrize("number", ["reaped", "recycled"])
def test_a_guard_notices_an_orchestrator_that_died_before_its_start(
    tmp_path: Path, number: str
) -> None:
    read_end, write_end = os.pipe()  # held open, as by a forked child
    mark = make_mark(tmp_path.name)
    os.write(write_end, guard._message("watch", *mark))
    env = {"PATH": os.defpath, "CLAWBLOX_INSTANCE": tmp_path.name}
    with subprocess.Popen(["sleep", "60"], env=env) as world:
        gone = subprocess.Popen(["sleep", "60"])
        start_time = read_start(gone.pid)
        if number == "reaped":
            gone.kill()
            gone.wait()
        else:
            start_time -= 1  # of an earlier process
        pidfd = guard._spawn(gone.pid, start_time, read_end)
        assert world.wait() == -signal.SIGTERM
        gone.kill()
        gone.wait()
    assert await_end(pidfd)
    for descriptor in (pidfd, read_end, write_end):
        os.close(descriptor)


@pytest.mark.thorough
def test_many_worlds_fit_into_the_lifeline(client: Guard, tmp_path: Path) -> None:
    env = {"PATH": os.defpath, "CLAWBLOX_INSTANCE": f"{tmp_path.name}-4999"}
    with subprocess.Popen(["sleep", "60"], env=env) as world:
        for number in range(5000):
            client.watch(make_mark(f"{tmp_path.name}-{number}"))
            if number < 4000:
                client.forget(make_mark(f"{tmp_path.name}-{number}"))
        with client._lock:
            client._marks.clear()
            client._close()
        assert world.wait() == -signal.SIGTERM


# ------------------------------------------------------------------------- killed children


def kill_children(pid: int) -> None:
    """Kill the direct children of a process and their sessions, like Ray at an actor's end."""
    processes = all_processes()
    children = {child for child, process in processes.items() if process.parent == pid}
    sessions = {other for other in processes if read_session_id(other) in children}
    for victim in children | sessions:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def read_session_id(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return 0


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--daemon"], marks=pytest.mark.thorough),
        ["--daemon", "--ignore-sigterm"],
    ],
)
def test_daemons_end_even_if_the_orchestrators_children_are_killed_first(
    tmp_path: Path, flags: list[str]
) -> None:
    world = make_world(tmp_path, *flags)
    with orchestrator(STAY, world, tmp_path / "run") as one:
        one.hear()
        wait_until((world / "daemon.pid").exists)
        (found,) = one.guards()
        assert found not in descendants(one.pid)
        kill_children(one.pid)
        one.kill()
        wait_for_nothing(tmp_path)
        wait_until(lambda: not is_alive(found))


UNDER_A_PARENT_THAT_NEVER_WAITS = """
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
if os.fork():
    signal.pause()
from clawblox.system.guard import find_guarded
world = World(dir=world_dir)
world.start(run_dir=run_dir)
tell(os.getpid())
while hear():
    tell(os.getpid() in find_guarded())
"""


@pytest.mark.thorough
def test_a_zombie_does_not_count_as_a_guard(tmp_path: Path) -> None:
    world = make_world(tmp_path, "--ignore-sigterm")
    with orchestrator(UNDER_A_PARENT_THAT_NEVER_WAITS, world, tmp_path / "run") as one:
        pid = int(one.hear())
        (first,) = find_guards(pid)
        parent = read_process(first)
        assert parent is not None
        assert parent.parent == one.pid
        os.kill(first, signal.SIGKILL)
        (second,) = wait_until(lambda: [found for found in find_guards(pid) if found != first])
        zombie = read_process(first)
        assert zombie is not None
        assert not zombie.is_live
        one.tell("who is guarded?")
        assert one.hear() == "True"
        os.kill(pid, signal.SIGSTOP)  # so that the guard is not replaced
        os.kill(second, signal.SIGKILL)
        wait_until(lambda: not is_alive(second))
        assert pid not in find_guarded()
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: find_guards(pid))
        os.kill(pid, signal.SIGKILL)
        wait_for_nothing(tmp_path)


def test_a_guard_of_an_earlier_process_with_the_same_pid_does_not_count(client: Guard) -> None:
    client.watch(make_mark("one"))
    assert os.getpid() in find_guarded()
    with subprocess.Popen(["sleep", "60"]) as later:
        earlier = str(read_start(later.pid) - 1)
        script = "import sys; sys.stdin.read()"
        line = [sys.executable, "-I", "-c", script, guard.GUARD_NAME, str(later.pid), earlier]
        with subprocess.Popen(line, stdin=subprocess.PIPE) as pretender:
            wait_until(lambda: find_guards(later.pid) == [pretender.pid])
            assert later.pid not in find_guarded()
            pretender.kill()
        later.kill()


# ------------------------------------------------------------------------------- the lease

LEASED = """
from clawblox.system.guard import guard
with World(dir=world_dir) as world:
    world.start(run_dir=run_dir)
    tell(world.port)
    while seconds := hear():
        guard.lease(time.clock_gettime(time.CLOCK_BOOTTIME) + float(seconds))
        tell("leased")
"""


@contextlib.contextmanager
def leased(tmp_path: Path, seconds: float, body: str = LEASED) -> Iterator[Orchestrator]:
    """Yield an orchestrator with a lease, whose processes ignore SIGTERM."""
    world = make_world(tmp_path, "--ignore-sigterm", sidecars={"feed": ["--ignore-sigterm"]})
    with orchestrator(body, world, tmp_path / "run") as one:
        one.hear()
        one.tell(str(seconds))
        assert one.hear() == "leased"
        yield one


def wait_for_the_end(one: Orchestrator, tmp_path: Path) -> None:
    assert one.process.wait(HANG_S) == -signal.SIGKILL
    wait_for_nothing(tmp_path)


def wait_until_clock(until: float) -> None:
    wait_until(lambda: boottime() >= until)


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_an_orchestrator_and_its_processes_end_with_their_lease(tmp_path: Path) -> None:
    with leased(tmp_path, 0.2) as one:
        wait_for_the_end(one, tmp_path)


@pytest.mark.thorough
def test_a_suspended_orchestrator_ends_with_its_lease(tmp_path: Path) -> None:
    with leased(tmp_path, 1.0) as one:
        os.kill(one.pid, signal.SIGSTOP)
        wait_for_the_end(one, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["guard", "orchestrator"])
def test_a_tree_ends_if_its_lease_expired_while_it_was_suspended(
    tmp_path: Path, first: str
) -> None:
    with leased(tmp_path, 1.0) as one:
        until = boottime() + 1.0
        suspended = [*one.guards(), one.pid, *descendants(one.pid)]
        for pid in suspended:
            os.kill(pid, signal.SIGSTOP)
        wait_until_clock(until)
        for pid in suspended if first == "guard" else suspended[::-1]:
            os.kill(pid, signal.SIGCONT)
        wait_for_the_end(one, tmp_path)


@pytest.mark.thorough
def test_a_lease_is_repeated_to_the_next_guard(tmp_path: Path) -> None:
    with leased(tmp_path, 3.0) as one:
        (first,) = one.guards()
        os.kill(first, signal.SIGKILL)
        wait_for_the_end(one, tmp_path)


FORK_WITH_A_LEASE = """
from clawblox.system.guard import guard
tell("ready")
guard.lease(time.clock_gettime(time.CLOCK_BOOTTIME) + float(hear()))
if os.fork() == 0:
    world = World(dir=world_dir)
    world.start(run_dir=run_dir)
    tell("leased")
    tell(os.getpid(), world.port)
signal.pause()
"""


@pytest.mark.thorough
def test_a_forked_child_does_not_have_the_lease(tmp_path: Path) -> None:
    with leased(tmp_path, 0.5, FORK_WITH_A_LEASE) as one:
        child, port = map(int, one.hear().split())
        assert one.process.wait(HANG_S) == -signal.SIGKILL
        assert ask(port, "GET", "/api.md").status == 200
        os.kill(child, signal.SIGKILL)
        wait_for_nothing(tmp_path)


@pytest.fixture
def lifeline() -> Iterator[tuple[int, int]]:
    """Yield both ends of a lifeline, for a guard without a client."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def wait_until_read(lifeline: int) -> None:
    def is_empty() -> bool:
        waiting = fcntl.ioctl(lifeline, termios.FIONREAD, b"\0" * 4)
        return not int.from_bytes(waiting, sys.byteorder)

    wait_until(is_empty)


def test_a_renewal_that_is_read_too_late_does_not_count(lifeline: tuple[int, int]) -> None:
    read_end, write_end = lifeline
    with subprocess.Popen(["sleep", "60"]) as owner:
        until = boottime() + 1.0
        os.write(write_end, guard._message("lease", until))
        pidfd = guard._spawn(owner.pid, read_start(owner.pid), read_end)
        wait_until_read(read_end)
        (pid,) = find_guards(owner.pid)
        os.kill(pid, signal.SIGSTOP)
        os.write(write_end, guard._message("lease", until + 3600))
        wait_until_clock(until)
        os.kill(pid, signal.SIGCONT)
        assert owner.wait(HANG_S) == -signal.SIGKILL
        assert await_end(pidfd)
        os.close(pidfd)


def test_a_renewed_lease_has_no_effect_at_its_first_deadline(
    lifeline: tuple[int, int], tmp_path: Path
) -> None:
    read_end, write_end = lifeline
    env = {"PATH": os.defpath, "CLAWBLOX_INSTANCE": tmp_path.name}
    with (
        subprocess.Popen(["sleep", "60"]) as owner,
        subprocess.Popen(["sleep", "60"], env=env) as world,
    ):
        until = boottime() + 0.2
        os.write(write_end, guard._message("watch", *make_mark(tmp_path.name)))
        os.write(write_end, guard._message("lease", until))
        os.write(write_end, guard._message("lease", until + 3600))
        pidfd = guard._spawn(owner.pid, read_start(owner.pid), read_end)
        wait_until_read(read_end)
        wait_until_clock(until)
        assert owner.poll() is None
        os.close(write_end)
        assert world.wait() == -signal.SIGTERM  # by the end of the lifeline, with its grace
        assert await_end(pidfd)
        assert owner.poll() is None
        owner.kill()
        os.close(pidfd)


def test_the_grace_after_the_orchestrator_ends_with_its_lease(
    lifeline: tuple[int, int], tmp_path: Path
) -> None:
    read_end, write_end = lifeline
    script = "trap 'exit 3' TERM; echo; while :; do sleep 60; done"
    env = {"PATH": os.defpath, "CLAWBLOX_INSTANCE": tmp_path.name}
    with (
        subprocess.Popen(["sleep", "0"]) as owner,
        subprocess.Popen(["sh", "-c", script], env=env, stdout=subprocess.PIPE) as world,
    ):
        assert world.stdout is not None
        assert world.stdout.readline()
        start_time = read_start(owner.pid)
        os.write(write_end, guard._message("watch", *make_mark(tmp_path.name)))
        os.write(write_end, guard._message("lease", boottime() - 1))
        pidfd = guard._spawn(owner.pid, start_time, read_end)
        assert world.wait() == -signal.SIGKILL
        assert await_end(pidfd)
        os.close(pidfd)


def test_an_earlier_deadline_does_not_replace_a_later_one(client: Guard) -> None:
    client.lease(boottime() + 3600)
    client.lease(boottime() - 1)  # otherwise this process is killed
    wait_until_read(client._lifeline)
    assert is_alive(find_pid(client))
