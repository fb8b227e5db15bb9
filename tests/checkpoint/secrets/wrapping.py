"""Encodings and containers in the formats of common tools."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import html
import io
import json
import lzma
import quopri
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence

import zstandard


def zipped(data: bytes, name: str = "inner.txt", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, data)
    return file.getvalue()


def streamed_zip(data: bytes) -> bytes:
    """Return a zip in which the size follows the member."""

    class Pipe(io.RawIOBase):
        written = b""

        def writable(self) -> bool:
            return True

        def write(self, data) -> int:
            self.written += bytes(data)
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.txt", data)
    return pipe.written


def zstandard_zip(data: bytes) -> bytes:
    """Return the local header and the content of a member, in the format of zipfile since 3.14."""
    packed = zstandard.compress(data)
    sizes = (zlib.crc32(data), len(packed), len(data))
    return struct.pack("<4s5H3I2H", b"PK\x03\x04", 63, 0, 93, 0, 33, *sizes, 1, 0) + b"n" + packed


def tarred(data: bytes, name: str = "inner/file") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def loose_object(data: bytes) -> bytes:
    return zlib.compress(b"blob %d\0" % len(data) + data)


def _entry_header(kind: int, size: int) -> bytes:
    byte, size = kind << 4 | size & 15, size >> 4
    encoded = bytearray()
    while size:
        encoded.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    return bytes((*encoded, byte))


def pack(entries: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    """Return a pack of entries: kind, name of a delta's base, content."""
    body = b"".join(
        _entry_header(kind, len(data)) + base + zlib.compress(data) for kind, base, data in entries
    )
    content = b"PACK" + struct.pack(">2I", 2, len(entries)) + body
    return content + hashlib.sha1(content).digest()


def broken_deflate(data: bytes, window_bits: int) -> bytes:
    """Return a stream with a block of an invalid type after the data."""
    deflate = zlib.compressobj(wbits=window_bits)
    return deflate.compress(data) + deflate.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 400


def broken_zip(data: bytes) -> bytes:
    sizes = (0, 0, 0)
    header = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 8, 8, 0, 33, *sizes, 1, 0)
    return header + b"n" + broken_deflate(data, -15)


def broken_pack(data: bytes) -> bytes:
    header = b"PACK" + struct.pack(">2I", 2, 1) + _entry_header(3, len(data) + 9)
    return header + broken_deflate(data, 15)


def git_pack(data: bytes) -> bytes:
    return pack([(3, b"", b"another blob\n"), (3, b"", data), (3, b"", b"the last\n")])


def mime(data: bytes) -> bytes:
    return base64.encodebytes(data)


def columns(data: bytes, width: int) -> bytes:
    """Return base64 in lines of the given width."""
    encoded = base64.b64encode(data)
    return b"\n".join(encoded[at : at + width] for at in range(0, len(encoded), width))


def as_is(data: bytes) -> bytes:
    return data


ENCODINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "utf-8": as_is,
    "utf-16-le": lambda data: data.decode().encode("utf-16-le"),
    "utf-16-be": lambda data: data.decode().encode("utf-16-be"),
    "utf-16": lambda data: data.decode().encode("utf-16"),
    "utf-32-le": lambda data: data.decode().encode("utf-32-le"),
    "utf-32-be": lambda data: data.decode().encode("utf-32-be"),
    "backslash-x": lambda data: b"".join(b"\\x%02x" % byte for byte in data),
    "backslash-x-in-json": lambda data: b"".join(b"\\\\x%02X" % byte for byte in data),
    "backslash-u-in-json-in-json": lambda data: b"".join(b"\\\\\\\\u%04x" % byte for byte in data),
    "backslash-u-braces": lambda data: b"".join(b"\\u{%02x}" % byte for byte in data),
    "octal": lambda data: b"".join(b"\\%03o" % byte for byte in data),
    "percent": lambda data: b"".join(b"%%%02X" % byte for byte in data),
    "percent-twice": lambda data: b"".join(b"%%25%02x" % byte for byte in data),
    "html": lambda data: b"".join(b"&#%d;" % byte for byte in data),
    "html-hexadecimal": lambda data: b"".join(b"&#x%x;" % byte for byte in data),
    "html-in-html": lambda data: b"".join(b"&amp;#x%X;" % byte for byte in data),
    "html-names": lambda data: html.escape(data.decode()).encode(),
    "quoted-printable": quopri.encodestring,
    "base64": base64.b64encode,
    "base64-url": base64.urlsafe_b64encode,
    "base64-lines": mime,
    "base64-in-json": lambda data: b'{"x": "a\\n' + base64.b64encode(data) + b'\\n"}',
    "base64-lines-in-json": lambda data: b'{"x": "a\\n' + mime(data).replace(b"\n", b"\\n") + b'"}',
    "base64-slashes-in-json": lambda data: (
        b'{"x": "' + base64.b64encode(b"\xff\xff\xff" + data).replace(b"/", b"\\/") + b'"}'
    ),
    "base64-columns": lambda data: columns(data, 20),
    "base64-odd-columns": lambda data: columns(data + b"\nthe end\n", 50),
    "base64-list": lambda data: json.dumps(columns(data, 76).decode().split(), indent=2).encode(),
    "base64-list-in-json": lambda data: json.dumps(
        {"text": json.dumps(columns(data, 24).decode().split(), indent=2)}
    ).encode(),
    "base64-list-of-lines": lambda data: json.dumps(
        columns(data, 64).decode().splitlines(keepends=True), indent=1
    ).encode(),
    "base64-list-in-a-line": lambda data: repr(columns(data, 32).decode().split()).encode(),
    "base64-sum": lambda data: b'x = "' + columns(data, 40).replace(b"\n", b'" +\n    "') + b'"',
    "base64-strings": lambda data: b"x = ('" + columns(data, 60).replace(b"\n", b"'\n  '") + b"')",
    "base64-comment": lambda data: b"# " + columns(data, 70).replace(b"\n", b"\n# "),
    "base64-quoted-mail": lambda data: b"> " + mime(data).replace(b"\n", b"\n> "),
    "base64-shell": lambda data: b"echo " + columns(data, 68).replace(b"\n", b"\\\n"),
    "utf-16-base64": lambda data: base64.b64encode(data).decode().encode("utf-16-le"),
    "base64-twice": lambda data: base64.b64encode(base64.b64encode(data)),
    "base64-utf-16": lambda data: base64.b64encode(data.decode().encode("utf-16-le")),
    "gzip": gzip.compress,
    "gzip-twice": lambda data: gzip.compress(b"first member\n") + gzip.compress(data),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zlib": zlib.compress,
    "zstd": zstandard.compress,
    "zstd-twice": lambda data: zstandard.compress(b"first frame\n") + zstandard.compress(data),
    "zip": zipped,
    "zip-stored": lambda data: zipped(data, method=zipfile.ZIP_STORED),
    "zip-bzip2": lambda data: zipped(data, method=zipfile.ZIP_BZIP2),
    "zip-streamed": streamed_zip,
    "zip-zstd": zstandard_zip,
    "zip-in-zip": lambda data: zipped(zipped(data, "b.txt"), "a.jar"),
    "zip-behind-script": lambda data: b"#!/usr/bin/env python3\n" + zipped(data),
    "tar": tarred,
    "tar-gzip": lambda data: gzip.compress(tarred(data)),
    "gzip-in-tar": lambda data: tarred(gzip.compress(data)),
    "gzip-in-base64": lambda data: b'{"data": "' + base64.b64encode(gzip.compress(data)) + b'"}',
    "git-loose": loose_object,
    "git-pack": git_pack,
}
"""Encodings of a text in a file."""
