"""Opening archives and reading members: sound archives open, and all bytes are checked."""

from __future__ import annotations

import os
import sys
import tracemalloc
import zipfile

import pytest

from clawblox.checkpoint.archive.reader import Archive, read_metadata
from clawblox.checkpoint.model import Limits
from clawblox.errors import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointLimitError,
)
from tests.checkpoint.archives import (
    WORKSPACE_FILE,
    Member,
    bare_checkpoint,
    checkpoint,
)

CONTENTS = {
    "world.snapshot": b"state " * 100_000,
    "agents/ä/workspace/日本.txt": b"notes",
    "agents/ä/workspace/empty": b"",
    "agents/ä/workspace/random": os.urandom(700_000),
}
PLAIN = b'{"schema_version": 1, "generation": 3}'


@pytest.fixture
def write(tmp_path):
    def _write(data: bytes):
        path = tmp_path / "a.ckpt"
        path.write_bytes(data)
        return path

    return _write


def contents_of(path):
    with Archive.open(path) as archive:
        archive.verify()
        return {entry.name: b"".join(archive.stream(entry)) for entry in archive.entries[1:]}


def test_the_members_of_an_archive_are_read_and_verified(write):
    path = write(checkpoint(CONTENTS, generation=3))
    assert contents_of(path) == CONTENTS
    with Archive.open(path) as archive:
        assert archive.is_verified
        assert archive.metadata["generation"] == 3
        assert [entry.name for entry in archive.entries] == ["metadata.json", *CONTENTS]


def test_members_are_streamed_in_pieces(write):
    with Archive.open(write(checkpoint(CONTENTS))) as archive:
        for entry in archive.entries:
            assert all(0 < len(chunk) <= 256 << 10 for chunk in archive.stream(entry))


def test_metadata_is_read_without_other_members(write):
    path = write(bare_checkpoint(Member("world.snapshot", b"x", packed=b"damaged"), generation=3))
    assert read_metadata(path) == {"schema_version": 1, "generation": 3}


def test_progress_is_reported_and_may_end_the_reading(write):
    told = []
    with Archive.open(write(checkpoint(CONTENTS))) as archive:
        archive.verify(lambda done, total: told.append((done, total)))
        total = sum(entry.size for entry in archive.entries)
        assert told[-1] == (total, total)
        assert [done for done, _ in told] == sorted({done for done, _ in told})

        def end(_done, _total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            archive.verify(end)


def test_an_open_file_is_read_and_stays_open(write):
    path = write(checkpoint(CONTENTS))
    with path.open("rb") as file:
        file.seek(5)
        Archive(file.fileno(), path).verify()
        assert file.tell() == 5


VALID_ZIP64 = pytest.mark.skipif(
    sys.version_info < (3, 11, 4), reason="zipfile then writes invalid archives (CPython gh-103861)"
)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("force_zip64", [False, pytest.param(True, marks=VALID_ZIP64)])
def test_an_archive_written_by_zipfile_opens(tmp_path, method, force_zip64):
    path, source = tmp_path / "a.ckpt", tmp_path / "script.sh"
    source.write_bytes(b"#!/bin/sh\n" * 50)
    source.chmod(0o755)
    with zipfile.ZipFile(path, "w", method) as opened:
        opened.writestr("metadata.json", PLAIN)
        for name, content in CONTENTS.items():
            opened.writestr(zipfile.ZipInfo(name, (2026, 6, 22, 18, 59, 24)), content, method)
        opened.write(source, "agents/ä/workspace/script.sh")
        with opened.open("agents/ä/workspace/wide", "w", force_zip64=force_zip64) as file:
            file.write(b"wide" * 1000)
    with Archive.open(path) as archive:
        assert not archive.is_verified
        assert archive.metadata["generation"] == 3
        modes = {entry.name.rpartition("/")[2]: entry.mode for entry in archive.entries}
    assert modes["script.sh"] == 0o700
    assert set(modes.values()) == {0o600, 0o700}
    known = {"script.sh": source.read_bytes(), "wide": b"wide" * 1000}
    expected = {**CONTENTS, **{f"agents/ä/workspace/{name}": data for name, data in known.items()}}
    assert contents_of(path) == expected


@pytest.mark.thorough
def test_an_archive_with_more_than_65535_members_opens(tmp_path):
    path = tmp_path / "a.ckpt"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("metadata.json", PLAIN)
        for number in range(65_600):
            opened.writestr(f"agents/a/workspace/{number}", b"")
    with Archive.open(path) as archive:
        assert len(archive.entries) == 65_601


@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "directory", "missing", "null"])
def test_a_path_that_is_not_a_regular_file_is_refused_by_name(tmp_path, write, kind):
    path = tmp_path / "other.ckpt"
    if kind == "link":
        path.symlink_to(write(checkpoint(CONTENTS)))
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "null":
        path = type(path)("/dev/null")
    expected = CheckpointError if kind == "missing" else CheckpointFormatError
    with pytest.raises(expected) as refused, Archive.open(path):
        pass
    assert refused.value.path == path


def test_replacing_the_file_during_reading_has_no_effect(write):
    path = write(checkpoint(CONTENTS))
    with Archive.open(path) as archive:
        path.rename(path.with_name("moved"))
        write(b"something else")
        archive.verify()


def test_a_file_that_shrinks_while_it_is_read_is_refused(write):
    path = write(checkpoint(CONTENTS))
    with Archive.open(path) as archive:
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(CheckpointFormatError, match="shorter"):
            archive.verify()


def test_a_file_that_changes_while_it_is_read_is_refused(write):
    path = write(checkpoint(CONTENTS))
    with Archive.open(path) as archive:
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"changed")
        with pytest.raises(CheckpointFormatError):
            archive.verify()


def test_a_disk_error_is_raised_as_a_checkpoint_error(write, monkeypatch):
    path = write(checkpoint(CONTENTS))

    def fail(*_args):
        raise OSError(5, "Input/output error")

    with Archive.open(path) as archive:
        monkeypatch.setattr(os, "pread", fail)
        with pytest.raises(CheckpointError, match="Input/output error") as refused:
            archive.verify()
    assert refused.value.path == path


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(entries=4), "5 entries"),
        (Limits(metadata_bytes=100), "100 bytes"),
        (Limits(metadata_values=10), "10 values"),
        (Limits(directory_bytes=200), "directory"),
        (Limits(file_bytes=600_000), "600000"),
        (Limits(total_bytes=1_300_000), "together"),
        (Limits(ratio=100), "100 times"),
    ],
)
def test_an_archive_above_the_limits_of_the_reader_is_refused(write, limits, reason):
    path = write(checkpoint(CONTENTS))
    with pytest.raises(CheckpointLimitError, match=reason) as refused, Archive.open(path, limits):
        pass
    assert refused.value.path == path
    with Archive.open(path, Limits(entries=5, total_bytes=1_400_000)):
        pass


@pytest.mark.thorough
def test_a_large_member_takes_little_memory(write):
    size = 64 << 20
    path = write(bare_checkpoint(Member(WORKSPACE_FILE, bytes(size))))
    tracemalloc.start()
    try:
        with Archive.open(path) as archive:
            archive.verify()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize(
    ("members", "size", "most_reads", "most_bytes"),
    [(50, 40_000, 70, 300_000), (500, 50, 60, 300_000)],
)
def test_opening_reads_headers_only_and_close_ones_together(
    write, monkeypatch, members, size, most_reads, most_bytes
):
    files = {f"agents/a/workspace/{n}": os.urandom(size) for n in range(members)}
    path = write(checkpoint(files))
    read = []
    pread = os.pread

    def counted(fd, length, offset):
        data = pread(fd, length, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    with Archive.open(path):
        pass
    assert len(read) < most_reads
    assert sum(read) < most_bytes
