"""Archives byte by byte: good ones, and ones that no writer would make.

Every field of every header can be given, so a test says only what is wrong. Sizes, checksums and
offsets that it does not give are right.
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
        name: Its name; bytes stand as they are.
        content: What it says it holds.
        method: 0 or 8, or anything else, which stores it.
        packed: What stands in the archive; None is the content as ``method`` says.
        fields: Values of fields of both its headers.
        local: Values of fields of its local header only.
        central: Values of fields of its record only.
        gap: What stands before its local header.
        is_listed: Whether the directory has it.
        is_there: Whether it stands in the file.
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
        prefix: What stands before them, and no offset knows of.
        before_directory: What stands between the last one and the directory.
        before_end: What stands between the directory and what ends the archive.
        after: What stands behind the end.
        end: Values of fields of the end record.
        zip64: Values of fields of the zip64 end record and of its locator; None has neither.
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
    """Return a good archive that holds ``files``, by their names; ``keys`` are its metadata's."""
    members = [Member(name, content) for name, content in files.items()]
    return archive(metadata_member(describe(files, **keys)), *members)


def bare_checkpoint(*members: Member, **keys: object) -> bytes:
    """Return an archive of ``members`` whose metadata tells nothing of them."""
    return archive(metadata_member({"schema_version": 1, **keys}), *members)


def describe(files: Mapping[str, bytes], **keys: object) -> dict[str, object]:
    """Return the metadata of an archive that holds ``files``."""
    return {"schema_version": 1, "files": {n: described(c) for n, c in files.items()}, **keys}


def described(content: bytes, **keys: object) -> dict[str, object]:
    """Return what the metadata says of a member."""
    digest = hashlib.sha256(content).hexdigest()
    known = {"size": len(content), "sha256": digest, "mode": 0o600, "mtime_ns": 10**18}
    return {**known, **keys}


def metadata_member(document: object) -> Member:
    """Return ``metadata.json``; bytes stand as they are."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Member("metadata.json", content)


def deflate(content: bytes) -> bytes:
    """Return ``content`` as it stands in an archive."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(content) + deflater.flush()


def zip64_extra(*values: int) -> bytes:
    """Return the extra field with fields of 64 bits."""
    return struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values)


def renamed_checkpoint(
    paths: Mapping[str, object], *members: Member, version: int = 2, **keys: object
) -> bytes:
    """Return an archive whose members are listed, some of them with paths of their own.

    Args:
        paths: What the metadata gives as path of each member, by its name.
        members: Further members, listed without a path.
        version: Its schema.
        **keys: Further metadata.
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
    """Return what a tree is: kinds, modes, contents, links; and when its files were changed."""
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
    """Return what both end records have, in its order."""
    names = ("disk", "directory_disk", "count_here", "count", "size", "offset")
    return [fields[name] for name in names]
