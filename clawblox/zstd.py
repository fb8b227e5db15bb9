"""Zstandard: Python's own module from 3.14 on, else the package ``zstandard``.

Streams are decompressed piece by piece, and the caller limits their output. Frames in memory are
compressed and decompressed in one call, which checks a size limit first.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs

LEVEL: Final = 3
"""Compression level: the default of the reference implementation."""
_MAX_WINDOW_BYTES: Final = 1 << 27


class FrameDecompressor(Protocol):
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
        """Return whether more input is needed for more output."""

    @property
    def eof(self) -> bool:
        """Return whether the frame has ended, so that no more bytes are accepted."""

    @property
    def unused_data(self) -> bytes:
        """Return the bytes after the end of the frame, from the last call of ``decompress``."""


@attrs.frozen
class Zstandard:
    """A Zstandard implementation.

    Attributes:
        open_frame: Returns a decompressor for a frame.
        error: The exception for a damaged frame.
        compress: Returns a frame with a checksum and the size of its content.
    """

    open_frame: Callable[[], FrameDecompressor]
    error: type[Exception]
    compress: Callable[[bytes], bytes]
    _decompress: Callable[[bytes], bytes]
    _content_size: Callable[[bytes], int | None]

    def decompress_whole(self, frame: bytes, size: int) -> bytes:
        """Return the content of a single frame.

        Args:
            frame: The frame, without trailing data.
            size: Size of the content, in bytes; a frame that declares another size is refused
                before decompression.

        Raises:
            ValueError: The frame is damaged or incomplete, is followed by data, or has content of
                another size.
        """
        try:
            declared = self._content_size(frame)
            if declared != size:
                raise ValueError(f"the frame declares {declared} bytes, not {size}")
            content = self._decompress(frame)
        except self.error as error:
            raise ValueError(str(error)) from error
        if len(content) != size:
            raise ValueError(f"the frame has {len(content)} bytes, not {size}")
        return content


def find_zstandard() -> Zstandard | None:
    """Return the Zstandard implementation of Python or the package; None if both are missing."""
    with contextlib.suppress(ImportError):
        return _in_python(importlib.import_module("compression.zstd"))
    with contextlib.suppress(ImportError):
        return _in_package(importlib.import_module("zstandard"))
    return None


def _in_python(module: Any) -> Zstandard:  # noqa: ANN401
    parameter = module.CompressionParameter
    options = {
        parameter.compression_level: LEVEL,
        parameter.checksum_flag: 1,
        parameter.content_size_flag: 1,
    }

    def decompress(frame: bytes) -> bytes:
        decompressor = module.ZstdDecompressor()
        content = bytes(decompressor.decompress(frame))
        if not decompressor.eof or decompressor.unused_data:
            raise module.ZstdError("the frame is incomplete, or is followed by other data")
        return content

    return Zstandard(
        module.ZstdDecompressor,
        module.ZstdError,
        lambda content: bytes(module.compress(content, options=options)),
        decompress,
        lambda frame: module.get_frame_info(frame).decompressed_size,
    )


def _in_package(module: Any) -> Zstandard:  # noqa: ANN401
    def compress(content: bytes) -> bytes:
        compressor = module.ZstdCompressor(
            level=LEVEL, write_checksum=True, write_content_size=True
        )
        return bytes(compressor.compress(content))

    def decompress(frame: bytes) -> bytes:
        decompressor = module.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        return bytes(decompressor.decompress(frame, allow_extra_data=False))

    def content_size(frame: bytes) -> int | None:
        size = module.get_frame_parameters(frame).content_size
        return None if size == module.CONTENTSIZE_UNKNOWN else int(size)

    return Zstandard(
        lambda: _PackageFrame(module), module.ZstdError, compress, decompress, content_size
    )


class _PackageFrame:
    needs_input = True

    def __init__(self, package: Any) -> None:  # noqa: ANN401
        decompressor = package.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._frame = decompressor.decompressobj()

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        del max_length
        return bytes(self._frame.decompress(data))

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)
