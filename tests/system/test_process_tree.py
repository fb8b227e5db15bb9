"""Finding and signalling the processes of an instance, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from clawblox.system import process_tree as proctree
from clawblox.system.process_tree import (
    Mark,
    Proc,
    Search,
    all_processes,
    await_spawns,
    boot_id,
    command_line,
    find_tree,
    find_trees,
    is_same_process,
    kill_tree,
    read_start_time,
    read_variables,
    signal_processes,
)
from tests.support import processes
from tests.support.processes import is_alive, kill_processes
from tests.support.waiting import HANG_S, wait_until

CHAIN = """
import os, sys, time
for _ in range(3000):
    if os.fork():
        os._exit(0)
    time.sleep(0.1)
"""
"""A moving target: every process ends as soon as it has forked its successor. Each lives longer
than a pass over all processes on a busy machine, because faster processes cannot be caught."""

SWARM = """
import os, time
for _ in range(200):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    time.sleep(0.001)
time.sleep(60)
"""

FIND_FROM_WITHIN = """
import sys
sys.path.insert(0, sys.argv[1])
from clawblox.system.process_tree import Mark, find_tree
print(*(proc.pid for proc in find_tree([Mark(sys.argv[2].encode())])))
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def cookie() -> str:
    return f"CLAWBLOX_INSTANCE={uuid.uuid4().hex}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start processes in their own sessions, below ``tmp_path``; kill the rest at the end."""
    children: list[subprocess.Popen[bytes]] = []

    def start_one(*command: str, cookie: str = "", **env: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            command or ("sleep", "60"),
            cwd=tmp_path,
            env={"PATH": os.defpath, **env, **marked(cookie)},
            start_new_session=True,
        )
        children.append(child)
        return child

    yield start_one
    kill_processes(lambda: processes.processes_in(tmp_path))
    for child in children:
        child.wait()


def marked(cookie: str) -> Mapping[str, str]:
    name, separator, value = cookie.partition("=")
    return {name: value} if separator else {}


def python(program: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", program, *arguments)


def children_of(parent: subprocess.Popen[bytes]) -> set[str]:
    return {command_line(pid) for pid in processes.descendants(parent.pid)}


def pids(found: list[Proc]) -> set[int]:
    return {proc.pid for proc in found}


def identity(pid: int) -> tuple[int, int]:
    return pid, read_start_time(pid)


# --------------------------------------------------------------------------- one process


def test_a_process_has_the_facts_in_proc(start: Start) -> None:
    child = start()
    found = proctree.read_process(child.pid)
    shown = processes.read_process(child.pid)
    assert shown is not None
    assert found == Proc(child.pid, os.getpid(), child.pid, shown.start_time)
    assert found in all_processes().values()
    wait_until(lambda: command_line(child.pid))  # it may be in the middle of its exec
    assert command_line(child.pid) == "sleep 60"
    assert read_variables(child.pid) == {"PATH": os.defpath}


def test_a_process_name_that_looks_like_stat_fields_is_parsed_correctly(
    start: Start, tmp_path: Path
) -> None:
    program = tmp_path / "a) Z 1 (\n9 9"
    program.symlink_to("/bin/sleep")
    child = start(str(program), "60")
    found = proctree.read_process(child.pid)
    assert found is not None
    assert found[:3] == (child.pid, os.getpid(), child.pid)


def test_a_zombie_is_not_alive_but_still_the_same_process(start: Start) -> None:
    child = start("true")
    wait_until(lambda: not is_alive(child.pid))
    began_at = read_start_time(child.pid)
    assert proctree.read_process(child.pid) is None
    assert child.pid not in all_processes()
    assert is_same_process(child.pid, began_at)
    child.wait()
    assert not is_same_process(child.pid, began_at)


def test_another_start_time_is_another_process() -> None:
    pid, began_at = identity(os.getpid())
    assert is_same_process(pid, began_at)
    assert not is_same_process(pid, began_at + 1)


def test_a_missing_process_has_no_facts(start: Start) -> None:
    child = start("true")
    child.wait()
    with pytest.raises(ProcessLookupError):
        read_start_time(child.pid)
    assert proctree.read_process(child.pid) is None
    assert read_variables(child.pid) == {}
    assert command_line(child.pid) == ""


def test_the_boot_id_is_a_uuid() -> None:
    assert uuid.UUID(boot_id()).hex == boot_id().replace("-", "")


# ------------------------------------------------------------------------- membership


def test_a_process_with_the_cookie_belongs(start: Start, cookie: str) -> None:
    mine = {start(cookie=cookie).pid for _ in range(2)}
    start()
    assert pids(find_tree([Mark(cookie.encode())])) == mine


def test_a_cookie_is_compared_whole(start: Start, cookie: str) -> None:
    start(cookie=f"{cookie}0")
    start(OTHER=cookie)
    start("sh", "-c", f"sleep 60 # {cookie}")
    assert find_tree([Mark(cookie.encode()), Mark(cookie[:-1].encode())]) == []


def test_a_descendant_of_a_member_belongs_without_the_cookie(start: Start, cookie: str) -> None:
    parent = start("sh", "-c", "env -i setsid sleep 60 & wait", cookie=cookie)
    wait_until(
        lambda: {command_line(pid) for pid in processes.descendants(parent.pid)} == {"sleep 60"}
    )
    assert pids(find_tree([Mark(cookie.encode())])) == {
        parent.pid,
        *processes.descendants(parent.pid),
    }


def test_the_session_of_a_leader_belongs_even_when_the_leader_is_dead(
    start: Start, cookie: str
) -> None:
    leader = start("sh", "-c", "sleep 60 & exit")
    wait_until(lambda: not is_alive(leader.pid))
    mark = Mark(cookie.encode(), (identity(leader.pid),))
    found = find_tree([mark])
    assert [proc.session for proc in found] == [leader.pid]
    assert pids(found) != {leader.pid}


def test_the_session_of_a_recycled_leader_belongs_to_a_stranger(start: Start, cookie: str) -> None:
    pid, began_at = identity(start().pid)
    assert pids(find_tree([Mark(cookie.encode(), ((pid, began_at),))])) == {pid}
    assert find_tree([Mark(cookie.encode(), ((pid, began_at + 1),))]) == []


def test_several_marks_are_found_in_one_pass(start: Start, cookie: str) -> None:
    first, second = start(cookie=cookie).pid, start().pid
    marks = [Mark(cookie.encode()), Mark(b"CLAWBLOX_INSTANCE=none", (identity(second),))]
    assert pids(find_tree(marks)) == {first, second}


def test_a_search_never_finds_its_own_process_or_ancestors(
    start: Start, cookie: str, tmp_path: Path
) -> None:
    root = str(Path(proctree.__file__).parents[2])
    finder = [*python(FIND_FROM_WITHIN, root, cookie)]
    (tmp_path / "find.sh").write_text(
        'sleep 60 & "$@" >found; echo $! >>found; mv found done; wait'
    )
    start("sh", "find.sh", *finder, cookie=cookie)
    wait_until((tmp_path / "done").exists)
    found, sibling = (tmp_path / "done").read_text().split()
    assert found == sibling


def test_a_process_found_once_stays_a_member(start: Start, cookie: str) -> None:
    parent = start("sh", "-c", "env -i setsid sleep 60 & wait", cookie=cookie)
    mark = Mark(cookie.encode())
    wait_until(lambda: children_of(parent) == {"sleep 60"})
    known = find_tree([mark])
    (orphan,) = pids(known) - {parent.pid}
    parent.kill()
    parent.wait()
    assert find_tree([mark]) == []
    assert pids(find_tree([mark], known)) == {orphan}
    recycled = [proc._replace(start_time=proc.start_time + 1) for proc in known]
    assert find_tree([mark], recycled) == []


# ------------------------------------------------------------------- concurrent searches


def search(cookie: str, *leaders: int, known: Sequence[Proc] = ()) -> Search:
    return Search((Mark(cookie.encode(), tuple(map(identity, leaders))),), tuple(known))


def found_by(*searches: Search) -> list[set[int]]:
    return [pids(found) for found in find_trees(searches)]


def count_passes(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None] = lambda number: None
) -> list[int]:
    """Count the passes over ``/proc``; call ``before`` with the number of each at its start."""
    passes: list[int] = []
    look = proctree._View.refresh

    def note(self: proctree._View) -> None:
        passes.append(len(passes))
        look(self)
        before(len(passes))

    monkeypatch.setattr(proctree._View, "refresh", note)
    return passes


def family(leader: subprocess.Popen[bytes], size: int) -> set[int]:
    """Return a process and its descendants, once there are ``size`` processes."""
    wait_until(lambda: len(processes.descendants(leader.pid)) == size - 1)
    return {leader.pid, *processes.descendants(leader.pid)}


def test_each_search_returns_its_own_processes(start: Start, cookie: str) -> None:
    wrapper = start("sh", "-c", "sleep 60 & sleep 60 & wait", cookie=f"{cookie}0")
    daemons = start("sh", "-c", "setsid sleep 60 & env -i setsid sleep 60 & wait")
    alone = start(cookie=f"{cookie}2")
    start()
    families = [family(wrapper, 3), family(daemons, 3), {alone.pid}]
    searches = [
        search(f"{cookie}0", wrapper.pid),
        search(f"{cookie}1", daemons.pid),
        search(f"{cookie}2"),
    ]
    assert found_by(*searches) == families
    assert pids(find_tree([Mark(f"{cookie}{n}".encode()) for n in range(3)])) == (
        families[0] | families[2]
    )


def test_an_instance_within_an_instance_belongs_to_both(start: Start, cookie: str) -> None:
    inner = 'env -i CLAWBLOX_INSTANCE="$1" setsid sleep 60 & wait'
    outer = start("sh", "-c", inner, "sh", f"{cookie}1".partition("=")[2], cookie=f"{cookie}0")
    both = family(outer, 2)
    (within,) = both - {outer.pid}
    wait_until(lambda: find_tree([Mark(f"{cookie}1".encode())]))
    assert found_by(search(f"{cookie}0", outer.pid), search(f"{cookie}1", within)) == [
        both,
        {within},
    ]


def test_identical_searches_find_the_same_processes(
    start: Start, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = start("sh", "-c", "sleep 60 & wait", cookie=cookie)
    both = family(leader, 2)
    passes = count_passes(monkeypatch)
    searches = [search(cookie), search(cookie, leader.pid), search(f"{cookie}0", leader.pid)]
    assert found_by(*searches) == [both] * 3
    assert found_by(search(cookie), search(cookie)) == [both] * 2
    assert len(passes) == 2


def test_known_processes_belong_only_to_their_own_search(start: Start, cookie: str) -> None:
    first, second = start(), start()
    processes = all_processes()
    found = found_by(
        search(f"{cookie}0", known=[processes[first.pid]]),
        search(f"{cookie}1", known=[processes[second.pid]]),
        search(f"{cookie}2", known=[processes[second.pid]._replace(start_time=1)]),
    )
    assert found == [{first.pid}, {second.pid}, set()]


def test_a_process_older_than_another_marks_leader_is_found(
    start: Start, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = start("sh", "-c", "setsid sleep 60 & wait", cookie=f"{cookie}0")
    (daemon,) = family(older, 2) - {older.pid}
    identity_of_older = identity(older.pid)
    wait_until(lambda: command_line(daemon) == "sleep 60")
    older.kill()
    older.wait()
    wait_until(lambda: read_start_time(start("true").pid) > read_start_time(daemon))
    younger = start()
    first = Search((Mark(f"{cookie}0".encode(), (identity_of_older,)),))
    passes = count_passes(monkeypatch)
    assert found_by(first, search(f"{cookie}1", younger.pid)) == [{daemon}, {younger.pid}]
    assert len(passes) == 1


def test_a_dead_leader_counts_for_its_own_search(start: Start, cookie: str) -> None:
    leader = start("sh", "-c", "sleep 60 & exit")
    wait_until(lambda: not is_alive(leader.pid))
    (orphan,) = [pid for pid, proc in all_processes().items() if proc.session == leader.pid]
    found = found_by(search(f"{cookie}0"), search(f"{cookie}1", leader.pid))
    assert found == [set(), {orphan}]


def test_no_searches_return_no_results() -> None:
    assert find_trees([]) == []


def test_all_searches_share_two_passes(
    start: Start, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(cookie=cookie)
    passes = count_passes(monkeypatch)
    searches = [search(f"{cookie}{n}") for n in range(50)]
    assert found_by(*searches, search(cookie)) == [set()] * 50 + [{child.pid}]
    assert len(passes) == 2
    assert found_by(search(cookie)) == [{child.pid}]
    assert len(passes) == 3


def test_the_second_pass_reads_only_new_processes(
    start: Start, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = start("true")
    wait_until(lambda: not is_alive(zombie.pid))
    read: list[int] = []
    read_stat = proctree._read_stat
    monkeypatch.setattr(proctree, "_read_stat", lambda pid: read.append(pid) or read_stat(pid))
    assert found_by(search(cookie)) == [set()]
    assert {zombie.pid, os.getpid()} <= set(read)
    assert len(read) == len(set(read))


def test_a_process_started_during_a_pass_is_found_by_the_next(
    start: Start, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    passes = count_passes(monkeypatch, lambda number: started.append(start(cookie=cookie).pid))
    found = found_by(search(cookie), search(f"{cookie}0"))
    assert found == [{started[0]}, set()]
    assert len(passes) == 2


def test_a_process_in_the_middle_of_its_exec_is_found(cookie: str) -> None:
    python = os.path.realpath(sys.executable)  # a large program: its exec takes a while
    for _ in range(30):
        argv = [python, "-I", "-S", "-c", "import time; time.sleep(60)"]
        pid = os.posix_spawn(python, argv, marked(cookie))
        try:
            assert read_variables(pid) == marked(cookie)
            assert found_by(search(cookie)) == [{pid}]
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.mark.thorough
def test_a_search_waits_for_a_process_about_to_execute_its_program(
    cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, may_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(go, 1)
        argv = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
        os.execve(sys.executable, argv, dict(marked(cookie)))
    try:
        assert found_by(search(cookie)) == [set()]
        monkeypatch.setattr(proctree.time, "sleep", lambda _seconds: os.write(may_go, b"."))
        await_spawns()
        assert found_by(search(cookie)) == [{pid}]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(go)
        os.close(may_go)


# --------------------------------------------------------------------------- signalling


def pending_signals(pid: int) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = (int(line.split()[1], 16) for line in status if line.startswith("ShdPnd"))
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_a_recycled_pid_is_not_signalled(start: Start) -> None:
    child = start()
    os.kill(child.pid, signal.SIGSTOP)  # so that received signals stay visible
    wait_until(lambda: processes.all_processes()[child.pid].state == "T")
    found = proctree.read_process(child.pid)
    assert found is not None
    signal_processes([found._replace(start_time=found.start_time - 1)], signal.SIGTERM)
    assert pending_signals(child.pid) == set()
    signal_processes([found], signal.SIGTERM)
    assert pending_signals(child.pid) == {signal.SIGTERM}


def test_a_missing_process_does_not_prevent_signals_to_others(start: Start) -> None:
    gone, child = start(), start()
    found = [proc for proc in all_processes().values() if proc.pid in (gone.pid, child.pid)]
    gone.kill()
    gone.wait()
    signal_processes(found, signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


@pytest.mark.parametrize("program", [SWARM, CHAIN], ids=["swarm", "chain"])
def test_a_tree_that_keeps_forking_is_killed(start: Start, cookie: str, program: str) -> None:
    child = start(*python(program), cookie=cookie)
    value = cookie.partition("=")[2]
    seen: set[int] = set()

    def has_forked() -> bool:
        seen.update(processes.marked_processes(value))
        return len(seen) > 9

    wait_until(has_forked)
    assert kill_tree([Mark(cookie.encode())], HANG_S) == []
    assert not processes.marked_processes(value)
    assert not is_alive(child.pid)


def test_a_suspended_process_is_killed(start: Start, cookie: str) -> None:
    child = start(cookie=cookie)
    os.kill(child.pid, signal.SIGSTOP)
    assert kill_tree([Mark(cookie.encode())], HANG_S) == []
    assert child.wait() == -signal.SIGKILL


def test_known_processes_are_killed_too(start: Start, cookie: str) -> None:
    stranger, known = start(), start()
    found = [proc for proc in all_processes().values() if proc.pid == known.pid]
    assert kill_tree([Mark(cookie.encode())], HANG_S, found) == []
    assert known.wait() == -signal.SIGKILL
    assert is_alive(stranger.pid)


def test_processes_that_cannot_be_killed_in_time_are_returned(
    start: Start, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(cookie=cookie)
    monkeypatch.setattr(proctree, "signal_processes", lambda processes, number: None)
    assert pids(kill_tree([Mark(cookie.encode())], 0.0)) == {child.pid}
