"""Serialises and parses the profile of the zip format that archives use; no I/O.

A ``.ckpt`` is a zip file that any program can open. The reader accepts only a small part of the zip
format, so that all programs see the same content in a file and no content can be hidden in it:

* members follow one another from the first byte on, in the order of the directory, without gaps;
  the end record is the last 22 bytes of the file;
* the header before a member agrees with its record in the directory;
* members are regular files, stored or deflated, or empty directories, without comments,
  encryption, a second disk or extra fields, except zip64 where a field needs it.

Python's ``zipfile`` writes this profile to a seekable file. Three additions of Info-ZIP's ``zip``
and ``bsdtar`` are also accepted, because they do not change the content that programs read: the
text flag; times and owner as extra fields, the same in both headers; and a data descriptor that
repeats the directory, after deflated content.

PKWARE's APPNOTE.TXT, 4.3 and 4.5.3, specifies the format, and ``proginfo/extrafld.txt`` of Info-ZIP
its extra fields. ``names`` defines the allowed names, and the reader the limits.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, NoReturn, TypeAlias

import attrs

from clawblox.checkpoint.names import check_directory, check_name
from clawblox.errors import CheckpointFormatError, CheckpointPathError

STORED: Final = 0
DEFLATED: Final = 8

# Twelve bytes that a directory record and its local header share: flags, method, time, date and
# checksum.
_TWIN: Final = struct.Struct("<4HI")
_CRC_BYTES: Final = 4
_LOCAL: Final = struct.Struct("<4sH12s2I2H")
_CENTRAL: Final = struct.Struct("<4s2H12s2I5H2I")
_END: Final = struct.Struct("<4s4H2IH")
_LOCATOR: Final = struct.Struct("<4sIQI")
_END64: Final = struct.Struct("<4sQ2H2I4Q")
_DESCRIPTOR: Final = struct.Struct("<4s3I")

_LOCAL_SIGNATURE: Final = b"PK\x03\x04"
_CENTRAL_SIGNATURE: Final = b"PK\x01\x02"
_END_SIGNATURE: Final = b"PK\x05\x06"
_LOCATOR_SIGNATURE: Final = b"PK\x06\x07"
_END64_SIGNATURE: Final = b"PK\x06\x06"
_DESCRIPTOR_SIGNATURE: Final = b"PK\x07\x08"

_ZIP64: Final = 1
"""Header id of the only extra field that is interpreted."""
_LOCAL_EXTRA: Final = struct.Struct("<2H2Q")
_EXTRA: Final = struct.Struct("<2H")
_TIMES: Final = 0x5455
_OWNER: Final = 0x7875
_EMPTY_SIZES: Final = {STORED: 0, DEFLATED: 2}
"""Packed size of empty content, by method, in bytes."""
_EXTRA_LENGTHS: Final = {_ZIP64: (8, 16, 24), _TIMES: (5, 9, 13), _OWNER: (11,)}
"""Allowed lengths of each extra field in the profile, in bytes."""
_MODIFIED_BYTES: Final = 5
"""Length of the part of ``_TIMES`` that is in both headers: the modification time."""
_MARKS_BYTES: Final = sum(_EXTRA.size + max(_EXTRA_LENGTHS[kind]) for kind in (_TIMES, _OWNER))
_FULL_16: Final = 0xFFFF
_FULL_32: Final = 0xFFFF_FFFF

MAX_TAIL: Final = _END64.size + _LOCATOR.size + _END.size
"""Maximum total size of the records at the end of a file."""

_LARGE: Final = 0xF000_0000
"""Minimum size with 64-bit fields; below 2**32, because deflate may enlarge content slightly."""

_UNIX: Final = 3
_SYSTEMS: Final = (0, _UNIX)
_VERSION_STORED: Final = 10
_VERSION: Final = 20
_VERSION_64: Final = 45
_INFO_ZIP: Final = 30
"""Version of Info-ZIP's ``zip``, the only program that sets the text flag."""
_UTF_8: Final = 0x800
_DESCRIBED: Final = 0x8
_DOS_DIRECTORY: Final = 0x10
_DOS_EPOCH: Final = 0x21
"""1980-01-01, the earliest date of the format."""


@attrs.frozen
class ArchiveEntry:
    """A member of an archive, or a directory.

    Attributes:
        name: Its path in the checkpoint, which may differ from ``member``.
        method: ``STORED`` or ``DEFLATED``.
        crc: CRC-32 of its content.
        compressed_size: Size of its packed content, in bytes.
        size: Size of its content, in bytes.
        mode: 0o700 if its owner may execute it, else 0o600.
        offset: Offset of its local header.
        member: Its name in the zip file. In entries from the reader, ``names.check_name`` has
            accepted it; the name of a directory ends with a slash.
    """

    name: str
    method: int
    crc: int
    compressed_size: int
    size: int
    mode: int
    offset: int
    member: str = attrs.field(default=attrs.Factory(lambda self: self.name, takes_self=True))

    @property
    def is_directory(self) -> bool:
        """True if the entry is for a directory."""
        return self.member.endswith("/")


class DirectoryEnd(NamedTuple):
    """Place of an archive's directory, and the number of members in it."""

    offset: int
    size: int
    members: int


_Marks: TypeAlias = tuple[bytes, bytes]
_NO_MARKS: Final = (b"", b"")


class DirectoryRecord(NamedTuple):
    """A member in the directory, with the bytes that its local header must repeat.

    Attributes:
        entry: The member.
        name: Its name.
        twin: The bytes of ``_TWIN``.
        marks: Its time and owner, if it has them.
        descriptor: The data descriptor after its content; empty without a descriptor.
    """

    entry: ArchiveEntry
    name: bytes
    twin: bytes
    marks: _Marks
    descriptor: bytes


# Writing


def local_header_size(name: str, size: int) -> int:
    """Return the size of a member's local header.

    Args:
        name: Name of the member.
        size: Size of its content.
    """
    extra = _LOCAL_EXTRA.size if size >= _LARGE else 0
    return _LOCAL.size + len(name.encode()) + extra


def local_header(entry: ArchiveEntry) -> bytes:
    """Return the header before the content of a member."""
    name = entry.member.encode()
    sizes, extra = (entry.compressed_size, entry.size), b""
    if entry.size >= _LARGE:
        extra = _LOCAL_EXTRA.pack(_ZIP64, 16, entry.size, entry.compressed_size)
        sizes = (_FULL_32, _FULL_32)
    version = _VERSION_64 if extra else _VERSION
    fixed = _LOCAL.pack(_LOCAL_SIGNATURE, version, _twin(entry), *sizes, len(name), len(extra))
    return fixed + name + extra


def central_directory(entries: Iterable[ArchiveEntry], start_offset: int) -> bytes:
    """Return everything after the last member: the directory and the end records.

    Args:
        entries: The members in their order in the file.
        start_offset: Offset of the directory, at the end of the last member.
    """
    records = [_central_record(entry) for entry in entries]
    directory = b"".join(records)
    return directory + _end_records(DirectoryEnd(start_offset, len(directory), len(records)))


def _twin(entry: ArchiveEntry) -> bytes:
    flags = 0 if entry.member.isascii() else _UTF_8
    return _TWIN.pack(flags, entry.method, 0, _DOS_EPOCH, entry.crc)


def _central_record(entry: ArchiveEntry) -> bytes:
    name = entry.member.encode()
    large: list[int] = []
    sizes, offset = (entry.compressed_size, entry.size), entry.offset
    if entry.size >= _LARGE:
        large, sizes = [entry.size, entry.compressed_size], (_FULL_32, _FULL_32)
    if entry.offset >= _FULL_32:
        large, offset = [*large, entry.offset], _FULL_32
    extra = struct.pack(f"<2H{len(large)}Q", _ZIP64, 8 * len(large), *large) if large else b""
    version = _VERSION_64 if large else _VERSION
    versions = (_UNIX << 8 | version, version)
    counts = (len(name), len(extra), 0, 0, 0)
    mode = (stat.S_IFREG | entry.mode) << 16
    fixed = (_CENTRAL_SIGNATURE, *versions, _twin(entry), *sizes, *counts, mode, offset)
    return _CENTRAL.pack(*fixed) + name + extra


def _end_records(end: DirectoryEnd) -> bytes:
    is_large = end.members >= _FULL_16 or max(end.offset, end.size) >= _FULL_32
    count = min(end.members, _FULL_16)
    place = (min(end.size, _FULL_32), min(end.offset, _FULL_32))
    plain = _END.pack(_END_SIGNATURE, 0, 0, count, count, *place, 0)
    if not is_large:
        return plain
    versions = (_UNIX << 8 | _VERSION_64, _VERSION_64)
    numbers = (0, 0, end.members, end.members, end.size, end.offset)
    record = _END64.pack(_END64_SIGNATURE, _END64.size - 12, *versions, *numbers)
    return record + _LOCATOR.pack(_LOCATOR_SIGNATURE, 0, end.offset + end.size, 1) + plain


# Reading


def parse_end(tail: bytes, file_size: int) -> DirectoryEnd:
    """Parse the end records of an archive.

    Args:
        tail: The last ``MAX_TAIL`` bytes of the file, or all of a smaller file.
        file_size: Size of the file.

    Raises:
        CheckpointFormatError: The file does not end with an end record, or its directory is not
            directly before the end records.
    """
    record = tail[-_END.size :].rjust(_END.size)  # a shorter file has no signature at this offset
    signature, *disks, on_disk, count, size, offset, comment = _END.unpack(record)
    if signature != _END_SIGNATURE or comment:
        _refuse("not an archive, or truncated: the file does not end with an end record")
    if any(disks) or on_disk != count:
        _refuse("the end record names several disks or two different numbers of entries")
    end, end_offset = DirectoryEnd(offset, size, count), file_size - _END.size
    locator = tail[-_END.size - _LOCATOR.size : -_END.size]
    if locator.startswith(_LOCATOR_SIGNATURE) and len(tail) == MAX_TAIL:
        end_offset -= _LOCATOR.size + _END64.size
        end = _parse_end64(tail[: _END64.size], locator, end, end_offset)
    if end.offset + end.size != end_offset:
        _refuse("there are bytes between the directory and the end record, or some are missing")
    return end


def _parse_end64(
    record: bytes, locator: bytes, plain: DirectoryEnd, record_offset: int
) -> DirectoryEnd:
    if _LOCATOR.unpack(locator)[1:] != (0, record_offset, 1):
        _refuse("the zip64 locator does not point at the zip64 end record")
    signature, length, made, needed, *disks, on_disk, count, size, offset = _END64.unpack(record)
    if signature != _END64_SIGNATURE or length != _END64.size - 12:
        _refuse("there is no zip64 end record before its locator")
    _check_system(made, None)
    _check_version(needed, None)
    if any(disks) or on_disk != count:
        _refuse("the zip64 end record names several disks or two different numbers of entries")
    end = DirectoryEnd(offset, size, count)
    full = DirectoryEnd(_FULL_32, _FULL_32, _FULL_16)
    if any(short not in (most, long) for short, most, long in zip(plain, full, end, strict=True)):
        _refuse("the end record and the zip64 end record disagree")
    return end


def parse_directory(data: bytes, count: int) -> Iterator[DirectoryRecord]:
    """Yield the records in the directory of an archive.

    Args:
        data: The directory, exactly.
        count: The number of members in the end record.

    Raises:
        CheckpointFormatError: A record is damaged or outside the profile, or the directory does not
            contain ``count`` records.
        CheckpointPathError: A member's name is not allowed.
    """
    position = 0
    for _ in range(count):
        record, position = _parse_record(data, position)
        yield record
    if position != len(data):
        _refuse("there are bytes between the last record of the directory and its end")


def max_local_header(record: DirectoryRecord) -> int:
    """Return the maximum size of a member's local header."""
    return _LOCAL.size + len(record.name) + _LOCAL_EXTRA.size + _MARKS_BYTES


def check_local_header(record: DirectoryRecord, header: bytes) -> int:
    """Check that a member's local header agrees with its record; return the header's size.

    Args:
        record: The member's record.
        header: The bytes at the member's offset: at least :func:`max_local_header` bytes, or the
            rest of the file.

    Raises:
        CheckpointFormatError: The bytes disagree with the record, or are not a local header.
    """
    entry = record.entry
    if len(header) < _LOCAL.size or not header.startswith(_LOCAL_SIGNATURE):
        _refuse("there is no local header at the offset in the directory", entry.name)
    _, needed, twin, packed, size, name_length, extra_length = _LOCAL.unpack_from(header)
    name_end = _LOCAL.size + name_length
    if record.descriptor and any(twin[-_CRC_BYTES:]):
        _refuse("an entry has the flags 0x0008, but its checksum is before its content", entry.name)
    if twin != record.twin or header[_LOCAL.size : name_end] != record.name:
        _refuse("the local header disagrees with the directory", entry.name)
    _check_version(needed, entry.name)
    header_end: int = name_end + extra_length
    extra = header[name_end:header_end]
    wide, marks = _parse_extra(extra, entry.name)
    is_wide = (size, packed) == (_FULL_32, _FULL_32)
    if len(extra) != extra_length or len(wide) != (16 if is_wide else 0):
        _refuse("unexpected extra field in the local header", entry.name)
    # A program that writes a data descriptor knows the packed size only afterwards.
    sizes = entry.size, 0 if record.descriptor else entry.compressed_size
    if marks != record.marks or sizes != _widen((size, packed), wide, entry.name):
        _refuse("the local header disagrees with the directory", entry.name)
    return header_end


def _parse_record(data: bytes, start: int) -> tuple[DirectoryRecord, int]:
    """Return the record at an offset of the directory, and the offset after it."""
    if len(data) - start < _CENTRAL.size:
        _refuse("the directory ends within a record")
    signature, made, needed, twin, packed, full, *lengths = _CENTRAL.unpack_from(data, start)
    name_length, extra_length, *unused, external, local_offset = lengths
    name_start = start + _CENTRAL.size
    name_end = name_start + name_length
    end = name_end + extra_length
    if signature != _CENTRAL_SIGNATURE or end > len(data):
        _refuse("the directory contains something other than whole records")
    raw_name = data[name_start:name_end]
    flags, method, _, _, crc = _TWIN.unpack(twin)
    name = _parse_name(raw_name, flags)
    is_directory = name.endswith("/") and not full
    (check_directory if is_directory else check_name)(name)
    is_described = flags & ~_UTF_8 == _DESCRIBED and method == DEFLATED
    if flags & ~_UTF_8 and not (is_described and _FULL_32 not in (packed, full)):
        _refuse(f"an entry has the flags 0x{flags:04x}", name)
    if method not in (STORED, DEFLATED):
        _refuse(f"an entry uses compression method {method}", name)
    *other, internal = unused
    is_text = internal == 1 and made & 0xFF == _INFO_ZIP
    if any(other) or (internal and not is_text):
        _refuse("an entry has a comment, another disk or internal attributes", name)
    _check_system(made, name)
    _check_version(needed, name)
    wide, marks = _parse_extra(data[name_end:end], name)
    size, compressed_size, offset = _widen((full, packed, local_offset), wide, name)
    if method == STORED and size != compressed_size:
        _refuse("a stored entry has two different sizes", name)
    if is_directory and (crc or compressed_size != _EMPTY_SIZES[method]):
        _refuse("an entry for a directory has content", name)
    entry = ArchiveEntry(
        name=name,
        method=method,
        crc=crc,
        compressed_size=compressed_size,
        size=size,
        mode=_parse_mode(external, name, is_directory=is_directory),
        offset=offset,
    )
    descriptor = b""
    if is_described:
        descriptor = _DESCRIPTOR.pack(_DESCRIPTOR_SIGNATURE, crc, packed, full)
        twin = twin[:-_CRC_BYTES] + bytes(_CRC_BYTES)
    return DirectoryRecord(entry, raw_name, twin, marks, descriptor), end


def _parse_name(raw: bytes, flags: int) -> str:
    if not raw.isascii() and not flags & _UTF_8:
        message = "the name of an entry is not ASCII, and the UTF-8 flag is missing"
        raise CheckpointPathError(message, entry=raw.decode("cp437"))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        shown = raw.decode(errors="backslashreplace")
        raise CheckpointPathError("the name of an entry is not UTF-8", entry=shown) from None


def _parse_mode(external: int, name: str, *, is_directory: bool) -> int:
    mode, dos_attributes = external >> 16, external & _FULL_16
    if is_directory:
        if dos_attributes not in (0, _DOS_DIRECTORY) or stat.S_IFMT(mode) not in (0, stat.S_IFDIR):
            _refuse("an entry for a directory is not a directory", name)
        return stat.S_IRWXU  # its permissions are not restored
    if not mode or dos_attributes or stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        _refuse("an entry is not a regular file", name)
    if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX):
        _refuse("an entry has set-uid, set-gid or sticky permissions", name)
    return 0o700 if mode & stat.S_IXUSR else 0o600


def _parse_extra(extra: bytes, name: str) -> tuple[bytes, _Marks]:
    """Return the values of the zip64 field, then the marks; no other field is allowed."""
    if not extra:  # the case of all archives of this package
        return b"", _NO_MARKS
    fields: dict[int, bytes] = {}
    while extra:
        kind, length = _EXTRA.unpack(extra[: _EXTRA.size].ljust(_EXTRA.size, b"\xff"))
        value, extra = extra[_EXTRA.size :][:length], extra[_EXTRA.size + length :]
        if kind in fields or len(value) != length or length not in _EXTRA_LENGTHS.get(kind, ()):
            _refuse("an entry has an unexpected extra field", name)
        fields[kind] = value
    marks = fields.get(_TIMES, b"")[:_MODIFIED_BYTES], fields.get(_OWNER, b"")
    return fields.get(_ZIP64, b""), marks


def _widen(narrow: tuple[int, ...], wide: bytes, name: str) -> tuple[int, ...]:
    """Return the fields, with full 32-bit fields replaced by values of the zip64 extra field."""
    full = narrow.count(_FULL_32)
    if len(wide) != 8 * full:
        _refuse("an entry has an unexpected extra field, or lacks a zip64 field", name)
    if not full:
        return narrow
    values = iter(struct.unpack(f"<{full}Q", wide))
    return tuple(next(values) if value == _FULL_32 else value for value in narrow)


def _check_system(made: int, name: str | None) -> None:
    if made >> 8 not in _SYSTEMS:
        _refuse(f"the archive was created on system {made >> 8}", name)
    if made & 0xFF != _INFO_ZIP:
        _check_version(made & 0xFF, name)


def _check_version(version: int, name: str | None) -> None:
    if version not in (_VERSION_STORED, _VERSION, _VERSION_64):
        _refuse(f"the archive needs version {version} of the zip format", name)


def _refuse(message: str, entry: str | None = None) -> NoReturn:
    raise CheckpointFormatError(message, entry=entry)
