"""Builds updates of a manifest, as :class:`clawblox.rundir.manifest.Update` values.

Arguments are checked here: an invalid one raises a ConfigError that names the argument and the
value. ``manifest`` merges the updates.
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
"""Status of a run."""

RestartedBy: TypeAlias = Literal["policy", "request", "resume"]
"""Cause of a restart: the restart policy, a request, or a resume by a new orchestrator."""


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

    An ``id`` that differs from the current one starts another run, which resets the documented
    fields.

    Args:
        id: Name of the run, unique among the runs that are compared.
        index: Index of the run among them, from 0.
        status: Status of the run.
        started_at: Start of the run; a time without a zone is UTC, text is ISO 8601.
        ended_at: End of the run.
        resume_from: The checkpoint that the run was resumed from: a path, or a mapping from
            ``save`` or from the manifest (in a mapping, a relative path starts from the run
            directory).
        parent_sha256: Digest of that checkpoint, in hexadecimal.
        resume_archive: The archive that contained the checkpoint.
        labels: Labels of the run, replacing the current ones.
        seed: Seed of the run's initial random state.
        script_errors: The script errors that the world last reported.

    Raises:
        ConfigError: A value has the wrong type; the error names the argument.
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
    """Register an agent, merging existing entries with the same ``id``, or the same ``dir``.

    Args:
        dir: The agent's directory.
        id: The agent's own id, if it has one.
        name: The displayed name.
        run_name: The full name, with the run's suffix.
        world_agent_id: The id from the world.
        run_id: Id of the run that the agent joined.
        driver: Driver of the agent's program.
        sandbox: Level of the sandbox.

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
    """Register a recording, merging an existing entry with the same ``path``.

    Args:
        path: The recording.
        events: The events in the form of the recording protocol, any JSON value.
        format: Format of the recording.
        size_bytes: Length of the finished file.
        sha256: Digest of the finished file, in hexadecimal.

    Raises:
        ConfigError: A value has the wrong type; the error names the argument.
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
        directories: The directories with the manifests, by instance name.
        labels: The labels, by instance name.
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
    """Note the restart of an instance, for the lineage of its run.

    Args:
        number: Number of the restart, from 1.
        at: UTC time.
        exit: Exit of the previous process, in words.
        resume_from: Snapshot that was restored; None for a fresh start.
        parent_sha256: Digest of that snapshot; None if unknown.
        run_id: Id of the run.
        by: Cause of the restart.
        seed: Seed of the new random state, which becomes the seed of the run; None if the random
            state of the snapshot is kept.
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
    """Note that a run whose end was noted continues."""
    return Update(run={"status": "running", "ended_at": None, "script_errors": None})


def checkpoint_update(
    checkpoint: SavedSnapshot | Mapping[str, Any],
    *,
    run_id: str | None = None,
    is_autosave: bool = False,
) -> Update:
    """Register a checkpoint, merging an existing entry with the same ``path``.

    Args:
        checkpoint: Result of ``save``, or a mapping with at least ``path``; a relative path starts
            from the run directory, as in the manifest.
        run_id: Id of the run; None if unknown.
        is_autosave: Whether the checkpoint may be removed once there are later autosaves.

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
    """Note that the files of autosaves were removed because there are newer ones.

    Args:
        paths: The files, absolute; unlisted files stay unlisted.
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
    """Return a copy of a JSON value, so that the caller may change the original."""
    if isinstance(value, Path):
        return str(value)
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError("must be a JSON value", key=key, value=value) from error
