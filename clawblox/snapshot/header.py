"""Reads two members at the top level of a JSON snapshot: ``format`` and ``time``.

The syntax of the whole file is checked without building objects: the file is mapped, and only short
values of the two members are decoded. The check holds the interpreter lock for 0.6 ms per megabyte;
larger documents are checked by :mod:`clawblox.snapshot.checker`.
"""

from __future__ import annotations

import mmap
import os
import sys

import msgspec

_LONGEST_VALUE_BYTES = 1024
_NULL = msgspec.Raw(b"null")


class InvalidDocument(Exception):  # noqa: N818 - internal; the caller raises the public error
    """A file is not valid JSON; the message includes the position."""


class Header(msgspec.Struct, frozen=True):
    """The two members, each None if it is missing or unusable.

    Attributes:
        format: Name of the document's format.
        time: Simulation time.
    """

    format: str | None = None
    time: float | int | None = None


class _HeaderFields(msgspec.Struct):
    format: msgspec.Raw = _NULL
    time: msgspec.Raw = _NULL


_fields = msgspec.json.Decoder(_HeaderFields)
_raw = msgspec.json.Decoder(msgspec.Raw)
_text = msgspec.json.Decoder(str)
_number: msgspec.json.Decoder[float | int] = msgspec.json.Decoder(float | int)


def read_header(fd: int) -> Header:
    """Check a whole file and return its header. Blocks.

    Args:
        fd: Descriptor of the file, open for reading.

    Raises:
        InvalidDocument: The file is not JSON, or nested too deeply.
        OSError: The file cannot be mapped.
    """
    if not os.fstat(fd).st_size:
        raise InvalidDocument("the file is empty")  # it cannot be mapped
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
        return parse_header(view)


def parse_header(document: bytes | memoryview) -> Header:
    """Check a whole document and return its header.

    Raises:
        InvalidDocument: The document is not JSON, or nested too deeply.
    """
    try:
        snapshot_format, time = _find_values(document)
        return Header(_usable_format(snapshot_format), _usable_time(time))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocument(str(error)) from error


def _find_values(document: bytes | memoryview) -> tuple[bytes, bytes]:
    try:
        fields = _fields.decode(document)
    except msgspec.ValidationError:  # not an object, according to its first byte
        _raw.decode(document)
        return b"null", b"null"
    # Copy the values, because a mapped file cannot be closed while anything refers to it.
    return _copy_short(fields.format), _copy_short(fields.time)


def _copy_short(value: msgspec.Raw) -> bytes:
    with memoryview(value) as view:
        return bytes(view) if len(view) <= _LONGEST_VALUE_BYTES else b"null"


def _usable_format(value: bytes) -> str | None:
    try:
        return _text.decode(value) or None
    except msgspec.ValidationError:
        return None


def _usable_time(value: bytes) -> float | int | None:
    try:
        time = _number.decode(value)
    except msgspec.ValidationError:
        return None
    return time if abs(time) <= sys.float_info.max else None
