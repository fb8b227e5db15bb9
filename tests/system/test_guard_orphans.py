"""All processes of an orchestrator end with it, unless they were detached."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawblox import AsyncWorld
from clawblox.system import guard
from clawblox.system.process_tree import Mark, find_tree
from tests.support.orchestrators import STAY, orchestrator, wait_for_nothing, worlds_in
from tests.support.processes import find_guards, is_alive, marked_processes
from tests.support.sockets import is_listening
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import ask, make_world

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


def test_worlds_end_with_their_orchestrator_however_it_dies(tmp_path: Path) -> None:
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
def test_an_orchestrator_that_exits_ends_its_worlds_first(tmp_path: Path) -> None:
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
            assert one.process.wait(HANG_S) == status
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
def test_no_process_is_left_whenever_an_orchestrator_is_killed(tmp_path: Path, rounds: int) -> None:
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


@pytest.mark.thorough
@pytest.mark.anyio
async def test_ports_and_names_of_a_killed_orchestrator_are_free_again(tmp_path: Path) -> None:
    world_dir, run = make_world(tmp_path), tmp_path / "run"
    with orchestrator(STAY, world_dir, run) as one:
        port = int(one.hear())
        one.kill()
        wait_for_nothing(tmp_path)
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=run, port=port)
        assert started.name == "w000"
    assert not list((run / ".clawblox" / "instances").glob("*.lock"))


def test_processes_marked_after_the_first_passes_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Like a child that its orchestrator was spawning when it was killed, before the exec.
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
    guard._clean_up([mark], math.inf)
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
def test_a_surviving_forked_child_does_not_hide_the_death_of_its_parent(
    tmp_path: Path, program: str
) -> None:
    with orchestrator(program, make_world(tmp_path), tmp_path / "run") as one:
        child = int(one.hear())
        assert marked_processes()
        one.kill()
        wait_until(lambda: not marked_processes(), what="the world ends")
        assert is_alive(child)
        os.kill(child, signal.SIGKILL)


HELPERS = {
    "checker": "from clawblox.snapshot.checker import Checker\nhelper = Checker()\n",
    "examiner": "from clawblox.checkpoint.audit.examine import Examiner\nhelper = Examiner({})\n",
}
FORK_BESIDE_A_HELPER = """
libc = ctypes.PyDLL(None)
child = libc.fork()
if child == 0:
    libc.sleep(60)
tell(helper.pid)
tell(child)
libc.sleep(60)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("name", HELPERS)
def test_a_surviving_forked_child_does_not_keep_helpers_alive(tmp_path: Path, name: str) -> None:
    body = HELPERS[name] + FORK_BESIDE_A_HELPER
    with orchestrator(body, tmp_path, tmp_path) as one:
        helper, child = int(one.hear()), int(one.hear())
        one.kill()
        wait_until(lambda: not is_alive(helper), what="the helper ends")
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
def test_the_end_of_a_forked_child_does_not_affect_its_parents_worlds(tmp_path: Path) -> None:
    with orchestrator(FORK_AND_END, make_world(tmp_path), tmp_path / "run") as one:
        port = int(one.hear())
        assert ask(port, "GET", "/api.md").status == 200
        assert len(one.guards()) == 1
        one.tell("end")
        assert one.process.wait(HANG_S) == 0
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
def test_a_forked_child_is_a_separate_orchestrator(tmp_path: Path) -> None:
    with orchestrator(FORK_AND_START, make_world(tmp_path), tmp_path / "run") as one:
        told = dict(one.hear().split() for _ in range(2))
        mine = int(told.pop("mine"))
        ((child, theirs),) = told.items()
        (its_guard,) = find_guards(int(child))
        assert len(one.guards()) == 2
        os.kill(int(child), signal.SIGKILL)
        wait_until(lambda: not is_alive(its_guard))
        assert not is_listening(int(theirs))
        assert ask(mine, "GET", "/api.md").status == 200
        one.kill()
        wait_for_nothing(tmp_path)
