"""What a save and a load can be asked for: every option by its name, with its complaint.

Everything is checked before anything is written. A complaint is a ConfigError that names the
argument and, unless it may be a secret, its value.
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
from clawblox.checkpoint.collect.policy import FoldedPath, fold_path
from clawblox.checkpoint.collect.sessions import FORMATS
from clawblox.checkpoint.model import MAX_FILE_BYTES, MAX_TOTAL_BYTES, Allowance, Limits
from clawblox.checkpoint.names import check_name
from clawblox.checkpoint.progress import Report
from clawblox.checkpoint.secrets import KnownValues
from clawblox.config.agent_arguments import Agents, agent_directories
from clawblox.config.arguments import check_path, check_read_path, check_snapshot
from clawblox.errors import CheckpointError, CheckpointPathError, ConfigError
from clawblox.foreign_values import whole_number
from clawblox.protocol import ARCHIVE_SUFFIX

OnUnarchivable: TypeAlias = Literal["raise", "record"]
"""What becomes of a save when a file cannot be in an archive: it fails, or says so in it."""

_SHORTEST_SECRET: Final = 12
"""Shorter secrets are not searched for: they would be found everywhere."""


class Secrets(tuple[str, ...]):
    """Secrets. They can stand in a traceback: what they show is how many they are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


@attrs.frozen
class Snapshot:
    """A world's document.

    Attributes:
        path: Its absolute path.
        sha256: The digest that came with it; None when none did.
        rows_sha256: That of the rows beside it, likewise.
    """

    path: Path
    sha256: str | None
    rows_sha256: str | None = None


def check_secrets(values: Iterable[str]) -> Secrets:
    """Return secrets that a caller knows.

    Raises:
        ConfigError: They are not strings, or too short; the error shows none of them.
    """
    if isinstance(values, str):
        raise ConfigError("several strings, not a single one", key="known_secrets")
    secrets = Secrets(values)
    if not all(map(_is_secret, secrets)):
        message = f"strings of {_SHORTEST_SECRET} characters or more"
        raise ConfigError(message, key="known_secrets")
    return secrets


def _is_secret(value: object) -> bool:
    return isinstance(value, str) and len(value) >= _SHORTEST_SECRET


def label_secrets(values: Secrets) -> KnownValues:
    """Return secrets by labels that say that the caller knows them."""
    return KnownValues({f"caller:{place}": value for place, value in enumerate(values)})


def _check_archive_path(value: str | os.PathLike[str]) -> Path:
    path = check_path(value, "path").absolute()
    if path.suffix != ARCHIVE_SUFFIX or path.name == ARCHIVE_SUFFIX:
        raise ConfigError(
            f"a name that ends in {ARCHIVE_SUFFIX}",
            key="path",
            value=str(value),
            hint="tools, and the repair of a run, find archives by it",
        )
    return path


def _check_snapshot(
    value: str | os.PathLike[str] | Mapping[str, Any] | None,
) -> Snapshot | None:
    if value is None:
        return None
    given, sha256 = check_snapshot(value, "world_snapshot")
    path = given.absolute()
    if not _ask(path.is_file, path):
        raise ConfigError("a file that exists", key="world_snapshot", value=str(given))
    rows = value.get("rows_sha256") if isinstance(value, Mapping) else None
    return Snapshot(path, sha256, rows if isinstance(rows, str) else None)


def _check_agents(value: Agents | None) -> dict[str, Path]:
    return {
        _check_agent_name(name): _check_agent_dir(name, path)
        for name, path in agent_directories(value).items()
    }


def _check_agent_name(name: object) -> str:
    if not isinstance(name, str):
        raise ConfigError("strings as the names of agents", key="agents", value=name)
    try:
        if "/" in name:
            raise CheckpointPathError("is more than one component of a path")
        check_name(f"agents/{name}/workspace/x")
    except CheckpointPathError as error:
        message = f"names that can stand in an archive; this one cannot: {error.message}"
        raise ConfigError(message, key="agents", value=name) from error
    return name


def _check_agent_dir(name: str, value: str | os.PathLike[str]) -> Path:
    path = check_path(value, f"agents.{name}").absolute()
    if not _ask(path.is_dir, path):
        raise ConfigError("a directory that exists", key=f"agents.{name}", value=str(value))
    return path


def _check_metadata(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not isinstance(value or {}, Mapping):
        raise ConfigError("a mapping", key="metadata", value=value)
    given = dict(value or {})
    for key in sorted(RESERVED_KEYS & given.keys()):
        raise ConfigError("another key: archives use this one themselves", key=f"metadata.{key}")
    return {_check_metadata_key(key): _copy_json(key, value) for key, value in given.items()}


def _check_metadata_key(key: object) -> str:
    if not isinstance(key, str):
        raise ConfigError("strings as keys", key="metadata", value=key)
    return key


def _copy_json(key: str, value: object) -> object:
    """Return a JSON value of its own; the caller may go on changing what it gave."""
    try:
        return json.loads(serialise_metadata({key: value}))[key]
    except ConfigError as error:
        # Its type alone: a caller who gives bytes or an object here may have given a secret.
        kind = type(value).__name__
        raise ConfigError(error.message, key=f"metadata.{key}", value=kind) from error


def _check_allowances(values: Iterable[Allowance]) -> tuple[Allowance, ...]:
    allow = tuple(values)
    for allowance in allow:
        if not isinstance(allowance, Allowance):
            raise ConfigError("Allowance values", key="allow", value=allowance)
    return allow


def _check_keep(value: Iterable[str]) -> frozenset[FoldedPath]:
    """Return paths of workspaces, folded.

    Raises:
        ConfigError: They are no relative paths.
    """
    if isinstance(value, str):
        raise ConfigError("several paths, not a single one", key="keep", value=value)
    return frozenset(map(_check_kept_path, value))


def _check_kept_path(value: object) -> FoldedPath:
    parts = value.rstrip("/").split("/") if isinstance(value, str) else []
    if not parts or not {"", ".", ".."}.isdisjoint(parts):
        hint = "such as .helix/config.toml; a directory is kept with all that is in it"
        raise ConfigError("paths below a workspace", key="keep", value=value, hint=hint)
    return fold_path("/".join(parts))


def _check_idle_wait(value: float) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ConfigError("seconds, 0 or more", key="idle_wait", value=value)
    return float(value)


def _check_bytes(_options: object, field: attrs.Attribute[Any], value: object) -> None:
    if not whole_number(value, low=1):
        raise ConfigError("a whole number of bytes above 0", key=field.name, value=value)


_Validator: TypeAlias = Callable[[object, "attrs.Attribute[Any]", Any], None]


def _check_choice(*choices: object) -> _Validator:
    def check(_options: object, field: attrs.Attribute[Any], value: object) -> None:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            words = ", ".join(map(repr, choices))
            raise ConfigError(f"one of {words}", key=field.name, value=value)

    return check


def _check_progress(_options: object, _field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not callable(value):
        raise ConfigError("a function of two numbers, or None", key="progress", value=value)


def _check_limits(_options: object, _field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Limits):
        raise ConfigError("a Limits value", key="limits", value=value)


def _check_load_path(value: str | os.PathLike[str]) -> Path:
    return check_read_path(value, "path")


def _check_run_dir(value: str | os.PathLike[str]) -> Path:
    return check_path(value, "run_dir")


def _ask(question: Callable[[], bool], path: Path) -> bool:
    try:
        return question()
    except OSError as error:
        message = f"this cannot be looked at: {error.strerror}"
        raise CheckpointError(message, path=path) from error


_BACKENDS: Final = (None, *sorted({known.backend for known in FORMATS.values()}))


@attrs.frozen(kw_only=True)
class SaveOptions:
    """What a save is asked for; ``save_checkpoint`` documents each option. Paths are absolute.

    Making one blocks for an instant.

    Raises:
        ConfigError: An option is wrong; the error names it.
        CheckpointError: A path cannot be looked at.
    """

    path: Path = attrs.field(converter=_check_archive_path)
    world_snapshot: Snapshot | None = attrs.field(converter=_check_snapshot)
    agents: Mapping[str, Path] = attrs.field(converter=_check_agents)
    backend: str | None = attrs.field(validator=_check_choice(*_BACKENDS))
    metadata: Mapping[str, Any] = attrs.field(converter=_check_metadata, repr=False)
    workspace_only: bool = attrs.field(validator=_check_choice(False, True))
    known_secrets: Secrets = attrs.field(converter=check_secrets)
    allow: tuple[Allowance, ...] = attrs.field(converter=_check_allowances)
    idle_wait: float = attrs.field(converter=_check_idle_wait)
    on_unarchivable: OnUnarchivable = attrs.field(
        validator=_check_choice(*get_args(OnUnarchivable))
    )
    max_file_bytes: int = attrs.field(default=MAX_FILE_BYTES, validator=_check_bytes)
    max_total_bytes: int = attrs.field(default=MAX_TOTAL_BYTES, validator=_check_bytes)
    overwrite: bool = attrs.field(validator=_check_choice(False, True))
    keep: frozenset[FoldedPath] = attrs.field(converter=_check_keep)
    progress: Report | None = attrs.field(validator=_check_progress)


@attrs.frozen(kw_only=True)
class LoadOptions:
    """What a load is asked for; ``load_checkpoint`` documents each option.

    Raises:
        ConfigError: An option is wrong; the error names it.
    """

    path: Path = attrs.field(converter=_check_load_path)
    run_dir: Path = attrs.field(converter=_check_run_dir)
    limits: Limits = attrs.field(validator=_check_limits)
    keep: frozenset[FoldedPath] = attrs.field(default=frozenset(), converter=_check_keep)
    progress: Report | None = attrs.field(validator=_check_progress)
