"""Checks of documents: validity, and the processes that check large documents."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox.snapshot import checker as checker_module
from clawblox.snapshot.checker import (
    CHECKER_NAME,
    SMALL_BYTES,
    Checker,
    CheckerLost,
    DocumentCheck,
    checkers,
)
from clawblox.snapshot.header import Header, InvalidDocument, read_header
from tests.support.processes import command_line, descendants, is_alive, read_process
from tests.support.waiting import wait_until

LARGE = b'{"padding": "' + b"x" * SMALL_BYTES + b'", "format": "large-v1", "time": 2}'


@contextlib.contextmanager
def document(tmp_path: Path, content: bytes) -> Iterator[int]:
    """Write a document and open it for reading."""
    path = tmp_path / "document"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def checker() -> Iterator[Checker]:
    """Run a checker."""
    running = Checker()
    try:
        yield running
    finally:
        running.end()


@contextlib.contextmanager
def check() -> Iterator[DocumentCheck]:
    """Make a check and close it."""
    one = DocumentCheck()
    try:
        yield one
    finally:
        one.close()


def running_checkers() -> set[int]:
    """Return the checkers of this process that have not ended."""
    return {pid for pid in descendants(os.getpid()) if CHECKER_NAME in command_line(pid)}


# -------------------------------------------------------------------------------- documents

HEADERS = {
    b'{"format": "a", "time": 1.5}': Header("a", 1.5),
    b' {"time": -3, "x": [{"format": "deep"}], "format": "b"}\n': Header("b", -3),
    b'{"format": "a", "format": "b"}': Header("b"),
    b"{}": Header(),
    b'{"format": "", "time": null}': Header(),
    b'{"format": 5, "time": "now"}': Header(),
    b'{"format": {"name": "a"}, "time": true}': Header(),
    b'{"format": "a", "time": 1e999}': Header("a"),
    b'{"format": "a", "time": 1' + b"0" * 400 + b"}": Header("a"),
    b'{"format": "a", "time": ' + b"7" * 5000 + b"}": Header("a"),
    b'{"format": "' + b"a" * 2000 + b'", "time": 1}': Header(None, 1),
    b'{"format": "a", "x": ' + b"7" * 5000 + b"}": Header("a"),
    b"[1, 2, 3]": Header(),
    b'"text"': Header(),
    b"5": Header(),
}

INVALID = [
    b"",
    b"oops",
    b'{"format": "a"',
    b'{"format": "a"} {}',
    b'{"format": "a", "x": NaN}',
    b'{"format": "a", "time": -Infinity}',
    b'{"format": "\xff"}',
    b'{"format": "\\ud800"}',
    b"\xef\xbb\xbf{}",
    b"[1, 2",
    b"[1, 2] 3",
    b'"text',
    b'{"x": ' + b"[" * 100_000,
    b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"[" * 100_000 + b"]" * 100_000,
]


@pytest.mark.parametrize("content", HEADERS, ids=lambda content: repr(content[:40]))
def test_a_document_has_both_format_and_time_or_neither(tmp_path: Path, content: bytes) -> None:
    with document(tmp_path, content) as fd:
        assert read_header(fd) == HEADERS[content]


@pytest.mark.parametrize("content", INVALID, ids=lambda content: repr(content[:40]))
def test_invalid_json_is_refused_wherever_the_fault_is(tmp_path: Path, content: bytes) -> None:
    with document(tmp_path, content) as fd, pytest.raises(InvalidDocument, match=r"\w"):
        read_header(fd)


def test_a_checker_returns_the_same_result_as_a_check_in_this_process(tmp_path: Path) -> None:
    with checker() as running:
        for content in [*HEADERS, *INVALID]:
            with document(tmp_path, content) as fd:
                found = []
                for read in (read_header, running.read_header):
                    try:
                        found.append(repr(read(fd)))
                    except InvalidDocument as error:
                        found.append(str(error))
            assert found[0] == found[1]


# ------------------------------------------------------------------------------- the process


def test_a_checker_inherits_no_environment_or_descriptors(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    with document(tmp_path, b"{}") as fd, checker() as running:
        running.read_header(fd)
        proc = Path(f"/proc/{running.pid}")
        assert sorted(os.listdir(proc / "fd")) == ["0", "1", "2", "3"]
        assert os.readlink(proc / "fd" / "3") == "anon_inode:[pidfd]"
        names = {entry.partition(b"=")[0] for entry in (proc / "environ").read_bytes().split(b"\0")}
        assert names <= {b"PATH", b""}
        assert os.getsid(running.pid) == running.pid
        assert os.readlink(proc / "cwd") == "/"
        os.close(write_end)
        assert os.read(read_end, 1) == b""
    os.close(read_end)


def test_a_checker_survives_signals_to_the_whole_process_group(tmp_path: Path) -> None:
    with document(tmp_path, b"{}") as fd, checker() as running:
        running.read_header(fd)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(running.pid, number)
        assert running.read_header(fd) == Header()


def test_a_checker_can_be_ended_at_any_moment() -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        running = Checker()
        os.kill(running.pid, number)
        running.end()
        assert read_process(running.pid) is None


def test_a_checker_reaped_by_other_code_can_be_ended() -> None:
    running = Checker()
    os.kill(running.pid, signal.SIGKILL)
    os.waitpid(-1, 0)
    running.end()


ORCHESTRATOR = """
import os, sys, time
from clawblox.snapshot.checker import Checker
checker = Checker()
fd = os.open(sys.argv[1], os.O_RDONLY)
checker.read_header(fd)
if sys.argv[2] == "fork" and os.fork() == 0:
    os.write(1, b"forked %d\\n" % os.getpid())
    time.sleep(60)
os.write(1, b"checker %d\\n" % checker.pid)
time.sleep(60)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["alone", "fork"])
def test_no_checker_outlives_an_orchestrator_that_is_killed(tmp_path: Path, way: str) -> None:
    (tmp_path / "document").write_bytes(b"{}")
    words: dict[str, int] = {}
    with subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, str(tmp_path / "document"), way],
        stdout=subprocess.PIPE,
        text=True,
    ) as orchestrator:
        assert orchestrator.stdout is not None
        for _ in range(2 if way == "fork" else 1):
            name, pid = orchestrator.stdout.readline().split()
            words[name] = int(pid)
        orchestrator.kill()
        wait_until(lambda: not is_alive(words["checker"]), what="the checker is gone")
        if way == "fork":
            assert is_alive(words["forked"])
            os.kill(words["forked"], signal.SIGKILL)


# ------------------------------------------------------------------------- choice of checker


def test_a_small_document_needs_no_checker(tmp_path: Path) -> None:
    with document(tmp_path, b'{"format": "a"}') as fd, check() as one:
        one.prepare(os.fstat(fd).st_size)
        assert one.read_header(fd) == Header("a")
        assert running_checkers() == set()


def test_a_large_document_is_checked_by_a_checker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker_module, "read_header", None)  # in this process
    with document(tmp_path, LARGE) as fd, check() as one:
        assert one.read_header(fd) == Header("large-v1", 2)
        assert len(running_checkers()) == 1
    assert running_checkers() == set()


def test_a_checker_boots_as_soon_as_a_document_is_known_to_be_large(tmp_path: Path) -> None:
    with document(tmp_path, LARGE) as fd, check() as one:
        one.prepare(SMALL_BYTES)
        assert running_checkers() == set()
        one.prepare(SMALL_BYTES + 1)
        one.prepare(SMALL_BYTES + 2)
        booting = wait_until(running_checkers)
        assert len(booting) == 1
        one.read_header(fd)
        assert running_checkers() == booting


def test_an_invalid_large_document_is_refused_and_its_checker_continues(tmp_path: Path) -> None:
    with document(tmp_path, LARGE[:-1]) as fd, check() as one:
        for _ in range(2):
            with pytest.raises(InvalidDocument, match="truncated"):
                one.read_header(fd)
        assert len(running_checkers()) == 1


def test_idle_checkers_are_kept_while_they_are_held(tmp_path: Path) -> None:
    checkers.hold()
    checkers.hold()
    with document(tmp_path, LARGE) as fd:
        with check() as one:
            one.read_header(fd)
        idle = running_checkers()
        assert checkers.release() == []
        with check() as one:
            one.read_header(fd)
            assert running_checkers() == idle
        (spent,) = checkers.release()
        assert {spent.pid} == idle
        spent.end()
        assert running_checkers() == set()


def test_an_idle_checker_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with document(tmp_path, LARGE) as fd, check() as one:
        one.read_header(fd)
        (killed,) = running_checkers()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not is_alive(killed))
        assert one.read_header(fd) == Header("large-v1", 2)
        assert len(running_checkers() - {killed}) == 1


class DoomedChecker(Checker):
    """A checker that is killed before it can answer."""

    def read_header(self, fd: int) -> Header:
        assert self.receive() == b"ready"
        os.kill(self.pid, signal.SIGKILL)
        return super().read_header(fd)


def test_a_document_that_kills_two_checkers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker_module, "Checker", DoomedChecker)
    with document(tmp_path, LARGE) as fd, check() as one:
        with pytest.raises(CheckerLost, match="killed"):
            one.read_header(fd)
        assert running_checkers() == set()


@pytest.mark.parametrize("program", ["/bin/false", "/nonexistent/python"])
def test_a_check_runs_in_this_process_if_no_checker_can_be_spawned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with document(tmp_path, LARGE) as fd, check() as one:
        one.prepare(len(LARGE))
        assert one.read_header(fd) == Header("large-v1", 2)
        assert running_checkers() == set()


@pytest.mark.parametrize("when", ["before it boots", "meanwhile"])
def test_an_interrupted_check_fails_even_if_its_checker_hangs(tmp_path: Path, when: str) -> None:
    checkers.hold()
    with document(tmp_path, LARGE) as fd, check() as one:
        if when == "meanwhile":
            one.prepare(len(LARGE))
            (pid,) = wait_until(running_checkers)
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(0.1, one.interrupt).start()
        else:
            one.interrupt()
        with pytest.raises(CheckerLost):
            one.read_header(fd)
        assert running_checkers() == set()
    assert checkers.release() == []


def test_a_checker_of_an_interrupted_check_is_not_kept() -> None:
    checkers.hold()
    with check() as one:
        one.prepare(len(LARGE))
        one.interrupt()
    assert checkers.release() == []
    assert running_checkers() == set()
