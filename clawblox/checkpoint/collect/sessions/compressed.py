"""Reading what was compressed with Zstandard, where this Python can."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.model import Transform
from clawblox.checkpoint.zstd import Zstandard, find_zstandard
from clawblox.errors import CheckpointError

__all__ = ["decompressing", "read_head"]

_SLICE: Final = 256
"""What is decompressed at once. It may become 40,000 times as much, all of it in memory."""


def decompressing(path: Path) -> Transform:
    """Return a transform that decompresses a file of one frame.

    Args:
        path: The file, for messages.

    Raises:
        CheckpointError: This Python cannot; the transform itself raises it for a broken file.
    """
    zstandard = _find_zstandard(path)

    def transform(chunks: Iterable[bytes]) -> Iterator[bytes]:
        frame = zstandard.open_frame()
        try:
            for chunk in chunks:
                for start in range(0, len(chunk), _SLICE):
                    yield frame.decompress(chunk[start : start + _SLICE])
        except (zstandard.error, EOFError) as error:
            raise CheckpointError(f"cannot be decompressed: {error}", path=path) from None
        if not frame.eof:
            raise CheckpointError("cannot be decompressed: its end is missing", path=path)

    return transform


def read_head(root: Path, path: str, size: int) -> bytes:
    """Return the first ``size`` bytes, or more, of what a file was before it was compressed.

    Raises:
        OSError: It is not there, or no regular file.
        CheckpointError: This Python cannot decompress it, or it is broken.
    """
    transform = decompressing(root / path)
    head = b""
    with os.fdopen(tree.open_file(root, path), "rb") as file:
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
            hint="Python 3.14, or pip install zstandard",
        )
    return zstandard
