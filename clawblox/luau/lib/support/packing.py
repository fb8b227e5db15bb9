"""The implementation of ``string.pack``, ``string.unpack`` and ``string.packsize``."""

from __future__ import annotations

import re
import struct
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.limits import BYTES_PER_STEP
from clawblox.luau.core.machine import current
from clawblox.luau.core.operators import account_text
from clawblox.luau.core.values import as_result
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.registry import install

_OPTION = re.compile("([iIsc!])([0-9]*)|(.)", re.DOTALL)
_MAX_INTEGER = 16
_NATIVE_ALIGNMENT = 8
_MAX_SIZE = 2**30
_FIXED = {
    "b": ("int", 1), "h": ("int", 2), "l": ("int", 8), "j": ("int", 4),
    "B": ("uint", 1), "H": ("uint", 2), "L": ("uint", 8), "J": ("uint", 4), "T": ("uint", 4),
    "f": ("float", 4), "d": ("float", 8), "n": ("float", 8),
    "z": ("zstr", 0), "x": ("padding", 1), "X": ("align", 0), " ": ("none", 0),
}  # fmt: skip
_SIZED = {"i": "int", "I": "uint", "s": "string"}


class _FormatReader:
    """Reads a format string option by option.

    An option is (kind, size, padding). The kind is ``int``, ``uint``, ``float``, ``char``,
    ``string``, ``zstr``, ``padding``, ``align`` or ``none``.
    """

    def __init__(self, form: str, function: str) -> None:
        self._form = form.partition("\0")[0]
        charge_work(len(form))
        self._at = 0
        self.little = True
        self._alignment = 1
        self._function = function

    @property
    def order(self) -> str:
        return "<" if self.little else ">"

    def __bool__(self) -> bool:
        return self._at < len(self._form)

    def option(self, total: int) -> tuple[str, int, int]:
        """Return the next option, at offset ``total``."""
        kind, size = self._plain()
        align = size
        if kind == "align":
            inner, align = self._plain() if self else ("", 0)
            if inner == "char" or align == 0:
                arg.wrong(0, self._function, "invalid next option for option 'X'")
        if align <= 1 or kind in ("char", "padding", "zstr", "none"):
            return kind, size, 0
        align = min(align, self._alignment)
        if align & (align - 1):
            arg.wrong(0, self._function, "format asks for alignment not power of 2")
        return kind, size, -total % align

    def _plain(self) -> tuple[str, int]:
        option = _OPTION.match(self._form, self._at)
        assert option is not None
        self._at = option.end()
        letter = option[1] or option[3]
        size = int(option[2][:20]) if option[2] else None
        if size is not None and size > _MAX_SIZE:
            raise RuntimeFault("size specifier is too large")
        if letter in _FIXED:
            return _FIXED[letter]
        if letter == "c":
            if size is None:
                raise RuntimeFault("missing size for format option 'c'")
            return "char", size
        if letter in "<=>":
            self.little = letter != ">"
            return "none", 0
        if letter not in "iIs!":
            raise RuntimeFault(f"invalid format option '{letter}'")
        if size is None:
            size = _NATIVE_ALIGNMENT if letter == "!" else 4
        if not 1 <= size <= _MAX_INTEGER:
            raise RuntimeFault(f"integral size ({size}) out of limits [1,{_MAX_INTEGER}]")
        if letter == "!":
            self._alignment = size
            return "none", 0
        return _SIZED[letter], size


def pack(*args: Any) -> str:
    """Return values as bytes.

    Raises:
        RuntimeFault: The format is malformed, or a value does not fit it.
    """
    reader = _FormatReader(arg.string(args, 0, "pack"), "pack")
    pieces: list[bytes] = []
    total, at = 0, 0
    while reader:
        kind, size, padding = reader.option(total)
        piece = b"\0" * padding
        if kind in ("int", "uint", "float", "string", "char", "zstr"):
            at += 1
            piece += _pack_one(kind, size, reader, args, at)
        elif kind == "padding":
            piece += b"\0"
        pieces.append(piece)
        total += len(piece)
    return b"".join(pieces).decode("latin-1")


def _pack_one(kind: str, size: int, reader: _FormatReader, args: arg.Arguments, at: int) -> bytes:
    byteorder: Any = "little" if reader.little else "big"
    if kind in ("int", "uint"):
        return _pack_integer(kind, size, byteorder, args, at)
    if kind == "float":
        number = arg.number(args, at, "pack")
        try:
            return struct.pack(reader.order + ("f" if size == 4 else "d"), number)
        except OverflowError:
            return struct.pack(reader.order + "f", float("inf") if number > 0 else -float("inf"))
    string = arg.string(args, at, "pack")
    current.vm.allocate(size + len(string))
    text = string.encode("latin-1")
    if kind == "char":
        if len(text) > size:
            arg.wrong(at, "pack", "string longer than given size")
        return text.ljust(size, b"\0")
    if kind == "zstr":
        if b"\0" in text:
            arg.wrong(at, "pack", "string contains zeros")
        return text + b"\0"
    if size < 8 and len(text) >= 1 << (8 * size):
        arg.wrong(at, "pack", "string length does not fit in given size")
    return len(text).to_bytes(size, byteorder) + text


def _pack_integer(kind: str, size: int, byteorder: Any, args: arg.Arguments, at: int) -> bytes:
    value = arg.integer(args, at, "pack")
    if size < 8:
        limit = 1 << (8 * size)
        if kind == "int" and not -limit // 2 <= value < limit // 2:
            arg.wrong(at, "pack", "integer overflow")
        if kind == "uint" and not 0 <= value < limit:
            arg.wrong(at, "pack", "unsigned overflow")
    width = 8 * size if kind == "int" else 64  # wider unsigned numbers are padded with zeros
    return (value % (1 << width)).to_bytes(size, byteorder)


def packsize(*args: Any) -> float:
    """Return the size of a format in bytes.

    Raises:
        RuntimeFault: The format is malformed, or its size varies.
    """
    reader = _FormatReader(arg.string(args, 0, "packsize"), "packsize")
    total = 0
    while reader:
        kind, size, padding = reader.option(total)
        if kind in ("string", "zstr"):
            arg.wrong(0, "packsize", "variable-length format")
        if total + size + padding > _MAX_SIZE:
            arg.wrong(0, "packsize", "format result too large")
        total += size + padding
    return float(total)


def unpack(*args: Any) -> Any:
    """Return the values in a string of bytes, and the position after them.

    Raises:
        RuntimeFault: The format is malformed, or the data is too short.
    """
    reader = _FormatReader(arg.string(args, 0, "unpack"), "unpack")
    data = arg.string(args, 1, "unpack")
    position = arg.optional_integer(args, 2, "unpack", 1)
    if position < 0:
        position += len(data) + 1
    at = max(0, position - 1)
    if at > len(data):
        arg.wrong(2, "unpack", "initial position out of string")
    values: list[Any] = []
    while reader:
        kind, size, padding = reader.option(at)
        if at + padding + size > len(data):
            arg.wrong(1, "unpack", "data string too short")
        arg.check_results(args, len(values) + 2, "stack overflow (too many results)")
        at += padding
        at = _unpack_one(kind, size, reader, data, at, values)
    return as_result((*values, float(at + 1)))


def _unpack_one(
    kind: str, size: int, reader: _FormatReader, data: str, at: int, values: list[Any]
) -> int:
    byteorder: Any = "little" if reader.little else "big"
    piece = data[at : at + size].encode("latin-1")
    if kind in ("int", "uint"):
        values.append(_unpack_integer(piece, byteorder, signed=kind == "int"))
    elif kind == "float":
        values.append(struct.unpack(reader.order + ("f" if size == 4 else "d"), piece)[0])
    elif kind == "char":
        values.append(account_text(piece.decode("latin-1")))
    elif kind == "zstr":
        charge_work((len(data) - at) // BYTES_PER_STEP)
        end = data.find("\0", at)
        if end < 0:
            arg.wrong(1, "unpack", "unfinished string for format 'z'")
        values.append(account_text(data[at:end]))
        return end + 1
    elif kind == "string":
        length = int.from_bytes(piece, byteorder)
        start = at + size
        if length > len(data) - start:
            arg.wrong(1, "unpack", "data string too short")
        values.append(account_text(data[start : start + length]))
        return start + length
    return at + size


def _unpack_integer(piece: bytes, byteorder: Any, *, signed: bool) -> float:
    value = int.from_bytes(piece, byteorder, signed=signed)
    if len(piece) > 8:
        low = value & (2**64 - 1)
        fits = value == low or (signed and value == low - 2**64)
        if not fits:
            raise RuntimeFault(f"{len(piece)}-byte integer does not fit into Lua Integer")
        value = low - 2**64 if signed and low >= 2**63 else low
    return float(value)


for _function in (pack, packsize, unpack):
    install(f"string.{_function.__name__}", _function)
