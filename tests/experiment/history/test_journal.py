"""The journal of an experiment: one writer, whole lines, and space for the last lines."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox.errors import ClawbloxError, JournalLostError, UsageError
from clawblox.experiment.history.journal import JOURNAL_NAME, Journal, read_lines
from clawblox.experiment.history.lines import About
from clawblox.system import append_log
from clawblox.system.append_log import OwnedLog
from tests.support.waiting import HANG_S

ATTEMPT = About("r1", 1, "a")


def write(directory: Path, count: int) -> None:
    with Journal(directory) as journal:
        for number in range(count):
            journal.append("opened", {"number": number}, ATTEMPT)


def test_lines_are_read_back_unchanged(tmp_path: Path) -> None:
    write(tmp_path, 3)
    with Journal(tmp_path) as journal:
        assert [line.data["number"] for line in journal.lines] == [0, 1, 2]
        assert journal.append("saved", about=ATTEMPT).seq == 4
        assert read_lines(tmp_path) == journal.lines


def test_every_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    write(tmp_path, 2)
    path = tmp_path / JOURNAL_NAME
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        with Journal(tmp_path) as journal:
            assert len(journal.lines) == 1
            journal.append("saved", about=ATTEMPT)
        assert [line.type for line in read_lines(tmp_path)] == ["opened", "saved"]


@pytest.mark.parametrize("bad", [b"nothing\n", b'{"seq": 1, "at": "", "type": "opened"}\n', b"\n"])
def test_a_bad_line_is_refused_with_its_number(tmp_path: Path, bad: bytes) -> None:
    write(tmp_path, 2)
    path = tmp_path / JOURNAL_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + bad + lines[1])
    with pytest.raises(ClawbloxError, match="line 2"), Journal(tmp_path):
        pass
    with pytest.raises(ClawbloxError, match="line 2"):
        read_lines(tmp_path)


def test_a_line_and_its_file_are_on_disk_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes | Path] = []
    path = tmp_path / JOURNAL_NAME
    monkeypatch.setattr(append_log.os, "fdatasync", lambda _fd: synced.append(path.read_bytes()))
    monkeypatch.setattr(append_log, "fsync_directory", synced.append)
    with Journal(tmp_path) as journal:
        assert synced == [tmp_path]
        for count in (1, 2):
            journal.append("chain.retried", about=ATTEMPT)
            assert synced[-1] == path.read_bytes()
            assert len(synced) == 1 + count
    with Journal(tmp_path):
        assert len(synced) == 3


def test_line_that_may_be_lost_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    with Journal(tmp_path) as journal:
        journal.append("opened", about=ATTEMPT)
        with monkeypatch.context() as broken:
            broken.setattr(append_log.os, "fdatasync", fail)
            with pytest.raises(OSError, match="input/output"):
                journal.append("prepared", about=ATTEMPT)
        journal.append("saved", about=ATTEMPT)
        assert [line.type for line in journal.lines] == ["opened", "saved"]
        assert read_lines(tmp_path) == journal.lines


@pytest.mark.parametrize("exists", [True, False])
def test_a_journal_that_is_a_link_is_not_followed(tmp_path: Path, *, exists: bool) -> None:
    target = tmp_path / "elsewhere"
    if exists:
        target.touch()
    (tmp_path / JOURNAL_NAME).symlink_to(target)
    with pytest.raises(ClawbloxError, match="cannot be used"), Journal(tmp_path):
        pass
    assert target.exists() is exists


SECOND = """
import sys
from pathlib import Path
from clawblox.errors import RunLockedError
from clawblox.experiment.history.journal import Journal
try:
    Journal(Path(sys.argv[1])).__enter__()
except RunLockedError as error:
    print(error.headline)
"""


@pytest.mark.thorough
def test_a_second_process_can_read_but_not_write(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with Journal(tmp_path) as journal:
        words = [sys.executable, "-c", SECOND, tmp_path]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=True)
        assert "runs the experiment" in answer.stdout
        assert read_lines(tmp_path) == journal.lines


@pytest.mark.thorough
def test_a_second_process_is_refused_when_the_lock_file_was_removed_or_replaced(
    tmp_path: Path,
) -> None:
    write(tmp_path, 1)
    lock = tmp_path / ".clawblox" / "experiment.lock"
    with Journal(tmp_path) as journal:
        for content in (None, "1 host 2026-06-22T18:59:25Z"):
            lock.unlink()
            if content is not None:
                lock.write_text(content)
            words = [sys.executable, "-c", SECOND, tmp_path]
            answer = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
            assert "runs the experiment" in answer.stdout
            journal.append("saved", about=ATTEMPT)
            assert lock.read_text().startswith(f"{os.getpid()} ")
        assert read_lines(tmp_path) == journal.lines


def test_process_that_replaces_all_files_ends_the_first_process(tmp_path: Path) -> None:
    write(tmp_path, 1)
    path, lock = tmp_path / JOURNAL_NAME, tmp_path / ".clawblox" / "experiment.lock"
    with Journal(tmp_path) as first:
        lock.with_name("driver.json").unlink()
        lock.unlink()
        replace(path)
        with Journal(tmp_path) as second:
            with pytest.raises(JournalLostError, match="removed or replaced"):
                first.append("saved", about=ATTEMPT)
            second.append("saved", about=ATTEMPT)
        assert not lock.exists()
    assert len(second.lines) == 2


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


def put_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def put_a_hard_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    path.unlink()
    path.hardlink_to(other)


def put_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def add_a_line(path: Path) -> None:
    with path.open("ab") as file:
        file.write(path.read_bytes())


TAMPERINGS: tuple[Callable[[Path], object], ...] = (
    Path.unlink,
    replace,
    put_a_link,
    put_a_hard_link,
    put_a_pipe,
    add_a_line,
    lambda path: os.truncate(path, 10),
    lambda path: shutil.rmtree(path.parent),
)


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_journal_changed_by_another_program_is_left_alone_and_new_lines_are_kept_elsewhere(
    tmp_path: Path, tamper: Callable[[Path], object]
) -> None:
    directory = tmp_path / "exp"
    directory.mkdir()
    path = directory / JOURNAL_NAME
    with Journal(directory) as journal:
        journal.append("opened", about=ATTEMPT)
        tamper(path)
        left = path.read_bytes() if path.is_file() else None
        for _ in range(2):
            with pytest.raises(JournalLostError, match="changed by another program") as raised:
                journal.append("saved", about=ATTEMPT)
        assert journal.is_lost
    assert left == (path.read_bytes() if path.is_file() else None)
    kept = raised.value.kept
    assert kept is not None
    assert [*directory.glob("journal.lost-*.jsonl")] == [kept]
    with pytest.raises(UsageError, match="lost its journal") as refused, Journal(directory):
        pass
    for file in (path, kept):
        assert f"{file}" in str(refused.value)
    kept.replace(path)  # as the hint says
    with Journal(directory) as journal:
        assert [line.type for line in journal.lines] == ["opened", "saved"]


def test_full_disk_is_not_mistaken_for_another_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(fd: int, data: bytes) -> None:
        os.write(fd, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Journal(tmp_path) as journal:
        journal.append("opened", about=ATTEMPT)
        with monkeypatch.context() as full:
            full.setattr(append_log, "write_all", write_half)
            for _ in range(2):
                with pytest.raises(OSError, match="No space"):
                    journal.append("prepared", about=ATTEMPT)
        journal.append("saved", about=ATTEMPT)
        assert [line.type for line in read_lines(tmp_path)] == ["opened", "saved"]


def test_reserve_is_released_for_the_last_lines_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = tmp_path / ".clawblox" / "reserve"

    def append_if_free(log: OwnedLog, lines: bytes) -> None:
        if reserve.exists():
            raise OSError(errno.ENOSPC, "no space")
        append(log, lines)

    with Journal(tmp_path) as journal:
        assert reserve.stat().st_size == 1 << 20
        append = OwnedLog.append
        monkeypatch.setattr(OwnedLog, "append", append_if_free)
        journal.append("opened", about=ATTEMPT)
        assert not reserve.exists()
    with Journal(tmp_path) as journal:
        assert [line.type for line in journal.lines] == ["opened"]
        assert reserve.exists()


def test_a_closed_journal_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        pass
    with pytest.raises(UsageError, match="closed"):
        journal.append("opened")
    with pytest.raises(UsageError, match="no experiment"):
        read_lines(tmp_path / "nothing")
