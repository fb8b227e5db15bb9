"""The findings in a file, in a form that does not show the secrets."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

import attrs

from clawblox.checkpoint.secrets.matching import find_matches
from clawblox.checkpoint.secrets.patterns.known import KnownSecrets
from clawblox.checkpoint.secrets.patterns.shapes import SecretMatch
from clawblox.results import Finding


class FileFindings:
    """The findings in a file and in the containers inside it.

    Args:
        known: Secrets that are known by value.
        circumstances: Identifies the rule set and the known secrets; None if windows are not
            remembered.

    Attributes:
        containers: Number of opened containers.
        decoded_bytes: Number of decoded bytes.
    """

    def __init__(self, known: KnownSecrets, circumstances: bytes | None) -> None:
        self.known = known
        self.circumstances = circumstances
        self.containers = 0
        self.decoded_bytes = 0
        self._findings: dict[tuple[str, str, str], Finding] = {}

    def __len__(self) -> int:
        return len(self._findings)

    def add(self, finding: Finding) -> None:
        """Add a finding, unless the secret was already found at the same place."""
        key = (finding.path, finding.rule, finding.fingerprint)
        earlier = self._findings.get(key)
        if earlier is None or finding.offset < earlier.offset:
            self._findings[key] = finding

    def search_path(self, path: str) -> None:
        """Search the path of the file."""
        for match in find_matches(path.encode(errors="surrogateescape"), self.known):
            self.add(make_finding(match, path, None, 0))

    def findings(self) -> list[Finding]:
        """Return the findings, without those that recur inside their container."""
        places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for path, rule, fingerprint in sorted(self._findings):
            places[rule, fingerprint].append(path)
        return [
            attrs.evolve(finding, path=mask_secrets(path, self.known))
            for (path, rule, fingerprint), finding in self._findings.items()
            if not _recurs_inside(path, places[rule, fingerprint])
        ]


def _recurs_inside(path: str, places: Sequence[str]) -> bool:
    """Return whether any of the sorted ``places`` is inside the container at ``path``."""
    inside = f"{path}!"
    first = bisect_left(places, inside)
    return first < len(places) and places[first].startswith(inside)


def make_finding(match: SecretMatch, path: str, line: int | None, offset: int) -> Finding:
    """Return a finding that shows only a digest, the first characters and the length."""
    secret = match.rule.encode() + b"\0" + match.secret
    return Finding(
        path=path,
        rule=match.rule,
        fingerprint=hashlib.sha256(secret).hexdigest()[:16],
        preview=make_preview(match.secret),
        line=line,
        offset=offset,
    )


def make_preview(secret: bytes) -> str:
    """Return the first characters of a secret and its length."""
    return f"{ascii(secret[:4].decode('latin-1'))[1:-1]}... ({len(secret)} bytes)"


def mask_secrets(path: str, known: KnownSecrets) -> str:
    """Return a path with the secrets in it replaced by previews."""
    text = path.encode(errors="surrogateescape")
    for match in sorted(find_matches(text, known), key=lambda match: -match.start):
        text = text[: match.start] + make_preview(match.secret).encode() + text[match.end :]
    return text.decode(errors="replace")
