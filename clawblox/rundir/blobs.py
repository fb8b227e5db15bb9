"""Transfers files in pieces through a control socket, out of a run directory and into it.

A file is read by its path below the run directory. A received file is named by its SHA-256 digest,
so clients cannot choose paths. It appears in ``<run dir>/.clawblox/blobs`` once it is complete and
has that digest. An interrupted transfer can be continued. A piece fits into a message of the
socket, so a transfer never delays other requests for long: a client sends at most 44 KiB at a time,
which base64 lengthens by a third.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from clawblox.errors import UsageError
from clawblox.rundir.paths import state_dir
from clawblox.system.files import fsync_directory, has_digest, make_private_dir, write_all
from clawblox.system.locks import lock_descriptor
from clawblox.system.regular_files import closing_fd, digest_open, open_file, open_own

MAX_BLOB_BYTES: Final = 64 << 30
_READ_BYTES: Final = 1 << 20
_LOCK_WAIT_S: Final = 5.0
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def describe_blob(
    run_dir: Path, asked: Mapping[str, Any], check: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Return the size and digest of the file that a request names. Blocks.

    Args:
        run_dir: The run directory.
        asked: The request.
        check: Called often; ends the call by raising an error.

    Raises:
        UsageError: The path does not name a regular file below the run directory, or the file is
            larger than :data:`MAX_BLOB_BYTES`.
        OSError: The file cannot be read, or grew too large in the meantime.
    """
    with closing_fd(_open_blob(run_dir, asked.get("path"))) as fd:
        size = os.fstat(fd).st_size
        if size > MAX_BLOB_BYTES:
            raise UsageError(
                f"path: must be a file of at most {MAX_BLOB_BYTES} bytes, not one of {size} bytes"
            )
        digest = digest_open(fd, max_bytes=MAX_BLOB_BYTES, check=check)
        return {"size_bytes": size, "sha256": digest}


def read_piece(
    run_dir: Path, asked: Mapping[str, Any], _check: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Return the next bytes, at most 1 MiB, of the file that a request names. Blocks.

    Raises:
        UsageError: The path does not name a regular file below the run directory, or ``offset`` is
            not an integer.
    """
    offset = _read_number(asked, "offset")
    with closing_fd(_open_blob(run_dir, asked.get("path"))) as fd:
        return {"data": base64.b64encode(os.pread(fd, _READ_BYTES, offset)).decode()}


def write_piece(
    run_dir: Path, asked: Mapping[str, Any], check: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Append the bytes of a request to the file that it names. Blocks.

    Bytes at a wrong offset are ignored, and the answer contains the offset to continue from.

    Returns:
        ``received_bytes``, and ``path`` once the file is complete.

    Raises:
        UsageError: A member of the request is invalid, or the complete file has a different digest
            and was removed.
        OSError: The bytes cannot be written; earlier bytes are kept.
    """
    sha256 = asked.get("sha256")
    if not isinstance(sha256, str) or not _DIGEST.fullmatch(sha256):
        raise UsageError(f"sha256: must be 64 hexadecimal digits, not {sha256!r}")
    try:
        data = base64.b64decode(asked.get("data", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise UsageError(f"data: must be base64: {error}") from error
    size, offset = _read_number(asked, "size_bytes"), _read_number(asked, "offset")
    directory = make_private_dir(state_dir(run_dir) / "blobs")
    complete, partial_path = directory / sha256, directory / f"{sha256}.partial"
    if complete.is_file():
        return {"received_bytes": size, "path": complete}
    with closing_fd(open_own(partial_path, os.O_RDWR | os.O_CREAT)) as fd:
        if not lock_descriptor(fd, _LOCK_WAIT_S):
            raise TimeoutError(f"another request is writing {partial_path}")
        if complete.is_file():  # another client completed it in the meantime
            if not os.fstat(fd).st_size:
                partial_path.unlink(missing_ok=True)
            return {"received_bytes": size, "path": complete}
        received = os.fstat(fd).st_size
        if offset == received:
            os.lseek(fd, received, os.SEEK_SET)
            write_all(fd, data)
            received += len(data)
        if received < size:
            return {"received_bytes": received, "path": None}
        if received > size or not has_digest(partial_path, sha256, check=check):
            partial_path.unlink(missing_ok=True)
            raise UsageError(f"sha256: must be the digest of the {size} bytes sent, not {sha256}")
        os.fsync(fd)
        partial_path.rename(complete)
        fsync_directory(directory)
        return {"received_bytes": received, "path": complete}


def _open_blob(run_dir: Path, path: object) -> int:
    if not isinstance(path, str) or {"", ".", ".."} & set(path.split("/")):
        raise UsageError(f"path: must be a path below the run directory, not {path!r}")
    try:
        return open_file(run_dir, path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"path: must be a regular file below the run directory, not {path!r}: {error}"
        ) from error


def _read_number(asked: Mapping[str, Any], key: str) -> int:
    value = asked.get(key)
    if type(value) is not int or not 0 <= value <= MAX_BLOB_BYTES:
        raise UsageError(f"{key}: must be a whole number, 0 to {MAX_BLOB_BYTES}, not {value!r}")
    return value
