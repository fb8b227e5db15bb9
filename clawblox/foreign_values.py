"""Text, numbers and JSON from other programs, made safe to keep and to write again. Pure.

Programs, worlds, archives and foreign files may contain values that Python can read but not write:
lone surrogates, integers with thousands of digits, NaN, lists a thousand levels deep. Every foreign
value passes through one of these functions before clawblox stores it, so that all later writers
succeed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

MAX_TEXT_CHARS: Final = 1 << 20
"""Default limit for the length of a text, in characters."""

MAX_DEPTH: Final = 64
"""Default limit for the nesting of a JSON value; every parser and encoder supports more."""

MAX_MEMBERS: Final = 1 << 20
"""Default limit for the number of values in a JSON value, over all levels."""

MAX_NUMBER: Final = 2**53
"""Default limit for a number; a double represents every integer up to this."""

_CUT: Final = "..."
_INT64: Final = range(-(2**63), 2**64)
"""Integers that every JSON library can read and write."""
_TEXT: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TEXT_BYTES: Final = re.compile(_TEXT.pattern.encode(), re.DOTALL)
"""A text in a JSON document."""

_ENCODER: Final = json.JSONEncoder(allow_nan=False)


def clean_text(text: str, *, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return a text that can be encoded as UTF-8 and is not too long.

    Halves of surrogate pairs are joined; a lone surrogate becomes U+FFFD.

    Args:
        text: Any text.
        max_chars: Maximum length in characters; the rest is replaced by ``...``.
    """
    if len(text) > max_chars:
        text = text[: max(0, max_chars - len(_CUT))] + _CUT
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_value(
    value: object,
    *,
    max_depth: int = MAX_DEPTH,
    max_chars: int = MAX_TEXT_CHARS,
    max_members: int = MAX_MEMBERS,
) -> Any:  # noqa: ANN401 - a JSON value
    """Return a value as JSON that every JSON library can write and read.

    A number that is not finite becomes None, an integer beyond 64 bits becomes a float, and a value
    that is not JSON becomes its text. Parts beyond a limit are left out.

    Args:
        value: Any value.
        max_depth: Maximum nesting; deeper lists and objects become None.
        max_chars: Maximum length of each text in characters.
        max_members: Maximum number of values, over all levels; later ones are left out.
    """
    return _Cleaner(max_chars, max_members).clean(value, max_depth)


class _Cleaner:
    def __init__(self, max_chars: int, max_members: int) -> None:
        self._max_chars = max_chars
        self._members_left = max_members

    def clean(self, value: object, depth: int) -> Any:  # noqa: ANN401 - a JSON value
        self._members_left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return clean_text(str(value), max_chars=self._max_chars)
        if isinstance(value, int | float):
            return _clean_number(value)
        if isinstance(value, Mapping):
            return self._clean_object(value, depth - 1) if depth > 0 else None
        if isinstance(value, list | tuple):
            return self._clean_list(value, depth - 1) if depth > 0 else None
        return clean_text(_text(value), max_chars=self._max_chars)

    def _clean_object(self, value: Mapping[Any, object], depth: int) -> dict[str, Any]:
        cleaned = {}
        for key, member in value.items():
            if self._members_left <= 0:
                break
            name = key if isinstance(key, str) else _text(key)
            cleaned[clean_text(name, max_chars=self._max_chars)] = self.clean(member, depth)
        return cleaned

    def _clean_list(self, value: list[object] | tuple[object, ...], depth: int) -> list[Any]:
        cleaned = []
        for member in value:
            if self._members_left <= 0:
                break
            cleaned.append(self.clean(member, depth))
        return cleaned


def _clean_number(value: float) -> int | float | None:
    if isinstance(value, int):
        if value in _INT64:
            return int(value)
        try:
            return float(value)
        except OverflowError:
            return None
    return float(value) if math.isfinite(value) else None


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a foreign `__str__` may raise anything
        return f"<{type(value).__name__}>"


def parse_json(
    data: bytes | str,
    *,
    max_bytes: int | None = None,
    max_members: int = MAX_MEMBERS,
) -> Any:  # noqa: ANN401 - a JSON value
    """Parse JSON from another program, and clean it as :func:`clean_value` does.

    NaN and numbers that a double cannot represent become None.

    Args:
        data: The document, in UTF-8; bytes that are not UTF-8 become U+FFFD.
        max_bytes: Maximum length in bytes; None means no limit.
        max_members: Maximum number of values, over all levels.

    Raises:
        ValueError: The document is too long, not JSON, nested beyond what the parser supports, or
            has too many values.
    """
    if max_bytes is not None and len(data) > max_bytes:
        raise ValueError(f"it is longer than {max_bytes} bytes")
    require_few_members(data, max_members)
    text = data.decode(errors="replace") if isinstance(data, bytes) else data
    try:
        value = json.loads(text, parse_int=_parse_int, parse_constant=_drop_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return clean_value(value)


def parse_document(data: bytes | str, *, max_members: int = MAX_MEMBERS) -> Any:  # noqa: ANN401 - a JSON value
    """Parse JSON that will be written again, keeping its texts unchanged.

    Only NaN and numbers that a double cannot represent are changed: they become None.

    Args:
        data: The document; the caller must limit its size.
        max_members: Maximum number of values, over all levels.

    Raises:
        ValueError: The document is not JSON, nested beyond what the parser supports, or has too
            many values.
    """
    require_few_members(data, max_members)
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), _AS_JSON_DOES)
    try:
        return _DOCUMENT_DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_object(data: bytes, *, max_members: int = MAX_MEMBERS) -> dict[str, Any] | None:
    """Return a JSON object, parsed as by :func:`parse_document`; None for other documents.

    Args:
        data: The document; bytes that are not UTF-8 become U+FFFD. The caller must limit its size.
        max_members: Maximum number of values, over all levels; an object with more is not parsed.
    """
    try:
        value = parse_document(data.decode(errors="replace"), max_members=max_members)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def require_few_members(data: bytes | str, max_members: int = MAX_MEMBERS) -> None:
    """Refuse a JSON document with too many values before creating the values.

    A value takes two bytes in a document but dozens of bytes in memory: 64 MB of ``[],[],`` take 2
    GB.

    Args:
        data: The document.
        max_members: Maximum number of values, over all levels.

    Raises:
        ValueError: The document has more values.
    """
    if len(data) <= max_members or _count_marks(data) <= max_members:
        return
    # Many of the marks may be punctuation within texts, so count again without them.
    if isinstance(data, bytes):
        bare: bytes | str = _TEXT_BYTES.sub(b"", data)
    else:
        bare = _TEXT.sub("", data)
    if _count_marks(bare) > max_members:
        raise ValueError(f"it has more than {max_members} values")


def _count_marks(data: bytes | str) -> int:
    """Return the number of commas and opening brackets: at least the number of values minus one."""
    if isinstance(data, bytes):
        return data.count(b",") + data.count(b"[") + data.count(b"{")
    return data.count(",") + data.count("[") + data.count("{")


def _parse_int(text: str) -> int | float:
    # Python refuses integers of more than 4,300 digits, and with them the whole document.
    return int(text) if len(text) <= len(str(MAX_NUMBER)) + 4 else float(text)


def _parse_whole(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:  # it has more than 4,300 digits
        return _parse_float(text)


def _parse_float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _drop_constant(_text: str) -> None:
    """Replace ``NaN`` and ``Infinity`` by None."""


_AS_JSON_DOES: Final = "surrogatepass"
_DOCUMENT_DECODER: Final = json.JSONDecoder(
    parse_int=_parse_whole, parse_float=_parse_float, parse_constant=_drop_constant
)
"""Shared decoder; :func:`json.loads` would create one for each call, at twice the cost."""


def finite_number(value: object, *, low: float = 0.0, high: float = MAX_NUMBER) -> float | None:
    """Return a foreign number, or None if it is not a finite number within the limits.

    Args:
        value: Any value; True and False are not numbers.
        low: Smallest allowed value.
        high: Largest allowed value.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # NaN compares false; a whole number of any size compares exactly.
    return float(value) if low <= value <= high else None


def whole_number(value: object, *, low: int = 0, high: int = MAX_NUMBER) -> int | None:
    """Return a foreign integer, or None if it is not an integer within the limits.

    Args:
        value: Any value; True, False and floats do not count as integers.
        low: Smallest allowed value.
        high: Largest allowed value.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return int(value) if low <= value <= high else None


def encode_line(value: object) -> bytes:
    """Return a value as one line of JSON in ASCII, with its newline.

    The value is cleaned by :func:`clean_value` first, so every JSON library can read the line.
    """
    return _ENCODER.encode(clean_value(value)).encode("ascii") + b"\n"
