"""The scan of all files of an archive, its summary, and the findings that are allowed."""

from __future__ import annotations

import json
import traceback
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.model import Allowance
from clawblox.checkpoint.secrets.content import (
    UNSCANNABLE,
    ScannedContent,
    make_finding,
    make_preview,
)
from clawblox.checkpoint.secrets.matching import find_matches
from clawblox.checkpoint.secrets.patterns.known import KnownSecrets, KnownValues
from clawblox.checkpoint.secrets.patterns.rules import RULESET
from clawblox.checkpoint.secrets.verdicts import PROCESS_KEY, content_verdicts, verdict_key
from clawblox.errors import CheckpointError, ConfigError
from clawblox.results import Finding


class Scanner:
    """Searches files for secrets, every byte of them, whatever their names.

    Compressed and encoded content is decoded and searched too. Content that cannot be searched is a
    finding of the rule ``unscannable``. Not thread-safe.

    Args:
        known: Secrets by a label that may be shown; secrets shorter than 12 characters are ignored.
        allow: Findings that are allowed.
        remembers_windows: Whether to remember clean windows, so that only the changed parts of a
            file are searched again. This costs a digest of everything that is searched.
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
        """Return the number of containers decoded so far."""
        return self._containers

    def scan(
        self, path: str, chunks: Iterable[bytes], *, sha256: str | None = None
    ) -> list[Finding]:
        """Search a file.

        Args:
            path: Its path in findings; the path is searched too.
            chunks: Its content, in pieces of any size.
            sha256: Digest of the content, under which clean content is remembered. ``chunks`` must
                raise at the end if the digest is wrong. None to remember nothing.

        Returns:
            The findings that are not allowed, each at its first place.

        Raises:
            CheckpointError: The scan itself failed. The error contains no part of the content.
        """
        collector = self._new_collector()
        content = _GuardedContent(path, collector)
        fed = map(content.feed, chunks)
        del chunks  # a traceback may print locals, and these may contain content
        for size in fed:
            self._bytes += size
        content.close()
        self._files += 1
        self._containers += collector.containers
        if sha256 is not None and not collector.has_findings:
            self.remember(sha256, collector.containers)
        return self._not_allowed(collector)

    def recall(self, sha256: str) -> int | None:
        """Return the number of containers in a content; None unless it is known to be clean.

        A content is known to be clean if this process has searched it with the same rules for the
        same known secrets, and found nothing. Content with an allowed finding is not clean.

        Args:
            sha256: Digest of the content.
        """
        return content_verdicts.recall(self._content_key(sha256))

    def remember(self, sha256: str, containers: int) -> None:
        """Remember a content that was searched and is clean.

        Args:
            sha256: Digest of the content.
            containers: Number of containers that were decoded in it.
        """
        content_verdicts.remember(self._content_key(sha256), containers)

    def accept(self, path: str, size: int, containers: int) -> list[Finding]:
        """Count a file whose content is known to be clean; search its path only.

        Args:
            path: Its path in findings.
            size: Size of its content, in bytes.
            containers: Number of containers in it.

        Returns:
            The findings in the path that are not allowed.
        """
        self._files += 1
        self._bytes += size
        self._containers += containers
        collector = self._new_collector()
        collector.search_path(path)
        return self._not_allowed(collector)

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

    def _new_collector(self) -> _FileFindings:
        return _FileFindings(self._known, self._circumstances if self._remembers_windows else None)

    def _not_allowed(self, collector: _FileFindings) -> list[Finding]:
        return [finding for finding in collector.findings() if not self._allows(finding)]

    def _content_key(self, sha256: str) -> bytes:
        return verdict_key(bytes.fromhex(sha256), self._circumstances)

    def _allows(self, finding: Finding) -> bool:
        key = (finding.path, finding.rule, finding.fingerprint)
        if key not in self._allow:
            return False
        self._allowed[key] = self._allow[key]
        return True


class _FileFindings:
    """The findings in a file and in the containers inside it."""

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
        earlier = self._findings.get(key)
        if earlier is None or finding.offset < earlier.offset:
            self._findings[key] = finding

    def search_path(self, path: str) -> None:
        for match in find_matches(path.encode(errors="surrogateescape"), self.known):
            self.add(make_finding(match, path, None, 0))

    def count_containers(self, count: int) -> None:
        self.containers += count

    def count_decoded(self, count: int) -> None:
        self.decoded_bytes += count

    def findings(self) -> list[Finding]:
        """Return the findings; if a finding recurs inside its container, only the inner one."""
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
        collector: Collects the findings.
    """

    def __init__(self, path: str, collector: _FileFindings) -> None:
        self._path = _mask_secrets(path, collector.known)
        self._content = ScannedContent(path, collector)
        collector.search_path(path)

    def feed(self, data: bytes) -> int:
        """Search the next bytes; return their number.

        Raises:
            CheckpointError: The search failed.
        """
        failure = None
        size = len(data)
        try:
            self._content.feed(data)
        except Exception as error:  # noqa: BLE001 - its frames contain content
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
        except Exception as error:  # noqa: BLE001 - its frames contain content
            failure = _describe_place(error)
        self._raise_if(failure)

    def _raise_if(self, failure: str | None) -> None:
        if failure:
            raise CheckpointError(f"the secret scan failed: {failure}", entry=self._path)


def _recurs_inside(path: str, places: Sequence[str]) -> bool:
    """Return whether any of the sorted ``places`` is inside the container at ``path``."""
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


_KEYS: Final = tuple(field.name for field in attrs.fields(Allowance))


def read_allowances(path: Path) -> tuple[Allowance, ...]:
    """Read a file of allowed findings.

    The file is a JSON list of objects with ``path``, ``rule`` and ``fingerprint`` of a finding, and
    a ``reason``; all of these are non-empty strings.

    Raises:
        ConfigError: The file cannot be read, or does not have this form.
    """
    try:
        entries = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"the allowances cannot be read: {error.strerror}", path=path) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the allowances must be JSON: {error}", path=path) from None
    if not isinstance(entries, list):
        raise ConfigError("the allowances must be a JSON list", path=path)
    return tuple(_allowance(entry, index, path) for index, entry in enumerate(entries))


def _allowance(entry: object, index: int, path: Path) -> Allowance:
    if not isinstance(entry, dict):
        raise ConfigError("must be a JSON object", path=path, key=f"[{index}]")
    for key in _KEYS:
        value = entry.get(key)
        if not isinstance(value, str) or not value.strip():
            name = f"[{index}].{key}"
            raise ConfigError("must be a non-empty string", path=path, key=name)
    if unknown := sorted(entry.keys() - _KEYS):
        name = f"[{index}].{unknown[0]}"
        raise ConfigError(f"must be one of {', '.join(_KEYS)}", path=path, key=name)
    return Allowance(**entry)
