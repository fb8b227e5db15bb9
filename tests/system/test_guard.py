"""The guard of an orchestrator: what it ends, what it keeps alive, and its client."""

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
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawblox.system import guard
from clawblox.system.guard import Guard
from clawblox.system.process_tree import Mark
from tests.orchestrators import STAY, Orchestrator, orchestrator, wait_for_nothing, world_pid
from tests.support import (
    HANG_S,
    ask,
    command_line,
    is_alive,
    kill_processes,
    make_world,
    marked_processes,
    read_process,
    wait_until,
    world_command,
)

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
    """Give an orchestrator of two worlds that starts and stops instances on demand."""
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
def test_a_guard_that_was_killed_is_replaced_by_one_that_knows_everything(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        (first,) = command("start").guards()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not is_alive(first))
        (second,) = [pid for pid in command("start").guards() if is_alive(pid)]
        assert second != first
        assert read_process(first) is None  # no zombie is left
        assert len(marked_processes()) == 4
        command("nothing").kill()
        wait_for_nothing(tmp_path)


@pytest.mark.thorough
def test_worlds_end_with_an_orchestrator_whose_guard_was_killed_before(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        one = command("start")
        (first,) = one.guards()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: [pid for pid in one.guards() if pid != first and is_alive(pid)])
        assert len(marked_processes()) == 2
        one.kill()
        wait_for_nothing(tmp_path)


def test_a_guard_finds_the_marks_in_its_lifeline_when_it_begins(
    client: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifelines = []

    def refuse(*_: object, channel: int, **_others: object) -> int:
        os.set_blocking(channel, False)
        lifelines.append(os.read(channel, 1 << 20))
        raise OSError("no process")

    monkeypatch.setattr(guard, "spawn_helper", refuse)
    for name in ("one", "two"):
        with pytest.raises(OSError, match="no process"):
            client.watch(make_mark(name))
    assert b'=one"' in lifelines[0]
    assert b'=one"' in lifelines[1]
    assert b'=two"' in lifelines[1]


@pytest.mark.thorough
def test_a_guard_that_dies_again_and_again_is_replaced_each_time(client: Guard) -> None:
    client.watch(make_mark("one"))
    seen = {client._pid}
    for _ in range(3):
        os.kill(client._pid, signal.SIGKILL)
        wait_until(lambda: client._pid not in {0, *seen} and is_alive(client._pid))
        seen.add(client._pid)


def test_a_guard_that_dies_with_nothing_to_watch_is_not_replaced(client: Guard) -> None:
    client.watch(make_mark("one"))
    client.forget(make_mark("one"))
    (keeper,) = [each for each in threading.enumerate() if each.name == guard.KEEPER_THREAD][-1:]
    os.kill(client._pid, signal.SIGKILL)
    keeper.join(HANG_S)
    assert client._pid == 0


@pytest.mark.thorough
def test_a_guard_that_cannot_be_replaced_immediately_is_replaced_later(
    client: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.watch(make_mark("one"))
    first, spawn, failures = client._pid, guard._spawn, iter(range(2))

    def seldom(*arguments: int) -> int:
        if next(failures, None) is not None:
            raise OSError(errno.EAGAIN, "no process can be made")
        return spawn(*arguments)

    monkeypatch.setattr(guard, "_spawn", seldom)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: client._pid not in (0, first) and is_alive(client._pid))


@pytest.mark.thorough
def test_a_guard_that_has_nothing_to_do_ends_with_its_orchestrator(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        command("start")
        one = command("stop")
        (found,) = one.guards()
        one.kill()
        wait_until(lambda: not is_alive(found))


@pytest.mark.thorough
def test_a_guard_that_was_killed_does_not_hinder_a_stop(tmp_path: Path) -> None:
    with several(tmp_path) as command:
        (found,) = command("start").guards()
        os.kill(found, signal.SIGKILL)
        command("stop")
        assert not marked_processes()


@pytest.mark.thorough
def test_a_guard_ignores_what_is_meant_for_its_orchestrator(tmp_path: Path) -> None:
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
def test_a_guard_is_small_and_holds_no_secret_and_nothing_of_its_orchestrator(
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
    """Give a client of its own; at the end the guard sees its orchestrator go."""
    monkeypatch.setattr(guard, "_KEEPER_PAUSE_S", 0.01)
    found = Guard()
    yield found
    with found._lock:
        found._marks.clear()
        pid = found._pid
        found._close()
    if pid:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def make_mark(name: str) -> Mark:
    return Mark(f"CLAWBLOX_INSTANCE={name}".encode())


def test_forgetting_needs_no_guard(client: Guard) -> None:
    client.forget(make_mark("one"))
    assert client._pid == 0


@pytest.mark.thorough
def test_a_guard_that_somebody_else_reaped_is_replaced(client: Guard) -> None:
    client.watch(make_mark("one"))
    first = client._pid
    os.kill(first, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # the client's own thread may be faster
        os.waitpid(first, 0)
    client.forget(make_mark("one"))
    client.watch(make_mark("two"))
    assert client._pid != first
    assert is_alive(client._pid)


@pytest.mark.thorough
def test_a_child_with_the_pid_of_a_dead_guard_is_no_guard(client: Guard) -> None:
    client.watch(make_mark("one"))
    first = client._pid
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_alive(first))
    client.forget(make_mark("one"))  # reaps it, so that the pid may be given to the next child
    assert client._pid != first  # or the guard that has replaced it before
    with pytest.raises(ChildProcessError):
        os.waitpid(first, os.WNOHANG)


@pytest.mark.thorough
def test_a_guard_that_cannot_be_started_is_an_error_and_leaves_nothing(
    client: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(FileNotFoundError):
            client.watch(make_mark("one"))
    client.watch(make_mark("two"))
    assert is_alive(client._pid)


@pytest.mark.thorough
def test_the_last_words_of_a_dead_orchestrator_are_heard(tmp_path: Path) -> None:
    lines = [["watch", f"CLAWBLOX_INSTANCE={tmp_path.name}-{number}", []] for number in range(9999)]
    words = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    read_end, write_end = os.pipe()  # held open, as by a forked child
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert os.write(write_end, words) == len(words) > 65536
    env = {"PATH": os.defpath, "CLAWBLOX_INSTANCE": f"{tmp_path.name}-9998"}
    with subprocess.Popen(["sleep", "60"], env=env) as world, subprocess.Popen(["true"]) as dead:
        wait_until(lambda: not is_alive(dead.pid))
        pid = guard._spawn(dead.pid, read_end)
        assert world.wait() == -signal.SIGTERM
        assert os.waitpid(pid, 0) == (pid, 0)
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("number", ["reaped", "recycled"])
def test_an_orchestrator_that_is_gone_before_its_guard_runs_is_noticed(
    tmp_path: Path, number: str
) -> None:
    # The test process is the guard's parent, so neither of these is its orchestrator.
    read_end, write_end = os.pipe()  # held open, as by a forked child
    mark = make_mark(tmp_path.name)
    os.write(write_end, guard._message("watch", mark))
    env = {"PATH": os.defpath, "CLAWBLOX_INSTANCE": tmp_path.name}
    with subprocess.Popen(["sleep", "60"], env=env) as world:
        gone = subprocess.Popen(["sleep", "60" if number == "recycled" else "0"])
        if number == "reaped":
            gone.wait()
        pid = guard._spawn(gone.pid, read_end)
        assert world.wait() == -signal.SIGTERM
        assert os.waitpid(pid, 0) == (pid, 0)
        gone.kill()
        gone.wait()
    os.close(read_end)
    os.close(write_end)


@pytest.mark.thorough
def test_many_worlds_fit_into_the_lifeline(client: Guard, tmp_path: Path) -> None:
    env = {"PATH": os.defpath, "CLAWBLOX_INSTANCE": f"{tmp_path.name}-4999"}
    with subprocess.Popen(["sleep", "60"], env=env) as world:
        for number in range(5000):
            client.watch(make_mark(f"{tmp_path.name}-{number}"))
            if number < 4000:
                client.forget(make_mark(f"{tmp_path.name}-{number}"))
        pid = client._pid
        client._close()
        os.waitpid(pid, 0)
        assert world.wait() == -signal.SIGTERM
