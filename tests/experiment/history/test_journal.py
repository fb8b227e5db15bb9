"""The journal of an experiment: one writer, whole lines, and room for the last ones."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.errors import ClawbloxError, UsageError
from clawblox.experiment.history import journal as module
from clawblox.experiment.history.journal import JOURNAL_NAME, Journal, read_lines
from clawblox.experiment.history.lines import About
from clawblox.system.append_log import append
from tests.support import HANG_S


def write(directory: Path, count: int) -> None:
    with Journal(directory) as journal:
        for number in range(count):
            journal.append("opened", {"number": number}, About("r1", 1, "a"))


def test_lines_are_read_again_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path, 3)
    with Journal(tmp_path) as journal:
        assert [line.data["number"] for line in journal.lines] == [0, 1, 2]
        assert journal.append("saved", about=About("r1")).seq == 4
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
            journal.append("saved")
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
    monkeypatch.setattr(module.os, "fdatasync", lambda _fd: synced.append(path.read_bytes()))
    monkeypatch.setattr(module, "fsync_directory", synced.append)
    with Journal(tmp_path) as journal:
        assert synced == [tmp_path]
        for count in (1, 2):
            journal.append("opened")
            assert synced[-1] == path.read_bytes()
            assert len(synced) == 1 + count
    with Journal(tmp_path):
        assert len(synced) == 3


def test_a_line_that_may_not_be_durable_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    with Journal(tmp_path) as journal:
        journal.append("opened")
        with monkeypatch.context() as broken:
            broken.setattr(module.os, "fdatasync", fail)
            with pytest.raises(OSError, match="input/output"):
                journal.append("prepared")
        journal.append("saved")
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


def test_a_second_process_is_refused_and_can_read(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with Journal(tmp_path) as journal:
        words = [sys.executable, "-c", SECOND, tmp_path]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=True)
        assert "runs the experiment" in answer.stdout
        assert read_lines(tmp_path) == journal.lines


def test_a_full_disk_gives_up_the_reserve_for_the_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = tmp_path / ".clawblox" / "reserve"

    def append_if_free(fd: int, lines: bytes, *, max_bytes: int) -> int:
        if reserve.exists():
            raise OSError(errno.ENOSPC, "no space")
        return append(fd, lines, max_bytes=max_bytes)

    with Journal(tmp_path) as journal:
        assert reserve.stat().st_size == 1 << 20
        monkeypatch.setattr(module, "append", append_if_free)
        journal.append("opened")
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
