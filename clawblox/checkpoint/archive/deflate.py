"""What compresses members: ``isal`` where that package is installed, else Python's own zlib.

Both write plain deflate. What was written is always read back with zlib, whichever wrote it.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import Callable
from typing import Final, Protocol

_LEVEL: Final = 1
_RAW: Final = -15
_SAMPLE_BYTES: Final = 16 << 10
"""The beginning of a file that shows whether the file is compressed already."""


class Deflater(Protocol):
    """Compresses one member; the interface that zlib and isal share."""

    def compress(self, data: bytes, /) -> bytes:
        """Return the next compressed bytes."""

    def flush(self) -> bytes:
        """Return the last ones."""


def new_deflater() -> Deflater:
    """Return a deflater for one member: raw, at the fastest level."""
    return _factory()(_LEVEL, zlib.DEFLATED, _RAW)


def shrinks(content: bytes) -> bool:
    """Return whether the beginning of ``content`` becomes smaller when it is compressed."""
    sample = content[:_SAMPLE_BYTES]
    deflater = new_deflater()
    return len(deflater.compress(sample)) + len(deflater.flush()) < len(sample)


@functools.cache
def _factory() -> Callable[[int, int, int], Deflater]:
    try:
        module = importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib.compressobj
    factory: Callable[[int, int, int], Deflater] = module.compressobj
    return factory
