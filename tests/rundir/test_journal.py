"""Reading a journal while processes append, die, and drop the history."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clawblox.rundir import journal
from clawblox.rundir.journal import append_line, read_line, read_lines
from clawblox.system.append_log import open_log

APPEND = """
import json, sys
from pathlib import Path
from clawblox.rundir import journal
journal._COMPACT_STEP_BYTES = 4096
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(count):
    line = json.dumps({"name": f"{name}-{number % 5}", "number": number, "fill": "x" * 50})
    journal.append_line(path, line.encode())
"""


def make_line(name: str, **members: object) -> bytes:
    return json.dumps({"name": name, **members}).encode()


def numbers_in(path: Path) -> dict[str, int]:
    return {name: json.loads(line)["number"] for name, line in read_lines(path).items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


@pytest.fixture
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_COMPACT_STEP_BYTES", 4096)


def test_the_last_line_of_a_name_is_valid_and_reads_are_incremental(path: Path) -> None:
    for number in range(3):
        append_line(path, make_line("a", number=number))
        append_line(path, make_line("b", number=10 + number))
        assert numbers_in(path) == {"a": number, "b": 10 + number}
    assert json.loads(read_line(path, "a") or b"") == {"name": "a", "number": 2}
    assert read_line(path, "c") is None
    assert len(path.read_bytes().splitlines()) == 6


def test_a_reader_parses_each_line_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    note_lines = journal._note_lines

    def counted(latest: dict[str, bytes], lines: list[bytes]) -> None:
        parsed.extend(lines)
        note_lines(latest, lines)

    monkeypatch.setattr(journal, "_note_lines", counted)
    for number in range(20):
        append_line(path, make_line(f"w{number}", number=number))
        assert len(read_lines(path)) == number + 1
        assert read_line(path, "w0") is not None
    assert len(parsed) == 20


@pytest.mark.parametrize("how", ["in place", "anew"])
def test_a_rewritten_journal_is_read_from_its_start(path: Path, how: str) -> None:
    append_line(path, make_line("a", number=1))
    append_line(path, make_line("b", number=2))
    assert numbers_in(path) == {"a": 1, "b": 2}
    if how == "anew":
        path.unlink()
        assert numbers_in(path) == {}
    path.write_bytes(b"".join(make_line("c", number=n) + b"\n" for n in range(20)))
    assert numbers_in(path) == {"c": 19}


def test_a_torn_line_of_a_killed_writer_is_skipped(path: Path) -> None:
    append_line(path, make_line("a", number=1))
    with path.open("ab") as file:
        file.write(make_line("a", number=2)[:-5])
    assert numbers_in(path) == {"a": 1}
    append_line(path, make_line("b", number=3))
    assert numbers_in(path) == {"a": 1, "b": 3}
    append_line(path, make_line("a", number=4))
    assert numbers_in(path) == {"a": 4, "b": 3}


@pytest.mark.thorough
def test_concurrent_appending_and_compacting_loses_no_line(path: Path) -> None:
    command = [sys.executable, "-c", APPEND, str(path)]
    names = ("one", "two", "three")
    writers = [subprocess.Popen([*command, name, "400"]) for name in names]
    known: dict[str, int] = {}
    while any(writer.poll() is None for writer in writers):
        seen = numbers_in(path)
        assert all(seen.get(name, -1) >= number for name, number in known.items())
        known = seen
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert numbers_in(path) == {f"{name}-{n}": 395 + n for name in names for n in range(5)}
    assert path.stat().st_size < 3 * 400 * 50
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.usefixtures("_short_steps")
def test_history_is_dropped_only_when_that_halves_the_file(path: Path) -> None:
    sizes = []
    for number in range(200):
        append_line(path, make_line("a", number=number, fill="x" * 100))
        sizes.append(path.stat().st_size)
        assert numbers_in(path) == {"a": number}
    assert max(sizes) < 2 * 4096
    assert sum(after < before for before, after in itertools.pairwise(sizes)) > 2
    other = path.with_name("other.jsonl")
    other.touch()
    file = other.stat().st_ino
    for number in range(200):
        append_line(other, make_line(f"w{number}", number=number, fill="x" * 100))
    assert other.stat().st_ino == file
    assert len(other.read_bytes().splitlines()) == 200


@pytest.mark.usefixtures("_short_steps")
def test_a_journal_that_cannot_be_compacted_keeps_growing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal, "publish_bytes", fail)
    for number in range(100):
        append_line(path, make_line("a", number=number, fill="x" * 100))
    assert len(path.read_bytes().splitlines()) == 100
    assert numbers_in(path) == {"a": 99}


def test_a_compacted_journal_is_as_private_as_before(path: Path) -> None:
    append_line(path, make_line("a"))
    mode = path.stat().st_mode
    with open_log(path):
        append = path.open("ab")
        with append:
            append.write(make_line("a") + b"\n")
        journal._compact(path)
    assert len(path.read_bytes().splitlines()) == 1
    assert path.stat().st_mode == mode == 0o100600


def test_a_writer_that_waited_for_a_compaction_appends_to_the_new_file(path: Path) -> None:
    for number in range(4):
        append_line(path, make_line("a", number=number))
    writer = threading.Thread(target=append_line, args=(path, make_line("b", number=5)))
    with open_log(path):
        writer.start()
        journal._compact(path)
    writer.join()
    assert numbers_in(path) == {"a": 3, "b": 5}
    assert len(path.read_bytes().splitlines()) == 2


def test_a_forked_child_can_read_even_if_another_thread_was_reading(path: Path) -> None:
    append_line(path, make_line("a", number=1))
    with journal._remembered(path)._busy:
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # it would wait forever
            os._exit(0 if numbers_in(path) == {"a": 1} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
