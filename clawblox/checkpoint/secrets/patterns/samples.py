"""Recognises secrets that are published, and therefore secrets no longer.

Pure. The samples are digests: no complete token stands in this file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from clawblox.checkpoint.secrets.patterns.sample_digests import DIGESTS

_JWT: Final = re.compile(rb"eyJ[\w-]+\.([\w-]+)\.[\w-]+")
_DEMO_ISSUER: Final = "supabase-demo"
"""Issuer of the tokens of every local Supabase; its signing key is published."""
_PEM_LINE: Final = re.compile(rb"(?:(?<=\\)[nrt])?([A-Za-z0-9+/]{40,})\Z")
"""The line of a private key with which the match of its rule ends."""


def is_published(secret: bytes) -> bool:
    """Return whether a secret is one of the published samples, or a token of Supabase's demo.

    A sample counts only as a whole: with one character changed it is another secret.
    """
    return any(
        hashlib.sha256(spelling).hexdigest() in DIGESTS for spelling in _spellings(secret)
    ) or _is_of_demo(secret)


def _spellings(secret: bytes) -> Iterator[bytes]:
    """Yield the forms of a secret in which a sample may be listed."""
    yield secret
    if secret.startswith(b"-----BEGIN ") and (line := _PEM_LINE.search(secret)):
        yield line[1]
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
