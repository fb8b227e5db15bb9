"""Compressed parts within a file."""

from __future__ import annotations

import base64
import bz2
import contextlib
import gzip
import io
import json
import lzma
import pickle
import random
import sqlite3
import struct
import subprocess
import zipfile
import zlib
from collections.abc import Callable, Mapping

import pytest
import zstandard

from clawblox.checkpoint.secrets.containers import beginnings as beginnings_module
from clawblox.checkpoint.secrets.content import OVERLAP, STRIDE
from tests.checkpoint.secrets import wrapping
from tests.checkpoint.secrets.fakes import fake, rules_in, scan

TOKEN = fake("github-token").encode()
NOISE = random.Random(4)
SCRIPT = b"#!/bin/sh\nsed '1,/^__DATA__$/d' \"$0\" | tar xz\nexit\n__DATA__\n"
DENSE = base64.b85encode(NOISE.randbytes(1500))
LINES = b"A line of a text that says nothing.\n" * 40


def narrow(data: bytes, window_bits: int = 12) -> bytes:
    """Return a zlib stream with unusual first bytes."""
    deflate = zlib.compressobj(wbits=window_bits)
    return deflate.compress(data) + deflate.flush()


def pdf(stream: bytes, line_end: bytes = b"\n") -> bytes:
    head = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<</Filter/FlateDecode/Length 9>>\nstream"
    return head + line_end + stream + b"\nendstream\nendobj\ntrailer\n<</Root 1 0 R>>\n%%EOF\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def png(*chunks: bytes, rows: int = 40) -> bytes:
    pixels = b"".join(b"\0" + NOISE.randbytes(300) for _ in range(rows))
    header = struct.pack(">2I5B", 100, rows, 8, 2, 0, 0, 0)
    packed = zlib.compress(pixels)
    parts = [chunk(b"IDAT", packed[at : at + 8192]) for at in range(0, len(packed), 8192)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", header), *chunks, *parts, chunk(b"IEND", b""))
    )


def database(*values: object) -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, name TEXT, value)")
        rows = [(f"note {n}", value) for n, value in enumerate(values)]
        connection.executemany("INSERT INTO notes (name, value) VALUES (?, ?)", rows)
        connection.commit()
        return connection.serialize()


PARTS: Mapping[str, Callable[[bytes], bytes]] = {
    "a shell script and a tar.gz": lambda data: SCRIPT + gzip.compress(wrapping.tarred(data)),
    "a text and bzip2": lambda data: LINES + bz2.compress(data),
    "a text and xz": lambda data: LINES + lzma.compress(data),
    "a text and zstd": lambda data: LINES + zstandard.compress(data + LINES),
    "a text and zlib": lambda data: LINES + zlib.compress(data),
    "a text and a quick zlib": lambda data: LINES + zlib.compress(data, 1),
    "a text and a slow zlib": lambda data: LINES + zlib.compress(data, 9),
    "a text and a pack": lambda data: LINES + wrapping.git_pack(data),
    "a zip and gzip": lambda data: wrapping.zipped(LINES) + gzip.compress(data),
    "gzip and a zip": lambda data: gzip.compress(LINES) + wrapping.zipped(data),
    "gzip, NULs and gzip": lambda data: gzip.compress(LINES) + bytes(99) + gzip.compress(data),
    "tar and gzip": lambda data: wrapping.tarred(LINES) + gzip.compress(data),
    "tar and tar": lambda data: wrapping.tarred(LINES) + wrapping.tarred(gzip.compress(data)),
    "a picture and a zip": lambda data: png() + wrapping.zipped(data),
    "a program and gzip": lambda data: b"\x7fELF" + NOISE.randbytes(999) + gzip.compress(data),
    "a pack and gzip": lambda data: wrapping.git_pack(LINES) + gzip.compress(data),
    "a pack in a tar": lambda data: wrapping.tarred(LINES + wrapping.git_pack(data)),
    "a pickle": lambda data: pickle.dumps({"a": [1.5], "z": zlib.compress(data)}),
    "a PDF": lambda data: pdf(zlib.compress(data)),
    "a PDF of Windows": lambda data: pdf(zlib.compress(data), b"\r\n"),
    "a PDF of a distiller": lambda data: pdf(narrow(data)),
    "a PDF of a distiller of Windows": lambda data: pdf(narrow(data), b"\r\n"),
    "zTXt": lambda data: png(chunk(b"zTXt", b"Comment\0\0" + zlib.compress(data))),
    "a narrow zTXt": lambda data: png(chunk(b"zTXt", b"Comment\0\0" + narrow(data, 9))),
    "iTXt": lambda data: png(chunk(b"iTXt", b"C\0\1\0en\0\xc3\xbc\0" + narrow(data))),
    "a plain iTXt": lambda data: png(chunk(b"iTXt", b"C\0\0\0en\0\xc3\xbc\0" + data)),
    "iCCP": lambda data: png(chunk(b"iCCP", b"profile\0\0" + narrow(data))),
    "a picture in base64": lambda data: b'{"data": "%s"}' % base64.b64encode(PARTS["iTXt"](data)),
    "a picture in an icon": lambda data: b"\0\0\1\0\1\0" + bytes(16) + PARTS["zTXt"](data),
    "a PDF in base64": lambda data: base64.encodebytes(PARTS["a PDF"](data)),
    "a data URI": lambda data: (
        b"<img src='data:application/pdf;base64," + base64.b64encode(PARTS["a PDF"](data)) + b"'>"
    ),
    "a cell of a notebook": lambda data: json.dumps(
        {"outputs": [{"data": {"image/png": base64.encodebytes(PARTS["zTXt"](data)).decode()}}]}
    ).encode(),
    "a blob": lambda data: database(1, "text", zlib.compress(data), b"x" * 99, gzip.compress(data)),
    "a zip in a blob": lambda data: database(1, wrapping.zipped(data)),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_compressed_part_is_opened_at_any_position(part: str, size: int) -> None:
    findings = scan(PARTS[part](LINES + TOKEN + b"\n"), "file", size)
    assert {finding.rule for finding in findings} == {"github-token"}


@pytest.mark.parametrize("part", PARTS)
def test_a_compressed_part_without_a_secret_passes(part: str) -> None:
    assert rules_in(PARTS[part](LINES)) == []
    assert rules_in(gzip.compress(wrapping.tarred(PARTS[part](LINES)))) == []


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, wrapping.zipped])
@pytest.mark.parametrize(
    "displacement", [-300, -40, -11, -10, -3, -2, -1, 0, 1, 2, OVERLAP - 1, OVERLAP]
)
def test_a_part_that_starts_or_ends_on_an_edge_is_opened(compress, displacement: int) -> None:
    packed = compress(LINES + TOKEN)
    before = NOISE.randbytes(STRIDE + displacement)
    (finding,) = scan(before + packed, "file")
    assert finding.path.startswith("file!")
    at_its_end = (
        before[len(packed) :] + packed + wrapping.zipped(LINES + fake("npm-token").encode())
    )
    assert rules_in(at_its_end) == ["github-token", "npm-token"]


def test_a_part_is_named_by_its_position() -> None:
    data = SCRIPT + gzip.compress(wrapping.tarred(b"first\n" + TOKEN))
    (finding,) = scan(data, "install.sh")
    assert finding.path == f"install.sh!gzip at {len(SCRIPT)}!inner/file"
    assert finding.line == 2


def git(directory, *command: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=e@host", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, *command], cwd=directory, check=True, capture_output=True)


@pytest.mark.needs("git")
@pytest.mark.parametrize("hash_name", ["sha1", "sha256"])
def test_a_bundle_that_git_wrote_is_searched(tmp_path, hash_name: str) -> None:
    git(tmp_path, "init", "-q", f"--object-format={hash_name}")
    text = "".join(f"line {n} of a file\n" for n in range(4000))
    lines = [f"{n} {TOKEN.decode()}\n" if n == 1 else f"{n}\n" for n in range(3)]
    for n, line in enumerate(lines):
        (tmp_path / "file").write_text(text + line)
        git(tmp_path, "add", "file")
        git(tmp_path, "commit", "-q", "-m", f"number {n}")
    git(tmp_path, "branch", "middle", "main~1")
    git(tmp_path, "bundle", "create", "all.bundle", "--all")
    git(tmp_path, "bundle", "create", "thin.bundle", "main~2..middle")
    git(tmp_path, "bundle", "create", "clean.bundle", "main~1..main")
    assert b"PACK" in (tmp_path / "thin.bundle").read_bytes()
    bundles = [
        scan((tmp_path / f"{name}.bundle").read_bytes()) for name in ("all", "thin", "clean")
    ]
    rules = [{finding.rule for finding in findings} for findings in bundles]
    assert rules == [{"github-token"}, {"github-token"}, set()]


def seven_zip() -> bytes:
    header = struct.pack("<2QI", 0, 32, 0)
    return b"7z\xbc\xaf\x27\x1c\0\4" + struct.pack("<I", zlib.crc32(header)) + header + bytes(50)


def rar(version: int) -> bytes:
    if version == 5:
        header = b"\x0b" + bytes(11)
        return b"Rar!\x1a\x07\x01\0" + struct.pack("<I", zlib.crc32(header)) + header + bytes(50)
    header = struct.pack("<BHH6x", 0x73, 0, 13)
    checksum = struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    return b"Rar!\x1a\x07\0" + checksum + header + bytes(50)


def encrypted_zip() -> bytes:
    data = bytearray(wrapping.zipped(LINES))
    data[6] |= 1
    return bytes(data)


CLOSED = {
    "7z": seven_zip(),
    "rar 4": rar(4),
    "rar 5": rar(5),
    "an encrypted zip": encrypted_zip(),
    "a damaged zip": wrapping.broken_zip(LINES),
    "a damaged gzip": wrapping.broken_deflate(DENSE, 31),
    "a damaged zlib": wrapping.broken_deflate(DENSE, 15),
    "too many containers": gzip.compress(
        gzip.compress(gzip.compress(bz2.compress(gzip.compress(LINES))))
    ),
}


@pytest.mark.parametrize("what", CLOSED)
@pytest.mark.parametrize("before", [SCRIPT, b"MZ" + NOISE.randbytes(70_000), png()])
def test_a_part_that_cannot_be_opened_is_refused(what: str, before: bytes) -> None:
    (finding,) = scan(before + CLOSED[what], "file")
    assert finding.rule == "unscannable"
    # Bytes before the part may change; an allowance covers the part and the bytes after it.
    (other,) = scan(b"#!/bin/sh\n" + before + CLOSED[what], "file")
    (changed,) = scan(before + CLOSED[what] + b"x", "file")
    if finding.path == "file" and other.path == "file" and before == SCRIPT:
        assert other.fingerprint == finding.fingerprint != changed.fingerprint


def test_zstd_inside_a_file_is_refused_without_a_decoder(monkeypatch) -> None:
    import sys

    for module in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    assert rules_in(SCRIPT + zstandard.compress(LINES * 9)) == ["unscannable"]


@pytest.mark.parametrize("member_size", [1000, 140_000, 300_000])
def test_many_members_of_one_gzip_are_each_decoded_once(member_size: int) -> None:
    member = gzip.compress(LINES * (member_size // len(LINES)))
    assert rules_in(member * 30 + gzip.compress(TOKEN)) == ["github-token"]


def test_thousands_of_members_of_one_gzip_do_not_end_the_scan() -> None:
    assert rules_in(gzip.compress(b"") * 3000 + gzip.compress(TOKEN)) == ["github-token"]


def test_no_compressed_parts_are_found_in_noise() -> None:
    size = 1 << 22
    noise = NOISE.randbytes(size)
    assert [*beginnings_module.beginnings(noise, 0, size, is_start=False, is_deepest=False)] == []


@pytest.mark.parametrize(
    "magic",
    [
        b"x\x9c",
        b"x\x01",
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
        b"PK\x03\x04",
        b"PACK\x00\x00\x00\x02\x00\x00\x00\x01",
        b"7z",
        b"x\x9c\x00\x00\x00\xff\xff",
        b"x\x9c\x00\x01\x00\xfe\xff.",
    ],
)
def test_a_file_of_false_starts_takes_bounded_work(magic: bytes, monkeypatch) -> None:
    decoded = []
    original = zlib.decompressobj

    class Counting:
        def __init__(self, *arguments: int) -> None:
            self._inflate = original(*arguments)

        def decompress(self, data: bytes, limit: int) -> bytes:
            decoded.append(len(data))
            return self._inflate.decompress(data, limit)

        @property
        def eof(self) -> bool:
            return self._inflate.eof

    monkeypatch.setattr(beginnings_module.zlib, "decompressobj", Counting)
    text = b"\xff" + magic * (STRIDE // len(magic))
    beginnings_module.beginnings(text, 0, len(text), is_start=False, is_deepest=False)
    assert len(decoded) <= len(text)
    assert max(decoded, default=0) <= 4096


def test_a_compressed_blob_that_continues_on_other_pages_is_refused() -> None:
    # With other noise, the token might be decoded before the damage.
    dense = base64.b85encode(random.Random(4).randbytes(40_000)) + TOKEN
    assert rules_in(database(1, "text", zlib.compress(dense))) == ["unscannable"]


def test_plain_data_with_matching_first_bytes_is_not_a_stream() -> None:
    block = b"x\x01\0\xff\x0f\0\xf0" + bytes(range(256)) * 20
    assert rules_in(b"\xff" * 99 + block + b"\xff" * 9000) == []
    whole = zlib.compress(LINES + gzip.compress(TOKEN), 0)
    assert rules_in(b"\xff" * 99 + whole) == ["github-token"]


CLEAN: Mapping[str, Callable[[], bytes]] = {
    "a picture": png,
    "a large picture": lambda: png(rows=3000),
    "an animated picture": lambda: png(
        chunk(b"fdAT", b"\0\0\0\1" + zlib.compress(LINES * 99)[:99])
    ),
    "a picture with a broken profile": lambda: png(chunk(b"iCCP", b"x\0\0nothing of the kind")),
    "a database": lambda: database(*range(3000), *(f"text {n}" * 99 for n in range(300))),
    "a database of pictures": lambda: database(*(png() for _ in range(30))),
    "a PDF of pictures": lambda: pdf(NOISE.randbytes(300_000)),
    "a cut picture": lambda: png(rows=600)[:100_000],
    "a picture that claims more than it has": lambda: png()[:-60] + struct.pack(">I", 1 << 31),
}


@pytest.mark.parametrize("what", CLEAN)
def test_clean_compressed_parts_pass(what: str) -> None:
    assert rules_in(CLEAN[what]()) == []


def test_an_office_document_in_an_archive_passes() -> None:
    picture = png(chunk(b"iCCP", b"profile\0\0" + zlib.compress(LINES)))
    document = wrapping.zipped(picture, "word/media/image1.png")
    assert rules_in(gzip.compress(wrapping.tarred(document))) == []


def test_an_archive_of_only_plain_text_passes() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"plain")
    assert rules_in(b"#!/bin/sh\n" + file.getvalue()) == []
