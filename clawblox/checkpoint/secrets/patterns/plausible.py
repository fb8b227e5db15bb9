"""Distinguishes secrets from other values: words, names, and invented or published values.

Pure functions over bytes. Words, names and constants are excluded only for rules whose shape alone
proves little; invented or published values are excluded for all rules. A substring does not
suffice: a real secret that contains ``example`` or ``xxxx`` remains a secret, because most of the
value remains when these are removed. Published samples are listed as digests, so that this file
contains no complete token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

# -- words, names and constants, for rules whose shape alone proves little ---------------------

_MIN_ENTROPY_BITS: Final = 3.0
_REPEATED: Final = re.compile(rb"(.{1,16}?)\1{3,}", re.DOTALL)
_KINDS: Final = (
    re.compile(rb"[0-9]"),
    re.compile(rb"[a-z]"),
    re.compile(rb"[A-Z]"),
    re.compile(rb"[^0-9A-Za-z]"),
)
"""Kinds of characters; a password contains a digit and a letter, or three kinds."""
_MIN_DISTINCT: Final = 5

_WORD_FOR_PASSWORD: Final = re.compile(
    rb"(?:password|passwd|secret)[-_]?[0-9]{0,4}!?", re.IGNORECASE
)
_COMMON_PASSWORD: Final = re.compile(
    rb"(?:(?:admin|changeme|default|demo|dev|example|guest|local|minio|mongo|my|mysql|pass|passwd"
    rb"|password|postgres|rabbitmq|redis|root|secret|super|test|user)[-_]?)+[0-9]{0,4}!?",
    re.IGNORECASE,
)

_WORD: Final = rb"(?:[A-Z]?[a-z]{2,14}(?:[A-Z][a-z]{2,14}){0,2}|[A-Z]{2,14}|[A-Za-z])"
_SEPARATORS: Final = b"-_:./"
_NAME: Final = re.compile(rb"(?:" + _WORD + rb"?[0-9]{0,5}(?:[-_:./]{1,3}|$)){2,20}")
_QUALIFIED: Final = re.compile(rb"[:/.]|[-_]v[0-9]{1,3}\Z", re.IGNORECASE)
"""Separator or version in most names; words with only dashes between them may be a passphrase."""
_NAME_BEGIN: Final = re.compile(rb"\A(?:~|https?://)", re.IGNORECASE)
_PATH: Final = re.compile(rb"\.{0,2}/[^/]+/")
_SPOKEN: Final = re.compile(
    rb"(?<![A-Za-z0-9])(?=[a-z]*[aeiouy])(?=[a-z]*[b-df-hj-np-tv-z])[a-z]{3,}", re.IGNORECASE
)
_UNSPOKEN: Final = re.compile(rb"[b-df-hj-np-tv-xz]{5}|[aeiou]{4}", re.IGNORECASE)
_CAMEL_CASE: Final = re.compile(rb"[a-z_]+(?:[A-Z][a-z]+)+(?![A-Za-z0-9])")
_MIN_SPOKEN_SHARE: Final = 0.5


def is_plausible(value: bytes) -> bool:
    """Return whether a value can be a secret rather than a word or a constant."""
    if not any(character in b"0123456789" for character in value):
        return False
    # Long padding must not dilute a secret.
    return (
        _entropy(value) >= _MIN_ENTROPY_BITS
        or _entropy(_REPEATED.sub(rb"\1", value)) >= _MIN_ENTROPY_BITS
    )


def is_key(value: bytes) -> bool:
    """Return whether a value can be a key or a token, unlike names such as ``user:profile:v2``."""
    return is_plausible(value) and not _is_name(value)


def is_login_password(value: bytes) -> bool:
    """Return whether a password in a URL, including escapes, can be a secret."""
    password = unquote_to_bytes(value)
    return is_plausible(password) or is_password(password)


def is_local_password(value: bytes) -> bool:
    """Return whether a password for this machine can be a secret, unlike ``postgres123``."""
    return is_login_password(value) and not _COMMON_PASSWORD.fullmatch(unquote_to_bytes(value))


def is_password(value: bytes) -> bool:
    """Return whether a password option's value is more than a word or a constant."""
    digit, lower, upper, other = (kind.search(value) is not None for kind in _KINDS)
    is_mixed = (digit and (lower or upper)) or digit + lower + upper + other > 2
    return is_mixed and len(set(value)) >= _MIN_DISTINCT and not _WORD_FOR_PASSWORD.fullmatch(value)


def is_no_identifier(value: bytes) -> bool:
    """Return whether a token can be random letters rather than words in camel case.

    One in a hundred thousand random values of 34 letters resembles such words.
    """
    words = _CAMEL_CASE.match(value)
    return not words or _UNSPOKEN.search(words[0]) is not None


def encodes_login(value: bytes) -> bool:
    """Return whether a base64 text decodes to ``user:password``."""
    try:
        login = binascii.a2b_base64(value)
    except binascii.Error:
        return False
    user, colon, password = login.partition(b":")
    return bool(user and colon and password) and login.isascii() and login.decode().isprintable()


def _is_name(value: bytes) -> bool:
    """Return whether a value consists of words and short numbers separated by ``-_:./``.

    If all separators are dashes, the value must end with a version such as ``-v2``.

    It must be a file path, or contain at least two pronounceable words with half of the letters and
    digits. About one in ten thousand random values of twelve characters qualifies, and hardly any
    longer value.
    """
    value = _NAME_BEGIN.sub(b"", value)
    if not (_NAME.fullmatch(value) and _QUALIFIED.search(value)) or _UNSPOKEN.search(value):
        return False
    if _PATH.match(value):
        return True
    words = _SPOKEN.findall(value)
    size = len(value.translate(None, _SEPARATORS))
    return len(words) > 1 and sum(map(len, words)) >= size * _MIN_SPOKEN_SHARE


def _entropy(value: bytes) -> float:
    total = len(value)
    return -sum(n / total * math.log2(n / total) for n in Counter(value).values())


# -- invented or published values, which no rule counts -----------------------------------------

_MAX_REST: Final = 5
"""Maximum remaining letters and digits; every key, token or password is longer."""
_MAX_SHARE: Final = 1 / 4
"""Maximum remaining share of the value."""

_MADE_UP: Final = (
    "xxx|example|sample|dummy|fake|mock|your|placeholder|place|holder|changeme|change|deadbeef"
    "|replace|insert|enter|fill|here|todo|fixme|redacted|removed|hidden|masked|elided|omitted"
    "|truncated|invalid|insecure|foo|bar|baz|qux|lorem|ipsum"
)
"""Words that show that a value is invented."""
_COMMON: Final = (
    "123|abc|access|account|admin|an|and|ant|anthropic|any|api|app|at|auth|aws|azure|base|bearer"
    "|bits|bot|bytes|character|characters|chars|claude|client|cloud|code|credential|credentials"
    "|data|database|db|default|demo|dev|django|do|ec|email|encrypted|encryption|end|env|face|for|from"
    "|generated|ghp|github|gitlab|glpat|goes|google|guest|hash|hex|hf|host|hugging|id|in|is|it"
    "|jwt|key|least|length|live|local|long|me|min|minimum|my|name|never|next|no|not|number|of|only"
    "|openai|openrouter|openssh|or|org|pass|passwd|password|pat|pk|private|prod|production|proj"
    "|project|public|random|real|refresh|rk|root|rsa|sandbox|secret|secure|server|service|session"
    "|sha|signature|signing|sk|slack|some|string|stripe|super|telegram|test|testing|tests|text"
    "|the|this|to|token|url|use|used|user|username|valid|value|vault|very|webhook|with|xoxb|xoxp"
    "|xyz"
)
"""Words that occur in placeholders, but also in passwords and before tokens."""


def _longest_first(words: str) -> str:
    # Only the first division of a text into words is tried.
    return "|".join(sorted(words.split("|"), key=len, reverse=True))


_LETTERS: Final = re.compile(rb"[A-Za-z]+|(?<![0-9])123(?![0-9])")
# Possessive, so that a text with many divisions is not slow.
_WORDS: Final = re.compile(
    f"(?:([a-z])\\1{{2,}}|{_longest_first(f'{_MADE_UP}|{_COMMON}')})++".encode(), re.IGNORECASE
)
_MARKS: Final = re.compile(f"{_MADE_UP}".encode(), re.IGNORECASE)
_GAP_SIGNS: Final = re.compile(rb"<[^<>]*>|\{[^{}]*\}|^%[^%]*%|\*\*\*|\.\.\.")
_DIGIT: Final = re.compile(rb"[0-9]")
_UNCOUNTED: Final = bytes(byte for byte in range(0x80) if not chr(byte).isalnum())

_SHORTEST_RUNS: Final = {1: 3, 2: 6, 3: 9, 4: 12}
"""Minimum length of a run, by its period: 123, ababab, xyzxyzxyz; also a1b2c3."""
_FIRST_LONG_PERIOD: Final = 3
_PLAIN: Final = re.compile(rb"[0-9]+|[a-z]+|[A-Z]+")
"""Valid parts of runs with a longer period; runs typed by hand do not mix kinds of characters."""
_REGION: Final = re.compile(b"R{4,}")
"""Adjacent runs, as in abc123def456; a single run of three may be chance."""
_RUNS_ENOUGH: Final = 7
"""Number of characters in runs that show that a value with only common words is invented."""


def is_placeholder(body: bytes) -> bool:
    """Return whether a value is invented: almost only placeholder words and repetition.

    The function removes runs of letters that consist only of placeholder words (``your``,
    ``apiKeyHere``), then repetitions and sequences (``0000``, ``abababab``, ``12345``, ``a1b2c3``).
    At most five letters and digits may remain, and at most a quarter of the value: too little for a
    secret. Words that are also common in passwords (``password``, ``test``) do not suffice: the
    value must also contain a word such as ``example``, seven characters of repetition, or marks of
    a gap to fill in (``<…>``, ``...``), unless it consists only of words without a digit.

    Args:
        body: The value, without the common prefix of secrets of its kind.
    """
    without_words, is_marked = _strike_words(body)
    outside_words = _count(without_words)
    rest = _count(_strike_runs(without_words)) if outside_words else 0
    if rest > min(_MAX_REST, len(body) * _MAX_SHARE):
        return False
    if is_marked or outside_words - rest >= _RUNS_ENOUGH or _GAP_SIGNS.search(body):
        return True
    return outside_words == 0 and not _DIGIT.search(body)


def _count(body: bytes) -> int:
    """Return the number of letters and digits."""
    return len(body.translate(None, _UNCOUNTED))


def _strike_words(body: bytes) -> tuple[bytes, bool]:
    """Return the value with NULs for its words, and whether a word shows that it is invented."""
    is_marked = False

    def strike(letters: re.Match[bytes]) -> bytes:
        nonlocal is_marked
        if not _WORDS.fullmatch(letters[0]):
            return letters[0]
        is_marked = is_marked or _MARKS.search(letters[0]) is not None
        return bytes(len(letters[0]))

    return _LETTERS.sub(strike, body), is_marked


def _strike_runs(body: bytes) -> bytes:
    """Return the value with NULs for its repetitions and sequences."""
    marks = bytearray(len(body))
    for period, shortest in _SHORTEST_RUNS.items():
        for start, end in _runs(body.lower(), period, shortest):
            if period < _FIRST_LONG_PERIOD or _PLAIN.fullmatch(body, start, end):
                marks[start:end] = b"R" * (end - start)
    struck = bytearray(body)
    for region in _REGION.finditer(marks):
        struck[region.start() : region.end()] = bytes(len(region[0]))
    return bytes(struck)


def _runs(body: bytes, period: int, shortest: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the runs in which each character repeats or continues an earlier one.

    Args:
        body: The value.
        period: Distance to the earlier character.
        shortest: Minimum length of a run.
    """
    pairs = zip(body[:-period], body[period:], strict=True)
    steps = bytes([later - earlier & 0xFF for earlier, later in pairs])
    for run in re.finditer(b"([\0\1\xff])\\1{%d,}" % (shortest - period - 1), steps):
        yield run.start(), run.end() + period


def _read_digests() -> frozenset[str]:
    lines = Path(__file__).with_name("sample_digests.txt").read_text().splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


DIGESTS: Final = _read_digests()
"""SHA-256 digests of the published samples, in hexadecimal."""
_JWT: Final = re.compile(rb"eyJ[\w-]+\.([\w-]+)\.[\w-]+")
_DEMO_ISSUER: Final = "supabase-demo"
"""Issuer of tokens in every local Supabase; its signing key is published."""
_PEM_BEGIN: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]+-----")
_PEM_BETWEEN_LINES: Final = re.compile(rb"\\+[nrt]|[\s\\\"']")


def is_published(secret: bytes) -> bool:
    """Return whether a secret is a published sample, or a token of Supabase's demo.

    A sample counts only as a whole: with a changed character it is another secret. Samples of
    private keys are listed without their first and last line.
    """
    return any(
        hashlib.sha256(spelling).hexdigest() in DIGESTS for spelling in _spellings(secret)
    ) or _is_of_demo(secret)


def _spellings(secret: bytes) -> Iterator[bytes]:
    """Yield the forms of a secret that the list of samples may contain."""
    yield secret
    if begin := _PEM_BEGIN.match(secret):
        yield _PEM_BETWEEN_LINES.sub(b"", secret[begin.end() :])
    elif secret.startswith(b"0x"):
        yield secret[2:]
    if secret.endswith((b".", b"-", b"_", b"=", b":")):
        yield secret.rstrip(b".-_=:")


def _is_of_demo(secret: bytes) -> bool:
    jwt = _JWT.fullmatch(secret)
    if not jwt:
        return False
    try:
        claims = json.loads(
            base64.urlsafe_b64decode(jwt[1] + b"=" * (-len(jwt[1]) % 4)),
            object_pairs_hook=_without_duplicates,
        )
    except (ValueError, RecursionError, binascii.Error):
        return False
    return isinstance(claims, dict) and claims.get("iss") == _DEMO_ISSUER


def _without_duplicates(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    claims = dict(pairs)
    if len(claims) < len(pairs):
        raise ValueError("a name occurs twice")
    return claims
