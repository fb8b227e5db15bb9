"""Distinguishes secrets from other values, for rules whose shape alone proves little.

Pure functions over bytes. No rule counts placeholders and published samples: see ``placeholders``.
"""

from __future__ import annotations

import binascii
import math
import re
from collections import Counter
from typing import Final
from urllib.parse import unquote_to_bytes

_MIN_ENTROPY_BITS: Final = 3.0
_REPEATED: Final = re.compile(rb"(.{1,16}?)\1{3,}", re.DOTALL)
_KINDS: Final = (
    re.compile(rb"[0-9]"),
    re.compile(rb"[a-z]"),
    re.compile(rb"[A-Z]"),
    re.compile(rb"[^0-9A-Za-z]"),
)
"""Kinds of characters; a password has a digit and a letter, or three kinds."""
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
"""A part of most names; words with only dashes between them may be a passphrase."""
_NAME_BEGIN: Final = re.compile(rb"\A(?:~|https?://)", re.IGNORECASE)
_PATH: Final = re.compile(rb"\.{0,2}/[^/]+/")
_SPOKEN: Final = re.compile(
    rb"(?<![A-Za-z0-9])(?=[a-z]*[aeiouy])(?=[a-z]*[b-df-hj-np-tv-z])[a-z]{3,}", re.IGNORECASE
)
_UNSPOKEN: Final = re.compile(rb"[b-df-hj-np-tv-xz]{5}|[aeiou]{4}", re.IGNORECASE)
_CAMEL_CASE: Final = re.compile(rb"[a-z_]+(?:[A-Z][a-z]+)+(?![A-Za-z0-9])")
_MIN_SPOKEN_SHARE: Final = 0.5


def is_plausible(value: bytes) -> bool:
    """Return whether a value can be a secret, and is not a word or a constant."""
    if not any(character in b"0123456789" for character in value):
        return False
    # A long filling must not dilute a secret.
    return (
        _entropy(value) >= _MIN_ENTROPY_BITS
        or _entropy(_REPEATED.sub(rb"\1", value)) >= _MIN_ENTROPY_BITS
    )


def is_key(value: bytes) -> bool:
    """Return whether a value can be a key or a token; names such as ``user:profile:v2`` cannot."""
    return is_plausible(value) and not _is_name(value)


def is_login_password(value: bytes) -> bool:
    """Return whether a password in a URL, with its escapes, can be a secret."""
    password = unquote_to_bytes(value)
    return is_plausible(password) or is_password(password)


def is_local_password(value: bytes) -> bool:
    """Return whether a password for this machine can be a secret; ``postgres123`` cannot."""
    return is_login_password(value) and not _COMMON_PASSWORD.fullmatch(unquote_to_bytes(value))


def is_password(value: bytes) -> bool:
    """Return whether a password option's value is not just a word or a constant."""
    digit, lower, upper, other = (kind.search(value) is not None for kind in _KINDS)
    is_mixed = (digit and (lower or upper)) or digit + lower + upper + other > 2
    return is_mixed and len(set(value)) >= _MIN_DISTINCT and not _WORD_FOR_PASSWORD.fullmatch(value)


def is_no_identifier(value: bytes) -> bool:
    """Return whether a token can be random letters, and not words in camel case.

    Of random values of 34 letters, one in a hundred thousand is like such words.
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
    """Return whether a value is words and short numbers with ``-_:./`` between them.

    If there are only dashes between them, it must end in a version, such as ``-v2``.

    It is a path of a file, or at least two words can be spoken, and half of the letters and digits
    belong to these. Of random values of twelve characters about one in ten thousand is like this,
    of longer ones hardly any.
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
