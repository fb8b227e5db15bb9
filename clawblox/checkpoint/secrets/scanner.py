"""The scan: one file after another, and the summary of all of them."""

from __future__ import annotations

import traceback
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from clawblox.checkpoint.model import Allowance
from clawblox.checkpoint.secrets.content import UNSCANNABLE, ScannedContent
from clawblox.checkpoint.secrets.matching import find_matches
from clawblox.checkpoint.secrets.patterns.known import KnownSecrets
from clawblox.checkpoint.secrets.patterns.rules import RULESET
from clawblox.checkpoint.secrets.verdicts import PROCESS_KEY
from clawblox.checkpoint.secrets.windows import make_finding, make_preview
from clawblox.errors import CheckpointError
from clawblox.results import Finding

__all__ = ["Scanner"]


class Scanner:
    """Searches files for secrets, every byte of them, whatever their names.

    Compressed and encoded content is decoded and searched too. What cannot be searched is a finding
    of the rule ``unscannable``. Not thread-safe.

    Args:
        known: Secrets by a label that may be shown; secrets shorter than 12 characters are ignored.
        allow: Findings that are allowed.
    """

    def __init__(
        self, known: Mapping[str, str] | None = None, allow: Sequence[Allowance] = ()
    ) -> None:
        self._known = KnownSecrets(known or {})
        self._circumstances = RULESET.encode() + self._known.digest(PROCESS_KEY)
        self._allow = {(entry.path, entry.rule, entry.fingerprint): entry for entry in allow}
        self._allowed: dict[tuple[str, str, str], Allowance] = {}
        self._unscanned: list[str] = []
        self._files = 0
        self._bytes = 0
        self._containers = 0

    def scan(self, path: str, chunks: Iterable[bytes]) -> list[Finding]:
        """Search one file.

        Args:
            path: Its path in findings; the path is searched too.
            chunks: Its content, in pieces of any size.

        Returns:
            The findings that are not allowed, each at its first place.

        Raises:
            CheckpointError: The scan itself failed. The error holds no part of the content.
        """
        collector = _FileFindings(self._known, self._circumstances)
        content = _GuardedContent(path, collector)
        sizes = map(content.feed, chunks)
        del chunks  # the locals of a traceback must not show content
        for size in sizes:
            self._bytes += size
        content.close()
        self._files += 1
        self._containers += collector.containers
        return [finding for finding in collector.findings() if not self._allows(finding)]

    def summary(self) -> dict[str, object]:
        """Return the summary of the scan so far, for the metadata of an archive."""
        allowed = sorted(self._allowed)
        return {
            "ruleset": RULESET,
            "files": self._files,
            "bytes": self._bytes,
            "decoded_containers": self._containers,
            "allowed": [
                {
                    "path": path,
                    "rule": rule,
                    "fingerprint": fingerprint,
                    "reason": self._allowed[path, rule, fingerprint].reason,
                }
                for path, rule, fingerprint in allowed
            ],
            "unscanned": [path for path, rule, _ in allowed if rule == UNSCANNABLE],
        }

    def _allows(self, finding: Finding) -> bool:
        key = (finding.path, finding.rule, finding.fingerprint)
        if key not in self._allow:
            return False
        self._allowed[key] = self._allow[key]
        return True


class _FileFindings:
    """What is found in one file and in the containers inside it."""

    def __init__(self, known: KnownSecrets, circumstances: bytes) -> None:
        self.known = known
        self.circumstances = circumstances
        self.containers = 0
        self.decoded_bytes = 0
        self._findings: dict[tuple[str, str, str], Finding] = {}

    @property
    def is_clean_since(self) -> Callable[[], bool]:
        count = len(self._findings)
        return lambda: len(self._findings) == count

    def add(self, finding: Finding) -> None:
        key = (finding.path, finding.rule, finding.fingerprint)
        known = self._findings.get(key)
        if known is None or finding.offset < known.offset:
            self._findings[key] = finding

    def count_containers(self, count: int) -> None:
        self.containers += count

    def count_decoded(self, count: int) -> None:
        self.decoded_bytes += count

    def findings(self) -> list[Finding]:
        """Return the findings, without those of a container that recur inside it."""
        places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for path, rule, fingerprint in sorted(self._findings):
            places[rule, fingerprint].append(path)
        return [
            attrs.evolve(finding, path=_mask_secrets(path, self.known))
            for (path, rule, fingerprint), finding in self._findings.items()
            if not _recurs_inside(path, places[rule, fingerprint])
        ]


class _GuardedContent:
    """Keeps content out of tracebacks: an error of the search is reduced to its name and place.

    Args:
        path: Path of the file in findings.
        collector: Collects what is found.
    """

    def __init__(self, path: str, collector: _FileFindings) -> None:
        self._path = _mask_secrets(path, collector.known)
        self._content = ScannedContent(path, collector)
        for match in find_matches(path.encode(errors="surrogateescape"), collector.known):
            collector.add(make_finding(match, path, None, 0))

    def feed(self, data: bytes) -> int:
        """Search the next bytes; return their number.

        Raises:
            CheckpointError: The search failed.
        """
        failure = None
        size = len(data)
        try:
            self._content.feed(data)
        except Exception as error:  # noqa: BLE001 - its frames hold content
            failure = _describe_place(error)
        del data
        self._raise_if(failure)
        return size

    def close(self) -> None:
        """Search the rest.

        Raises:
            CheckpointError: The search failed.
        """
        failure = None
        try:
            self._content.close()
        except Exception as error:  # noqa: BLE001 - its frames hold content
            failure = _describe_place(error)
        self._raise_if(failure)

    def _raise_if(self, failure: str | None) -> None:
        if failure:
            raise CheckpointError(f"the secret scan failed: {failure}", entry=self._path)


def _recurs_inside(path: str, places: Sequence[str]) -> bool:
    """Return whether one of the sorted ``places`` is inside the container at ``path``."""
    inside = f"{path}!"
    first = bisect_left(places, inside)
    return first < len(places) and places[first].startswith(inside)


def _describe_place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name}, line {frame.lineno}"


def _mask_secrets(path: str, known: KnownSecrets) -> str:
    """Return a path with the secrets in it replaced by previews."""
    text = path.encode(errors="surrogateescape")
    for match in sorted(find_matches(text, known), key=lambda match: -match.start):
        text = text[: match.start] + make_preview(match.secret).encode() + text[match.end :]
    return text.decode(errors="replace")
