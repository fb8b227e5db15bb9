"""The errors of refused saves, and the tokens of live worlds, which no archive may contain.

The text of a refusal contains neither a secret nor a terminal escape, and the list of excluded
files contains no secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.archive.registry import above
from clawblox.checkpoint.names import find_tier
from clawblox.checkpoint.secrets import KnownValues, Scanner
from clawblox.errors import CheckpointError, CheckpointLimitError, CheckpointSecretError
from clawblox.printable import printable_name
from clawblox.protocol import SECRET_ENV
from clawblox.results import Excluded, Finding
from clawblox.rundir.records import read_running
from clawblox.system.process_tree import read_variables

_SHOWN: Final = 20


def secret_refusal(
    findings: Sequence[Finding], path: Path, *, workspace_only: bool
) -> CheckpointSecretError:
    """Return the error for an archive with findings.

    Args:
        findings: The findings.
        path: Path of the archive.
        workspace_only: Whether the conversations are already left out.
    """
    places = "place" if len(findings) == 1 else "places"
    return CheckpointSecretError(
        f"the checkpoint would contain what looks like a credential, in {len(findings)} {places}",
        findings=findings,
        path=path,
        hint=_hint(findings, workspace_only=workspace_only),
    )


def unarchivable_refusal(names: Sequence[str], path: Path, scanner: Scanner) -> CheckpointError:
    """Return the error for files whose names an archive cannot contain.

    Args:
        names: Their names in the archive.
        path: Path of the archive.
        scanner: Searches the names for secrets.
    """
    message = "files have names that are not allowed in an archive:"
    return CheckpointError(
        _list_names(message, dict.fromkeys(names, ""), scanner),
        path=path,
        hint='rename them, or list them as excluded with on_unarchivable="record"',
    )


def oversized_refusal(
    sizes: Mapping[str, int], path: Path, limits: tuple[int, int], scanner: Scanner
) -> CheckpointLimitError:
    """Return the error for files that are too large.

    Args:
        sizes: Their apparent sizes in bytes, by name in the archive.
        path: Path of the archive.
        limits: Limits in bytes for a file and for all files together.
        scanner: Searches the names for secrets.
    """
    names = sorted(sizes, key=lambda name: -sizes[name])
    message = f"files exceed the limits of {limits[0]} bytes each and {limits[1]} bytes in total:"
    return CheckpointLimitError(
        _list_names(message, {name: f": {sizes[name]} bytes" for name in names}, scanner),
        path=path,
        hint="remove them, raise max_file_bytes= or max_total_bytes=, or list files of a "
        'workspace as excluded with on_unarchivable="record"',
    )


def unreadable_refusal(name: str, path: Path) -> CheckpointError:
    """Return the error for a file or directory that this process is not permitted to read.

    Args:
        name: Its name in the archive.
        path: Its path, or the path of the archive.
    """
    return CheckpointError(
        "this process is not permitted to read a file or directory",
        path=path,
        entry=name,
        hint='list it as excluded with on_unarchivable="record"',
    )


def _hint(findings: Iterable[Finding], *, workspace_only: bool) -> str:
    tiers = {find_tier(finding.path) for finding in findings}
    hints = []
    if "session" in tiers and not workspace_only:
        hints.append("workspace_only=True leaves out the conversations of the agents")
    if tiers != {"session"} or workspace_only:
        hints.append(
            "if it is not a secret, allow it by path, rule and fingerprint, with a reason, in "
            "allow= or in secret-allow.json of the run"
        )
    return "; ".join(hints)


def _list_names(message: str, remarks: Mapping[str, str], scanner: Scanner) -> str:
    """Return a message with the first names, one per line, each with a remark."""
    lines = [message]
    for name in [*remarks][:_SHOWN]:
        # The path of a finding in a name is the name without the secret.
        findings = scanner.scan(name, ())
        shown = printable_name(findings[0].path) if findings else ascii(name)
        lines.append(f"  {shown}{remarks[name]}")
    if len(remarks) > _SHOWN:
        lines.append(f"  and {len(remarks) - _SHOWN} more")
    return "\n".join(lines)


def without_secrets(excluded: Sequence[Excluded], scanner: Scanner) -> list[Excluded]:
    """Return omitted entries with the secrets removed from their paths.

    The name of an omitted file must not make a save fail.

    Args:
        excluded: The entries.
        scanner: Searches the paths for secrets.
    """
    if not _has_secret(excluded, scanner):
        return list(excluded)
    return [_without_secret(entry, scanner) for entry in excluded]


def _without_secret(entry: Excluded, scanner: Scanner) -> Excluded:
    if _has_secret([entry], scanner) and (findings := scanner.scan(entry.path, ())):
        # The path of a finding in a name is the name without the secret.
        entry = attrs.evolve(entry, path=findings[0].path)
    while "/" in entry.path and _has_secret([entry], scanner):
        entry = attrs.evolve(entry, path=entry.path.rpartition("/")[0])
    return entry


def _has_secret(excluded: Sequence[Excluded], scanner: Scanner) -> bool:
    """Return whether the metadata that lists the entries would contain a secret."""
    # Search unescaped paths: an escape before a secret could hide it.
    text = json.dumps([attrs.asdict(entry) for entry in excluded], ensure_ascii=False)
    return bool(scanner.scan("", (text.encode(errors="surrogateescape"),)))


def live_tokens(paths: Iterable[Path]) -> KnownValues:
    """Return the tokens of the live instances of every run that contains one of ``paths``. Blocks.

    Returns:
        The tokens, by labels that name the instances.
    """
    directories = {directory for path in paths for directory in (path, *above(path))}
    tokens = KnownValues()
    for directory in sorted(directories):
        for record in read_running(directory):
            variables = read_variables(record.pid)
            for name in SECRET_ENV:
                if value := variables.get(name):
                    tokens[f"world:{record.name}:{record.pid}:{name}"] = value
    return tokens
