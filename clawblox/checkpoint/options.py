"""The options of ``save_checkpoint`` and ``load_checkpoint``, with their defaults and checks.

All options are checked before the first write. An error names the argument and, unless it may be a
secret, its value.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from clawblox.checkpoint.archive.metadata import RESERVED_KEYS, serialise_metadata
from clawblox.checkpoint.collect.conversations import FORMATS
from clawblox.checkpoint.collect.policy import FoldedPath, fold_path
from clawblox.checkpoint.model import Allowance, Limits
from clawblox.checkpoint.names import check_name
from clawblox.checkpoint.secrets import KnownValues
from clawblox.concurrency.progress import ProgressLike
from clawblox.config.agent_arguments import Agents, agent_directories
from clawblox.config.arguments import (
    COUNT,
    check_choice,
    check_flag,
    check_kind,
    check_path,
    check_progress,
    check_read_path,
    check_seconds,
    check_snapshot,
    checked,
    mismatch,
)
from clawblox.config.options import (
    DEFAULT_IDLE_WAIT_S,
    DEFAULT_MAX_FILE_BYTES,
    DEFAULT_MAX_TOTAL_BYTES,
)
from clawblox.errors import CheckpointPathError, ConfigError
from clawblox.errors.checkpoint import os_errors_as
from clawblox.protocol import ARCHIVE_SUFFIX

OnUnarchivable: TypeAlias = Literal["raise", "record"]
"""Treatment of a file that cannot be archived: the save fails, or lists the file as excluded."""

_EXAMINED: Final = "the path cannot be examined"

_SHORTEST_SECRET: Final = 12
"""Minimum length of a secret; shorter texts would be found everywhere."""


class Secrets(tuple[str, ...]):
    """Secrets with a ``repr`` that is safe in a traceback: it shows only their number."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


@attrs.frozen
class Snapshot:
    """A world's snapshot.

    Attributes:
        path: Its absolute path.
        sha256: Digest given with the snapshot; None without a digest.
        rows_sha256: Digest given with its rows; None without a digest.
    """

    path: Path
    sha256: str | None
    rows_sha256: str | None = None


def check_secrets(values: Iterable[str]) -> Secrets:
    """Return a caller's secrets, checked.

    Raises:
        ConfigError: The values are not strings, or are too short; the error does not show them.
    """
    if isinstance(values, str):
        raise ConfigError("must be a list of strings, not a string", key="known_secrets")
    secrets = Secrets(values)
    if not all(map(_is_secret, secrets)):
        message = f"must be strings of {_SHORTEST_SECRET} characters or more"
        raise ConfigError(message, key="known_secrets")
    return secrets


def _is_secret(value: object) -> bool:
    return isinstance(value, str) and len(value) >= _SHORTEST_SECRET


def label_secrets(values: Secrets) -> KnownValues:
    """Return secrets with labels that mark them as the caller's."""
    return KnownValues({f"caller:{place}": value for place, value in enumerate(values)})


def _check_archive_path(value: str | os.PathLike[str]) -> Path:
    path = check_path(value, "path").absolute()
    if path.suffix != ARCHIVE_SUFFIX or path.name == ARCHIVE_SUFFIX:
        hint = "clawblox ckpt repair finds archives by this suffix"
        raise mismatch("path", f"a name that ends in {ARCHIVE_SUFFIX}", str(value), hint=hint)
    return path


def _check_snapshot(value: str | os.PathLike[str] | Mapping[str, Any] | None) -> Snapshot | None:
    if value is None:
        return None
    given, sha256 = check_snapshot(value, "world_snapshot")
    path = given.absolute()
    with os_errors_as(_EXAMINED, path):
        if not path.is_file():
            raise mismatch("world_snapshot", "an existing file", str(given))
    rows = value.get("rows_sha256") if isinstance(value, Mapping) else None
    return Snapshot(path, sha256, rows if isinstance(rows, str) else None)


def _check_agents(value: Agents | None) -> dict[str, Path]:
    return {
        _check_agent_name(name): _check_agent_dir(name, path)
        for name, path in agent_directories(value).items()
    }


def _check_agent_name(name: object) -> str:
    if not isinstance(name, str):
        raise mismatch("agents", "agents whose names are strings", name)
    try:
        if "/" in name:
            raise CheckpointPathError("is more than one component of a path")
        check_name(f"agents/{name}/workspace/x")
    except CheckpointPathError as error:
        hint = f"an archive cannot contain this name: {error.message}"
        raise mismatch("agents", "agents whose names can be in a path", name, hint=hint) from error
    return name


def _check_agent_dir(name: str, value: str | os.PathLike[str]) -> Path:
    path = check_path(value, f"agents.{name}").absolute()
    with os_errors_as(_EXAMINED, path):
        if not path.is_dir():
            raise mismatch(f"agents.{name}", "an existing directory", str(value))
    return path


def _check_metadata(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not isinstance(value or {}, Mapping):
        raise mismatch("metadata", "a mapping", value)
    given = dict(value or {})
    for key in sorted(RESERVED_KEYS & given.keys()):
        message = "must be left out, because archives use this key themselves"
        raise ConfigError(message, key=f"metadata.{key}")
    for key in given:
        if not isinstance(key, str):
            raise mismatch("metadata", "a mapping with strings as keys", key)
    return {key: _copy_json(key, value) for key, value in given.items()}


def _copy_json(key: str, value: object) -> object:
    """Return a deep copy of a JSON value, so that the caller may change the original."""
    try:
        return json.loads(serialise_metadata({key: value}))[key]
    except ConfigError as error:
        # Show only the type, because the bytes or the object may be a secret.
        kind = type(value).__name__
        raise ConfigError(error.message, key=f"metadata.{key}", value=kind) from error


def _check_allowances(values: Iterable[Allowance]) -> tuple[Allowance, ...]:
    allow = tuple(values)
    for allowance in allow:
        if not isinstance(allowance, Allowance):
            raise mismatch("allow", "Allowance values", allowance)
    return allow


def _check_keep(value: Iterable[str]) -> frozenset[FoldedPath]:
    """Return paths of workspaces in folded form.

    Raises:
        ConfigError: The values are not relative paths.
    """
    if isinstance(value, str):
        raise mismatch("keep", "a list of paths", value)
    return frozenset(map(_check_kept_path, value))


def _check_kept_path(value: object) -> FoldedPath:
    parts = value.rstrip("/").split("/") if isinstance(value, str) else []
    if not parts or not {"", ".", ".."}.isdisjoint(parts):
        hint = "such as .helix/config.toml; a directory includes everything in it"
        raise mismatch("keep", "paths below a workspace", value, hint=hint)
    return fold_path("/".join(parts))


def _check_idle_wait(value: float, key: str) -> None:
    # With infinity, an agent that never ends its turn would block the save forever.
    if check_seconds(value, key, may_be_zero=True) == math.inf:
        raise mismatch(key, "a finite number of seconds, 0 or more", value)


def _check_load_path(value: str | os.PathLike[str]) -> Path:
    return check_read_path(value, "path")


def _check_run_dir(value: str | os.PathLike[str]) -> Path:
    return check_path(value, "run_dir")


_BACKENDS: Final = tuple(sorted({known.backend for known in FORMATS.values()}))


@attrs.frozen(kw_only=True)
class ArchiveOptions:
    """The options of ``save_checkpoint``. Paths are absolute. The constructor blocks briefly.

    Attributes:
        path: The archive, ``*.ckpt``; its directory is created if missing.
        world_snapshot: The world's snapshot: its path, or the result of ``save``, whose digest is
            then checked. It is stored unchanged. None leaves it out.
        agents: The agents, or their directories by name; None for no agents.
        backend: The driver of all agents, such as ``claude``; None reads it from each directory.
        metadata: JSON values for the top level of ``metadata.json``; None adds none.
        workspace_only: Whether to leave out the conversations; the right choice for archives that
            are shared.
        known_secrets: Secrets to search for, in addition to the tokens of live worlds, the secrets
            in this process's environment and those in the agents' homes.
        allow: Findings that are not secrets, in addition to ``secret-allow.json`` of the run.
        idle_wait: Seconds to wait for a moment in which no agent is in the middle of a turn.
        on_unarchivable: How to treat files and directories that this process may not read, whose
            names cannot be in an archive, or that are too large: ``raise`` refuses the archive,
            ``record`` lists them as excluded.
        max_file_bytes: Limit for the apparent size of an agent's file, in bytes. A larger file is
            not read.
        max_total_bytes: Limit for the apparent size of all these files together, in bytes. The
            largest files are left out until the rest fits.
        overwrite: Whether to replace an archive of that name.
        keep: Paths below workspaces to archive even though programs execute or follow them
            automatically, such as ``.helix/config.toml``; a directory includes everything in it.
            Credentials are never archived.
        progress: True shows the progress on standard error, in a terminal or a notebook. A function
            is called with the bytes done and the total (0 and 0 during the wait for an idle
            moment), perhaps in another thread; an exception from it ends the call. False does
            neither.

    Raises:
        ConfigError: An option is wrong; the error names it.
        CheckpointError: A path cannot be examined.
    """

    path: Path = attrs.field(converter=_check_archive_path)
    world_snapshot: Snapshot | None = attrs.field(default=None, converter=_check_snapshot)
    agents: Mapping[str, Path] = attrs.field(default=None, converter=_check_agents)
    backend: str | None = attrs.field(
        default=None, validator=checked(check_choice, choices=_BACKENDS, optional=True)
    )
    metadata: Mapping[str, Any] = attrs.field(default=None, converter=_check_metadata, repr=False)
    workspace_only: bool = attrs.field(default=False, validator=checked(check_flag))
    known_secrets: Secrets = attrs.field(default=Secrets(), converter=check_secrets)
    allow: tuple[Allowance, ...] = attrs.field(default=(), converter=_check_allowances)
    idle_wait: float = attrs.field(default=DEFAULT_IDLE_WAIT_S, validator=checked(_check_idle_wait))
    on_unarchivable: OnUnarchivable = attrs.field(
        default="raise", validator=checked(check_choice, choices=get_args(OnUnarchivable))
    )
    max_file_bytes: int = attrs.field(default=DEFAULT_MAX_FILE_BYTES, validator=COUNT)
    max_total_bytes: int = attrs.field(default=DEFAULT_MAX_TOTAL_BYTES, validator=COUNT)
    overwrite: bool = attrs.field(default=False, validator=checked(check_flag))
    keep: frozenset[FoldedPath] = attrs.field(default=(), converter=_check_keep)
    progress: ProgressLike = attrs.field(default=False, validator=checked(check_progress))


@attrs.frozen(kw_only=True)
class LoadOptions:
    """The options of ``load_checkpoint``.

    Attributes:
        path: The archive.
        run_dir: Directory to restore to; it may have other contents. A refused load leaves it
            unchanged.
        limits: Limits for the size of the archive.
        keep: Paths below workspaces to restore even though programs execute or follow them
            automatically, such as ``.helix/config.toml``; a directory includes everything in it.
        progress: True shows the progress on standard error, in a terminal or a notebook. A function
            is called with the bytes done and the total, perhaps in another thread; an exception
            from it ends the call. False does neither.

    Raises:
        ConfigError: An option is wrong; the error names it.
    """

    path: Path = attrs.field(converter=_check_load_path)
    run_dir: Path = attrs.field(converter=_check_run_dir)
    limits: Limits = attrs.field(
        default=Limits(), validator=checked(check_kind, kind=Limits, expected="a Limits value")
    )
    keep: frozenset[FoldedPath] = attrs.field(default=(), converter=_check_keep)
    progress: ProgressLike = attrs.field(default=False, validator=checked(check_progress))
