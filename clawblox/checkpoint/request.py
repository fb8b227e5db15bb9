"""What a caller wants to have in an archive, checked before anything is read or written.

A complaint is a ConfigError that names the argument and its value.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from clawblox.checkpoint.archive.metadata import RESERVED_KEYS, serialise_metadata
from clawblox.checkpoint.collect.sessions import FORMATS
from clawblox.checkpoint.model import Allowance
from clawblox.checkpoint.names import check_name
from clawblox.checkpoint.secrets import KnownValues
from clawblox.config.arguments import check_path, check_snapshot
from clawblox.errors import CheckpointError, CheckpointPathError, ConfigError
from clawblox.protocol import ARCHIVE_SUFFIX

__all__ = [
    "OnUnarchivable",
    "SaveRequest",
    "Secrets",
    "check_request",
    "checked_secrets",
    "label_secrets",
]

OnUnarchivable: TypeAlias = Literal["raise", "record"]
"""What becomes of a save when a file cannot be in an archive: it fails, or says so in it."""

_SHORTEST_SECRET: Final = 12
"""A shorter one is not searched for: it would be found everywhere."""


@attrs.frozen(kw_only=True)
class SaveRequest:
    """A save that can be tried. For its fields see ``save_checkpoint``; paths are absolute.

    The digest of the snapshot is that which came with it, if one did.
    """

    path: Path
    world_snapshot: Path | None
    world_sha256: str | None
    agents: Mapping[str, Path]
    backend: str | None
    metadata: Mapping[str, Any] = attrs.field(repr=False)
    workspace_only: bool
    known_secrets: Secrets
    allow: tuple[Allowance, ...]
    idle_wait: float
    on_unarchivable: OnUnarchivable
    overwrite: bool


def check_request(
    *,
    path: str | os.PathLike[str],
    world_snapshot: str | os.PathLike[str] | Mapping[str, Any] | None,
    agents: Mapping[str, str | os.PathLike[str]] | None,
    backend: str | None,
    metadata: Mapping[str, Any] | None,
    workspace_only: bool,
    known_secrets: Secrets,
    allow: Iterable[Allowance],
    idle_wait: float,
    on_unarchivable: OnUnarchivable,
    overwrite: bool,
) -> SaveRequest:
    """Return the request, or say what is wrong with it. Blocks for an instant.

    Raises:
        ConfigError: An argument cannot be; names it and its value.
        CheckpointError: What it names cannot be looked at.
    """
    snapshot, digest = _snapshot(world_snapshot)
    return SaveRequest(
        path=_archive_path(path),
        world_snapshot=snapshot,
        world_sha256=digest,
        agents=_agents(agents),
        backend=_one_of("backend", backend, (None, *_backends())),
        metadata=_metadata(metadata),
        workspace_only=_one_of("workspace_only", workspace_only, (False, True)),
        known_secrets=known_secrets,
        allow=_allowances(allow),
        idle_wait=_seconds("idle_wait", idle_wait),
        on_unarchivable=_one_of("on_unarchivable", on_unarchivable, get_args(OnUnarchivable)),
        overwrite=_one_of("overwrite", overwrite, (False, True)),
    )


class Secrets(tuple[str, ...]):
    """Secrets. They can stand in a traceback: what they show is how many they are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


def checked_secrets(values: Iterable[str]) -> Secrets:
    """Return the secrets that a caller knows of.

    Raises:
        ConfigError: They are not strings; shows none of them.
    """
    if isinstance(values, str):
        raise ConfigError("must be several strings, not one", key="known_secrets")
    secrets = Secrets(values)
    if not all(map(_is_secret, secrets)):
        message = f"must be strings of {_SHORTEST_SECRET} characters or more"
        raise ConfigError(message, key="known_secrets")
    return secrets


def _is_secret(value: object) -> bool:
    return isinstance(value, str) and len(value) >= _SHORTEST_SECRET


def label_secrets(values: Secrets) -> KnownValues:
    """Return secrets that a caller knows of by labels that say so."""
    return KnownValues({f"caller:{place}": value for place, value in enumerate(values)})


def _archive_path(value: str | os.PathLike[str]) -> Path:
    path = check_path(value, "path").absolute()
    if path.suffix != ARCHIVE_SUFFIX or path.name == ARCHIVE_SUFFIX:
        raise ConfigError(
            f"the name of an archive ends in {ARCHIVE_SUFFIX}",
            key="path",
            value=str(value),
            hint="that is how tools, and the repair of a run, find it",
        )
    return path


def _snapshot(
    value: str | os.PathLike[str] | Mapping[str, Any] | None,
) -> tuple[Path | None, str | None]:
    if value is None:
        return None, None
    given, digest = check_snapshot(value, "world_snapshot")
    path = given.absolute()
    if not _holds(path.is_file, path):
        raise ConfigError("the snapshot is not a file", key="world_snapshot", value=str(given))
    return path, digest


def _agents(value: Mapping[str, str | os.PathLike[str]] | None) -> dict[str, Path]:
    if not isinstance(value or {}, Mapping):
        raise ConfigError("must map names to directories", key="agents", value=value)
    return {_agent_name(name): _agent_dir(name, path) for name, path in (value or {}).items()}


def _agent_name(name: object) -> str:
    if not isinstance(name, str):
        raise ConfigError("their names must be strings", key="agents", value=name)
    try:
        if "/" in name:
            raise CheckpointPathError("is more than one component of a path")
        check_name(f"agents/{name}/workspace/x")
    except CheckpointPathError as error:
        message = f"the name of an agent cannot stand in an archive: {error.message}"
        raise ConfigError(message, key="agents", value=name) from error
    return name


def _agent_dir(name: str, value: str | os.PathLike[str]) -> Path:
    path = check_path(value, f"agents.{name}").absolute()
    if not _holds(path.is_dir, path):
        message = "the agent's directory is not a directory"
        raise ConfigError(message, key=f"agents.{name}", value=str(value))
    return path


def _backends() -> tuple[str, ...]:
    return tuple(sorted({each.backend for each in FORMATS.values()}))


def _metadata(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not isinstance(value or {}, Mapping):
        raise ConfigError("must be a mapping", key="metadata", value=value)
    given = dict(value or {})
    for key in sorted(RESERVED_KEYS & given.keys()):
        message = "the archive itself uses this key"
        raise ConfigError(message, key=f"metadata.{key}")
    return {_metadata_key(key): _json(key, one) for key, one in given.items()}


def _metadata_key(key: object) -> str:
    if not isinstance(key, str):
        raise ConfigError("its keys must be strings", key="metadata", value=key)
    return key


def _json(key: str, value: object) -> object:
    """Return a JSON value of its own; the caller may go on changing what it gave."""
    try:
        return json.loads(serialise_metadata({key: value}))[key]
    except ConfigError as error:
        # Its type alone: whoever gives bytes or an object here may have given a secret.
        kind = type(value).__name__
        raise ConfigError(error.message, key=f"metadata.{key}", value=kind) from error


def _allowances(values: Iterable[Allowance]) -> tuple[Allowance, ...]:
    allow = tuple(values)
    for each in allow:
        if not isinstance(each, Allowance):
            raise ConfigError("must be Allowance values", key="allow", value=each)
    return allow


def _seconds(key: str, value: float) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ConfigError("must be seconds, 0 or more", key=key, value=value)
    return float(value)


def _one_of(key: str, value: Any, allowed: tuple[Any, ...]) -> Any:  # noqa: ANN401 - any choice
    if not any(type(value) is type(each) and value == each for each in allowed):
        words = ", ".join(repr(each) for each in allowed)
        raise ConfigError(f"must be one of {words}", key=key, value=value)
    return value


def _holds(question: Callable[[], bool], path: Path) -> bool:
    try:
        return question()
    except OSError as error:
        message = f"this cannot be looked at: {error.strerror}"
        raise CheckpointError(message, path=path) from error
