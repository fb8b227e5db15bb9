"""Scans all files of an archive, with a summary and allowed findings."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.model import Allowance
from clawblox.checkpoint.secrets.content import (
    PROCESS_KEY,
    UNSCANNABLE,
    ScannedContent,
    content_verdicts,
    verdict_key,
)
from clawblox.checkpoint.secrets.findings import FileFindings, mask_secrets
from clawblox.checkpoint.secrets.patterns.known import KnownSecrets, KnownValues
from clawblox.checkpoint.secrets.patterns.rules import RULESET
from clawblox.errors import CheckpointError, ConfigError
from clawblox.results import Finding


class Scanner:
    """Searches every byte of files for secrets, regardless of the files' names.

    Compressed and encoded content is also decoded and searched. Content that cannot be searched is
    a finding of the rule ``unscannable``. Not thread-safe.

    Args:
        known: Secrets by labels that may be shown; secrets shorter than 12 characters are ignored.
        allow: Allowed findings.
        remembers_windows: Whether to remember clean windows, so that only the changed parts of a
            file are searched again. This costs a digest of all searched content.

    Attributes:
        known: Secrets that are known by value.
        containers: Number of containers decoded so far.
    """

    def __init__(
        self,
        known: Mapping[str, str] | None = None,
        allow: Sequence[Allowance] = (),
        *,
        remembers_windows: bool = True,
    ) -> None:
        self.known: Mapping[str, str] = KnownValues(known or {})
        self.containers = 0
        self._secrets = KnownSecrets(self.known)
        self._circumstances = RULESET.encode() + self._secrets.digest(PROCESS_KEY)
        self._remembers_windows = remembers_windows
        self._allow = {(entry.path, entry.rule, entry.fingerprint): entry for entry in allow}
        self._allowed: dict[tuple[str, str, str], Allowance] = {}
        self._files = 0
        self._bytes = 0

    def scan(
        self, path: str, chunks: Iterable[bytes], *, sha256: str | None = None
    ) -> list[Finding]:
        """Search a file.

        Args:
            path: Its path in findings; the path is also searched.
            chunks: Its content, in pieces of any size.
            sha256: Digest of the content, under which clean content is remembered; None does not
                remember it. ``chunks`` must raise at the end if the digest is wrong.

        Returns:
            The findings that are not allowed, each once at its first place.

        Raises:
            CheckpointError: The scan failed. The error contains no part of the content.
        """
        collector = self._new_collector()
        content = ScannedContent(path, collector)
        collector.search_path(path)
        shown_path = mask_secrets(path, collector.known)
        fed = map(partial(_guard, shown_path, content.feed), chunks)
        del chunks  # a traceback may print locals, which may contain content
        for size in fed:
            self._bytes += size
        _guard(shown_path, content.close)
        self._files += 1
        self.containers += collector.containers
        if sha256 is not None and not collector:
            self.remember(sha256, collector.containers)
        return self._not_allowed(collector)

    def recall(self, sha256: str) -> int | None:
        """Return the number of containers in content; None unless the content is known to be clean.

        Content is known to be clean if this process has searched it with the same rules for the
        same known secrets, without findings. Content with an allowed finding is not clean.

        Args:
            sha256: Digest of the content.
        """
        return content_verdicts.recall(self._content_key(sha256))

    def remember(self, sha256: str, containers: int) -> None:
        """Remember searched content as clean.

        Args:
            sha256: Digest of the content.
            containers: Number of containers decoded in it.
        """
        content_verdicts.remember(self._content_key(sha256), containers)

    def accept(self, path: str, size: int, containers: int) -> list[Finding]:
        """Count a file whose content is known to be clean; search only its path.

        Args:
            path: Its path in findings.
            size: Size of its content, in bytes.
            containers: Number of containers in it.

        Returns:
            The findings in the path that are not allowed.
        """
        self._files += 1
        self._bytes += size
        self.containers += containers
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
            "decoded_containers": self.containers,
            "allowed": [attrs.asdict(self._allowed[key]) for key in allowed],
            "unscanned": [path for path, rule, _ in allowed if rule == UNSCANNABLE],
        }

    def _new_collector(self) -> FileFindings:
        return FileFindings(self._secrets, self._circumstances if self._remembers_windows else None)

    def _not_allowed(self, collector: FileFindings) -> list[Finding]:
        return [finding for finding in collector.findings() if not self._allows(finding)]

    def _content_key(self, sha256: str) -> bytes:
        return verdict_key(bytes.fromhex(sha256), self._circumstances)

    def _allows(self, finding: Finding) -> bool:
        key = (finding.path, finding.rule, finding.fingerprint)
        if key not in self._allow:
            return False
        self._allowed[key] = self._allow[key]
        return True


def _guard(path: str, search: Callable[..., None], *data: bytes) -> int:
    """Search a piece of content; keep the content out of tracebacks.

    Args:
        path: Path of the file in findings, without secrets.
        search: Searches the piece.
        *data: The piece; without data, the end of the content.

    Returns:
        The size of the piece.

    Raises:
        CheckpointError: The search failed; the message contains only the name and place of the
            error.
    """
    failure = None
    size = sum(map(len, data))
    try:
        search(*data)
    except Exception as error:  # noqa: BLE001 - its frames contain content
        frame = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__} in {frame.name}, line {frame.lineno}"
    del data
    if failure is not None:
        raise CheckpointError(f"the secret scan failed: {failure}", entry=path)
    return size


_KEYS: Final = tuple(field.name for field in attrs.fields(Allowance))


def read_allowances(path: Path) -> tuple[Allowance, ...]:
    """Read a file of allowed findings.

    The file is a JSON list of objects with ``path``, ``rule`` and ``fingerprint`` of a finding, and
    a ``reason``, all non-empty strings.

    Raises:
        ConfigError: The file cannot be read, or has another form.
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
