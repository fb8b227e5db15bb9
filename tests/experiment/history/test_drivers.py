"""Never two drivers of one experiment, though locks on files succeed twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox.errors import ClawbloxError, RunLockedError
from clawblox.experiment.history.journal import Journal, read_lines
from clawblox.experiment.history.lines import About
from clawblox.rundir import driver_lease
from clawblox.rundir.driver_lease import DriverLease, read_driver
from clawblox.system.append_log import LogChangedError
from tests.support import HANG_S, wait_until

HERE = ""

DRIVER = """
import fcntl, os, sys
from pathlib import Path
from clawblox.errors import JournalLostError, RunLockedError
from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.lines import About
from clawblox.rundir import driver_lease

directory, machine = sys.argv[1:]
fcntl.flock = lambda *_: None
driver_lease.LEASE_S = 1.0
if machine:
    driver_lease.boot_id = lambda: machine
    os.uname = lambda uname=os.uname(): os.uname_result(("Linux", machine, *uname[2:]))

print("ready", flush=True)
for command in sys.stdin:
    try:
        match command.split():
            case ["take"]:
                journal = Journal(Path(directory))
                journal.__enter__()
                print("taken", len(journal.lines), flush=True)
            case ["write", type]:
                print("written", journal.append(type, about=About("r1", 1, "a")).seq, flush=True)
            case ["leave"]:
                journal.__exit__()
                print("left", flush=True)
    except (RunLockedError, JournalLostError) as error:
        print(error.__class__.__name__, str(error).replace("\\n", " "), flush=True)
"""
"""Takes a journal, writes and leaves as it is told, on this machine or a named one."""


class Driver:
    """A process that drives an experiment, whose locks on files always succeed.

    Args:
        directory: The directory of the experiment.
        machine: Name of the machine that it believes to be on; empty for this one.
    """

    def __init__(self, directory: Path, machine: str = HERE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(directory), machine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.answer() == "ready"

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, command: str) -> str:
        self.tell(command)
        return self.answer()

    def stop(self) -> None:
        """Stop all its threads: one that runs on for a moment could renew the lease."""
        self.process.send_signal(signal.SIGSTOP)
        stats = list(Path(f"/proc/{self.process.pid}/task").glob("*/stat"))
        wait_until(lambda: all(is_stopped(stat) for stat in stats))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=HANG_S)


def is_stopped(stat: Path) -> bool:
    return stat.read_text().rpartition(")")[2].split()[0] == "T"


@contextlib.contextmanager
def drivers(directory: Path, *machines: str) -> Iterator[list[Driver]]:
    """Start drivers, and end them."""
    with contextlib.ExitStack() as stack:
        started = []
        for machine in machines:
            started.append(Driver(directory, machine))
            stack.callback(started[-1].end)
        yield started


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / ".clawblox").glob("*driver*"))


@pytest.mark.parametrize(
    ("before", "is_elsewhere"),
    [
        ("nothing", True),
        pytest.param("nothing", False, marks=pytest.mark.thorough),
        pytest.param("killed", False, marks=pytest.mark.thorough),
        pytest.param("killed elsewhere", True, marks=pytest.mark.thorough),
    ],
)
def test_exactly_one_of_many_drivers_that_start_at_once_runs(
    tmp_path: Path, before: str, *, is_elsewhere: bool
) -> None:
    if before != "nothing":
        with drivers(tmp_path, "gone" if before == "killed elsewhere" else HERE) as [killed]:
            assert killed.ask("take") == "taken 0"
        assert files(tmp_path) == ["driver.json"]
    machines = [f"node{number}" if is_elsewhere else HERE for number in range(4)]
    with drivers(tmp_path, *machines) as started:
        for driver in started:
            driver.tell("take")
        answers = [driver.answer() for driver in started]
        index = answers.index("taken 0")
        winner, host = started.pop(index), machines[index]
        answers.pop(index)
        for answer in answers:
            assert answer.startswith(f"RunLockedError pid {winner.process.pid} ")
            if is_elsewhere:
                assert f"on {host}: clawblox experiment stop {tmp_path} stops it" in answer
        assert winner.ask("write saved") == "written 1"
        assert [driver.ask("take").split()[0] for driver in started] == ["RunLockedError"] * 3
        assert winner.ask("leave") == "left"
    assert files(tmp_path) == []
    assert len(read_lines(tmp_path)) == 1


def test_a_driver_that_was_stopped_while_another_took_over_writes_nothing(tmp_path: Path) -> None:
    with drivers(tmp_path, "node1", "node2") as [first, second]:
        assert first.ask("take") == "taken 0"
        assert first.ask("write saved") == "written 1"
        first.stop()
        assert second.ask("take") == "taken 1"
        first.process.send_signal(signal.SIGCONT)
        assert first.ask("write opened").startswith("JournalLostError ")
        assert second.ask("write saved") == "written 2"
        assert first.ask("leave") == "left"
        assert files(tmp_path) == ["driver.json"]
        assert second.ask("leave") == "left"
    assert [line.type for line in read_lines(tmp_path)] == ["saved"] * 2
    [kept] = tmp_path.glob("journal.lost-*.jsonl")
    assert "opened" in kept.read_text()


def test_a_driver_whose_successor_has_come_and_gone_writes_nothing(tmp_path: Path) -> None:
    with drivers(tmp_path, "node1", "node2") as [first, second]:
        assert first.ask("take") == "taken 0"
        first.stop()
        assert second.ask("take") == "taken 0"
        assert second.ask("leave") == "left"
        first.process.send_signal(signal.SIGCONT)
        assert first.ask("write opened").startswith("JournalLostError ")
    assert read_lines(tmp_path) == []
    assert files(tmp_path) == []


def test_a_driver_that_was_stopped_and_continued_in_time_goes_on(tmp_path: Path) -> None:
    with drivers(tmp_path, "node1", "node2") as [first, second]:
        assert first.ask("take") == "taken 0"
        first.stop()
        second.tell("take")
        first.process.send_signal(signal.SIGCONT)
        assert second.answer().startswith("RunLockedError ")
        assert first.ask("write saved") == "written 1"


def kill_before(number: int, directory: Path) -> bool:
    """Drive in a fork that is killed before an operation on files; return whether it was."""
    if (pid := os.fork()) != 0:
        return os.waitpid(pid, 0)[1] == signal.SIGKILL
    count = 0

    def die(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in ("open", "os.link", "os.remove", "os.rename", "os.mkdir"):
            count += str(directory) in str(arguments[0])
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die)
    lease = DriverLease(directory)
    lease.take()
    lease.release()
    os._exit(0)


@pytest.mark.parametrize("kills", [1, 2])
def test_the_next_takes_a_directory_whichever_operation_the_last_was_killed_before(
    tmp_path: Path, kills: int
) -> None:
    for number in range(1, 99):
        directory = tmp_path / str(number)
        directory.mkdir()
        if not all(kill_before(number, directory) for _ in range(kills)):
            break
        lease = DriverLease(directory)
        lease.take()
        lease.require_held()
        assert [name for name in files(directory) if "partial" not in name] == ["driver.json"]
        lease.release()
        assert [name for name in files(directory) if "partial" not in name] == []
    assert number > 9


def test_the_driver_of_an_open_journal_is_named_by_its_file(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        driver = read_driver(tmp_path)
        assert driver is not None
        assert (driver.pid, driver.host) == (os.getpid(), os.uname().nodename)
        facts = {"host": driver.host, "boot_id": driver.boot_id, "lease_s": 30.0}
        assert journal.facts == facts
        with pytest.raises(RunLockedError, match=f"pid {os.getpid()} "), Journal(tmp_path):
            pass
    assert files(tmp_path) == []
    assert read_driver(tmp_path) is None


def test_a_malformed_file_of_a_driver_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / ".clawblox" / "driver.json"
    path.parent.mkdir()
    path.write_text('{"id": "../../../etc/passwd"}')
    with pytest.raises(ClawbloxError, match="remove this file"), Journal(tmp_path):
        pass
    assert read_driver(tmp_path) is None


def test_a_lease_that_cannot_be_renewed_is_lost_when_it_has_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError("the file system is gone")

    monkeypatch.setattr(driver_lease, "LEASE_S", 0.2)
    lease = DriverLease(tmp_path)
    lease.take()
    try:
        with monkeypatch.context() as failing:
            failing.setattr(driver_lease.os, "fdatasync", fail)
            wait_until(lambda: lease.remaining_s < 0)
            with pytest.raises(LogChangedError, match="file system is gone"):
                lease.require_held()
        lease.require_held()
    finally:
        lease.release()


def test_a_forked_child_does_not_release_the_lease(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        if (pid := os.fork()) == 0:
            journal.__exit__()
            os._exit(0)
        os.waitpid(pid, 0)
        assert journal.append("saved", about=About("r1", 1, "a")).seq == 1


def test_of_two_that_outlast_the_same_driver_one_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (pid := os.fork()) == 0:
        DriverLease(tmp_path).take()
        os._exit(0)
    os.waitpid(pid, 0)
    first, second = DriverLease(tmp_path), DriverLease(tmp_path)
    first.driver, second.driver = driver_lease.Driver.own(), driver_lease.Driver.own()
    seen = driver_lease._follow(first._root)
    rename, others = Path.replace, []

    def replace(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", rename)
        others.append(second._claim(*seen))
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    assert first._claim(*seen)
    assert others == [False]
    first.require_held()
    first.release()
