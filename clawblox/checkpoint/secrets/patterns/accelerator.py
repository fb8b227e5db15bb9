"""Skips texts in which no rule can match, if the package ``google-re2`` is installed.

RE2 searches for all rules in a single pass, but does not support lookaround. Each pattern is
therefore widened: it matches wherever the rule does, and perhaps elsewhere. A text without a match
is skipped; all other texts are searched as without RE2. RE2 does not block other threads.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from clawblox.checkpoint.secrets.patterns.rules import CONTEXT_RULES, WORD_RULES

_FLAGS: Final = re.IGNORECASE | re.DOTALL
_BYTES: Final = frozenset(range(256))
_MAX_REPEATS: Final = 16
"""Maximum number of repetitions in a pattern, which keeps RE2's automaton small."""


class Untranslatable(Exception):  # noqa: N818 - names the condition
    """A pattern uses a construct that cannot be widened, so RE2 must not be used."""


def can_match(text: bytes) -> bool:
    """Return whether a rule may match in a text; False is certain, True is not."""
    search = _search()
    return search is None or bool(search(text))


@functools.cache
def _search() -> Callable[[bytes], object] | None:
    try:
        re2 = importlib.import_module("re2")
        rules = (*WORD_RULES, *CONTEXT_RULES)
        pattern = b"|".join(widen_pattern(rule.pattern) for rule in rules)
    except (ImportError, Untranslatable):
        return None
    try:
        return _compile(re2, pattern)
    except AttributeError:  # another package with this name
        return None
    except re2.error:  # too large for RE2
        return None


def _compile(re2: Any, pattern: bytes) -> Callable[[bytes], object]:  # noqa: ANN401
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # each byte is a character
    options.log_errors = False
    # Not re2.Set, which reads to the end after a match and is a hundred times as slow on text that
    # nearly matches.
    search: Callable[[bytes], object] = re2.compile(pattern, options).search
    return search


def widen_pattern(pattern: re.Pattern[bytes]) -> bytes:
    """Return a pattern for RE2, in Latin-1, that matches at least the same texts.

    Raises:
        Untranslatable: The pattern uses a construct that cannot be widened.
    """
    if pattern.flags & ~_FLAGS:
        raise Untranslatable
    parser: Any = importlib.import_module("re._parser")  # the name of sre_parse since 3.11
    return _sequence(parser.parse(pattern.pattern, pattern.flags), pattern.flags)


def _sequence(items: Iterable[Any], flags: int) -> bytes:
    return b"".join(_item(str(operation), argument, flags) for operation, argument in items)


def _item(operation: str, argument: Any, flags: int) -> bytes:  # noqa: ANN401
    match operation, argument:
        case "AT" | "ASSERT" | "ASSERT_NOT", _:
            return b""  # conditions may be dropped
        case "BRANCH", (_, branches):
            return b"(?:" + b"|".join(_sequence(branch, flags) for branch in branches) + b")"
        case "SUBPATTERN", (_, added, removed, items):
            return b"(?:" + _sequence(items, (flags | added) & ~removed) + b")"
        case "MAX_REPEAT" | "MIN_REPEAT", (least, _, items):
            return b"(?:%s){%d,}" % (_sequence(items, flags), min(least, _MAX_REPEATS))
    characters = sorted(_characters(operation, argument, flags))
    return b"[" + b"".join(b"\\x%02x" % byte for byte in characters) + b"]"


def _characters(operation: str, argument: Any, flags: int) -> frozenset[int]:  # noqa: ANN401
    """Return the bytes matched by a pattern of a single character."""
    match operation, argument:
        case "LITERAL", byte:
            return _with_case({byte}, flags)
        case "RANGE", (first, last):
            return _with_case(range(first, last + 1), flags)
        case "NOT_LITERAL", byte:
            return _BYTES - _with_case({byte}, flags)
        case "ANY", _:
            return _BYTES if flags & re.DOTALL else _BYTES - {ord("\n")}
        case "CATEGORY", category:
            return _category(str(category))
        case "IN", [(negate, _), *items] if str(negate) == "NEGATE":
            return _BYTES - _characters("IN", items, flags)
        case "IN", items:
            return frozenset().union(*(_characters(str(item), of, flags) for item, of in items))
    raise Untranslatable(operation)


def _with_case(characters: Iterable[int], flags: int) -> frozenset[int]:
    if not flags & re.IGNORECASE:
        return frozenset(characters)
    letters = bytes(characters)
    return frozenset(letters.lower() + letters.upper())


def _category(name: str) -> frozenset[int]:
    pattern = _CATEGORIES.get(name)
    if pattern is None:
        raise Untranslatable(name)
    return frozenset(byte for byte in _BYTES if pattern.match(bytes((byte,))))


_CATEGORIES: Final = {
    "CATEGORY_DIGIT": re.compile(rb"\d"),
    "CATEGORY_NOT_DIGIT": re.compile(rb"\D"),
    "CATEGORY_SPACE": re.compile(rb"\s"),
    "CATEGORY_NOT_SPACE": re.compile(rb"\S"),
    "CATEGORY_WORD": re.compile(rb"\w"),
    "CATEGORY_NOT_WORD": re.compile(rb"\W"),
}
