"""Searches for patterns with Python's ``re`` if that is exact and certainly fast.

``re`` cannot be interrupted, so it is used only for patterns whose worst case on the subject is
small. The charged matcher in `patterns` handles all others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.limits import BYTES_PER_STEP, MOST_PATTERNS
from clawblox.luau.core.machine import current
from clawblox.luau.lib.support.patterns import _ALL, Item, Matcher, parse_pattern, read_pattern

_LONG_PATTERN = 256  # longer patterns are parsed on each use, and never passed to `re`
_STEPS_TO_READ = 16
_STEPS_PER_CHARACTER = 6  # of a pattern that is read
_MAX_WORK = 1 << 22
_MAX_POWER = 22  # 2 to more than this is more than `_MAX_WORK`
_WORK_PER_STEP = 1 << 13  # generous, as the worst case is rare
_REPEAT = {"*": "*", "+": "+", "-": "*?", "?": "?"}


@dataclass(slots=True, eq=False)
class PatternMatch:
    """A match.

    Attributes:
        text: The subject.
        start, end: Its position in the subject.
        groups: The captures: strings, or positions as numbers; None for an unfinished capture.
    """

    text: str
    start: int
    end: int
    groups: tuple[str | float | None, ...]

    def captures(self, *, whole: bool) -> tuple[Any, ...]:
        """Return all captures; with ``whole``, the whole match if there are no captures.

        Raises:
            LuaError: A capture is unfinished, or the heap is full.
        """
        values = self.groups
        if not values and whole:
            values = (self.text[self.start : self.end],)
        if None in values:
            raise RuntimeFault("unfinished capture")
        if self.end - self.start >= BYTES_PER_STEP:
            current.vm.allocate(sum(len(value) for value in values if isinstance(value, str)))
        return values

    def capture(self, index: int) -> Any:
        """Return a capture; the first is the whole match if the pattern has no captures.

        Raises:
            RuntimeFault: The capture does not exist, or is unfinished.
        """
        if index == 0 and not self.groups:
            return self.text[self.start : self.end]
        if index >= len(self.groups):
            raise RuntimeFault("invalid capture index")
        value = self.groups[index]
        if value is None:
            raise RuntimeFault("unfinished capture")
        return value


class PatternExpression(NamedTuple):
    """A pattern as a regular expression.

    Attributes:
        expression: The compiled expression.
        positions: The numbers of the captures that are positions, from 1.
        power, choices: The worst case for n characters is n ** power * 2 ** choices.
    """

    expression: re.Pattern[str]
    positions: list[int]
    power: int
    choices: int

    def worst_case(self, size: int) -> int | None:
        """Return the worst-case work for a subject size; None if it is too much for ``re``."""
        if self.power <= 1 and not self.choices:
            return size
        if self.power > _MAX_POWER or self.choices > _MAX_POWER:
            return None
        work = max(size, 2) ** self.power << self.choices
        return work if work <= _MAX_WORK else None


def search(
    text: str, pattern: str, start: int, *, is_anchored: bool | None = None
) -> PatternMatch | None:
    """Return the first match at or after a position, or None.

    Args:
        text: The subject.
        pattern: The pattern; a leading ``^`` anchors it.
        start: The position, counted from 0.
        is_anchored: False to treat ``^`` as a character, like ``gmatch``; None to detect it.

    Raises:
        RuntimeFault: The pattern is malformed or too complex.
        LuaError: The call has used up its steps, or the host has interrupted it.
    """
    anchored = pattern.startswith("^") if is_anchored is None else is_anchored
    body = pattern[1:] if anchored else pattern
    if len(body) > _LONG_PATTERN:
        charge_work(_reading_steps(body))
        return _slow_search(text, read_pattern(body), start, anchored)
    if current.vm.is_new_pattern(body):
        charge_work(_reading_steps(body))
    program = _translate(body)
    worst = None if program is None else program.worst_case(len(text) - start)
    if program is not None and worst is not None:
        if worst >= _WORK_PER_STEP:
            charge_work(worst // _WORK_PER_STEP)
        expression = program.expression
        match = expression.match(text, start) if anchored else expression.search(text, start)
        if match is None:
            return None
        groups: list[Any] | tuple[Any, ...] = match.groups()
        if program.positions:
            groups = list(groups)
            for number in program.positions:
                groups[number - 1] = float(match.start(number) + 1)
        return PatternMatch(text, match.start(), match.end(), tuple(groups))
    return _slow_search(text, parse_pattern(body), start, anchored)


def _reading_steps(body: str) -> int:
    return _STEPS_TO_READ + _STEPS_PER_CHARACTER * len(body)


def _slow_search(text: str, items: list[Item], start: int, anchored: bool) -> PatternMatch | None:
    matcher = Matcher(text, items)
    for at in range(start, start + 1 if anchored else len(text) + 1):
        end = matcher.match(at)
        if end is not None:
            break
    matcher.charge_rest()
    return None if end is None else PatternMatch(text, at, end, matcher.groups())


@lru_cache(maxsize=MOST_PATTERNS)
def _translate(body: str) -> PatternExpression | None:
    items = parse_pattern(body)
    if any(item[0] in ("fail", "back", "balance") for item in items):
        return None
    parts: list[str] = []
    captures, opened = 0, 0
    positions: list[int] = []
    backtracking, repeats, choices = 0, 0, 0
    for at, item in enumerate(items):
        kind = item[0]
        if kind == "open":
            captures += 1
            if item[1]:
                positions.append(captures)
            parts.append("()" if item[1] else "(")
            opened += not item[1]
        elif kind == "close":
            opened -= 1
            if opened < 0:
                return None
            parts.append(")")
        elif kind == "end":
            parts.append(r"\Z")
        elif kind == "frontier":
            parts.append(_frontier(item[1]))
        else:
            part, is_backtracking = _repeated(item, items[at + 1 :])
            parts.append(part)
            if item[2] == "?":
                choices += is_backtracking
            elif item[2]:
                repeats += 1
                backtracking += is_backtracking
    if opened or captures > 32:
        return None
    power = backtracking + (1 if repeats and not _ends_open(items) else 0)
    power += 1 if repeats or choices else 0
    return PatternExpression(re.compile("".join(parts), re.DOTALL), positions, power, choices)


def _repeated(item: Item, rest: list[Item]) -> tuple[str, bool]:
    """Return the expression of an item, and whether it may be tried in several ways."""
    chosen, suffix = item[1], item[2]
    text = _set_text(chosen)
    if suffix == "":
        return text, False
    follow, can_end = _follow(rest)
    if suffix != "-" and (follow.isdisjoint(chosen) or (can_end and not follow)):
        return f"{text}{suffix}+", False  # possessive, because backtracking cannot help
    return text + _REPEAT[suffix], True


def _follow(rest: list[Item]) -> tuple[frozenset[str], bool]:
    """Return the characters that can come next, and whether the pattern can end before them."""
    follow: frozenset[str] = frozenset()
    for item in rest:
        if item[0] in ("open", "close"):
            continue
        if item[0] == "end":
            return follow, True
        if item[0] != "set":
            return _ALL, False
        follow |= item[1]
        if item[2] in ("", "+"):
            return follow, False
    return (follow, True) if not follow else (_ALL, True)


def _ends_open(items: list[Item]) -> bool:
    """Return whether the last item is the only repeat, so each start fails immediately."""
    sets = [item for item in items if item[0] not in ("open", "close")]
    return (
        bool(sets)
        and all(item[0] == "set" and item[2] == "" for item in sets[:-1])
        and (sets[-1][0] == "set")
    )


def _frontier(chosen: frozenset[str]) -> str:
    text = _set_text(chosen)
    before = f"(?<!{text})" if "\0" not in chosen else f"(?<!{text})(?<!^)(?!\\A)"
    after = f"(?={text}|\\Z)" if "\0" in chosen else f"(?={text})"
    return before + after


@lru_cache(maxsize=1024)
def _set_text(chosen: frozenset[str]) -> str:
    if len(chosen) == 256:
        return r"[\s\S]"
    if not chosen:
        return r"(?!)"
    if len(chosen) == 1:
        return re.escape(next(iter(chosen)))
    negated = len(chosen) > 128
    listed = sorted(_ALL - chosen if negated else chosen)
    body = "".join(f"\\x{ord(character):02x}" for character in listed)
    return f"[{'^' if negated else ''}{body}]"
