"""What a JSON snapshot says of itself at its top level: ``format`` and ``time``.

The whole file is checked for its syntax, wherever the two stand, and nothing of it is built: it is
mapped, and only values that are short enough are looked at. The check holds the interpreter for
0.6 ms a megabyte; :mod:`clawblox.snapshot.checker` is for documents where that is too long.
"""

from __future__ import annotations

import mmap
import sys
from typing import NamedTuple

import msgspec

__all__ = ["Header", "InvalidDocument", "read_header"]

_LONGEST_VALUE_BYTES = 1024
_NULL = msgspec.Raw(b"null")


class InvalidDocument(Exception):  # noqa: N818 - says the condition; the caller raises the public error
    """A file holds no valid JSON; the message says where."""


class Header(msgspec.Struct, frozen=True):
    """The two fields, each None where there is none that can be used.

    Attributes:
        format: Name of the document's format.
        time: Simulation time.
    """

    format: str | None = None
    time: float | int | None = None


class _Fields(msgspec.Struct):
    format: msgspec.Raw = _NULL
    time: msgspec.Raw = _NULL


class _Values(NamedTuple):
    format: bytes
    time: bytes


def read_header(fd: int) -> Header:
    """Check a file from its beginning to its end and return what it says of itself. Blocks.

    Args:
        fd: Descriptor of the file, open for reading.

    Raises:
        InvalidDocument: It is no JSON, or nested too deeply to tell.
        OSError: It cannot be mapped.
    """
    try:
        values = _find_values(fd)
        return Header(_usable_format(values.format), _usable_time(values.time))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocument(str(error)) from error


def _find_values(fd: int) -> _Values:
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
        try:
            return _copy_values(view)
        except msgspec.ValidationError:  # no object, which was seen at its first byte
            msgspec.json.decode(view, type=msgspec.Raw)
            return _Values(b"null", b"null")


def _copy_values(view: memoryview) -> _Values:
    # What is found lies in the mapped file, which cannot be closed while anything refers to it.
    found = msgspec.json.decode(view, type=_Fields)
    return _Values(_copy_short(found.format), _copy_short(found.time))


def _copy_short(value: msgspec.Raw) -> bytes:
    with memoryview(value) as view:
        return bytes(view) if len(view) <= _LONGEST_VALUE_BYTES else b"null"


def _usable_format(value: bytes) -> str | None:
    try:
        return msgspec.json.decode(value, type=str) or None
    except msgspec.ValidationError:
        return None


def _usable_time(value: bytes) -> float | int | None:
    try:
        time = msgspec.json.decode(value, type=float | int)
    except msgspec.ValidationError:
        return None
    return time if abs(time) <= sys.float_info.max else None
