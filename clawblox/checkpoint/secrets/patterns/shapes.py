"""Searches a piece of content for the shapes of :mod:`rules`; cheap if it has none.

Pure. Regular expressions are tried only at a rule's literal, and most literals are searched only in
the long words of a text, a small part of the whole. Every call into C is short, because it blocks
all other threads.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from clawblox.checkpoint.secrets.patterns.plausible import is_placeholder, is_published
from clawblox.checkpoint.secrets.patterns.rules import CONTEXT_RULES, ESCAPES, WORD_RULES, Rule

_MIN_WORD: Final = 15
"""Minimum length of the run of letters, digits, ``_`` and ``-`` in tokens of :data:`WORD_RULES`."""

_WORD_LEAD: Final = 20
"""Bytes to keep before a long word, for the start of a keyword and an escape."""

_SOME: Final = 256
_GAP: Final = b" "
_MAX_CONTINUATION: Final = 4 << 10
_CONTINUATION: Final = re.compile(rb"[\w.+/=~%%:-]{1,%d}" % _MAX_CONTINUATION)
_PEM_BEGIN: Final = b"-----BEGIN "
_PEM_CONTINUATION: Final = re.compile(
    rb"[A-Za-z0-9+/=\s\\\"']{0,%d}(?:(?:(?!-----(?:BEGIN|END) ).){0,%d}[A-Za-z0-9+/]{20})?"
    % (_MAX_CONTINUATION, _MAX_CONTINUATION),
    re.DOTALL,
)
"""Pattern of the lines of a private key and of the text between them."""


def character_mask(characters: bytes) -> bytes:
    """Return a translation table from these characters to ``A`` and from all others to a blank."""
    return bytes(ord("A") if byte in characters else ord(_GAP) for byte in range(256))


ALNUM: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_WORD_MASK: Final = character_mask(ALNUM + b"_-")
_FOLDED: Final = bytes(range(256)).lower().translate(bytes.maketrans(b"\"'\\", b"==="))


@attrs.frozen(kw_only=True)
class SecretMatch:
    """A secret in a piece of content.

    Attributes:
        rule: Name of the rule.
        start: Start of the secret in the piece.
        end: End of the secret.
        secret: The secret.
        rank: Of two overlapping matches, the smaller rank wins.
    """

    rule: str
    start: int
    end: int
    secret: bytes = attrs.field(repr=False)
    rank: int


def find_shapes(text: bytes, words: bytes) -> Iterator[SecretMatch]:
    """Yield all apparent credentials in a text, unordered; matches may overlap.

    Args:
        text: The text to search.
        words: Its :func:`long_words`.
    """
    if is_unmarked(text):
        yield from _find_keywords(_UNMARKED, text, fold(text))
        return
    for keyword in _word_keywords_in(words):
        yield from _find(_BY_WORD[keyword], keyword, text, text)
    for rule in _HINTED:
        if rule.hint and rule.hint.search(words):
            yield from _secrets(rule, b"", rule.pattern.finditer(text), text)
    if _PRINTABLE_RUN in text.translate(_PRINTABLE_MASK):
        yield from _find_keywords(_BY_CONTEXT, text, fold(text))


def long_words(text: bytes) -> bytes:
    """Return the long words of a text, each on a line with the directly preceding bytes."""
    if is_unmarked(text):
        return text
    runs = find_runs(_WORD_MASK, _MIN_WORD, text)
    return b"\n".join([text[max(0, start - _WORD_LEAD) : end] for start, end in runs])


def is_unmarked(text: bytes) -> bool:
    """Return whether a text is pure base64: letters, digits, ``+``, ``/`` and line ends."""
    start = text[:_SOME]  # usually sufficient
    return not (
        start.translate(None, _UNMARKED_CHARACTERS) or text.translate(None, _UNMARKED_CHARACTERS)
    )


def is_word(literal: bytes) -> bool:
    """Return whether every occurrence of a literal is inside a line of :func:`long_words`."""
    return len(literal) >= _MIN_WORD and _GAP not in literal.translate(_WORD_MASK)


def fold(text: bytes) -> bytes:
    """Return the text in lower case, with ``=`` for quotes and backslashes, of the same length."""
    return text.translate(_FOLDED)


def occurrences(literal: bytes, text: bytes) -> Iterator[int]:
    """Yield every position of a literal in a text; occurrences may overlap."""
    at = text.find(literal)
    while at >= 0:
        yield at
        at = text.find(literal, at + 1)


def find_runs(mask: bytes, length: int, text: bytes, begin: int = 0) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of certain characters with a minimum length.

    Args:
        mask: Translates these characters to ``A``, all others to a blank.
        length: Minimum length of a run.
        text: The text to search.
        begin: Start of the search.
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
    parts = [*words.translate(_SEPARATORS_AS_BLANKS).split(), *_AFTER_ESCAPE.findall(words)]
    begun = [] if _BY_PART.keys().isdisjoint(parts) else _BY_PART.keys() & parts
    candidates = {keyword for part in begun for keyword in _BY_PART[part]}
    return [keyword for keyword in (*candidates, *_UNDIVIDED) if keyword in words]


def _find_keywords(
    keywords: Mapping[bytes, Sequence[Rule]], text: bytes, indexed: bytes
) -> Iterator[SecretMatch]:
    for keyword, rules in keywords.items():
        if keyword in indexed:
            yield from _find(rules, keyword, text, indexed)


def _find(
    rules: Iterable[Rule], keyword: bytes, text: bytes, indexed: bytes
) -> Iterator[SecretMatch]:
    for rule in rules:
        hits = (rule.pattern.match(text, at) for at in occurrences(keyword, indexed))
        yield from _secrets(rule, keyword, filter(None, hits), text)


def _secrets(
    rule: Rule, keyword: bytes, hits: Iterable[re.Match[bytes]], text: bytes
) -> Iterator[SecretMatch]:
    judge = _Judge(rule, keyword, text)
    return filter(judge.is_secret, (_match(rule, hit) for hit in hits))


def _match(rule: Rule, hit: re.Match[bytes]) -> SecretMatch:
    group = hit.lastindex or 0
    start, end = hit.span(group)
    return SecretMatch(rule=rule.name, start=start, end=end, secret=hit[group], rank=rule.rank)


class _Judge:
    """Judges the matches of a rule at a keyword, in their order in the text.

    A match may end too soon, in a long sample or if a secret follows long padding. It is therefore
    also judged together with the run of characters that continues it. This is done once for all
    matches in a run, so that no text makes the search slow.
    """

    def __init__(self, rule: Rule, keyword: bytes, text: bytes) -> None:
        self._rule = rule
        self._keyword = keyword
        self._text = text
        self._run_end = -1
        self._has_run_secret = False

    def is_secret(self, match: SecretMatch) -> bool:
        """Return whether a match is a secret: plausible, not invented, and not published."""
        is_pem = match.secret.startswith(_PEM_BEGIN)
        run = (_PEM_CONTINUATION if is_pem else _CONTINUATION).match(self._text, match.end)
        end = run.end() if run else match.end
        if end - match.end >= _MAX_CONTINUATION:
            return True
        whole = self._text[match.start : end]
        values = () if is_pem else (match.secret,)
        if not (any(map(self._may_be_secret, values)) or self._may_run_be_secret(whole, end)):
            return False
        return not any(map(is_published, (*values, whole)))

    def _may_run_be_secret(self, whole: bytes, end: int) -> bool:
        if end != self._run_end:
            self._run_end = end
            self._has_run_secret = self._may_be_secret(whole)
        return self._has_run_secret

    def _may_be_secret(self, value: bytes) -> bool:
        if self._rule.check and not self._rule.check(value):
            return False
        has_prefix = value[: len(self._keyword)].lower() == self._keyword.lower()
        return not is_placeholder(value[len(self._keyword) :] if has_prefix else value)


def _by_keyword(rules: Iterable[Rule]) -> Mapping[bytes, list[Rule]]:
    grouped: defaultdict[bytes, list[Rule]] = defaultdict(list)
    for rule in rules:
        for keyword in rule.keywords:
            grouped[keyword].append(rule)
    return dict(grouped)


def _by_part(keywords: Iterable[bytes]) -> Mapping[bytes, list[bytes]]:
    # A set of words is compared in a single step, for any number of keywords. A letter or digit of
    # a JSON newline, or of a length in a binary file, may directly precede the first part.
    grouped: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for keyword in keywords:
        if part := _FIRST_PART.match(keyword):
            for before in (b"", *(bytes((byte,)) for byte in ALNUM)):
                grouped[before + part[0]].append(keyword)
    return dict(grouped)


_FIRST_PART: Final = re.compile(rb"[A-Za-z0-9]+(?=[^A-Za-z0-9])")
_AFTER_ESCAPE: Final = re.compile(b"(?:" + b"|".join(ESCAPES) + b")([A-Za-z0-9]+)")
_SEPARATORS_AS_BLANKS: Final = bytes(byte if byte in ALNUM else ord(_GAP) for byte in range(256))
_BY_WORD: Final = _by_keyword(WORD_RULES)
_BY_PART: Final = _by_part(_BY_WORD)
_UNDIVIDED: Final = tuple(keyword for keyword in _BY_WORD if not _FIRST_PART.match(keyword))
_BY_CONTEXT: Final = _by_keyword(CONTEXT_RULES)
_UNMARKED_CHARACTERS: Final = ALNUM + b"+/\r\n"
_UNMARKED: Final = {
    fold(keyword): rules
    for keyword, rules in (*_BY_WORD.items(), *_BY_CONTEXT.items())
    if not keyword.translate(None, _UNMARKED_CHARACTERS)
}
_PRINTABLE_MASK: Final = character_mask(bytes(range(0x20, 0x7F)) + b"\t\r\n")
_PRINTABLE_RUN: Final = b"A" * 14
"""Run of characters that every match of :data:`CONTEXT_RULES` exceeds."""

_HINTED: Final = tuple(rule for rule in WORD_RULES if rule.hint)
