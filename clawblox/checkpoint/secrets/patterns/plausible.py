"""Distinguishes credentials from placeholders, for rules whose shape alone proves little.

Pure functions over bytes. Published samples, which every rule ignores, are listed here too.
"""

from __future__ import annotations

import binascii
import math
import re
from collections import Counter
from typing import Final

SAMPLES: Final = frozenset(
    "".join(halves).encode()
    for halves in (
        # docs.aws.amazon.com, IAM and CLI user guides
        ("AKIA", "IOSFODNN7EXAMPLE"),
        ("AKIA", "I44QH8DHBEXAMPLE"),
        ("ASIA", "IOSFODNN7EXAMPLE"),
        ("wJalrXUtnFEMI/K7MDENG/", "bPxRfiCYEXAMPLEKEY"),
        ("je7MtGbClwBF/2Zp9Utk/", "h3yCo8nvbEXAMPLEKEY"),
        # jwt.io, the HS256 token that its page opens with (old and new)
        (
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9l",
            "IiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        ),
        (
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9l",
            "IiwiYWRtaW4iOnRydWUsImlhdCI6MTUxNjIzOTAyMn0.KMUFsIDTnFmyG3nMiGM6H9FNFUROf3wh7SmqJp-QV30",
        ),
        # docs.stripe.com, the account of its code samples
        ("sk_test_", "4eC39HqLyjWDarjtT1zdp7dc"),
        ("sk_test_", "BQokikJOvBiI2HlWgH4olfQ2"),
        ("sk_test_", "Gx4mWEgHtCMr4DYMUIqfIrsz"),
    )
)
"""Secrets printed in public documentation of vendors; a change needs a new ruleset version."""

_PLACEHOLDER: Final = re.compile(
    rb"example|change[-_]?me|your[-_]|place[-_]?holder|dummy|redacted|xxxx|\*\*\*|\.\.\.|<.*>"
    rb"|\$\{|\{\{|^\$|^%|1234567|abcdef",
    re.IGNORECASE,
)
_MIN_ENTROPY_BITS: Final = 3.0
_KINDS: Final = (
    re.compile(rb"[0-9]"),
    re.compile(rb"[a-z]"),
    re.compile(rb"[A-Z]"),
    re.compile(rb"[^0-9A-Za-z]"),
)
"""Kinds of characters; a password has a digit and a letter, or three kinds."""
_MIN_DISTINCT: Final = 5


def is_plausible(value: bytes) -> bool:
    """Return whether a value can be a secret and is not a placeholder, a word or a constant."""
    return (
        any(character in b"0123456789" for character in value)
        and not _PLACEHOLDER.search(value)
        and _entropy(value) >= _MIN_ENTROPY_BITS
    )


def is_password(value: bytes) -> bool:
    """Return whether a password option's value is not just a word, placeholder or constant."""
    digit, lower, upper, other = (kind.search(value) is not None for kind in _KINDS)
    is_mixed = (digit and (lower or upper)) or digit + lower + upper + other > 2
    return (
        is_mixed
        and len(set(value)) >= _MIN_DISTINCT
        and not _PLACEHOLDER.search(value)
        and not value.lower().startswith((b"password", b"passwd", b"secret"))
    )


def encodes_login(value: bytes) -> bool:
    """Return whether a base64 text decodes to ``user:password``."""
    try:
        login = binascii.a2b_base64(value)
    except binascii.Error:
        return False
    user, colon, password = login.partition(b":")
    return bool(user and colon and password) and login.isascii() and login.decode().isprintable()


def _entropy(value: bytes) -> float:
    total = len(value)
    return -sum(n / total * math.log2(n / total) for n in Counter(value).values())
