"""Versioned JSON records: one document of a known type in one file, or in one line of a journal.

A record is decoded only if its ``schema_version`` is known, so the error about a record of a later
version names that version instead of an unknown member. Files are opened with ``regular_files``:
links are not followed, pipes are not waited for, and files larger than any record are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from clawblox.foreign_values import encode_line
from clawblox.system.files import publish_bytes
from clawblox.system.regular_files import read_regular

UPDATE_HINT: Final = (
    "open it with the version of clawblox that wrote it, or run: pip install --upgrade clawblox"
)
"""Advice about a file that a later version has written."""

_T = TypeVar("_T")


class RecordError(ValueError):
    """A record cannot be used.

    Attributes:
        problem: The reason, as a predicate of a sentence about the record.
        hint: Advice of the format, if any.
    """

    def __init__(self, problem: str, hint: str | None) -> None:
        super().__init__(f"it {problem}")
        self.problem = problem
        self.hint = hint


class LaterVersionError(RecordError):
    """A record was written by a later version of clawblox."""

    def __init__(self, version: int, known: int) -> None:
        problem = f"has schema_version {version}, and this clawblox reads up to {known}"
        super().__init__(problem, UPDATE_HINT)


class _Versioned(msgspec.Struct, frozen=True):
    schema_version: int = 1


_versioned: Final = msgspec.json.Decoder(_Versioned)


class RecordFormat(msgspec.Struct, Generic[_T], frozen=True, kw_only=True):
    """The format of a kind of records.

    Attributes:
        kind: The kind of record that errors name, such as ``"the status of an agent"``.
        decoder: Decodes the document; made at import, see ``typed_values``.
        version: The latest ``schema_version`` that can be read; a record without it is of the first
            version.
        max_bytes: Maximum size of the file, in bytes.
        hint: Advice for a record that cannot be read; None without advice.
    """

    kind: str
    decoder: msgspec.json.Decoder[_T]
    version: int = 1
    max_bytes: int = 1 << 20
    hint: str | None = None

    def decode(self, data: bytes) -> _T:
        """Return the record in a document.

        Raises:
            RecordError: The document is not such a record; :class:`LaterVersionError` for a later
                version.
        """
        try:
            version = _versioned.decode(data).schema_version
            if version > self.version:
                raise LaterVersionError(version, self.version)
            return self.decoder.decode(data)
        except (UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
            raise RecordError(f"is not {self.kind}: {error}", self.hint) from error

    def read(self, path: Path) -> _T | None:
        """Return the record in a file; None if the file is missing. Blocks.

        Args:
            path: The file. Its directory is trusted.

        Raises:
            RecordError: The file cannot be read, or is not such a record.
        """
        try:
            return self.decode(read_regular(path, max_bytes=self.max_bytes))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RecordError(f"cannot be read: {error.strerror}", self.hint) from error


def encode_record(value: object, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Return a value as one line of JSON, with its newline.

    If JSON cannot represent the value, it is cleaned as in ``foreign_values.encode_line``.

    Args:
        value: The value; it may contain structs and attrs classes.
        enc_hook: Converts types unknown to msgspec, as for ``msgspec.json.encode``.
    """
    try:
        return msgspec.json.encode(value, enc_hook=enc_hook) + b"\n"
    except (ValueError, OverflowError):
        return encode_line(msgspec.to_builtins(value, enc_hook=enc_hook))


def publish_record(path: Path, record: object) -> None:
    """Replace the file of a record atomically and durably. Blocks.

    Args:
        path: The file.
        record: The record, or plain values.

    Raises:
        OSError: The file was not replaced.
    """
    data = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    publish_bytes(path, data)
