"""The updates of a manifest, as :class:`clawblox.rundir.manifest.Update` values.

Owns the checking of the arguments: a complaint is a ConfigError that names the argument and
its value. How an update is merged belongs to ``manifest``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import attrs

from clawblox.config.arguments import check_choice, check_count, check_labels, check_seed, mismatch
from clawblox.errors import ConfigError
from clawblox.protocol import ScriptErrors
from clawblox.results import Labels, SavedSnapshot
from clawblox.rundir.manifest import Update
from clawblox.rundir.manifest_entries import ManifestEntry, is_filled
from clawblox.system.clock import format_utc

RunStatus: TypeAlias = Literal["running", "complete", "failed", "interrupted"]
"""How far a run is."""

RestartedBy: TypeAlias = Literal["policy", "request", "resume"]
"""Who brought an instance back: the restart policy, a person, or a new orchestrator."""


def run_update(
    *,
    id: str | None = None,  # noqa: A002 - the documented name
    index: int | None = None,
    status: RunStatus | None = None,
    started_at: datetime | str | None = None,
    ended_at: datetime | str | None = None,
    resume_from: Path | str | Mapping[str, Any] | None = None,
    parent_sha256: str | None = None,
    resume_archive: Path | None = None,
    labels: Labels | None = None,
    seed: int | None = None,
    script_errors: ScriptErrors | None = None,
) -> Update:
    """Describe the run; a field that is None keeps its value.

    An ``id`` that differs from the present one begins another run: the documented fields start
    over.

    Args:
        id: Name of the run, unique among the runs that are compared.
        index: Its place among them, from 0.
        status: How far it is.
        started_at: When it began; a time without a zone is UTC, text is ISO 8601.
        ended_at: When it ended.
        resume_from: The checkpoint it was resumed from: its path, or the mapping that
            ``save`` returned or the manifest holds (a relative path in a mapping counts
            from the run directory).
        parent_sha256: Digest of that checkpoint, in hexadecimal.
        resume_archive: The archive that the checkpoint was taken out of.
        labels: Labels of the run, in place of the present ones.
        seed: Seed that its random state began with.
        script_errors: The errors of its scripts, as its world last reported.

    Raises:
        ConfigError: A value is not of its kind; names the argument.
    """
    given = {
        "id": _checked("id", id, _check_filled),
        "index": _checked("index", index, partial(check_count, at_least=0)),
        "status": _checked("status", status, partial(check_choice, choices=get_args(RunStatus))),
        "started_at": _stamp("started_at", started_at),
        "ended_at": _stamp("ended_at", ended_at),
        "resume_from": _absolute("resume_from", resume_from),
        "parent_sha256": _checked("parent_sha256", parent_sha256, _check_filled),
        "resume_archive": _absolute("resume_archive", resume_archive),
        "labels": None if labels is None else check_labels(labels),
        "seed": _checked("seed", seed, check_seed),
        "script_errors": None if script_errors is None else attrs.asdict(script_errors),
    }
    return Update(run=_known(given))


def agent_update(
    *,
    dir: Path | str | None = None,  # noqa: A002 - the documented name
    id: str | None = None,  # noqa: A002 - the documented name
    name: str | None = None,
    run_name: str | None = None,
    world_agent_id: str | None = None,
    run_id: str | None = None,
    driver: str | None = None,
    sandbox: str | None = None,
) -> Update:
    """Register an agent; entries with its ``id``, or else its ``dir``, become one with it.

    Args:
        dir: The agent's directory.
        id: The agent's own id, when it has one.
        name: The name it shows.
        run_name: Its full name, with the run's suffix.
        world_agent_id: The id that the world gave it.
        run_id: Id of the run that it joined.
        driver: How its program is driven.
        sandbox: Level of its sandbox.

    Raises:
        ConfigError: Neither ``dir`` nor ``id`` is given, or a value is not a string.
    """
    if dir is None and id is None:
        raise ConfigError("an agent needs a dir or an id to be registered", key="dir")
    texts = {
        "id": id,
        "name": name,
        "run_name": run_name,
        "world_agent_id": world_agent_id,
        "run_id": run_id,
        "driver": driver,
        "sandbox": sandbox,
    }
    for key, text in texts.items():
        _checked(key, text, _check_filled)
    return Update(agents=(_known({**texts, "dir": _absolute("dir", dir)}),))


def recording_update(
    *,
    path: Path | str,
    events: object = None,
    format: str | None = None,  # noqa: A002
    size_bytes: int | None = None,
    sha256: str | None = None,
) -> Update:
    """Register a recording; an entry with its ``path`` becomes one with it.

    Args:
        path: The recording.
        events: The events as the recording protocol describes them, any JSON value.
        format: Its format.
        size_bytes: Length of the finished file.
        sha256: Digest of the finished file, in hexadecimal.

    Raises:
        ConfigError: A value is not of its kind; names the argument.
    """
    entry = {
        "path": _absolute("path", path),
        "events": _plain("events", events),
        "format": _checked("format", format, _check_filled),
        "size_bytes": _checked("size_bytes", size_bytes, partial(check_count, at_least=0)),
        "sha256": _checked("sha256", sha256, _check_filled),
    }
    return Update(recordings=(_known(entry),))


def instances_update(directories: Mapping[str, Path], labels: Mapping[str, Labels]) -> Update:
    """Register the instances of a run directory with many.

    Args:
        directories: The directories with the manifests, by name of the instance.
        labels: By name of the instance its labels.
    """
    return Update(
        instances=tuple(
            {"name": name, "dir": str(path), "labels": dict(labels.get(name, {}))}
            for name, path in directories.items()
        )
    )


def restart_update(
    *,
    number: int,
    at: str,
    exit: str,  # noqa: A002 - the documented name
    resume_from: Path | None,
    parent_sha256: str | None = None,
    run_id: str | None = None,
    by: RestartedBy,
    seed: int | None = None,
) -> Update:
    """Note that an instance was brought back, for the lineage of its run.

    Args:
        number: How many times by now, from 1.
        at: UTC time.
        exit: How its process had ended, in words.
        resume_from: Snapshot that it was brought back from; None for a fresh start.
        parent_sha256: Digest of that snapshot; None if not known.
        run_id: Id of its run.
        by: Who brought it back.
        seed: Seed that its random state begins with, from now on the seed of the run; None if it
            continues that of the snapshot.
    """
    entry = {
        "number": number,
        "at": at,
        "exit": exit,
        "resume_from": None if resume_from is None else str(resume_from),
        "parent_sha256": parent_sha256,
        "run_id": run_id,
        "by": by,
    }
    return Update(run=_known({"seed": seed}), restarts=(_known(entry),))


def reopened_update() -> Update:
    """Note that a run continues after its end was noted."""
    return Update(run={"status": "running", "ended_at": None, "script_errors": None})


def checkpoint_update(
    checkpoint: SavedSnapshot | Mapping[str, Any],
    *,
    run_id: str | None = None,
    is_autosave: bool = False,
) -> Update:
    """Register a checkpoint; an entry with its ``path`` becomes one with it.

    Args:
        checkpoint: What ``save`` returned, or a mapping with at least ``path``; a relative one
            counts from the run directory, as in the manifest.
        run_id: Id of the run that it belongs to; None where that is not known.
        is_autosave: Whether it may be removed once there are later autosaves.

    Raises:
        ConfigError: ``path`` is missing, or a value is not a JSON value.
    """
    entry = {key: _plain(key, value) for key, value in checkpoint.items()}
    known = _known({"run_id": run_id or None, "autosave": is_autosave or None})
    return Update(checkpoints=({**entry, **known, "path": _path_in(checkpoint, "path")},))


def removal_update(paths: Iterable[Path], *, at: str) -> Update:
    """Note that the files of checkpoints were removed on purpose.

    Args:
        paths: The files, absolute.
        at: UTC time.
    """
    return Update(checkpoints=tuple({"path": str(path), "removed_at": at} for path in paths))


def retirement_update(paths: Iterable[Path], *, at: str) -> Update:
    """Note that the files of autosaves were removed, because there are newer ones.

    Args:
        paths: The files, absolute; those that are not listed stay unlisted.
        at: UTC time.
    """
    return Update(retired=tuple({"path": str(path), "removed_at": at} for path in paths))


def _known(fields: Mapping[str, Any]) -> ManifestEntry:
    return {key: value for key, value in fields.items() if value is not None}


def _checked(key: str, value: object, check: Callable[[object, str], object]) -> object:
    if value is not None:
        check(value, key)
    return value


def _check_filled(value: object, key: str) -> None:
    if not is_filled(value):
        raise mismatch(key, "a non-empty string", value)


def _stamp(key: str, value: datetime | str | None) -> str | None:
    if value is None:
        return None
    try:
        return format_utc(value if isinstance(value, datetime) else datetime.fromisoformat(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError("must be a datetime or an ISO 8601 time", key=key, value=value) from error


def _absolute(key: str, value: Path | str | Mapping[str, Any] | None) -> str | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return _path_in(value, key)
    if not (isinstance(value, Path) or is_filled(value)):
        raise mismatch(key, "a path", value)
    return str(Path(value).absolute())


def _path_in(checkpoint: Mapping[str, Any], key: str) -> str:
    path = _plain(key, checkpoint.get("path"))
    if not isinstance(path, str) or not path:
        raise ConfigError("a checkpoint has a path, a string", key=key, value=path)
    return path


def _plain(key: str, value: object) -> object:
    """Return a copy of a JSON value, which the caller may change later."""
    if isinstance(value, Path):
        return str(value)
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError("must be a JSON value", key=key, value=value) from error
