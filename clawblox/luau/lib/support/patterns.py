"""Luau's string patterns: a backtracking matcher that charges each of its steps."""

from __future__ import annotations

import string as ascii_text
from functools import lru_cache
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.limits import MOST_PATTERNS

MAX_CAPTURES = 32
MAX_DEPTH = 200
_ITEM = 5  # characters that take as long as one item
_CHARACTERS_PER_STEP = 10
_BYTES_PER_CHARACTER = 64  # bytes whose copying and comparing take as long as one character
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

Item = tuple[Any, ...]  # (kind, …): see `_Parser`


def class_set(letter: str) -> frozenset[str] | None:
    """Return the characters of a class such as ``%a``; None for an escaped character."""
    chosen = _CLASSES.get(letter.lower())
    if chosen is None:
        return None
    return _ALL - chosen if letter.isupper() else chosen


class _Parser:
    """Turns a pattern into items.

    ``("set", characters, repeat)`` with repeat one of ``""``, ``*``, ``+``, ``-``, ``?``;
    ``("open", is_position)``; ``("close",)``; ``("back", digit)``; ``("balance", a, b)``;
    ``("frontier", characters)``; ``("end",)``; ``("fail", message)`` where the pattern is wrong,
    which the reference reports only when it gets there.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self.items: list[Item] = []

    def parse(self) -> list[Item]:
        try:
            while self._at < len(self._pattern):
                self._read_item()
        except RuntimeFault as fault:
            self.items.append(("fail", fault.value))
        return self.items

    def _read_item(self) -> None:
        pattern = self._pattern
        character, following = pattern[self._at], pattern[self._at + 1 : self._at + 2]
        if character == "(":
            is_position = following == ")"
            self._at += 2 if is_position else 1
            self.items.append(("open", is_position))
        elif character == ")":
            self._at += 1
            self.items.append(("close",))
        elif character == "$" and not following:
            self._at += 1
            self.items.append(("end",))
        elif character == "%" and following in tuple("bf0123456789"):
            self._at += 2
            self._read_special(following)
        else:
            self._read_set()

    def _read_special(self, letter: str) -> None:
        if letter == "b":
            pair = self._pattern[self._at : self._at + 2]
            if len(pair) < 2:
                raise RuntimeFault("malformed pattern (missing arguments to '%b')")
            self._at += 2
            self.items.append(("balance", *pair))
        elif letter == "f":
            if self._pattern[self._at : self._at + 1] != "[":
                raise RuntimeFault("missing '[' after '%f' in pattern")
            self.items.append(("frontier", self._bracket()))
        else:
            self.items.append(("back", letter))

    def _read_set(self) -> None:
        pattern = self._pattern
        character = pattern[self._at]
        if character == "[":
            chosen = self._bracket()
        elif character == "%":
            letter = pattern[self._at + 1 : self._at + 2]
            if not letter:
                raise RuntimeFault("malformed pattern (ends with '%')")
            self._at += 2
            chosen = class_set(letter) or frozenset(letter)
        else:
            self._at += 1
            chosen = _ALL if character == "." else frozenset(character)
        suffix = pattern[self._at : self._at + 1]
        repeat = suffix if suffix in tuple("*+-?") else ""
        self._at += len(repeat)
        self.items.append(("set", chosen, repeat))

    def _bracket(self) -> frozenset[str]:
        pattern = self._pattern
        at = self._at + 1
        negated = pattern[at : at + 1] == "^"
        at += negated
        end = self._bracket_end(at)
        chosen: set[str] = set()
        while at < end:
            character = pattern[at]
            if character == "%":
                chosen |= class_set(pattern[at + 1]) or frozenset(pattern[at + 1])
                at += 2
            elif pattern[at + 1] == "-" and at + 2 < end:
                chosen.update(map(chr, range(ord(character), ord(pattern[at + 2]) + 1)))
                at += 3
            else:
                chosen.add(character)
                at += 1
        self._at = end + 1
        return _ALL - chosen if negated else frozenset(chosen)

    def _bracket_end(self, at: int) -> int:
        """Return the place of a set's ``]``: neither its first character nor behind a ``%``."""
        first = at
        while at < len(self._pattern):
            character = self._pattern[at]
            if character == "]" and at > first:
                return at
            at += 2 if character == "%" else 1
        raise RuntimeFault("malformed pattern (missing ']')")


def read_pattern(pattern: str) -> list[Item]:
    """Return the items of a pattern without its ``^``."""
    return _Parser(pattern).parse()


parse_pattern = lru_cache(maxsize=MOST_PATTERNS)(read_pattern)


class Matcher:
    """Matches one pattern at one place of a subject at a time."""

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
        """Charge the work that is not charged yet.

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
        """Return the text of a capture; None for a position: it matches nothing."""
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
