"""What decompresses Zstandard here: Python itself from 3.14 on, before the package ``zstandard``.

How much to decompress at once, and what a broken frame means, is for the caller to decide.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

import attrs


class Frame(Protocol):
    """One frame on its way; the interface that the standard library's decompressors share."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return what the next bytes decompress to.

        Args:
            data: The next bytes, not many at a time: they can become 40,000 times as many.
            max_length: The most bytes to return; -1 for all. The package has no such limit and
                returns all.
        """

    @property
    def needs_input(self) -> bool:
        """Return whether there is no more to return before the next bytes."""

    @property
    def eof(self) -> bool:
        """Return whether the frame has come to its end; nothing may be given to it then."""

    @property
    def unused_data(self) -> bytes:
        """Return what followed the end of the frame in the last bytes."""


@attrs.frozen
class Zstandard:
    """A decompressor.

    Attributes:
        open_frame: Begins to decompress a frame.
        error: What a broken frame raises.
    """

    open_frame: Callable[[], Frame]
    error: type[Exception]


def find_zstandard() -> Zstandard | None:
    """Return what decompresses Zstandard; None where neither Python nor a package does."""
    try:
        standard = importlib.import_module("compression.zstd")
    except ImportError:
        return _find_package()
    return Zstandard(standard.ZstdDecompressor, standard.ZstdError)


def _find_package() -> Zstandard | None:
    try:
        package = importlib.import_module("zstandard")
    except ImportError:
        return None
    return Zstandard(lambda: _PackageFrame(package), package.ZstdError)


class _PackageFrame:
    needs_input = True

    def __init__(self, package: Any) -> None:  # noqa: ANN401
        self._frame = package.ZstdDecompressor(max_window_size=1 << 27).decompressobj()

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        del max_length
        return bytes(self._frame.decompress(data))

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)
