from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import io
import lzma
import random
import struct
import subprocess
import sys
import zipfile
import zlib

import pytest
import zstandard

from clawblox.checkpoint.secrets import Scanner, content
from tests.checkpoint.secrets import wrapping
from tests.checkpoint.secrets.fakes import fake, pieces, rules_in, scan

TOKEN = fake("github-token").encode()


def encrypted_zip() -> bytes:
    data = bytearray(wrapping.zipped(b"a secret behind a password, for all we know"))
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = data.index(magic)
        data[start + at] |= 1
    return bytes(data)


NOISE = base64.b85encode(random.Random(1).randbytes(9000))  # the data is slightly compressible
SCRIPT = b"#!/bin/sh\necho nothing to be seen\n"
LONG_NOISE = base64.b85encode(random.Random(2).randbytes(200_000))


def four_containers(data: bytes) -> bytes:
    return gzip.compress(wrapping.tarred(wrapping.zipped(bz2.compress(data))))


UNSCANNABLE = {
    "encrypted zip": encrypted_zip(),
    "unknown method": wrapping.zipped(b"x" * 99).replace(
        b"PK\x03\x04\x14\x00\x00\x00\x08\x00", b"PK\x03\x04\x14\x00\x00\x00\x62\x00"
    ),
    "7z": b"7z\xbc\xaf\x27\x1c\0\4" + bytes(100),
    "rar": b"Rar!\x1a\x07\x01\0" + bytes(100),
    "lz4": b"\x04\x22\x4d\x18" + bytes(100),
    "five containers": four_containers(wrapping.tarred(b"x")),
    "short zlib in four": four_containers(zlib.compress(b"x")),
    "long zlib in four": four_containers(zlib.compress(LONG_NOISE)),
    "cut zlib in four": four_containers(zlib.compress(LONG_NOISE)[:700]),
    "zip behind a script in four": four_containers(SCRIPT + wrapping.zipped(b"x")),
    "damaged gzip": wrapping.broken_deflate(NOISE, 31),
    "damaged zlib": wrapping.broken_deflate(NOISE, 15),
    "damaged pack": wrapping.broken_pack(NOISE),
    "damaged zip": wrapping.broken_zip(NOISE),
    "damaged xz": lzma.compress(NOISE)[:5000] + bytes(5000),
    "bomb": bz2.compress(bytes(90 << 20)),
    "zstd bomb": zstandard.compress(bytes(90 << 20)),
}


@pytest.mark.parametrize("what", UNSCANNABLE)
def test_content_that_cannot_be_searched_is_a_finding(what: str) -> None:
    data = UNSCANNABLE[what]
    (finding,) = scan(data, "file")
    assert finding.rule == "unscannable"
    if finding.path == "file":
        assert finding.fingerprint == hashlib.sha256(data).hexdigest()[:16]


def test_a_file_that_decodes_to_too_many_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_DECODED_BYTES", 1 << 20)
    data = gzip.compress(LONG_NOISE) * 8
    assert rules_in(data) == ["unscannable"]


def test_the_readable_part_of_a_refused_container_is_searched() -> None:
    file = io.BytesIO(encrypted_zip())
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("open.txt", TOKEN)
    assert rules_in(file.getvalue()) == ["github-token", "unscannable"]


def test_a_damaged_container_is_searched_up_to_the_damage() -> None:
    text = NOISE + b" " + TOKEN + b"\n"
    for damaged in (
        wrapping.broken_deflate(text, 31),
        wrapping.broken_deflate(text, 15),
        wrapping.broken_zip(text),
        wrapping.broken_pack(text),
        lzma.compress(text + LONG_NOISE)[:50_000] + bytes(200_000),
    ):
        assert rules_in(damaged) == ["github-token", "unscannable"]


@pytest.mark.parametrize("compress", ["gzip", "xz", "zlib", "zip", "tar-gzip", "git-pack"])
def test_a_truncated_container_is_searched_up_to_its_end(compress: str) -> None:
    whole = wrapping.ENCODINGS[compress](TOKEN + NOISE)
    for size in (20, len(whole) // 4, len(whole) // 2, len(whole) - 5, len(whole) - 1):
        assert set(rules_in(whole[:size])) <= {"github-token"}
    assert rules_in(whole[: len(whole) * 9 // 10]) == ["github-token"]


@pytest.mark.parametrize("data", [SCRIPT, b"\x7fELF" + bytes(600), b"MZ", b"x^2 + y^2 = z^2\n"])
def test_a_program_or_text_does_not_count_as_a_nested_container(data: bytes) -> None:
    assert rules_in(four_containers(data)) == []
    assert rules_in(four_containers(data + b" " + TOKEN)) == ["github-token"]


def test_digests_in_a_compressed_archive_are_not_containers() -> None:
    noise = random.Random(3)
    # One digest in two thousand starts like a zlib stream.
    digests = (b"\x78\x9c" + noise.randbytes(62) for _ in range(100))
    lines = b"".join(b"module v1.0.0 h1:%s\n" % base64.b64encode(digest) for digest in digests)
    assert rules_in(gzip.compress(wrapping.tarred(lines))) == []


@pytest.mark.parametrize("inner", ["gzip", "zip", "tar-gzip", "utf-16-le"])
@pytest.mark.parametrize("outer", ["git-loose", "git-pack"])
def test_a_committed_file_is_opened_like_any_other(outer: str, inner: str) -> None:
    committed = wrapping.ENCODINGS[inner](b"a line\n" + TOKEN)
    for size in (1, 100_000):
        assert rules_in(wrapping.ENCODINGS[outer](committed), size=size) == ["github-token"]


MAGICS = (
    b"\x1f\x8b\x08", b"\x1f\x8b\x08\x00", b"PK\x03\x04", b"PK\x05\x06", b"BZh9", b"\xfd7zXZ\0",
    b"\x78\x9c", b"\x78\x01", b"\x78\xda", b"x^2 + y^2 = z^2\n", b"PACK", b"7z", b"Rar!", b"#!",
)  # fmt: skip


@pytest.mark.parametrize("magic", MAGICS)
def test_a_file_that_only_starts_like_a_container_passes(magic: bytes) -> None:
    for seed in range(20):
        noise = random.Random(seed).randbytes(3000)
        assert rules_in(magic + noise) == []
    assert rules_in(magic + b" " + TOKEN) == ["github-token"]


@pytest.mark.parametrize("module", ["compression.zstd", "zstandard"])
def test_both_zstd_decoders_find_the_same(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    pytest.importorskip(module)
    if module == "zstandard":
        monkeypatch.setitem(sys.modules, "compression.zstd", None)
    whole = zstandard.compress(TOKEN + LONG_NOISE)  # more than one block
    assert rules_in(whole) == ["github-token"]
    assert rules_in(whole[: len(whole) * 9 // 10]) == ["github-token"]
    damaged = whole[: len(whole) * 9 // 10] + b"\xff" * 200_000
    assert rules_in(damaged) == ["github-token", "unscannable"]


def test_zstd_without_a_decoder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    data = zstandard.compress(TOKEN + NOISE)
    assert rules_in(data) == ["unscannable"]
    assert rules_in(wrapping.zstandard_zip(TOKEN + NOISE)) == ["unscannable"]


def delta(*instructions: bytes) -> bytes:
    return b"\x80\x10\x90\x20" + b"".join(instructions)


def test_a_secret_that_a_delta_inserts_piece_by_piece_is_found() -> None:
    copy = b"\x91\x05\x20"  # one byte of offset, one of size
    insert = [bytes([len(part)]) + part for part in (TOKEN[:9], TOKEN[9:30], TOKEN[30:])]
    entries = [(3, b"", b"base\n" * 99), (6, b"\x83\x05", delta(copy, *insert, copy))]
    assert rules_in(wrapping.pack(entries)) == ["github-token"]
    named = [(7, bytes(20), delta(b"\x01 ", *insert, copy))]
    assert rules_in(wrapping.pack(named)) == ["github-token"]


@pytest.mark.needs("git")
def test_a_repository_that_git_wrote_is_searched(tmp_path) -> None:
    def git(*command: str) -> None:
        identity = ("-c", "user.name=n", "-c", "user.email=e@host")
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True, capture_output=True)

    def rules() -> set[str]:
        scanner = Scanner()
        files = [path for path in (tmp_path / ".git").rglob("*") if path.is_file()]
        scans = [scanner.scan(str(path), pieces(path.read_bytes())) for path in files]
        return {finding.rule for findings in scans for finding in findings}

    git("init", "-q")
    text = "".join(f"line {n} of a file\n" for n in range(400))
    for n, line in enumerate(("", f"{TOKEN.decode()}\n", "")):
        (tmp_path / "file").write_text(text + line)
        git("add", "file")
        git("commit", "-q", "-m", f"number {n}")
    assert rules() == {"github-token"}
    git("gc", "-q", "--aggressive", "--prune=now")
    assert rules() == {"github-token"}


def test_a_member_that_no_directory_names_is_found() -> None:
    hidden, shown = wrapping.zipped(TOKEN, "hidden"), wrapping.zipped(b"nothing", "shown")
    (finding,) = scan(hidden[: hidden.index(b"PK\x01\x02")] + shown, "file")
    assert finding.path == "file!hidden"


def test_zip64_sizes_are_parsed() -> None:
    packed = zlib.compress(TOKEN, wbits=-15)
    extra = struct.pack("<2H2Q", 1, 16, len(TOKEN), len(packed))
    saturated = 0xFFFFFFFF
    header = struct.pack(
        "<4s5H3I2H", b"PK\x03\x04", 45, 0, 8, 0, 33, 0, saturated, saturated, 1, len(extra)
    )
    assert rules_in(header + b"n" + extra + packed + encrypted_zip()) == [
        "github-token", "unscannable",
    ]  # fmt: skip


def test_containers_are_counted() -> None:
    scanner = Scanner()
    for encoding in ("zip-in-zip", "gzip", "utf-8", "base64"):
        scanner.scan(encoding, [wrapping.ENCODINGS[encoding](b"nothing to see here, at all " * 9)])
    scanner.scan("script", [b"#!/bin/sh\necho"])
    assert scanner.summary()["decoded_containers"] == 3


@pytest.mark.thorough
def test_damage_at_any_position_does_not_fail_the_scan() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)  # shown when it fails
    choose = random.Random(seed)
    wrapped = [encode(NOISE[:300] + b" " + TOKEN) for encode in wrapping.ENCODINGS.values()]
    for _ in range(600):
        data = bytearray(choose.choice(wrapped))
        for _ in range(choose.randrange(1, 4)):
            at, size = choose.randrange(len(data)), choose.randrange(9)
            data[at : at + choose.randrange(9)] = choose.randbytes(size)
        del data[choose.choice((len(data), choose.randrange(len(data) + 1))) :]
        assert set(rules_in(bytes(data), size=choose.choice((1, 97, 100_000)))) <= {
            "github-token", "unscannable",
        }  # fmt: skip


MAGICS = (
    b"PACK\0\0\0\2\0\0\0\1", b"PK\3\4", b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0",
    b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07\0", b"Rar!\x1a\x07\1\0",
    b"\x89PNG\r\n\x1a\n", b"\x78\x9c", b"stream\n\x68\x81",
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("magic", MAGICS)
def test_arbitrary_bytes_after_the_magic_of_a_container_do_not_end_the_scan(magic: bytes) -> None:
    for byte in (0x00, 0x60, 0x7F, 0x80, 0xE0, 0xFF):
        for size in (0, 1, 9, 20, 80, 600):
            data = magic + bytes((byte,)) * size + b" " + TOKEN
            assert set(rules_in(data)) <= {"github-token", "unscannable"}
            assert "github-token" in rules_in(b"\0 before " + data)
