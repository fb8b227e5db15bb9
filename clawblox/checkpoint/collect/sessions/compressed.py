"""Reads session files that are compressed with Zstandard, if this Python can."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from clawblox.checkpoint.model import Transform
from clawblox.checkpoint.zstd import Zstandard, find_zstandard
from clawblox.errors import CheckpointError
from clawblox.extras import install_command
from clawblox.system import foreign_files

_SLICE: Final = 256
"""Bytes to decompress at a time. They may expand 40,000 times, all of it in memory."""


def decompression(path: Path) -> Transform:
    """Return a transform that decompresses a file of one frame.

    Args:
        path: Path of the file, for error messages.

    Raises:
        CheckpointError: This Python cannot decompress it. The transform itself raises it for a
            damaged file.
    """
    zstandard = _find_zstandard(path)

    def transform(chunks: Iterable[bytes]) -> Iterator[bytes]:
        frame = zstandard.open_frame()
        try:
            for chunk in chunks:
                for start in range(0, len(chunk), _SLICE):
                    yield frame.decompress(chunk[start : start + _SLICE])
        except (zstandard.error, EOFError) as error:
            raise CheckpointError(
                f"{path.name!a:.60} cannot be decompressed: {error}", path=path
            ) from None
        if not frame.eof:
            raise CheckpointError(
                f"{path.name!a:.60} cannot be decompressed: its end is missing", path=path
            )

    return transform


def read_head(root: Path, path: str, size: int) -> bytes:
    """Return the first ``size`` bytes, or more, of what a compressed file contains.

    Raises:
        OSError: It does not exist or is not a regular file.
        CheckpointError: This Python cannot decompress it, or it is damaged.
    """
    transform = decompression(root / path)
    head = b""
    with os.fdopen(foreign_files.open_file(root, path), "rb") as file:
        for piece in transform(iter(lambda: file.read(_SLICE), b"")):
            head += piece
            if len(head) >= size:
                break
    return head


def _find_zstandard(path: Path) -> Zstandard:
    zstandard = find_zstandard()
    if zstandard is None:
        raise CheckpointError(
            "cannot scan a compressed session for secrets",
            path=path,
            hint=f"use Python 3.14, or {install_command('zstd')}",
        )
    return zstandard
