"""File locks have one owner at a time, end with it, and leave other files alone."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox.system import locks
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.locks import lock_file, lock_owner, unlock_file
from tests.support.waiting import HANG_S, wait_until

OLD = b"the old content"
PACKAGE_ROOT = str(Path(locks.__file__).parents[2])


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


CONTEND = """
import os, sys, time
from pathlib import Path
root, rounds = sys.argv[1], int(sys.argv[2])
sys.path.insert(0, root)
from clawblox.system.locks import lock_file, unlock_file

path, inside = Path("lock"), Path("inside")
print("here", flush=True)
sys.stdin.readline()
done = refused = 0
while done < rounds:
    fd = lock_file(path)
    if fd is None:
        refused += 1
        continue
    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails where two are inside
    assert path.read_text().split()[0] == str(os.getpid())
    inside.unlink()
    unlock_file(path, fd)
    done += 1
print(refused)
"""

HOLD = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from clawblox.system.locks import lock_file
assert lock_file(Path("lock")) is not None
if sys.argv[2:] == ["fork"] and os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def program(text: str, cwd: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that prints a line at its start and ends with its input."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", text, PACKAGE_ROOT, *arguments],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
        process.kill()


def pid_in(path: Path) -> int | None:
    owner = lock_owner(path)
    return owner.pid if owner else None


@pytest.mark.parametrize("rounds", ["100", pytest.param("300", marks=pytest.mark.thorough)])
def test_exactly_one_of_several_processes_holds_a_lock_at_a_time(
    tmp_path: Path, rounds: str
) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(program(CONTEND, tmp_path, rounds)) for _ in range(4)]
        for process in crowd:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        refusals = [process.communicate(timeout=HANG_S)[0] for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 4
    assert sum(map(int, refusals)) > 0  # they did overlap
    assert names_in(tmp_path) == set()


def test_a_lock_is_refused_while_another_live_process_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with program(HOLD, tmp_path) as holder:
        assert lock_file(path) is None
        assert pid_in(path) == holder.pid
        holder.kill()
        holder.wait()
        fd = lock_file(path)
        assert fd is not None
        assert pid_in(path) == os.getpid()
        unlock_file(path, fd)
    assert names_in(tmp_path) == set()


def test_a_lock_names_its_owner_machine_and_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    before = format_utc(utc_now())
    fd = lock_file(path)
    assert fd is not None
    owner = lock_owner(path)
    unlock_file(path, fd)
    assert owner is not None
    assert (owner.pid, owner.host) == (os.getpid(), socket.gethostname())
    assert before <= owner.since <= format_utc(utc_now())


def test_a_forked_child_does_not_hold_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with program(HOLD, tmp_path, "fork") as holder:
        assert lock_file(path) is None
        holder.kill()
        holder.wait()
        # The child may not have run its after-fork handlers yet.
        fd = wait_until(lambda: lock_file(path))
        unlock_file(path, fd)


def test_a_forked_child_does_not_release_the_lock_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    child = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {PACKAGE_ROOT!r})
from clawblox.system.locks import lock_file, unlock_file
fd = lock_file(Path("lock"))
if os.fork() == 0:
    unlock_file(Path("lock"), fd)
    os._exit(0 if lock_file(Path("lock")) is None else 1)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    command = [sys.executable, "-I", "-S", "-c", child]
    assert subprocess.run(command, cwd=tmp_path, timeout=HANG_S).returncode == 0
    assert path.exists()


def test_a_lock_is_refused_to_its_own_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = lock_file(path)
    assert fd is not None
    assert lock_file(path) is None
    unlock_file(path, fd)
    unlock_file(path, fd)
    assert names_in(tmp_path) == set()


def test_a_lock_is_taken_again_if_its_file_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    fds: list[int] = []

    def lock_after_removal(fd: int, operation: int) -> None:
        fds.append(fd)
        if len(fds) == 1:
            path.unlink()
            path.touch()
        if len(fds) == 2:
            path.unlink()

    monkeypatch.setattr(locks.fcntl, "flock", lock_after_removal)
    fd = lock_file(path)
    assert len(fds) == 3
    assert fd is not None
    unlock_file(path, fd)


@pytest.mark.parametrize("call", ["ftruncate", "pwrite", "fstat"])
def test_a_lock_that_cannot_be_written_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "lock"
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            lock_file(path)
    fd = lock_file(path)
    assert fd is not None
    unlock_file(path, fd)


def test_a_link_in_the_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(OLD)
    (tmp_path / "lock").symlink_to("precious")
    with pytest.raises(OSError, match="symbolic link"):
        lock_file(tmp_path / "lock")
    assert content(tmp_path / "precious") == OLD


UNREADABLE = [None, b"", b"\xff", b"no number", b"4711", b"x here 2026-06-22T18:59:25Z"]


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_lock_without_a_readable_owner_has_no_owner(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "lock").write_bytes(text)
    assert lock_owner(tmp_path / "lock") is None


def test_a_file_that_replaced_a_lock_stays_after_the_release(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "lock"
    fd = lock_file(lock)
    assert fd is not None
    lock.unlink()
    lock.mkdir()
    unlock_file(lock, fd)
    assert lock.is_dir()
