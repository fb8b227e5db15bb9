"""An experiment never has two drivers, even if file locks succeed twice."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from clawblox.errors import ClawbloxError, JournalLostError, RunLockedError
from clawblox.experiment.history.journal import Journal, read_lines
from clawblox.experiment.history.lines import About
from clawblox.rundir import driver_lease
from clawblox.rundir.driver_lease import DriverLease, read_driver
from clawblox.system.append_log import LogChangedError
from tests.support.sampling import usually
from tests.support.waiting import HANG_S, wait_until

HERE = ""
FORK = multiprocessing.get_context("fork")


def drive(directory: Path, machine: str, commands: Connection) -> None:
    """Take a journal, write and leave on command, on this or a named machine."""
    fcntl.flock = lambda *_: None
    driver_lease.LEASE_S = 1.0
    if machine:
        uname = os.uname()
        driver_lease.boot_id = lambda: machine
        os.uname = lambda: os.uname_result(("Linux", machine, *uname[2:]))
    while True:
        try:
            match commands.recv().split():
                case ["take"]:
                    journal = Journal(directory)
                    journal.__enter__()
                    commands.send(f"taken {len(journal.lines)}")
                case ["write", type]:
                    line = journal.append(type, about=About("r1", 1, "a"))
                    commands.send(f"written {line.seq}")
                case ["leave"]:
                    journal.__exit__()
                    commands.send("left")
        except (RunLockedError, JournalLostError) as error:
            commands.send(f"{error.__class__.__name__} {error}".replace("\n", " "))


class Driver:
    """A process that drives an experiment, whose locks on files always succeed.

    The driver is a fork, because imports take longer than its work.

    Args:
        directory: The directory of the experiment.
        machine: Name of its simulated machine; empty for this machine.
    """

    def __init__(self, directory: Path, machine: str = HERE) -> None:
        self._commands, commands = FORK.Pipe()
        self.process = FORK.Process(target=drive, args=(directory, machine, commands), daemon=True)
        self.process.start()
        commands.close()

    def tell(self, command: str) -> None:
        self._commands.send(command)

    def answer(self) -> str:
        return str(self._commands.recv())

    def ask(self, command: str) -> str:
        self.tell(command)
        return self.answer()

    def send_signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        """Suspend all threads, because a running thread could renew the lease."""
        self.send_signal(signal.SIGSTOP)
        stats = list(Path(f"/proc/{self.process.pid}/task").glob("*/stat"))
        wait_until(lambda: all(is_stopped(stat) for stat in stats))

    def end(self) -> None:
        self.process.kill()
        self.process.join(HANG_S)
        self.process.close()
        self._commands.close()


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
def test_exactly_one_of_many_concurrent_drivers_runs(
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


def test_a_suspended_driver_does_not_write_after_a_takeover(tmp_path: Path) -> None:
    with drivers(tmp_path, "node1", "node2") as [first, second]:
        assert first.ask("take") == "taken 0"
        assert first.ask("write saved") == "written 1"
        first.stop()
        assert second.ask("take") == "taken 1"
        first.send_signal(signal.SIGCONT)
        assert first.ask("write opened").startswith("JournalLostError ")
        assert second.ask("write saved") == "written 2"
        assert first.ask("leave") == "left"
        assert files(tmp_path) == ["driver.json"]
        assert second.ask("leave") == "left"
    assert [line.type for line in read_lines(tmp_path)] == ["saved"] * 2
    [kept] = tmp_path.glob("journal.lost-*.jsonl")
    assert "opened" in kept.read_text()


def test_a_driver_does_not_write_after_its_successor_has_ended(tmp_path: Path) -> None:
    with drivers(tmp_path, "node1", "node2") as [first, second]:
        assert first.ask("take") == "taken 0"
        first.stop()
        assert second.ask("take") == "taken 0"
        assert second.ask("leave") == "left"
        first.send_signal(signal.SIGCONT)
        assert first.ask("write opened").startswith("JournalLostError ")
    assert read_lines(tmp_path) == []
    assert files(tmp_path) == []


def test_a_driver_suspended_for_less_than_its_lease_continues(tmp_path: Path) -> None:
    with drivers(tmp_path, "node1", "node2") as [first, second]:
        assert first.ask("take") == "taken 0"
        first.stop()
        second.tell("take")
        first.send_signal(signal.SIGCONT)
        assert second.answer().startswith("RunLockedError ")
        assert first.ask("write saved") == "written 1"


def kill_before(number: int, directory: Path) -> bool:
    """Drive in a fork that is killed before a file operation; return whether it was killed."""
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


@pytest.mark.parametrize("kills", usually([1, 2], 1))
def test_a_driver_takes_over_whichever_step_its_predecessor_was_killed_at(
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


def test_a_malformed_driver_file_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / ".clawblox" / "driver.json"
    path.parent.mkdir()
    path.write_text('{"id": "../../../etc/passwd"}')
    with pytest.raises(ClawbloxError, match="remove this file"), Journal(tmp_path):
        pass
    assert read_driver(tmp_path) is None


def test_a_lease_that_cannot_be_renewed_is_lost_at_its_end(
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


def test_only_one_of_two_waiting_drivers_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (pid := os.fork()) == 0:
        DriverLease(tmp_path).take()
        os._exit(0)
    os.waitpid(pid, 0)
    first, second = DriverLease(tmp_path), DriverLease(tmp_path)
    first.driver, second.driver = (
        driver_lease.DrivingProcess.own(),
        driver_lease.DrivingProcess.own(),
    )
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
