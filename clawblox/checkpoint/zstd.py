"""Zstandard decompression: Python's own module from 3.14 on, else the package ``zstandard``.

The caller limits the output and handles damaged frames.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, Protocol

import attrs


class Frame(Protocol):
    """Decompressor of a frame; the interface of the standard library's decompressors."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Decompress the next bytes.

        Args:
            data: The next bytes; pass few at a time, because the output can be 40,000 times as
                large.
            max_length: Maximum number of bytes to return; -1 for no limit. The package
                ``zstandard`` ignores it.
        """

    @property
    def needs_input(self) -> bool:
        """Return whether further output needs further input."""

    @property
    def eof(self) -> bool:
        """Return whether the frame has ended; it accepts no further bytes then."""

    @property
    def unused_data(self) -> bytes:
        """Return the bytes after the end of the frame, from the last call of ``decompress``."""


@attrs.frozen
class Zstandard:
    """A Zstandard implementation.

    Attributes:
        open_frame: Returns a decompressor for a frame.
        error: The exception for a damaged frame.
    """

    open_frame: Callable[[], Frame]
    error: type[Exception]


def find_zstandard() -> Zstandard | None:
    """Return the Zstandard implementation; None if neither Python nor a package has it."""
    with contextlib.suppress(ImportError):
        standard = importlib.import_module("compression.zstd")
        return Zstandard(standard.ZstdDecompressor, standard.ZstdError)
    with contextlib.suppress(ImportError):
        package = importlib.import_module("zstandard")
        return Zstandard(lambda: _PackageFrame(package), package.ZstdError)
    return None


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
