"""The scan itself: one file after another, what was found, and what is said about it at the end."""

from __future__ import annotations

import traceback
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from clawblox.checkpoint.model import Allowance
from clawblox.checkpoint.secrets.content import UNSCANNABLE, Content
from clawblox.checkpoint.secrets.matching import find_matches
from clawblox.checkpoint.secrets.patterns.known import KnownSecrets, KnownValues
from clawblox.checkpoint.secrets.patterns.rules import RULESET
from clawblox.checkpoint.secrets.verdicts import PROCESS_KEY, content_verdicts, verdict_key
from clawblox.checkpoint.secrets.windows import finding_of, preview_of
from clawblox.errors import CheckpointError
from clawblox.results import Finding

__all__ = ["Scanner"]


class Scanner:
    """Searches files for secrets, every byte of them, whatever they are called.

    What is compressed or encoded is decoded and searched too; what cannot be is a finding of the
    rule ``unscannable``. Not to be used from several threads at once.

    Args:
        known: Secrets by a label that may be shown; those shorter than 12 characters are ignored.
        allow: Findings that are let through.
        remembers_windows: Whether clean windows are remembered, so that a file that changes is
            searched only where it did. It costs a digest of all that is searched.
    """

    def __init__(
        self,
        known: Mapping[str, str] | None = None,
        allow: Sequence[Allowance] = (),
        *,
        remembers_windows: bool = True,
    ) -> None:
        self._values = KnownValues(known or {})
        self._known = KnownSecrets(self._values)
        self._circumstances = RULESET.encode() + self._known.digest(PROCESS_KEY)
        self._remembers_windows = remembers_windows
        self._allow = {(entry.path, entry.rule, entry.fingerprint): entry for entry in allow}
        self._allowed: dict[tuple[str, str, str], Allowance] = {}
        self._unscanned: list[str] = []
        self._files = 0
        self._bytes = 0
        self._containers = 0

    @property
    def known(self) -> Mapping[str, str]:
        """Return the secrets that are known by value."""
        return self._values

    @property
    def containers(self) -> int:
        """Return how many containers have been decoded so far."""
        return self._containers

    def scan(
        self, path: str, chunks: Iterable[bytes], *, sha256: str | None = None
    ) -> list[Finding]:
        """Search one file.

        Args:
            path: What findings call it; it is searched too.
            chunks: Its content, in pieces of any size.
            sha256: Digest of the content, which ``chunks`` must verify: they must raise at their
                end when it is wrong. A clean content is then known by it. None when there is none.

        Returns:
            What was found, the first place of each secret, without what is allowed.

        Raises:
            CheckpointError: The scan itself failed. No part of the content is in the error.
        """
        report = self._new_report()
        intake = _Intake(path, report)
        fed = map(intake.feed, chunks)
        del chunks  # what raises meanwhile must not show content to who prints its locals
        for size in fed:
            self._bytes += size
        intake.close()
        self._files += 1
        self._containers += report.containers
        if sha256 is not None and not report.has_findings:
            self.remember(sha256, report.containers)
        return self._not_allowed(report)

    def recall(self, sha256: str) -> int | None:
        """Return how many containers are in a content; None unless it is known to be clean.

        It is when this process searched it by the same rules for the same known secrets, and found
        nothing at all; what is allowed makes no content clean.

        Args:
            sha256: Digest of the content.
        """
        return content_verdicts.recall(self._content_key(sha256))

    def remember(self, sha256: str, containers: int) -> None:
        """Remember a content that was searched and is clean.

        Args:
            sha256: Digest of the content.
            containers: How many containers were decoded in it.
        """
        content_verdicts.remember(self._content_key(sha256), containers)

    def accept(self, path: str, size: int, containers: int) -> list[Finding]:
        """Count a file whose content is known to be clean; search its path only.

        Args:
            path: What findings call it.
            size: Size of its content, in bytes.
            containers: How many containers are in it.

        Returns:
            What was found in the path, without what is allowed.
        """
        self._files += 1
        self._bytes += size
        self._containers += containers
        report = self._new_report()
        report.search_path(path)
        return self._not_allowed(report)

    def summary(self) -> dict[str, object]:
        """Return what an archive's metadata says about the scan so far."""
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

    def _new_report(self) -> _Report:
        return _Report(self._known, self._circumstances if self._remembers_windows else None)

    def _not_allowed(self, report: _Report) -> list[Finding]:
        return [finding for finding in report.findings() if not self._lets_through(finding)]

    def _content_key(self, sha256: str) -> bytes:
        return verdict_key(bytes.fromhex(sha256), self._circumstances)

    def _lets_through(self, finding: Finding) -> bool:
        key = (finding.path, finding.rule, finding.fingerprint)
        if key not in self._allow:
            return False
        self._allowed[key] = self._allow[key]
        return True


class _Report:
    """What is found in one file and in what is inside it."""

    def __init__(self, known: KnownSecrets, circumstances: bytes | None) -> None:
        self.known = known
        self.circumstances = circumstances
        self.containers = 0
        self.decoded_bytes = 0
        self._findings: dict[tuple[str, str, str], Finding] = {}

    @property
    def has_findings(self) -> bool:
        return bool(self._findings)

    @property
    def is_clean_since(self) -> Callable[[], bool]:
        count = len(self._findings)
        return lambda: len(self._findings) == count

    def add(self, finding: Finding) -> None:
        key = (finding.path, finding.rule, finding.fingerprint)
        known = self._findings.get(key)
        if known is None or finding.offset < known.offset:
            self._findings[key] = finding

    def search_path(self, path: str) -> None:
        for match in find_matches(path.encode(errors="surrogateescape"), self.known):
            self.add(finding_of(match, path, None, 0))

    def count_containers(self, count: int) -> None:
        self.containers += count

    def count_decoded(self, count: int) -> None:
        self.decoded_bytes += count

    def findings(self) -> list[Finding]:
        """Return them, without those that stand in a container as they do inside of it."""
        places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for path, rule, fingerprint in sorted(self._findings):
            places[rule, fingerprint].append(path)
        return [
            attrs.evolve(finding, path=_shown(path, self.known))
            for (path, rule, fingerprint), finding in self._findings.items()
            if not _recurs_inside(path, places[rule, fingerprint])
        ]


class _Intake:
    """Keeps content out of tracebacks: an error while it is searched comes out as a bare name.

    Args:
        path: What findings call the file.
        report: Where they go.
    """

    def __init__(self, path: str, report: _Report) -> None:
        self._path = _shown(path, report.known)
        self._content = Content(path, report)
        report.search_path(path)

    def feed(self, data: bytes) -> int:
        """Search the next bytes; return how many they were."""
        failure = None
        size = len(data)
        try:
            self._content.feed(data)
        except Exception as error:  # noqa: BLE001 - its frames hold content
            failure = _place_of(error)
        del data
        self._raise_if(failure)
        return size

    def close(self) -> None:
        """Search what is left."""
        failure = None
        try:
            self._content.close()
        except Exception as error:  # noqa: BLE001 - its frames hold content
            failure = _place_of(error)
        self._raise_if(failure)

    def _raise_if(self, failure: str | None) -> None:
        if failure:
            raise CheckpointError(f"the secret scan failed: {failure}", entry=self._path)


def _recurs_inside(path: str, places: Sequence[str]) -> bool:
    """Return whether one of ``places``, which are sorted, is inside of what is at ``path``."""
    inside = f"{path}!"
    first = bisect_left(places, inside)
    return first < len(places) and places[first].startswith(inside)


def _place_of(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name}, line {frame.lineno}"


def _shown(path: str, known: KnownSecrets) -> str:
    """Return the path without the secrets that it says itself."""
    text = path.encode(errors="surrogateescape")
    for match in sorted(find_matches(text, known), key=lambda match: -match.start):
        text = text[: match.start] + preview_of(match.secret).encode() + text[match.end :]
    return text.decode(errors="replace")
