"""The ``string`` library."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.limits import (
    BYTES_PER_STEP,
    ENTRY_BYTES,
    FILLED_BYTES,
    NATIVE_BYTES,
    STRING_BYTES,
    TABLE_BYTES,
)
from clawblox.luau.core.machine import call_unyieldable, charge_reading, current
from clawblox.luau.core.operators import MAX_STRING, account_text, index, join
from clawblox.luau.core.values import (
    LuaTable,
    NativeFunction,
    as_result,
    first,
    is_function,
    truth,
    type_name,
)
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.fastpatterns import PatternMatch, search

_PART_BYTES = 100  # charged per part of a split string
_SHORT_PATTERN = 32
_SPECIALS = frozenset("^$*+?.([%-")


def len_(*args: Any) -> float:
    """Return the number of bytes.

    Raises:
        RuntimeFault: The argument is not a string.
    """
    return float(len(arg.string(args, 0, "len")))


def sub(*args: Any) -> str:
    """Return a part of a string.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type.
    """
    text = arg.string(args, 0, "sub")
    start = arg.position(arg.integer(args, 1, "sub"), len(text))
    end = arg.position(arg.optional_integer(args, 2, "sub", -1), len(text))
    return account_text(text[max(start, 1) - 1 : end]) if end > 0 else ""


def upper(*args: Any) -> str:
    """Return a string in upper case; only ASCII letters change.

    Raises:
        RuntimeFault: The argument is not a string.
    """
    return _changed(arg.string(args, 0, "upper"), bytes.upper)


def lower(*args: Any) -> str:
    """Return a string in lower case; only ASCII letters change.

    Raises:
        RuntimeFault: The argument is not a string.
    """
    return _changed(arg.string(args, 0, "lower"), bytes.lower)


def _changed(text: str, change: Callable[[bytes], bytes]) -> str:
    charge_reading(len(text))
    return account_text(change(text.encode("latin-1")).decode("latin-1"))


def rep(*args: Any) -> str:
    """Return repetitions of a string.

    Raises:
        RuntimeFault: The first argument is not a string, the second is not a number, or the result
            is too long.
    """
    text = arg.string(args, 0, "rep")
    count = arg.integer(args, 1, "rep")
    size = len(text) * max(count, 0)
    if size >= MAX_STRING:
        raise RuntimeFault("resulting string too large")
    current.vm.allocate(size)
    return text * count


def reverse(*args: Any) -> str:
    """Return the reverse of a string.

    Raises:
        RuntimeFault: The argument is not a string.
    """
    return account_text(arg.string(args, 0, "reverse")[::-1])


def byte(*args: Any) -> Any:
    """Return the codes of a range of bytes.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, or there are too many bytes.
    """
    text = arg.string(args, 0, "byte")
    start = arg.position(arg.optional_integer(args, 1, "byte", 1), len(text))
    end = arg.position(arg.optional_integer(args, 2, "byte", start), len(text))
    part = text[max(start, 1) - 1 : max(end, 0)]
    arg.check_results(args, len(part), "string slice too long")
    charge_work(len(part) // 8)
    return as_result(tuple(map(float, part.encode("latin-1"))))


def char(*args: Any) -> str:
    """Return the string of byte codes.

    Raises:
        RuntimeFault: An argument is not a number, or a code is not from 0 to 255.
    """
    arg.charge(args)
    codes = [arg.integer(args, at, "char") for at in range(len(args))]
    for at, code in enumerate(codes):
        if not 0 <= code <= 255:
            arg.wrong(at, "char", "invalid value")
    return "".join(map(chr, codes))


def split(*args: Any) -> LuaTable:
    """Return the parts between separators.

    Raises:
        RuntimeFault: The first argument is not a string, or the second argument is neither nil nor
            a string.
    """
    text = arg.string(args, 0, "split")
    separator = arg.optional_string(args, 1, "split", ",")
    count = text.count(separator) + 1 if separator else len(text)
    current.vm.allocate(
        TABLE_BYTES + len(text) + (ENTRY_BYTES + STRING_BYTES) * count,
        FILLED_BYTES + len(text) + _PART_BYTES * count,
    )
    charge_work(count // 8)
    parts = text.split(separator) if separator else list(text)
    return LuaTable(zip(map(float, range(1, len(parts) + 1)), parts, strict=True))


# Patterns


def _search_arguments(args: arg.Arguments, function: str) -> tuple[str, str, int]:
    """Return the subject, the pattern, and the start position of the search, from 1."""
    text, pattern = arg.string(args, 0, function), arg.string(args, 1, function)
    start = arg.position(arg.optional_integer(args, 2, function, 1), len(text))
    return text, pattern, max(start, 1)


def find(*args: Any) -> Any:
    """Return the position of a pattern's first match, and its captures.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, the pattern is malformed, or too
            complex.
    """
    text, pattern, start = _search_arguments(args, "find")
    if start > len(text) + 1:
        return None
    if (len(args) > 3 and truth(args[3])) or _is_plain(pattern):
        charge_work((len(text) - start) // BYTES_PER_STEP)
        at = text.find(pattern, start - 1)
        return None if at < 0 else (float(at + 1), float(at + len(pattern)))
    matched = search(text, pattern, start - 1)
    if matched is None:
        return None
    return (float(matched.start + 1), float(matched.end), *matched.captures(whole=False))


def _is_plain(pattern: str) -> bool:
    """Return whether a pattern matches only itself."""
    if len(pattern) > _SHORT_PATTERN:
        charge_work(len(pattern) // _SHORT_PATTERN)
    return _SPECIALS.isdisjoint(pattern)


def match(*args: Any) -> Any:
    """Return the captures of a pattern, or its whole match.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type, the pattern is malformed, or too
            complex.
    """
    text, pattern, start = _search_arguments(args, "match")
    if start > len(text) + 1:
        return None
    matched = search(text, pattern, start - 1)
    return None if matched is None else as_result(matched.captures(whole=True))


@dataclass(slots=True, eq=False, repr=False)
class MatchIterator(NativeFunction):
    """The iterator that ``string.gmatch`` returns."""

    text: str
    pattern: str
    position: int = 0

    def held(self) -> tuple[Any, ...]:
        """Return the values that its state keeps alive."""
        return self.text, self.pattern

    def __call__(self, *_: Any) -> Any:
        """Return the captures of the next match, or nil."""
        if self.position > len(self.text):
            return ()
        matched = search(self.text, self.pattern, self.position, is_anchored=False)
        if matched is None:
            self.position = len(self.text) + 1
            return ()
        self.position = matched.end if matched.end > matched.start else matched.end + 1
        return as_result(matched.captures(whole=True))


def gmatch(*args: Any) -> MatchIterator:
    """Return an iterator over all matches.

    Raises:
        RuntimeFault: An argument is not a string.
    """
    current.vm.allocate(NATIVE_BYTES)
    return MatchIterator(arg.string(args, 0, "gmatch"), arg.string(args, 1, "gmatch"))


def gsub(*args: Any) -> tuple[str, float]:
    """Return a string with matches replaced, and the number of matches.

    Raises:
        RuntimeFault: An argument is of the wrong type, the pattern or the replacement is malformed,
            or the result is too long.
        LuaError: The replacement function fails.
    """
    text, pattern = arg.string(args, 0, "gsub"), arg.string(args, 1, "gsub")
    replacement = args[2] if len(args) > 2 else None
    if replacement.__class__ is float:
        replacement = arg.string(args, 2, "gsub")
    if not (isinstance(replacement, (str, LuaTable)) or is_function(replacement)):
        arg.wrong_type(args, 2, "gsub", "string/function/table")
    limit = arg.optional_integer(args, 3, "gsub", len(text) + 1)
    is_plain = isinstance(replacement, str) and _is_plain(pattern) and _is_plain(replacement)
    if is_plain and pattern and ")" not in pattern:
        assert isinstance(replacement, str)
        count = max(0, min(text.count(pattern), limit))
        charge_work(count // 8)
        current.vm.allocate(len(text) + count * len(replacement))
        return text.replace(pattern, replacement, count), float(count)
    pieces: list[str] = []
    position, count, copied = 0, 0, 0
    anchored = pattern.startswith("^")
    while count < limit:
        matched = search(text, pattern, position)
        if matched is None:
            break
        count += 1
        if not count & 15:
            current.vm.charge(32)
        pieces += (text[copied : matched.start], _replacement(replacement, matched))
        copied = matched.end
        position = matched.end
        if matched.start == matched.end:
            pieces.append(text[position : position + 1])
            position += 1
            copied = position
        if anchored or position > len(text):
            break
    pieces.append(text[copied:])
    size = sum(map(len, pieces))
    current.vm.allocate(size)
    if size >= MAX_STRING:
        raise RuntimeFault("resulting string too large")
    return "".join(pieces), float(count)


def _replacement(replacement: Any, matched: PatternMatch) -> str:
    whole = matched.text[matched.start : matched.end]
    if replacement.__class__ is str:
        return _expand(replacement, matched, whole)
    if isinstance(replacement, LuaTable):
        value = index(replacement, matched.capture(0))
    else:
        value = first(call_unyieldable(replacement, *matched.captures(whole=True)))
    if not truth(value):
        return whole
    if value.__class__ is float:
        return arg.string((value,), 0, "gsub")
    if value.__class__ is not str:
        raise RuntimeFault(f"invalid replacement value (a {type_name(value)})")
    return str(value)


def _expand(form: str, matched: PatternMatch, whole: str) -> str:
    if "%" not in form:
        return form
    charge_work(form.count("%") // 2)
    pieces = re.split("%(.?)", form, flags=re.DOTALL)
    pieces[1::2] = [_insertion(letter, matched, whole) for letter in pieces[1::2]]
    return join(pieces)


def _insertion(letter: str, matched: PatternMatch, whole: str) -> str:
    """Return the text that replaces ``%`` and a letter."""
    if letter == "0":
        return whole
    if "1" <= letter <= "9":
        return arg.string((matched.capture(int(letter) - 1),), 0, "gsub")
    if letter != "%":
        raise RuntimeFault("invalid use of '%' in replacement string")
    return "%"
