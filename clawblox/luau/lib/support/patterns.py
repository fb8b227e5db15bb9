"""Luau's string patterns: a backtracking matcher that charges each of its steps."""

from __future__ import annotations

import re
import string as ascii_text
from functools import lru_cache
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.limits import MOST_PATTERNS

MAX_CAPTURES = 32
MAX_DEPTH = 200
_ITEM = 5  # characters that cost as much as one item
_CHARACTERS_PER_STEP = 10
_BYTES_PER_CHARACTER = 64  # bytes copied and compared at the cost of one character
_CHARACTERS_PER_CHARGE = 1000
_OPEN, _POSITION = -1, -2
_ALL = frozenset(map(chr, range(256)))
_CLASSES = {
    "a": frozenset(ascii_text.ascii_letters),
    "c": frozenset(map(chr, [*range(32), 127])),
    "d": frozenset(ascii_text.digits),
    "g": frozenset(map(chr, range(33, 127))),
    "l": frozenset(ascii_text.ascii_lowercase),
    "p": frozenset(ascii_text.punctuation),
    "s": frozenset(" \t\n\r\v\f"),
    "u": frozenset(ascii_text.ascii_uppercase),
    "w": frozenset(ascii_text.ascii_letters + ascii_text.digits),
    "x": frozenset(ascii_text.hexdigits),
    "z": frozenset("\0"),
}

_BRACKETS = r"\[\^?+(?:%.|[^%])(?:%.|[^%\]])*\]"
_NEXT_ITEM = re.compile(
    rf"(?P<open>\(\)?)|(?P<close>\))|(?P<end>\$\Z)|%(?P<back>[0-9])|%b(?P<balance>..)"
    rf"|%f(?P<frontier>{_BRACKETS})|(?P<set>{_BRACKETS}|%[^bf0-9]|[^%\[])(?P<repeat>[*+?-]?)",
    re.DOTALL,
)
_MEMBER = re.compile("%.|.-.(?=.)|.(?=.)", re.DOTALL)  # of a set in brackets

Item = tuple[Any, ...]
"""A part of a pattern.

``("set", characters, repeat)`` with repeat one of ``""``, ``*``, ``+``, ``-``, ``?``;
``("open", is_position)``; ``("close",)``; ``("back", digit)``; ``("balance", a, b)``;
``("frontier", characters)``; ``("end",)``; ``("fail", message)`` for a fault, which is raised only
when the matcher reaches it, as in the reference.
"""


def read_pattern(pattern: str) -> list[Item]:
    """Return the items of a pattern without its ``^``."""
    items: list[Item] = []
    at = 0
    while at < len(pattern):
        match = _NEXT_ITEM.match(pattern, at)
        if match is None:
            return [*items, ("fail", _find_fault(pattern[at:]))]
        at = match.end()
        kind = match.lastgroup
        if kind == "repeat":
            items.append(("set", _characters(match["set"]), match["repeat"]))
        elif kind == "open":
            items.append(("open", match["open"] == "()"))
        elif kind == "frontier":
            items.append(("frontier", _characters(match["frontier"])))
        elif kind == "balance":
            items.append(("balance", *match["balance"]))
        else:
            items.append(("back", match["back"]) if kind == "back" else (kind,))
    return items


def _find_fault(rest: str) -> str:
    """Return the fault in the first item of the rest of a pattern."""
    if rest == "%":
        return "malformed pattern (ends with '%')"
    if rest.startswith("%b"):
        return "malformed pattern (missing arguments to '%b')"
    if rest.startswith("%f") and rest[2:3] != "[":
        return "missing '[' after '%f' in pattern"
    return "malformed pattern (missing ']')"


def _characters(text: str) -> frozenset[str]:
    """Return the characters that a character, ``.``, ``%a`` or a set in brackets matches."""
    if text[0] == "%":
        chosen = _CLASSES.get(text[1].lower())
        if chosen is None:
            return frozenset(text[1])
        return _ALL - chosen if text[1].isupper() else chosen
    if text[0] != "[":
        return _ALL if text == "." else frozenset(text)
    is_negated = text[1] == "^"
    members: set[str] = set()
    for member in _MEMBER.findall(text, 1 + is_negated):
        if member[0] == "%":
            members |= _characters(member)
        else:
            members.update(map(chr, range(ord(member[0]), ord(member[-1]) + 1)))
    return _ALL - members if is_negated else frozenset(members)


parse_pattern = lru_cache(maxsize=MOST_PATTERNS)(read_pattern)


class Matcher:
    """Matches a pattern at given positions of a subject."""

    def __init__(self, subject: str, items: list[Item]) -> None:
        self.subject = subject
        self._items = items
        self.captures: list[tuple[int, int]] = []  # (start, length), or _OPEN or _POSITION
        self._depth = 0
        self._gone_through = 0

    def match(self, start: int) -> int | None:
        """Return the end of a match that starts here, or None.

        Raises:
            RuntimeFault: The pattern is malformed or too complex.
            LuaError: The call has used up its steps, or the host has interrupted it.
        """
        self.captures = []
        self._depth = 0
        return self._match(start, 0)

    def _charge(self, characters: int) -> None:
        self._gone_through += characters
        if self._gone_through >= _CHARACTERS_PER_CHARGE:
            self.charge_rest()

    def charge_rest(self) -> None:
        """Charge the remaining uncharged work.

        Raises:
            LuaError: The call has used up its steps, or the host has interrupted it.
        """
        charge_work(self._gone_through // _CHARACTERS_PER_STEP)
        self._gone_through = 0

    def _match(self, at: int, item: int) -> int | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RuntimeFault("pattern too complex")
        try:
            return self._match_items(at, item)
        finally:
            self._depth -= 1

    def _match_items(self, at: int, item: int) -> int | None:
        subject, items = self.subject, self._items
        while item < len(items):
            self._charge(_ITEM)
            current = items[item]
            kind = current[0]
            if kind == "set":
                chosen, suffix = current[1], current[2]
                if suffix == "":
                    if at < len(subject) and subject[at] in chosen:
                        at += 1
                        item += 1
                        continue
                    return None
                if suffix == "?":
                    if at < len(subject) and subject[at] in chosen:
                        stop = self._match(at + 1, item + 1)
                        if stop is not None:
                            return stop
                    item += 1
                    continue
                if suffix == "-":
                    return self._shortest(at, item, chosen)
                if suffix == "+" and not (at < len(subject) and subject[at] in chosen):
                    return None
                return self._longest(at, item, chosen, 1 if suffix == "+" else 0)
            if kind == "open":
                return self._open(at, item, current[1])
            if kind == "close":
                return self._close(at, item)
            if kind == "end":
                if at != len(subject):
                    return None
            elif kind == "back":
                text = self._captured(current[1])
                if text is None or not subject.startswith(text, at):
                    return None
                at += len(text)
            elif kind == "balance":
                end = self._balance(at, current[1], current[2])
                if end is None:
                    return None
                at = end
            elif kind == "frontier":
                before = subject[at - 1] if at else "\0"
                after = subject[at] if at < len(subject) else "\0"
                if before in current[1] or after not in current[1]:
                    return None
            else:
                raise RuntimeFault(current[1])
            item += 1
        return at

    def _longest(self, at: int, item: int, chosen: frozenset[str], least: int) -> int | None:
        subject = self.subject
        end, size = at, len(subject)
        while end < size and subject[end] in chosen:
            end += 1
        self._charge(end - at)
        if item + 1 == len(self._items):
            return end
        while end >= at + least:
            stop = self._match(end, item + 1)
            if stop is not None:
                return stop
            end -= 1
        return None

    def _shortest(self, at: int, item: int, chosen: frozenset[str]) -> int | None:
        subject = self.subject
        while True:
            stop = self._match(at, item + 1)
            if stop is not None:
                return stop
            if at < len(subject) and subject[at] in chosen:
                at += 1
            else:
                return None

    def _open(self, at: int, item: int, is_position: bool) -> int | None:
        if len(self.captures) >= MAX_CAPTURES:
            raise RuntimeFault("too many captures")
        self.captures.append((at, _POSITION if is_position else _OPEN))
        stop = self._match(at, item + 1)
        if stop is None:
            self.captures.pop()
        return stop

    def _close(self, at: int, item: int) -> int | None:
        for index in range(len(self.captures) - 1, -1, -1):
            start, length = self.captures[index]
            if length == _OPEN:
                self.captures[index] = (start, at - start)
                stop = self._match(at, item + 1)
                if stop is None:
                    self.captures[index] = (start, _OPEN)
                return stop
        raise RuntimeFault("invalid pattern capture")

    def _captured(self, digit: str) -> str | None:
        """Return the text of a capture; None for a position, since positions never match."""
        index = ord(digit) - ord("1")
        if not 0 <= index < len(self.captures) or self.captures[index][1] == _OPEN:
            raise RuntimeFault(f"invalid capture index %{index + 1}")
        start, length = self.captures[index]
        self._charge(max(length, 0) // _BYTES_PER_CHARACTER)
        return None if length == _POSITION else self.subject[start : start + length]

    def _balance(self, at: int, opening: str, closing: str) -> int | None:
        subject = self.subject
        if at >= len(subject) or subject[at] != opening:
            return None
        depth = 1
        for end in range(at + 1, len(subject)):
            character = subject[end]
            if character == closing:
                depth -= 1
                if depth == 0:
                    self._charge(end - at)
                    return end + 1
            elif character == opening:
                depth += 1
        self._charge(len(subject) - at)
        return None

    def groups(self) -> tuple[str | float | None, ...]:
        """Return the captures of the last match: strings, positions, None if unfinished."""
        groups: list[str | float | None] = []
        for start, length in self.captures:
            if length == _POSITION:
                groups.append(float(start + 1))
            else:
                groups.append(None if length == _OPEN else self.subject[start : start + length])
        return tuple(groups)
