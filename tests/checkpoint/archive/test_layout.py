"""The zip profile as bytes, compared with other zip programs."""

from __future__ import annotations

import io
import subprocess
import zipfile
import zlib
from shutil import which

import pytest

from clawblox.checkpoint.archive import layout
from clawblox.checkpoint.archive.layout import (
    DEFLATED,
    MAX_TAIL,
    STORED,
    ArchiveEntry,
    central_directory,
    check_local_header,
    local_header,
    local_header_size,
    parse_directory,
    parse_end,
)
from clawblox.errors import CheckpointFormatError
from tests.checkpoint.archives import deflate
from tests.support.sampling import sampled

CONTENTS = {
    "metadata.json": b"{}",
    "world.snapshot": b"world " * 1000,
    "agents/ä/workspace/日本.txt": b"notes",
    "agents/ä/workspace/empty": b"",
}


def compose(contents=CONTENTS, *, executable="world.snapshot"):
    """Return an archive, and its entries."""
    body, entries = b"", []
    for name, content in contents.items():
        method = DEFLATED if len(content) > 10 else STORED
        packed = deflate(content) if method == DEFLATED else content
        mode = 0o700 if name == executable else 0o600
        crc, size = zlib.crc32(content), len(content)
        entry = ArchiveEntry(name, method, crc, len(packed), size, mode, len(body))
        body += local_header(entry) + packed
        entries.append(entry)
    return body + central_directory(entries, len(body)), tuple(entries)


def parse(data):
    """Return the entries of an archive after checking all headers."""
    end = parse_end(data[-MAX_TAIL:], len(data))
    records = list(parse_directory(data[end.offset : end.offset + end.size], end.members))
    for record in records:
        check_local_header(record, data[record.entry.offset :])
    return tuple(record.entry for record in records)


@pytest.fixture(params=["with 32 bits", "with 64 bits"])
def _widths(request, monkeypatch):
    """Write small archives normally, and as if their members were larger than 4 GB."""
    if request.param == "with 64 bits":
        monkeypatch.setattr(layout, "_LARGE", 1)


@pytest.mark.usefixtures("_widths")
def test_a_composed_archive_is_parsed_back():
    data, entries = compose()
    assert parse(data) == entries


@pytest.mark.usefixtures("_widths")
def test_a_composed_archive_opens_with_zipfile():
    with zipfile.ZipFile(io.BytesIO(compose()[0])) as opened:
        assert {info.filename: opened.read(info) for info in opened.infolist()} == CONTENTS
        modes = {info.filename: info.external_attr >> 16 for info in opened.infolist()}
        dates = {info.date_time for info in opened.infolist()}
    assert modes["world.snapshot"] == 0o100700
    assert modes["metadata.json"] == 0o100600
    assert dates == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.needs("unzip")
@pytest.mark.usefixtures("_widths")
def test_a_composed_archive_opens_with_unzip(tmp_path):
    path = tmp_path / "a.ckpt"
    path.write_bytes(compose()[0])
    tested = subprocess.run(["unzip", "-t", path], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout
    assert "warning" not in (tested.stdout + tested.stderr).lower()


def test_the_size_of_a_header_does_not_depend_on_the_content():
    for size in (0, 1, 0xEFFF_FFFF, 0xF000_0000, 2**40):
        entry = ArchiveEntry("agents/ä/workspace/x", DEFLATED, 1, size // 2, size, 0o600, 7)
        assert len(local_header(entry)) == local_header_size(entry.name, size)


def test_only_fields_that_need_it_have_64_bits():
    names = ["metadata.json", "world.snapshot", "agents/a/workspace/x", "agents/a/workspace/y"]
    sizes = [10, 5 << 30, 0xEFFF_FFFF, 3]
    offsets = [0, 100, 6 << 30, 11 << 30]
    entries = tuple(
        ArchiveEntry(name, DEFLATED, 1, size // 2, size, 0o600, offset)
        for name, size, offset in zip(names, sizes, offsets, strict=True)
    )
    directory = central_directory(entries, 12 << 30)
    end = parse_end(directory[-MAX_TAIL:], (12 << 30) + len(directory))
    assert end.offset == 12 << 30
    records = list(parse_directory(directory[: end.size], end.members))
    assert tuple(record.entry for record in records) == entries
    for record in records:
        assert check_local_header(record, local_header(record.entry))
    wide = [len(local_header(e)) - len(e.name.encode()) > 30 for e in entries]
    assert wide == [False, True, False, False]
    assert parse_end(compose()[0][-MAX_TAIL:], len(compose()[0])).members == len(CONTENTS)
    assert b"PK\x06\x06" not in compose()[0]


@pytest.mark.thorough
@pytest.mark.parametrize("count", sampled([65_535, 65_534, 65_536], 3))
def test_the_number_of_members_is_reported_for_any_size(tmp_path, count):
    header_size = local_header_size("agents/a/workspace/00000", 0)
    entries = [
        ArchiveEntry(
            f"agents/a/workspace/{number:05}", STORED, 0, 0, 0, 0o600, number * header_size
        )
        for number in range(count)
    ]
    directory = central_directory(entries, count * header_size)
    data = b"".join(map(local_header, entries)) + directory
    end = parse_end(data[-MAX_TAIL:], len(data))
    assert end.members == count
    assert sum(1 for _ in parse_directory(directory[: end.size], end.members)) == count
    assert len(zipfile.ZipFile(io.BytesIO(data)).infolist()) == count
    if which("unzip"):
        path = tmp_path / "a.ckpt"
        path.write_bytes(data)
        subprocess.run(["unzip", "-tqq", path], check=True)


def test_a_truncated_record_is_refused_at_every_length():
    data, entries = compose()
    end = parse_end(data[-MAX_TAIL:], len(data))
    directory = data[end.offset : end.offset + end.size]
    for length in range(len(directory)):
        with pytest.raises(CheckpointFormatError):
            list(parse_directory(directory[:length], len(entries)))


def test_a_truncated_local_header_is_refused_at_every_length():
    data, entries = compose()
    end = parse_end(data[-MAX_TAIL:], len(data))
    record = next(parse_directory(data[end.offset : end.offset + end.size], end.members))
    size = local_header_size(entries[0].name, entries[0].size)
    assert check_local_header(record, data[:size]) == size
    for length in range(size):
        with pytest.raises(CheckpointFormatError):
            check_local_header(record, data[:length])
