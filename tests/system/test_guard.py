"""However an orchestrator ends, nothing that it started lives on, unless it was detached."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox import AsyncWorld
from clawblox.system import guard
from clawblox.system.guard import Guard
from clawblox.system.process_tree import Mark, find_tree
from tests.orchestrators import Orchestrator, orchestrator
from tests.support import (
    ask,
    command_line,
    descendants,
    is_alive,
    is_listening,
    kill_processes,
    make_world,
    marked_processes,
    processes_in,
    read_process,
    wait_until,
    world_command,
)

STAY = """
async def main():
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=run_dir, detach="detach" in arguments)
        tell(started.port)
        await anyio.sleep_forever()
anyio.run(main)
"""


def worlds_in(directory: Path) -> dict[int, str]:
    """Return the live processes of the worlds below a directory, orchestrators and guards not."""
    found = {pid: command_line(pid) for pid in processes_in(directory)}
    return {pid: text for pid, text in found.items() if "import ctypes" not in text}


def wait_for_nothing(directory: Path) -> None:
    try:
        wait_until(lambda: not worlds_in(directory) and not marked_processes(), timeout=20)
    finally:
        left = worlds_in(directory)
        kill_processes(lambda: worlds_in(directory))
    assert not left


def world_pid(world: Path) -> int:
    """Return the process that a world's ``--pid-file`` names, as soon as it is there."""
    path = world / "world.pid"
    wait_until(path.exists)
    return int(path.read_text())


# ------------------------------------------------------------------------ by any means

TREES: dict[str, tuple[list[str], str | None]] = {
    "plain": ([], None),
    "child": ([], "child"),
    "nohup": ([], "nohup"),
    "daemon": (["--daemon"], None),
    "ignore": (["--ignore-sigterm"], None),
    "stubborn": (["--stubborn-child"], "child"),
}
STUBBORN_SIDECARS = {"feed": ["--ignore-sigterm"], "frontend": []}


@pytest.mark.thorough
def test_no_tree_outlives_an_orchestrator_that_is_killed(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        orchestrators = []
        for name, (flags, wrapper) in TREES.items():
            world = make_world(
                tmp_path, *flags, name=name, wrapper=wrapper, sidecars=STUBBORN_SIDECARS
            )
            run = tmp_path / f"run-{name}"
            orchestrators.append(stack.enter_context(orchestrator(STAY, world, run)))
        ports = [int(one.hear()) for one in orchestrators]
        wait_until((tmp_path / "daemon" / "daemon.pid").exists)
        os.kill(min(worlds_in(tmp_path / "plain")), signal.SIGSTOP)
        guards = {guard for one in orchestrators for guard in one.guards()}
        assert len(guards) == len(TREES)
        for one in orchestrators:
            one.kill()
        wait_for_nothing(tmp_path)
        assert not [port for port in ports if is_listening(port)]
        wait_until(lambda: not [pid for pid in guards if is_alive(pid)])


DEATHS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGSEGV": "ctypes.string_at(0)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "abort": "os.abort()",
    "at once": "os._exit(0)",
    "by becoming another program": "os.execv('/bin/sleep', ['sleep', '60'])",
    "in a thread": "threading.Thread(target=os._exit, args=(3,)).start()",
}

DIE = """
async def main():
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=run_dir)
        tell("ready")
        await hear_async()
        {death}
        await anyio.sleep_forever()
anyio.run(main)
"""


def test_no_world_outlives_its_orchestrator_however_that_dies(tmp_path: Path) -> None:
    world = make_world(tmp_path, "--slow-stop", "0.1")
    with contextlib.ExitStack() as stack:
        dying = [
            stack.enter_context(orchestrator(DIE.format(death=death), world, tmp_path / str(index)))
            for index, death in enumerate(DEATHS.values())
        ]
        assert [one.hear() for one in dying] == ["ready"] * len(DEATHS)
        for one in dying:
            one.tell("die")
        wait_for_nothing(tmp_path)


ENDS = {
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise ZeroDivisionError", 1),
    "the last line": ("", 0),
}
END_SYNC = """
world = World(dir=world_dir)
world.start(run_dir=run_dir)
tell(world.port)
{end}
"""
END_ASYNC = """
async def main():
    async with AsyncWorld(dir=world_dir) as world:
        tell((await world.start(run_dir=run_dir)).port)
        {end}
anyio.run(main)
"""


@pytest.mark.thorough
def test_an_orchestrator_that_ends_by_itself_ends_its_worlds_first(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    with contextlib.ExitStack() as stack:
        ending = []
        for program in (END_SYNC, END_ASYNC):
            for end, status in ENDS.values():
                run = tmp_path / f"run{len(ending)}"
                one = orchestrator(program.format(end=end), world, run, stderr=subprocess.DEVNULL)
                ending.append((stack.enter_context(one), status))
        for one, status in ending:
            port = int(one.hear())
            assert one.process.wait(timeout=20) == status
            assert not is_listening(port)
    assert not worlds_in(tmp_path)


# -------------------------------------------------------------------------- at any moment

DRIVER = """
import json, os, random, signal, sys, time
import anyio
from clawblox import AsyncWorld, WorldError

seed, rounds, run_dir, *worlds = sys.argv[1:]
chance = random.Random(seed)
PHASES = ("start", "ready", "save", "stop", "again")

async def live(world_dir, name, enter):
    async with AsyncWorld(dir=world_dir) as world:
        enter("start")
        await world.start(run_dir=run_dir, name=name)
        enter("ready")
        await world.connect("Rocky")
        enter("save")
        await world.save()
        enter("stop")
        await world.stop(grace_seconds=0.1)
        enter("again")
        await world.start(run_dir=run_dir, name=name)
        enter("over")
        os.write(bell, b"!")
        await anyio.sleep_forever()

def orchestrate(world_dir, name, fatal_phase, fatal_event):
    phase, count = "", 0
    def enter(name):
        nonlocal phase, count
        phase, count = name, 0
    def notice(event, _):
        nonlocal count
        if not event.startswith(("os.", "fcntl.", "socket.", "subprocess.", "signal.")):
            return
        count += 1
        if phase == fatal_phase and count == fatal_event:
            os.write(bell, event.encode())
    sys.addaudithook(notice)
    anyio.run(live, world_dir, name, enter)

for number in range(int(rounds)):
    world_dir = chance.choice(worlds)
    fatal = chance.choice(PHASES), chance.randint(1, 25)
    patience = chance.uniform(0, 0.003)
    ear, bell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ear)
        orchestrate(world_dir, f"r{number}", *fatal)
    os.close(bell)
    event = os.read(ear, 100).decode()
    until = time.perf_counter() + patience
    while time.perf_counter() < until:
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ear)
    print(number, world_dir, *fatal, event, f"+{patience * 1000:.2f} ms", flush=True)
"""


@pytest.mark.parametrize("rounds", [3, pytest.param(24, marks=pytest.mark.thorough)])
def test_whenever_an_orchestrator_is_killed_nothing_is_left(tmp_path: Path, rounds: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    worlds = [
        make_world(tmp_path, *flags, name=name, wrapper=wrapper, sidecars={"feed": []})
        for name, (flags, wrapper) in TREES.items()
    ]
    arguments = [str(seed), str(rounds), str(tmp_path / "run"), *map(str, worlds)]
    command = [sys.executable, "-c", DRIVER, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120)
    print(done.stdout)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == rounds
    wait_for_nothing(tmp_path)


@pytest.mark.anyio
async def test_what_a_killed_orchestrator_held_is_free_again(tmp_path: Path) -> None:
    world_dir, run = make_world(tmp_path), tmp_path / "run"
    with orchestrator(STAY, world_dir, run) as one:
        port = int(one.hear())
        one.kill()
        wait_for_nothing(tmp_path)
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=run, port=port)
        assert started.name == "w000"
    assert not list((run / ".clawblox" / "instances").glob("*.lock"))


def test_what_is_marked_only_after_the_first_looks_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a child that its orchestrator was spawning when it was killed, before its exec.
    late: list[subprocess.Popen[bytes]] = []
    looks: list[Any] = []
    mark = Mark(f"CLAWBLOX_INSTANCE={tmp_path.name}".encode())

    def find_then_exec(*arguments: Any) -> Any:
        looks.append(find_tree(*arguments))
        if len(looks) == 3:
            env = {"PATH": os.defpath, "CLAWBLOX_INSTANCE": tmp_path.name}
            late.append(subprocess.Popen(["sleep", "60"], env=env, cwd=tmp_path))
        return looks[-1]

    monkeypatch.setattr(guard, "ORPHAN_GRACE_S", 0.2)
    monkeypatch.setattr(guard, "find_tree", find_then_exec)
    guard._clean_up([mark])
    assert late[0].wait() == -signal.SIGKILL


# --------------------------------------------------------------------------------- forks

FORK = """
world = World(dir=world_dir)
world.start(run_dir=run_dir)

def sit():
    tell(os.getpid())
    time.sleep(60)

child = multiprocessing.get_context("fork").Process(target=sit)
child.start()
time.sleep(60)
"""

FORK_UNNOTICED = """
world = World(dir=world_dir)
world.start(run_dir=run_dir)
libc = ctypes.PyDLL(None)
child = libc.fork()  # of which Python knows nothing, so that nothing is closed
if child == 0:
    libc.sleep(60)
tell(child)
libc.sleep(60)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("program", [FORK, FORK_UNNOTICED], ids=["by python", "by a library"])
def test_a_forked_child_that_lives_on_does_not_hide_the_death(tmp_path: Path, program: str) -> None:
    with orchestrator(program, make_world(tmp_path), tmp_path / "run") as one:
        child = int(one.hear())
        assert marked_processes()
        one.kill()
        wait_until(lambda: not marked_processes(), what="the world ends")
        assert is_alive(child)
        os.kill(child, signal.SIGKILL)


FORK_AND_END = """
world = World(dir=world_dir)
world.start(run_dir=run_dir)
def leave():
    sys.exit(0)
child = multiprocessing.get_context("fork").Process(target=leave)
child.start()
child.join()
if (pid := os.fork()) == 0:
    sys.exit(0)
os.waitpid(pid, 0)
tell(world.port)
hear()
"""


@pytest.mark.thorough
def test_a_forked_child_that_ends_leaves_the_worlds_of_its_parent(tmp_path: Path) -> None:
    with orchestrator(FORK_AND_END, make_world(tmp_path), tmp_path / "run") as one:
        port = int(one.hear())
        assert ask(port, "GET", "/api.md").status == 200
        assert len(one.guards()) == 1
        one.tell("end")
        assert one.process.wait(timeout=20) == 0
        assert not is_listening(port)


FORK_AND_START = """
mine = World(dir=world_dir)
mine.start(run_dir=run_dir, name="mine")
if (pid := os.fork()) == 0:
    theirs = World(dir=world_dir)
    theirs.start(run_dir=run_dir, name="theirs")
    tell(os.getpid(), theirs.port)
    signal.pause()
tell("mine", mine.port)
os.waitpid(pid, 0)
signal.pause()
"""


@pytest.mark.thorough
def test_a_forked_child_is_an_orchestrator_of_its_own(tmp_path: Path) -> None:
    with orchestrator(FORK_AND_START, make_world(tmp_path), tmp_path / "run") as one:
        told = dict(one.hear().split() for _ in range(2))
        mine = int(told.pop("mine"))
        ((child, theirs),) = told.items()
        (its_guard,) = descendants(int(child)) & set(one.guards())
        assert len(one.guards()) == 2
        os.kill(int(child), signal.SIGKILL)
        wait_until(lambda: not is_alive(its_guard))
        assert not is_listening(int(theirs))
        assert ask(mine, "GET", "/api.md").status == 200
        one.kill()
        wait_for_nothing(tmp_path)


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
    keeper.join(20)
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
