"""The ``buffer`` library."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.limits import BUFFER_BYTES, BYTES_PER_STEP
from clawblox.luau.core.machine import current
from clawblox.luau.core.numbers import single
from clawblox.luau.core.operators import account_text
from clawblox.luau.core.values import Buffer
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.registry import install

_FILLED_BYTES = 100  # charged for a buffer in addition to its data
MAX_SIZE = 1 << 30
_KINDS = {
    "i8": "<b", "u8": "<B", "i16": "<h", "u16": "<H", "i32": "<i", "u32": "<I",
    "f32": "<f", "f64": "<d",
}  # fmt: skip


def _check_range(offset: int, size: int, length: int) -> None:
    if offset < 0 or size < 0 or offset + size > length:
        raise RuntimeFault("buffer access out of bounds")


def _wrapped(bits: int, signed: bool, value: float) -> int:
    whole = 0 if not math.isfinite(value) else int(value)
    whole %= 1 << bits
    return whole - (1 << bits) if signed and whole >> (bits - 1) else whole


def _install(kind: str, form: str) -> None:
    """Register the functions that read and write numbers of a kind."""
    layout = struct.Struct(form)
    convert: Callable[[float], float]
    if kind[0] == "f":
        convert = single if kind == "f32" else float
    else:
        convert = partial(_wrapped, layout.size * 8, kind[0] == "i")

    def read(*args: Any) -> float:
        data = arg.buffer(args, 0, f"read{kind}").data
        offset = arg.integer(args, 1, f"read{kind}")
        _check_range(offset, layout.size, len(data))
        return float(layout.unpack_from(data, offset)[0])

    def write(*args: Any) -> tuple[()]:
        data = arg.buffer(args, 0, f"write{kind}").data
        offset = arg.integer(args, 1, f"write{kind}")
        value = arg.number(args, 2, f"write{kind}")
        _check_range(offset, layout.size, len(data))
        layout.pack_into(data, offset, convert(value))
        return ()

    install(f"buffer.read{kind}", read)
    install(f"buffer.write{kind}", write)


for _kind, _form in _KINDS.items():
    _install(_kind, _form)


def create(*args: Any) -> Buffer:
    """Return a buffer of zeros.

    Raises:
        RuntimeFault: The argument is not a number, or the size is negative or too large.
    """
    size = arg.integer(args, 0, "create")
    if size < 0:
        arg.wrong(0, "create", "size")
    if size > MAX_SIZE:
        raise RuntimeFault("not enough memory")
    current.vm.allocate(BUFFER_BYTES + size, _FILLED_BYTES + size)
    return Buffer(bytearray(size))


def fromstring(*args: Any) -> Buffer:
    """Return a buffer with the bytes of a string.

    Raises:
        RuntimeFault: The argument is not a string.
    """
    text = account_text(arg.string(args, 0, "fromstring"))
    current.vm.allocate(BUFFER_BYTES)
    return Buffer(bytearray(text.encode("latin-1")))


def tostring(*args: Any) -> str:
    """Return the bytes as a string.

    Raises:
        RuntimeFault: The argument is not a buffer.
    """
    return account_text(arg.buffer(args, 0, "tostring").data.decode("latin-1"))


def len_(*args: Any) -> float:
    """Return the size in bytes.

    Raises:
        RuntimeFault: The argument is not a buffer.
    """
    return float(len(arg.buffer(args, 0, "len").data))


def readstring(*args: Any) -> str:
    """Return some bytes as a string.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, or the range lies outside the
            buffer.
    """
    data = arg.buffer(args, 0, "readstring").data
    offset, size = arg.integer(args, 1, "readstring"), arg.integer(args, 2, "readstring")
    if size < 0:
        arg.wrong(2, "readstring", "size")
    _check_range(offset, size, len(data))
    return account_text(data[offset : offset + size].decode("latin-1"))


def writestring(*args: Any) -> tuple[()]:
    """Write a string's bytes.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, the range lies outside the
            buffer, or is longer than the string.
    """
    data = arg.buffer(args, 0, "writestring").data
    offset = arg.integer(args, 1, "writestring")
    text = arg.string(args, 2, "writestring")
    size = arg.optional_integer(args, 3, "writestring", len(text))
    if size < 0:
        arg.wrong(3, "writestring", "count")
    if size > len(text):
        raise RuntimeFault("string length overflow")
    _check_range(offset, size, len(data))
    charge_work(size // BYTES_PER_STEP)
    data[offset : offset + size] = text[:size].encode("latin-1")
    return ()


def copy(*args: Any) -> tuple[()]:
    """Copy bytes from one buffer to another.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, or a range lies outside its
            buffer.
    """
    target = arg.buffer(args, 0, "copy").data
    to = arg.integer(args, 1, "copy")
    source = arg.buffer(args, 2, "copy").data
    start = arg.optional_integer(args, 3, "copy", 0)
    size = arg.optional_integer(args, 4, "copy", len(source) - start)
    _check_range(start, size, len(source))
    _check_range(to, size, len(target))
    charge_work(size // BYTES_PER_STEP)
    target[to : to + size] = source[start : start + size]
    return ()


def fill(*args: Any) -> tuple[()]:
    """Set bytes to a value.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, or the range lies outside the
            buffer.
    """
    data = arg.buffer(args, 0, "fill").data
    offset = arg.integer(args, 1, "fill")
    value = arg.integer(args, 2, "fill") & 255
    size = arg.optional_integer(args, 3, "fill", len(data) - offset)
    _check_range(offset, size, len(data))
    charge_work(size // BYTES_PER_STEP)
    data[offset : offset + size] = bytes([value]) * size
    return ()


def _bit_range(args: arg.Arguments, function: str, length: int) -> tuple[int, int]:
    offset, count = arg.integer(args, 1, function), arg.integer(args, 2, function)
    if offset >= 0 and not 0 <= count <= 32:
        raise RuntimeFault("bit count is out of range of [0; 32]")
    _check_range(offset, count, length * 8)
    return offset, count


def readbits(*args: Any) -> float:
    """Return up to 32 bits from a bit offset.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, the range lies outside the
            buffer, or is wider than 32 bits.
    """
    data = arg.buffer(args, 0, "readbits").data
    offset, count = _bit_range(args, "readbits", len(data))
    piece = int.from_bytes(data[offset // 8 : (offset + count + 7) // 8], "little")
    return float(piece >> offset % 8 & (1 << count) - 1)


def writebits(*args: Any) -> tuple[()]:
    """Write up to 32 bits at a bit offset.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, the range lies outside the
            buffer, or is wider than 32 bits.
    """
    data = arg.buffer(args, 0, "writebits").data
    offset, count = _bit_range(args, "writebits", len(data))
    value = _wrapped(32, False, arg.number(args, 3, "writebits")) & (1 << count) - 1
    first, last = offset // 8, (offset + count + 7) // 8
    piece = int.from_bytes(data[first:last], "little")
    mask = (1 << count) - 1 << offset % 8
    data[first:last] = (piece & ~mask | value << offset % 8).to_bytes(last - first, "little")
    return ()
