"""What a save must not carry: tokens of worlds that run, and why a save is refused.

The words of a refusal hold neither a secret nor an escape of a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from clawblox.checkpoint.archive.registry import above
from clawblox.checkpoint.names import split_name
from clawblox.checkpoint.secrets import KnownValues, Scanner
from clawblox.errors import CheckpointError, CheckpointLimitError, CheckpointSecretError
from clawblox.protocol import SECRET_ENV
from clawblox.results import Finding
from clawblox.rundir.records import InstanceRecord, read_running
from clawblox.system.process_tree import read_variables

_SHOWN: Final = 20


def secret_refusal(
    findings: Sequence[Finding], path: Path, *, workspace_only: bool
) -> CheckpointSecretError:
    """Return the refusal of an archive in which something was found.

    Args:
        findings: What was found.
        path: Where the archive would be.
        workspace_only: Whether the sessions are left out already.
    """
    places = "place" if len(findings) == 1 else "places"
    return CheckpointSecretError(
        f"the checkpoint would carry what looks like a credential, in {len(findings)} {places}",
        findings=findings,
        path=path,
        hint=_hint(findings, workspace_only=workspace_only),
    )


def unarchivable_refusal(names: Sequence[str], path: Path, scanner: Scanner) -> CheckpointError:
    """Return the refusal of an archive in which some files could not be.

    Args:
        names: What they would be called there.
        path: Where the archive would be.
        scanner: Looks for secrets in the names.
    """
    lines = [f"  {_hide_secrets(name, scanner)!a}" for name in names[:_SHOWN]]
    more = [f"  and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return CheckpointError(
        "\n".join(["files have names that are not allowed in an archive:", *lines, *more]),
        path=path,
        hint='rename them, or list them as excluded with on_unarchivable="record"',
    )


def oversized_refusal(
    sizes: Mapping[str, int], path: Path, limits: tuple[int, int], scanner: Scanner
) -> CheckpointLimitError:
    """Return the refusal of an archive of files that are too large.

    Args:
        sizes: Their apparent sizes in bytes by what they would be called there.
        path: Where the archive would be.
        limits: How large a file may be, and all of them together.
        scanner: Looks for secrets in the names.
    """
    names = sorted(sizes, key=lambda name: -sizes[name])
    lines = [f"  {_hide_secrets(name, scanner)!a}: {sizes[name]} bytes" for name in names[:_SHOWN]]
    more = [f"  and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    message = f"files are too large, of at most {limits[0]} bytes each and {limits[1]} in all:"
    return CheckpointLimitError(
        "\n".join([message, *lines, *more]),
        path=path,
        hint="remove them, or raise max_file_bytes= or max_total_bytes=, or list those of a "
        'workspace as excluded with on_unarchivable="record"',
    )


def unreadable_refusal(name: str, path: Path) -> CheckpointError:
    """Return the refusal of an archive of something that this process may not read.

    Args:
        name: What it would be called there.
        path: Where it is, or where the archive would be.
    """
    return CheckpointError(
        "a file or directory may not be read by this process",
        path=path,
        entry=name,
        hint='list it as excluded with on_unarchivable="record"',
    )


def _hint(findings: Iterable[Finding], *, workspace_only: bool) -> str:
    tiers = {_tier(finding) for finding in findings}
    hints = []
    if "session" in tiers and not workspace_only:
        hints.append("workspace_only=True leaves the sessions of the agents out")
    if tiers != {"session"} or workspace_only:
        hints.append(
            "if it is no secret, allow it by path, rule and fingerprint, with a reason, in "
            "allow= or in secret-allow.json of the run"
        )
    return "; ".join(hints)


def _tier(finding: Finding) -> str | None:
    parts = split_name(finding.path)
    return parts[1] if parts else None


def _hide_secrets(name: str, scanner: Scanner) -> str:
    # A finding in a name calls the file by what is left of it.
    found = scanner.scan(name, ())
    return found[0].path if found else name


def live_tokens(paths: Iterable[Path]) -> KnownValues:
    """Return the tokens of the live instances of every run that one of ``paths`` lies in. Blocks.

    Returns:
        The tokens, by a label that names the instance.
    """
    directories = {directory for path in paths for directory in (path, *above(path))}
    found = KnownValues()
    for directory in sorted(directories):
        for record in read_running(directory):
            found.update(_read_tokens(record))
    return found


def _read_tokens(record: InstanceRecord) -> KnownValues:
    variables = read_variables(record.pid)
    return KnownValues(
        {
            f"world:{record.name}:{record.pid}:{name}": value
            for name in SECRET_ENV
            if (value := variables.get(name))
        }
    )
