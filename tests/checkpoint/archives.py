"""Archives byte by byte: valid archives, and archives that no writer would create.

Every field of every header can be set, so a test sets only the invalid fields. All other sizes,
checksums and offsets are correct.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REGULAR = 0o100600 << 16
DIRECTORY = 0o040700 << 16 | 0x10
EXECUTABLE = 0o100700 << 16
WORKSPACE_FILE = "agents/a/workspace/notes.txt"
UTF_8 = 0x800

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")


@dataclass
class Member:
    """A member of an archive.

    Attributes:
        name: Its name; bytes are unchanged.
        content: Its declared content.
        method: Compression method; any number except 8 stores the content.
        packed: Bytes in the archive; None means the content, packed with ``method``.
        fields: Values of fields in both headers.
        local: Values of fields in the local header only.
        central: Values of fields in the directory record only.
        gap: Bytes before its local header.
        is_listed: Whether the directory lists it.
        is_there: Whether the file contains it.
    """

    name: str | bytes
    content: bytes = b""
    method: int = 8
    packed: bytes | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    local: Mapping[str, object] = field(default_factory=dict)
    central: Mapping[str, object] = field(default_factory=dict)
    gap: bytes = b""
    is_listed: bool = True
    is_there: bool = True


def archive(
    *members: Member,
    prefix: bytes = b"",
    before_directory: bytes = b"",
    before_end: bytes = b"",
    after: bytes = b"",
    end: Mapping[str, int] | None = None,
    zip64: Mapping[str, int] | None = None,
) -> bytes:
    """Return an archive.

    Args:
        members: Its members.
        prefix: Bytes before them that no offset includes.
        before_directory: Bytes between the last member and the directory.
        before_end: Bytes between the directory and the end records.
        after: Bytes after the end.
        end: Values of fields of the end record.
        zip64: Values of fields of the zip64 end record and of its locator; None adds neither.
    """
    body, records = b"", []
    for member in members:
        body += member.gap
        record = _headers(member, len(body))
        if member.is_there:
            body += record[0] + _packed(member)
        if member.is_listed:
            records.append(record[1])
    body += before_directory
    directory = b"".join(records)
    ends = _ends(len(body), len(directory), len(records), len(before_end), end or {}, zip64)
    return prefix + body + directory + before_end + ends + after


def checkpoint(files: Mapping[str, bytes], **keys: object) -> bytes:
    """Return a valid archive with these files by name, and these metadata keys."""
    members = [Member(name, content) for name, content in files.items()]
    return archive(metadata_member(describe(files, **keys)), *members)


def bare_checkpoint(*members: Member, **keys: object) -> bytes:
    """Return an archive whose metadata does not list its members."""
    return archive(metadata_member({"schema_version": 1, **keys}), *members)


def describe(files: Mapping[str, bytes], **keys: object) -> dict[str, object]:
    """Return the metadata of an archive with these files."""
    return {"schema_version": 1, "files": {n: described(c) for n, c in files.items()}, **keys}


def described(content: bytes, **keys: object) -> dict[str, object]:
    """Return the entry of a member in the metadata."""
    digest = hashlib.sha256(content).hexdigest()
    known = {"size": len(content), "sha256": digest, "mode": 0o600, "mtime_ns": 10**18}
    return {**known, **keys}


def metadata_member(document: object) -> Member:
    """Return ``metadata.json``; bytes are unchanged."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Member("metadata.json", content)


def deflate(content: bytes) -> bytes:
    """Return ``content`` deflated as in an archive."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(content) + deflater.flush()


def zip64_extra(*values: int) -> bytes:
    """Return the extra field with fields of 64 bits."""
    return struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values)


def renamed_checkpoint(
    paths: Mapping[str, object], *members: Member, version: int = 2, **keys: object
) -> bytes:
    """Return an archive with listed members, some with paths.

    Args:
        paths: Path of members in the metadata, by name.
        members: Additional members, listed without a path.
        version: Its schema.
        **keys: Additional metadata.
    """
    named = [Member(name, b"odd") for name in paths]
    files = {
        member.name: described(
            member.content, **({"path": paths[member.name]} if member.name in paths else {})
        )
        for member in (*named, *members)
        if isinstance(member.name, str) and not member.name.endswith("/")
    }
    document = {"schema_version": version, "files": files, **keys}
    return archive(metadata_member(document), *named, *members)


def tree_of(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return kinds, modes, contents, links and modification times of a tree."""
    seen = {}
    for parent, directories, files in os.walk(directory):
        for name in (".", *directories, *files):
            path = os.path.join(parent, name)
            status = os.lstat(path)
            content, changed = b"", status.st_mtime_ns
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path).encode()
            else:
                changed = 0
            seen[path] = (status.st_mode, changed, hashlib.sha256(content).digest())
    return seen


def _packed(member: Member) -> bytes:
    if member.packed is not None:
        return member.packed
    return deflate(member.content) if member.method == 8 else member.content


def _headers(member: Member, offset: int) -> tuple[bytes, bytes]:
    name = member.name.encode() if isinstance(member.name, str) else member.name
    known: dict[str, object] = {
        "signature": b"PK\x03\x04",
        "made": 3 << 8 | 20,
        "needed": 20,
        "flags": 0 if name.isascii() else UTF_8,
        "method": member.method,
        "time": 0,
        "date": 33,
        "crc": zlib.crc32(member.content),
        "packed_size": len(_packed(member)),
        "size": len(member.content),
        "name": name,
        "extra": b"",
        "comment": b"",
        "disk": 0,
        "internal": 0,
        "external": REGULAR,
        "offset": offset,
        **member.fields,
    }
    central = {**known, "signature": b"PK\x01\x02", **member.central}
    return _local({**known, **member.local}), _record(central)


_SHARED = ("needed", "flags", "method", "time", "date", "crc", "packed_size", "size")


def _local(fields: Mapping[str, object]) -> bytes:
    fixed = [fields["signature"], *(fields[key] for key in _SHARED)]
    lengths = [len(fields["name"]), len(fields["extra"])]  # type: ignore[arg-type]
    return _LOCAL.pack(*fixed, *lengths) + fields["name"] + fields["extra"]  # type: ignore[operator]


def _record(fields: Mapping[str, object]) -> bytes:
    fixed = [fields["signature"], fields["made"], *(fields[key] for key in _SHARED)]
    texts = [fields["name"], fields["extra"], fields["comment"]]
    lengths = [len(text) for text in texts]  # type: ignore[arg-type]
    rest = [fields[key] for key in ("disk", "internal", "external", "offset")]
    return _CENTRAL.pack(*fixed, *lengths, *rest) + b"".join(texts)  # type: ignore[arg-type]


def _ends(
    offset: int,
    size: int,
    count: int,
    gap: int,
    end: Mapping[str, int],
    zip64: Mapping[str, int] | None,
) -> bytes:
    known = {
        "disk": 0,
        "directory_disk": 0,
        "count_here": count,
        "count": count,
        "size": size,
        "offset": offset,
    }
    plain = {"comment_length": 0, **known, **end}
    record = _END.pack(b"PK\x05\x06", *_numbers(plain), plain["comment_length"])
    if zip64 is None:
        return record
    long = {
        "length": 44,
        "made": 3 << 8 | 45,
        "needed": 45,
        **known,
        "locator_disk": 0,
        "end64_offset": offset + size + gap,
        "disks": 1,
        **zip64,
    }
    versions = long["length"], long["made"], long["needed"]
    locator = long["locator_disk"], long["end64_offset"], long["disks"]
    return (
        _END64.pack(b"PK\x06\x06", *versions, *_numbers(long))
        + _LOCATOR.pack(b"PK\x06\x07", *locator)
        + record
    )


def _numbers(fields: Mapping[str, int]) -> list[int]:
    """Return the common fields of both end records, in order."""
    names = ("disk", "directory_disk", "count_here", "count", "size", "offset")
    return [fields[name] for name in names]
