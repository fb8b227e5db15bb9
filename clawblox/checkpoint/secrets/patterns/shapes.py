"""Searching one piece of content for the shapes of :mod:`rules`, cheaply where there is nothing.

Pure. Regular expressions are tried only where a rule's literal stands, and most literals are
looked for only in the long words of a text, which are a small part of it. Every call into C is
short, because it keeps the interpreter from all other threads.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from clawblox.checkpoint.secrets.patterns.plausible import SAMPLES
from clawblox.checkpoint.secrets.patterns.rules import CONTEXT_RULES, WORD_RULES, Rule

__all__ = [
    "ALNUM",
    "Match",
    "character_mask",
    "find_shapes",
    "fold",
    "is_unmarked",
    "is_word",
    "long_words",
    "occurrences",
    "runs_of",
]

_MIN_WORD: Final = 15
"""No token of :data:`WORD_RULES` has a shorter run of letters, digits, ``_`` and ``-``."""

_WORD_LEAD: Final = 12
"""So many bytes before a long word are kept: the longest part of a keyword outside of it."""

_SOME: Final = 256
_GAP: Final = b" "


def character_mask(characters: bytes) -> bytes:
    """Return a table that translates these characters to ``A``, all others to a blank."""
    return bytes(ord("A") if byte in characters else ord(_GAP) for byte in range(256))


ALNUM: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_WORD_MASK: Final = character_mask(ALNUM + b"_-")
_FOLDED: Final = bytes(range(256)).lower().translate(bytes.maketrans(b"\"'\\", b"==="))


@attrs.frozen(kw_only=True)
class Match:
    """A secret in a piece of content.

    Attributes:
        rule: Name of the rule.
        start: Where it begins in that piece.
        end: Where it ends.
        secret: Itself.
        rank: Which match counts where two overlap: the smaller one.
    """

    rule: str
    start: int
    end: int
    secret: bytes = attrs.field(repr=False)
    rank: int


def find_shapes(text: bytes, words: bytes) -> Iterator[Match]:
    """Yield what looks like a credential in ``text``, in no order; matches can overlap.

    Args:
        text: What is searched.
        words: Its :func:`long_words`.
    """
    if is_unmarked(text):
        yield from _find_keywords(_UNMARKED, text, fold(text))
        return
    for keyword in _word_keywords_in(words):
        yield from _find(_BY_WORD[keyword], keyword, text, text)
    for rule in _HINTED:
        if rule.hint and rule.hint.search(words):
            yield from (_match(rule, found) for found in rule.pattern.finditer(text))
    if _has_text(text):
        yield from _find_keywords(_BY_CONTEXT, text, fold(text))


def long_words(text: bytes) -> bytes:
    """Return the long words of a text, a line each, with what stands directly before them."""
    if is_unmarked(text):
        return text
    runs = runs_of(_WORD_MASK, _MIN_WORD, text)
    return b"\n".join([text[max(0, start - _WORD_LEAD) : end] for start, end in runs])


def is_unmarked(text: bytes) -> bool:
    """Return whether a text has nothing but letters, digits, ``+`` and ``/``: pure base64."""
    start = text[:_SOME]  # mostly enough to see that there is more
    return not (
        start.translate(None, _UNMARKED_CHARACTERS) or text.translate(None, _UNMARKED_CHARACTERS)
    )


def _has_text(text: bytes) -> bool:
    return _PRINTABLE_RUN in text.translate(_PRINTABLE_MASK)


def is_word(literal: bytes) -> bool:
    """Return whether a literal, wherever it stands, is within a line of :func:`long_words`."""
    return len(literal) >= _MIN_WORD and _GAP not in literal.translate(_WORD_MASK)


def fold(text: bytes) -> bytes:
    """Return the text in lower case, with ``=`` for quotes and backslashes: same length."""
    return text.translate(_FOLDED)


def occurrences(literal: bytes, text: bytes) -> Iterator[int]:
    """Yield where a literal begins in a text."""
    at = text.find(literal)
    while at >= 0:
        yield at
        at = text.find(literal, at + 1)


def runs_of(mask: bytes, length: int, text: bytes, begin: int = 0) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of characters of a kind that is long enough.

    Args:
        mask: Translates the kind to ``A``, everything else to a blank.
        length: The shortest run.
        text: What is searched.
        begin: Where the search begins.
    """
    masked = text.translate(mask)
    run = b"A" * length
    start = masked.find(run, begin)
    while start >= 0:
        end = masked.find(_GAP, start + length)
        end = len(masked) if end < 0 else end
        yield start, end
        start = masked.find(run, end)


def _word_keywords_in(words: bytes) -> list[bytes]:
    parts = words.translate(_SEPARATORS_AS_BLANKS).split()
    begun = [] if _BY_PART.keys().isdisjoint(parts) else _BY_PART.keys() & parts
    candidates = {keyword for part in begun for keyword in _BY_PART[part]}
    return [keyword for keyword in (*candidates, *_UNDIVIDED) if keyword in words]


def _find_keywords(
    keywords: Mapping[bytes, Sequence[Rule]], text: bytes, indexed: bytes
) -> Iterator[Match]:
    for keyword, rules in keywords.items():
        if keyword in indexed:
            yield from _find(rules, keyword, text, indexed)


def _find(rules: Iterable[Rule], keyword: bytes, text: bytes, indexed: bytes) -> Iterator[Match]:
    for at in occurrences(keyword, indexed):
        for rule in rules:
            if found := rule.pattern.match(text, at):
                match = _match(rule, found)
                if match.secret not in SAMPLES and (rule.check is None or rule.check(match.secret)):
                    yield match


def _match(rule: Rule, found: re.Match[bytes]) -> Match:
    group = found.lastindex or 0
    start, end = found.span(group)
    return Match(rule=rule.name, start=start, end=end, secret=found[group], rank=rule.rank)


def _by_keyword(rules: Iterable[Rule]) -> Mapping[bytes, list[Rule]]:
    found: defaultdict[bytes, list[Rule]] = defaultdict(list)
    for rule in rules:
        for keyword in rule.keywords:
            found[keyword].append(rule)
    return dict(found)


def _by_part(keywords: Iterable[bytes]) -> Mapping[bytes, list[bytes]]:
    # A set of words is compared in one step, however many keywords there are. A letter or digit
    # may touch the first part: of a JSON newline, or a length in a binary file.
    found: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for keyword in keywords:
        if part := _FIRST_PART.match(keyword):
            for before in (b"", *(bytes((byte,)) for byte in ALNUM)):
                found[before + part[0]].append(keyword)
    return dict(found)


_FIRST_PART: Final = re.compile(rb"[A-Za-z0-9]+(?=[^A-Za-z0-9])")
_SEPARATORS_AS_BLANKS: Final = bytes(byte if byte in ALNUM else ord(_GAP) for byte in range(256))
_BY_WORD: Final = _by_keyword(WORD_RULES)
_BY_PART: Final = _by_part(_BY_WORD)
_UNDIVIDED: Final = tuple(keyword for keyword in _BY_WORD if not _FIRST_PART.match(keyword))
_BY_CONTEXT: Final = _by_keyword(CONTEXT_RULES)
_UNMARKED_CHARACTERS: Final = ALNUM + b"+/\r\n"
_UNMARKED: Final = {
    fold(keyword): rules
    for keyword, rules in (*_BY_WORD.items(), *_BY_CONTEXT.items())
    if not keyword.translate(None, ALNUM)
}
_PRINTABLE_MASK: Final = character_mask(bytes(range(0x20, 0x7F)) + b"\t\r\n")
_PRINTABLE_RUN: Final = b"A" * 14
"""Shorter than any match of :data:`CONTEXT_RULES`."""

_HINTED: Final = tuple(rule for rule in WORD_RULES if rule.hint)
