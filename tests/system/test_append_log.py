"""Append-only logs contain only complete lines despite killed and concurrent writers."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.system import append_log, locks
from clawblox.system.append_log import append, append_lines, open_log, read_complete_lines

APPEND = """
import sys
from pathlib import Path
from clawblox.system.append_log import append_lines
for number in range(200):
    append_lines(Path("log"), f"{sys.argv[1]} {number}\\n".encode())
"""

DIE_AMID_A_LINE = """
import os, signal
from pathlib import Path
from clawblox.system.append_log import open_log
with open_log(Path("log")) as fd:
    os.write(fd, b"half of a l")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_lines_of_several_processes_are_complete_and_ordered(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", APPEND, name], cwd=tmp_path) for name in "abc"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    lines = [line.decode().split() for line in read_complete_lines(tmp_path / "log")]
    assert len(lines) == 600
    for name in "abc":
        assert [int(number) for writer, number in lines if writer == name] == list(range(200))


def test_an_incomplete_line_of_a_killed_writer_is_ignored_and_terminated(tmp_path: Path) -> None:
    log = tmp_path / "log"
    append_lines(log, b"first\n")
    killed = subprocess.run([sys.executable, "-c", DIE_AMID_A_LINE], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert read_complete_lines(log) == [b"first\n"]
    append_lines(log, b"last\n")
    assert read_complete_lines(log) == [b"first\n", b"half of a l\n", b"last\n"]


def test_a_failed_write_leaves_the_log_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    append_lines(log, b"first\n")

    def write_half(fd: int, data: bytes) -> None:
        os.write(fd, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(append_log, "write_all", write_half)
        with pytest.raises(OSError, match="No space"):
            append_lines(log, b"second\n")
    assert log.read_bytes() == b"first\n"


def test_a_log_cannot_grow_beyond_its_limit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open_log(log) as fd:
        append(fd, b"12345\n", max_bytes=6)
        with pytest.raises(OSError, match="would be larger than 6 bytes"):
            append(fd, b"\n", max_bytes=6)
    assert read_complete_lines(log, max_bytes=6) == [b"12345\n"]
    with pytest.raises(OSError, match="is larger than 5 bytes"):
        read_complete_lines(log, max_bytes=5)


def test_the_wait_for_a_writer_with_the_lock_is_limited(tmp_path: Path) -> None:
    log = tmp_path / "log"
    append_lines(log, b"first\n")
    with log.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        refusal = pytest.raises(TimeoutError, match="another process holds the lock")
        with refusal, open_log(log, lock_wait=0):
            pass
    append_lines(log, b"third\n")
    assert read_complete_lines(log) == [b"first\n", b"third\n"]


def test_a_log_replaced_while_waiting_for_its_lock_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    append_lines(log, b"old\n")
    real = locks.lock_descriptor
    calls: list[int] = []

    def lock(fd: int, seconds: float) -> bool:
        calls.append(fd)
        if len(calls) == 1:
            log.unlink()
        return real(fd, seconds)

    monkeypatch.setattr(locks, "lock_descriptor", lock)
    append_lines(log, b"new\n")
    assert len(calls) == 2
    assert read_complete_lines(log) == [b"new\n"]
