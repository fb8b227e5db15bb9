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
_PEM_BEGIN: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]+-----")
_PEM_BETWEEN_LINES: Final = re.compile(rb"\\+[nrt]|[\s\\\"']")


def is_published(secret: bytes) -> bool:
    """Return whether a secret is one of the published samples, or a token of Supabase's demo.

    A sample counts only as a whole: with one character changed it is another secret. The samples of
    private keys are listed by what stands between their first and last line.
    """
    return any(
        hashlib.sha256(spelling).hexdigest() in DIGESTS for spelling in _spellings(secret)
    ) or _is_of_demo(secret)


def _spellings(secret: bytes) -> Iterator[bytes]:
    """Yield the forms of a secret in which a sample may be listed."""
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
