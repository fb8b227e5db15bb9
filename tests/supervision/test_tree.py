"""Trees are ended down the ladder, one or many at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from clawblox.results import ProcessExit
from clawblox.supervision import tree
from clawblox.supervision import tree as finder
from clawblox.supervision.tree import Grace, ProcessTree, TreeEnd, end_tree
from clawblox.system.process import Process
from clawblox.system.process_tree import Mark, Proc, Search, find_trees
from tests.support.processes import descendants, is_alive, marked_processes
from tests.support.waiting import HANG_S, wait_until_async
from tests.system.process.support import (
    SLEEP,
    STUBBORN,
    Spawn,
    make_mark,
    reaping_everything,
)

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------------ the ladder


async def test_the_grace_can_only_be_shortened() -> None:
    grace = Grace(600)
    end = grace.scope.deadline
    grace.shorten(6000)
    assert grace.scope.deadline == end
    grace.shorten(60)
    assert grace.scope.deadline <= end - 530
    with anyio.fail_after(HANG_S), grace.scope:
        grace.shorten(0)
        await anyio.sleep_forever()
    assert grace.scope.cancelled_caught


async def test_an_empty_tree_counts_as_already_exited(cookie: str) -> None:
    end = await end_tree(make_mark(cookie), None, Grace(10))
    assert (end.rung, end.killed, end.survivors) == ("already_exited", (), ())


async def test_a_tree_with_only_a_dead_leader_counts_as_already_exited(
    start: Spawn, cookie: str
) -> None:
    leader = await start("true")
    await leader.wait()
    assert (await end_tree(make_mark(cookie, leader), leader, Grace(10))).rung == "already_exited"


FIRST_THREAD_ENDS = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


async def test_a_leader_with_only_its_first_thread_ended_is_still_ended(
    start: Spawn, cookie: str
) -> None:
    leader = await start(sys.executable, "-I", "-S", "-c", FIRST_THREAD_ENDS)
    stat = Path(f"/proc/{leader.pid}/stat")
    await wait_until_async(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
    assert not leader.has_exited
    with anyio.fail_after(HANG_S):
        await end_tree(make_mark(cookie, leader), leader, Grace(0))
    assert leader.has_exited
    assert await leader.wait() == ProcessExit(signal="SIGKILL")


async def test_a_tree_that_obeys_sigterm_is_terminated(start: Spawn, cookie: str) -> None:
    leader = await start("sh", "-c", "sleep 60 & sleep 60 & exec sleep 60")
    await wait_until_async(lambda: len(descendants(leader.pid)) == 2)
    tree = descendants(leader.pid)
    assert (await end_tree(make_mark(cookie, leader), leader, Grace(60))).rung == "terminated"
    assert await leader.wait() == ProcessExit(signal="SIGTERM")
    assert not {pid for pid in tree if is_alive(pid)}


async def test_processes_that_ignore_sigterm_are_killed_and_named(
    tmp_path: Path, start: Spawn, cookie: str
) -> None:
    leader = await start(*STUBBORN)
    await wait_until_async(lambda: "ready" in (tmp_path / "log").read_text())
    with anyio.fail_after(HANG_S):
        end = await end_tree(make_mark(cookie, leader), leader, Grace(0))
    assert end.rung == "killed"
    assert f"{leader.pid} {' '.join(STUBBORN)}" in end.killed
    assert await leader.wait() == ProcessExit(signal="SIGKILL")


async def test_an_unmarked_orphan_is_killed_if_it_was_seen_before(
    tmp_path: Path, start: Spawn, cookie: str
) -> None:
    # It has its own session and environment, and outlives the parent through which it was found.
    script = "trap '' TERM; echo $$; while :; do sleep 0.01; done"
    leader = await start("sh", "-c", f'setsid env -i sh -c "{script}" & wait')
    await wait_until_async(lambda: (tmp_path / "log").read_text().endswith("\n"))
    orphan = int((tmp_path / "log").read_text())
    end = await end_tree(make_mark(cookie, leader), leader, Grace(0.2))
    assert end.rung == "killed"
    assert not is_alive(orphan)


async def test_a_leader_whose_pid_was_recycled_is_left_alone(start: Spawn, cookie: str) -> None:
    stranger = await start(*SLEEP)
    mark = Mark(f"CLAWBLOX_INSTANCE={cookie}".encode(), ((stranger.pid, stranger.start_time + 1),))
    assert (await end_tree(mark, None, Grace(0))).rung == "already_exited"
    assert is_alive(stranger.pid)


async def test_a_tree_ends_even_if_other_code_reaps_its_leader(start: Spawn, cookie: str) -> None:
    with reaping_everything():
        leader = await start("sh", "-c", "sleep 60 & wait", CLAWBLOX_INSTANCE=cookie)
        await wait_until_async(lambda: len(marked_processes(cookie)) == 2)
        with anyio.fail_after(HANG_S):
            end = await end_tree(make_mark(cookie, leader), leader, Grace(60))
        assert end.rung == "terminated"
        assert not marked_processes(cookie)
        leader.release()


# ------------------------------------------------------------------------------ its leaders


async def test_a_mark_contains_the_first_and_all_unreleased_leaders(
    start: Spawn, cookie: str
) -> None:
    tree = ProcessTree(cookie)
    leaders = [await start("true") for _ in range(4)]
    for leader in leaders:
        await leader.wait()
    identities = [(leader.pid, leader.start_time) for leader in leaders]
    for leader in leaders[:2]:
        tree.add(leader)
    assert tree.mark.leaders == (identities[0], identities[1])
    tree.release()
    assert tree.mark.leaders == (identities[0], identities[1])
    for leader in leaders[2:]:
        tree.add(leader)
    assert tree.mark.leaders == (identities[0], identities[2], identities[3])
    tree.release()
    assert all(leader.pidfd < 0 for leader in leaders)


async def test_a_tree_may_have_survivors_until_all_its_processes_end(
    start: Spawn, cookie: str
) -> None:
    tree = ProcessTree(cookie)
    assert not tree.may_have_survivors
    tree.add(await start(*SLEEP))
    assert tree.may_have_survivors
    assert await tree.end(Grace(60)) == TreeEnd("terminated")
    assert not tree.may_have_survivors
    assert await tree.end(Grace(60)) == TreeEnd("already_exited")


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("a defect")])
async def test_the_leaders_are_killed_if_the_tree_cannot_be_searched(
    start: Spawn, cookie: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(*_: object) -> TreeEnd:
        raise error

    processes = ProcessTree(cookie)
    leader = await start(*SLEEP)
    processes.add(leader)
    monkeypatch.setattr(tree, "end_tree", fail)
    end = await processes.end(Grace(60))
    reason = "Too many open files" if isinstance(error, OSError) else repr(error)
    assert (end.rung, end.failure) == ("killed", f"its processes cannot be inspected: {reason}")
    assert processes.may_have_survivors
    assert await leader.wait() == ProcessExit(signal="SIGKILL")


def test_survivors_are_a_failure() -> None:
    assert TreeEnd("killed", ("1 a",)).failure is None
    assert TreeEnd("killed", ("1 a",), ("1 a", "2 b")).failure == "not even SIGKILL ended 1 a, 2 b"


# ---------------------------------------------------------------------- concurrent stops

OBEYS = "sleep 60 & sleep 60 & wait"
DAEMON = r"trap '' TERM; echo \$\$ >part; mv part daemon; while :; do sleep 0.01; done"
LEAVES_A_DAEMON = f'setsid sh -c "{DAEMON}" & sleep 60'
IGNORES = "trap '' TERM; echo >ready; while :; do sleep 0.01; done"

both_backends = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


async def end_all(
    leaders: dict[str, Process], grace: float, ends: dict[str, TreeEnd] | None = None
) -> dict[str, TreeEnd]:
    """End several trees concurrently; return the end of each, by cookie."""
    found: dict[str, TreeEnd] = {} if ends is None else ends

    async def end(cookie: str, leader: Process) -> None:
        found[cookie] = await end_tree(make_mark(cookie, leader), leader, Grace(grace))

    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            for cookie, leader in leaders.items():
                tasks.start_soon(end, cookie, leader)
    return found


def note_passes(
    monkeypatch: pytest.MonkeyPatch,
    after: Callable[[list[list[Proc]]], None] = lambda found: None,
) -> list[int]:
    """Count the requests that share each pass; call ``after`` with the processes found."""
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
    ends = {name.removeprefix(cookie): e for name, e in (await end_all(by_name, 2.0)).items()}
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
    monkeypatch.setattr(finder, "_GATHER_S", 2 * HANG_S)
    leaders = {f"{cookie}{number}": await start(*SLEEP) for number in range(20)}
    passes = note_passes(monkeypatch)
    ends = await end_all(leaders, 60)
    assert [end.rung for end in ends.values()] == ["terminated"] * 20
    assert passes == [20, 20]


@both_backends
async def test_many_stubborn_trees_are_killed_together(
    tmp_path: Path, start: Spawn, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders = {f"{cookie}{number}": await start(*STUBBORN) for number in range(8)}
    await wait_until_async(lambda: (tmp_path / "log").read_text().count("ready") == 8)
    passes = note_passes(monkeypatch)
    ends = await end_all(leaders, 0.1)
    for name, leader in leaders.items():
        assert ends[name].rung == "killed"
        assert leader.pid in pids_of(ends[name])
        assert await leader.wait() == ProcessExit(signal="SIGKILL")
    assert len({pid for end in ends.values() for pid in pids_of(end)}) == sum(
        len(end.killed) for end in ends.values()
    )
    assert max(passes[1:]) > 1


@both_backends
async def test_a_tree_that_dies_during_a_pass_has_ended(
    start: Spawn, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies, stays = await start(*SLEEP), await start(*SLEEP)

    def kill_one(found: list[list[Proc]]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(dies.pid, signal.SIGKILL)

    note_passes(monkeypatch, kill_one)
    ends = await end_all({f"{cookie}0": dies, f"{cookie}1": stays}, 60)
    assert [ends[f"{cookie}{number}"].rung for number in range(2)] == ["terminated"] * 2
    assert await dies.wait() == ProcessExit(signal="SIGKILL")
    assert await stays.wait() == ProcessExit(signal="SIGTERM")


@both_backends
async def test_a_cancelled_stop_does_not_affect_other_stops(
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
            ends[name] = await end_tree(make_mark(name, leader), leader, grace_of[name])

    grace_of = {name: Grace(60) for name in leaders}
    with anyio.fail_after(HANG_S):
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
