"""Members equal the read content, even of changing files; other programs open them."""

from __future__ import annotations

import hashlib
import os
import random
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs
import pytest

from clawblox.checkpoint.archive.earlier import EarlierArchives
from clawblox.checkpoint.archive.intake import CHUNK_BYTES, UnreadableSource, VanishedSource
from clawblox.checkpoint.archive.layout import DEFLATED, STORED, ArchiveEntry
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.archive.writer import ArchiveWriter
from clawblox.checkpoint.model import Source
from clawblox.checkpoint.progress import Progress
from clawblox.checkpoint.recent import RecentValues
from clawblox.errors import CheckpointError

PREFIX = "agents/rocky/workspace"
DOCUMENT = b'{"schema_version":1}'


@attrs.define
class Target:
    """An archive during writing, and its files."""

    path: Path
    files: Path
    fd: int
    writer: ArchiveWriter

    def source(self, name: str, content: bytes | None = None, **options: object) -> Source:
        path = self.files / name
        if content is not None:
            path.write_bytes(content)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return Source(
            name=f"{PREFIX}/{name}", path=path, open=lambda: os.open(path, flags), **options
        )

    def add(self, name: str, content: bytes, **options: object) -> dict[str, object]:
        """Add a file; return its entry in the metadata."""
        self.writer.add(self.source(name, content, **options))
        return self.writer.files[f"{PREFIX}/{name}"]

    def read(self) -> dict[str, tuple[ArchiveEntry, bytes]]:
        """Complete the archive and read it."""
        self.writer.finish(DOCUMENT)
        archive = Archive(self.fd, self.path)
        return {
            entry.name.removeprefix(f"{PREFIX}/"): (entry, b"".join(archive.stream(entry)))
            for entry in archive.entries
        }


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    files = tmp_path / "files"
    files.mkdir()
    path = tmp_path / "a.ckpt"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with EarlierArchives(RecentValues(0)) as earlier:
        progress = Progress(None, 0)
        writer = ArchiveWriter(
            fd, metadata_bytes=len(DOCUMENT) + 9, progress=progress, earlier=earlier
        )
        yield Target(path, files, fd, writer)
    os.close(fd)


def meddling(change: Callable[[int], object]) -> Callable[[Iterable[bytes]], Iterator[bytes]]:
    """Return a transform that only calls ``change(reading)`` in every reading."""
    readings = iter(range(1000))

    def transform(chunks: Iterable[bytes]) -> Iterator[bytes]:
        reading = next(readings)
        for place, chunk in enumerate(chunks):
            yield chunk
            if place == 0:
                change(reading)

    return transform


def random_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def test_content_mode_and_time_of_a_file_are_kept(target: Target):
    content = b"some text\n" * 100_000
    source = target.source("notes.txt", content, keeps_mode=True)
    os.chmod(source.path, 0o755)
    os.utime(source.path, ns=(1, 1_234_567_890_123_456_789))
    target.writer.add(source)
    assert target.writer.files[source.name] == {
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "mode": 0o700,
        "mtime_ns": 1_234_567_890_123_456_789,
    }
    entry, read = target.read()["notes.txt"]
    assert (entry.mode, entry.method, read) == (0o700, DEFLATED, content)
    assert entry.compressed_size < len(content) / 10


@pytest.mark.parametrize(
    ("content", "method"),
    [
        (b"", STORED),
        (b"x", STORED),
        (b"x" * 100, DEFLATED),
        (random_bytes(3 * CHUNK_BYTES), STORED),
        # Content that starts like text but would grow is read again.
        (b"x" * 50 + random_bytes(CHUNK_BYTES * 2), STORED),
        (b"x" * 1000 + random_bytes(CHUNK_BYTES * 2), DEFLATED),
    ],
)
def test_content_is_deflated_if_it_becomes_smaller(target: Target, content: bytes, method: int):
    target.add("file", content)
    entry, read = target.read()["file"]
    assert (entry.method, read) == (method, content)


def test_other_programs_open_an_archive(target: Target):
    target.add("plain", b"plain\n" * 50)
    target.add("naïve ☃", random_bytes(1000))
    target.read()
    with zipfile.ZipFile(target.path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "metadata.json",
            f"{PREFIX}/plain",
            f"{PREFIX}/naïve ☃",
        ]
        assert archive.read("metadata.json").strip() == DOCUMENT


def test_a_file_that_stops_changing_is_archived_in_its_last_state(target: Target):
    path = target.files / "log"

    def change(reading: int) -> None:
        if reading < 3:
            path.write_bytes(b"y" * (10_000 - 3000 * reading))

    told = target.add("log", b"x" * 20_000, transform=meddling(change))
    assert "unstable" not in told
    assert target.read()["log"][1] == b"y" * 4000


def test_a_file_that_keeps_changing_is_archived_as_unstable(target: Target):
    path = target.files / "log"
    readings = []

    def change(reading: int) -> None:
        readings.append(reading)
        path.write_bytes(b"y" * (10_000 + reading))

    told = target.add("log", b"x" * 10_000, transform=meddling(change))
    assert told["unstable"] is True
    assert readings == [0, 1, 2, 3]
    assert target.read()["log"][1] == b"y" * 10_002


def test_a_file_that_shrinks_during_the_reading_is_read_again(target: Target):
    path = target.files / "log"
    size = 3 * CHUNK_BYTES

    def change(reading: int) -> None:
        if reading == 0:
            os.truncate(path, 100)

    target.add("log", b"x" * size, transform=meddling(change))
    target.add("next", b"next")
    read = target.read()
    assert read["log"][1] == b"x" * 100
    assert read["next"][1] == b"next"


def test_lines_appended_during_the_reading_are_left_out(target: Target):
    path = target.files / "transcript"

    def change(reading: int) -> None:
        with path.open("ab") as file:
            file.write(b"later\n")

    told = target.add(
        "transcript", b"first\nsecond\n", whole_lines=True, transform=meddling(change)
    )
    assert "unstable" not in told
    assert target.read()["transcript"][1] == b"first\nsecond\n"


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b"one\ntwo\ntor", b"one\ntwo\n"),
        (b"torn", b""),
        (b"", b""),
        (b'one\n{"a":1', b"one\n"),
        (b"one\n[1]", b"one\n"),
        (b"one\n" + b"x" * (2 * CHUNK_BYTES), b"one\n"),
        (b"x" * CHUNK_BYTES + b"\n" + b"x" * CHUNK_BYTES, b"x" * CHUNK_BYTES + b"\n"),
    ],
)
def test_an_incomplete_last_line_is_left_out(target: Target, content: bytes, kept: bytes):
    target.add("transcript", content, whole_lines=True)
    assert target.read()["transcript"][1] == kept


@pytest.mark.parametrize("before", [b"", b"one\n", b"x" * CHUNK_BYTES + b"\n"])
@pytest.mark.parametrize("length", [1, 2 * CHUNK_BYTES])
def test_a_last_record_without_a_newline_is_kept_unchanged(
    target: Target, before: bytes, length: int
):
    content = before + b'{"a":"%s"}' % (b"x" * length)
    target.add("transcript", content, whole_lines=True)
    assert target.read()["transcript"][1] == content


def test_a_last_record_whose_newline_arrives_later_is_kept_without_it(target: Target):
    path = target.files / "transcript"

    def change(reading: int) -> None:
        with path.open("ab") as file:
            file.write(b'\n{"b":2}\n')

    told = target.add("transcript", b'one\n{"a":1}', whole_lines=True, transform=meddling(change))
    assert "unstable" not in told
    assert target.read()["transcript"][1] == b'one\n{"a":1}'


def test_a_last_record_beyond_the_size_limit_is_left_out(target: Target, monkeypatch):
    monkeypatch.setattr("clawblox.checkpoint.archive.intake.MAX_RECORD_BYTES", 100)
    target.add("transcript", b'one\n{"a":"%s"}' % (b"x" * 100), whole_lines=True)
    assert target.read()["transcript"][1] == b"one\n"


def test_a_file_is_rewritten_by_its_transform(target: Target):
    target.add("state", b"old place", transform=lambda chunks: (b"new " + b"".join(chunks),))
    assert target.read()["state"][1] == b"new old place"


def test_a_file_rewritten_line_by_line_is_deflated_as_one_stream(target: Target):
    content = b"".join(b"%d is a number\n" % number for number in range(50_000))
    target.add("lines", content, transform=lambda chunks: iter(b"".join(chunks).splitlines(True)))
    entry, read = target.read()["lines"]
    assert read == content
    assert entry.method == DEFLATED


@pytest.mark.parametrize("kind", ["gone", "directory", "link", "fifo", "below a file"])
def test_a_file_that_was_replaced_is_reported_and_leaves_no_bytes(target: Target, kind: str):
    source = target.source("file" if kind != "below a file" else "file/below")
    match kind:
        case "directory":
            source.path.mkdir()
        case "link":
            source.path.symlink_to("/etc/passwd")
        case "fifo":
            os.mkfifo(source.path)
        case "below a file":
            source.path.parent.write_text("")
    with pytest.raises(VanishedSource):
        target.writer.add(source)
    target.add("next", b"next")
    assert [*target.read()] == ["metadata.json", "next"]


def refuse(error: type[OSError]) -> Callable[[], int]:
    def open_() -> int:
        raise error(*(13, "Permission denied") if error is PermissionError else (5, "I/O error"))

    return open_


def test_a_forbidden_file_is_distinguished_from_a_broken_file(target: Target):
    source = target.source("file", b"x")
    with pytest.raises(UnreadableSource):
        target.writer.add(attrs.evolve(source, open=refuse(PermissionError)))
    with pytest.raises(CheckpointError, match="a file cannot be read: I/O error") as told:
        target.writer.add(attrs.evolve(source, open=refuse(OSError)))
    assert told.value.entry == source.name
    assert told.value.path == source.path


def test_metadata_larger_than_its_reserved_space_is_refused(target: Target):
    with pytest.raises(CheckpointError, match="larger than its reserved space"):
        target.writer.finish(DOCUMENT + b" " * 10)


def test_an_archive_can_be_finished_again_with_other_metadata(target: Target):
    target.add("file", b"x" * 1000)
    target.writer.finish(b'{"schema_version":1,"a":1}')
    size = os.fstat(target.fd).st_size
    read = target.read()
    assert os.fstat(target.fd).st_size == size
    assert read["metadata.json"][1].strip() == DOCUMENT
