"""What one start, or many, mean: arguments checked, paths made absolute, names and seeds.

What the processes are given is ``environment``'s. Plain values; nothing is started here, and
nothing but the file system is looked at.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from clawblox import protocol
from clawblox.config.arguments import (
    env_of,
    host_of,
    path_of,
    port_of,
    seconds_of,
    snapshot_of,
    text_of,
)
from clawblox.config.world_toml import CONFIG_NAME, WorldConfig
from clawblox.errors import ConfigError
from clawblox.instance.restarts import RestartPolicy
from clawblox.results import InstanceSpec, SnapshotLike
from clawblox.rundir.manifest import find_checkpoint
from clawblox.rundir.records import InstanceRecord, has_records
from clawblox.system.files import digest_of, has_digest, make_private_dir

__all__ = [
    "Launch",
    "files_dir",
    "find_snapshot",
    "make_run_dir",
    "parent_of",
    "plan_attach",
    "plan_launch",
    "plan_many",
    "run_dir_of",
    "snapshot_places",
    "source_run_dir",
    "spec_of",
]

_INSTANCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NUMBERED_NAME = re.compile(r"w[0-9]{3,9}")


@attrs.frozen
class Launch:
    """One start, asked for and checked; every path is absolute.

    Attributes:
        config: The world.
        run_dir: Directory that holds the records of the run's instances.
        instance_dir: Directory that holds manifest and files of this instance; the run
            directory itself, but for one of many.
        index: Its place among many; None for one that was started alone.
        name: Name of the instance; None takes the first free one.
        host: Address the world shall bind.
        port: Port the world shall bind; None leases one.
        port_wait: Seconds to wait for a given port to become free.
        base_path: Prefix of every route, normalised.
        record_dir: Where to record; None does not record.
        resume_path: Snapshot to restore.
        parent_sha256: Digest of that snapshot, when it is known.
        reseed: Seed of the random state after the restore; None leaves it as it was.
        restart: What becomes of it when it dies.
        health_timeout: Seconds until the world must be ready.
        command_file: Where to write the launch script; None chooses.
        log_file: Where the output goes; None chooses.
        env: Further variables of the caller.
        detach: Whether the instance outlives this orchestrator.
        tmux_session: tmux session to run in; None for none.
    """

    config: WorldConfig
    run_dir: Path
    instance_dir: Path
    index: int | None
    name: str | None
    host: str
    port: int | None
    port_wait: float
    base_path: str
    record_dir: Path | None
    resume_path: Path | None
    parent_sha256: str | None
    reseed: int | None
    restart: RestartPolicy
    health_timeout: float
    command_file: Path | None
    log_file: Path | None
    env: Mapping[str, str] = attrs.field(repr=False)
    detach: bool
    tmux_session: str | None

    @property
    def files_dir(self) -> Path:
        """Where logs, launch scripts and checkpoints go when the caller does not say."""
        return files_dir(self.config.dir, self.instance_dir)


def run_dir_of(path: str | Path) -> Path:
    """Return a run directory by the one path it has here, however it is spelled. Blocks.

    Locks, sockets and writers go by it, and a link that is moved meanwhile does not move the run.

    Raises:
        ConfigError: It is no path that can stand in a record.
    """
    return path_of(os.path.realpath(path_of(path, "run_dir")), "run_dir")


def make_run_dir(run_dir: Path) -> Path:
    """Make a run directory, if it is not there, with the place for its records. Blocks.

    Raises:
        ConfigError: It cannot be made, or not be written.
    """
    try:
        records = make_private_dir(run_dir / ".clawblox")
        if not os.access(records, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(records))
    except OSError as error:
        raise ConfigError(
            f"the run directory cannot be used: {error.strerror}",
            path=Path(error.filename) if error.filename else None,
            key="run_dir",
            value=str(run_dir),
            hint="choose another run_dir=, in a place that can be written",
        ) from error
    return run_dir


def files_dir(world_dir: Path, instance_dir: Path) -> Path:
    """Return where the files of an instance go.

    A world directory is somebody's source tree: there they stay below ``.clawblox``.
    """
    return instance_dir / ".clawblox" if instance_dir == world_dir else instance_dir


def plan_launch(
    config: WorldConfig,
    *,
    port: int | None,
    host: str,
    base_path: str,
    record: bool,
    record_dir: str | Path | None,
    resume: SnapshotLike | None,
    run_dir: str | Path | None,
    name: str | None,
    health_timeout: float,
    port_wait: float,
    command_file: str | Path | None,
    log_file: str | Path | None,
    env: Mapping[str, str] | None,
    detach: bool,
    tmux_session: str | None = None,
    index: int | None = None,
    parent_sha256: str | None = None,
    reseed: int | None = None,
    restart: RestartPolicy,
) -> Launch:
    """Check the arguments of a start and resolve what they mean.

    Raises:
        ConfigError: An argument is wrong; names it and its value.
    """
    if name is not None and not _is_instance_name(name):
        raise ConfigError(
            "an instance name has 1 to 64 letters, digits, '_', '.' or '-'",
            key="name",
            value=name,
        )
    if not config.is_delegated:
        raise ConfigError(
            "the world has no [run] command, and this version has no built-in engine",
            path=config.dir / CONFIG_NAME,
            key="run.command",
            hint='add [run] command = ["…"] to world.toml',
        )
    if reseed is not None and not config.takes_reseed:
        raise ConfigError(
            "this world does not say that it can be reseeded",
            path=config.dir / CONFIG_NAME,
            key="run.reseed",
            hint="fork without reseed=, or say reseed = true in a world that honours WORLD_RESEED",
        )
    if reseed is not None and (type(reseed) is not int or reseed not in protocol.SEEDS):
        raise ConfigError("a whole number from 0 to 2**64 - 1", key="reseed", value=reseed)
    resume_path, digest = _resume(config, resume)
    recordings = path_of(record_dir, "record_dir").absolute() if record_dir is not None else None
    path_of(config.dir, "dir")
    run = _run_dir(config, run_dir, recordings)
    directory = run
    if index is not None:
        assert name is not None
        directory = files_dir(config.dir, run) / "worlds" / name
    return Launch(
        config=config,
        run_dir=run,
        instance_dir=directory,
        index=index,
        name=name,
        host=host_of(host),
        port=port_of(port),
        port_wait=seconds_of(port_wait, "port_wait", may_be_zero=True),
        base_path=protocol.normalise_base_path(text_of(base_path, "base_path")),
        record_dir=(recordings or directory / "recordings") if record else None,
        resume_path=resume_path,
        parent_sha256=parent_sha256 or digest,
        reseed=reseed,
        restart=restart,
        health_timeout=seconds_of(health_timeout, "health_timeout"),
        command_file=_in_existing_dir("command_file", command_file),
        log_file=_in_existing_dir("log_file", log_file),
        env=dict(env_of(env)),
        detach=detach,
        tmux_session=tmux_session,
    )


def plan_many(
    config: WorldConfig,
    specs: Sequence[InstanceSpec],
    names: Iterator[str],
    *,
    record: bool,
    resume: SnapshotLike | None,
    env: Mapping[str, str] | None,
    parent_sha256: str | None = None,
    reseed: int | None = None,
    **options: Any,  # noqa: ANN401 - those of plan_launch
) -> list[Launch]:
    """Return the launches of many instances; see :func:`plan_launch`.

    Args:
        config: The world.
        specs: What each of them has of its own.
        names: Names for those that have none.
        record: Whether those record that do not say.
        resume: What those restore that do not say.
        env: Further variables of all of them.
        parent_sha256: Digest of what those restore that do not say, when it is known.
        reseed: Seed of the first one; each of the others has one more.
        **options: The other arguments of :func:`plan_launch`, the same for all.

    Raises:
        ConfigError: An argument is wrong; names it and its value.
    """
    path, digest = _resume(config, resume)  # once, however many there are
    own = [spec.name for spec in specs if spec.name is not None]
    if len(set(own)) < len(own):
        raise ConfigError("two instances cannot have one name", key="name", value=own)
    free = (name for name in names if name not in own)
    named = [(spec.name or next(free), spec) for spec in specs]
    return [
        plan_launch(
            config,
            name=name,
            index=_index_of(name, place),
            record=record if spec.record is None else spec.record,
            record_dir=None,
            resume=path if spec.resume is None else spec.resume,
            parent_sha256=(parent_sha256 or digest) if spec.resume is None else None,
            env={**env_of(env), **env_of(spec.env)},
            reseed=_seed_of(reseed, place),
            port=None,
            port_wait=0.0,
            command_file=None,
            log_file=None,
            **options,
        )
        for place, (name, spec) in enumerate(named)
    ]


def _seed_of(first: int | None, place: int) -> int | None:
    # What is no number, whatever its type promised, is complained of with the launch.
    return first + place if type(first) is int else first


def _index_of(name: str, place: int) -> int:
    """Return the place of an instance in its run directory: its number, if it is named by one."""
    return int(name[1:]) if _NUMBERED_NAME.fullmatch(str(name)) else place


def spec_of(given: InstanceSpec | Mapping[str, Any]) -> InstanceSpec:
    """Return what one of many instances has of its own; a mapping may stand for it.

    Raises:
        ConfigError: It is neither, or the mapping has a key that is none; names it.
    """
    if isinstance(given, InstanceSpec):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError("an InstanceSpec, or its fields", key="instances", value=given)
    known = attrs.fields_dict(InstanceSpec)
    for key in given:
        if key not in known:
            message = f"an instance of its own has {', '.join(known)}"
            raise ConfigError(message, key=f"instances.{key}", value=given[key])
    return InstanceSpec(**given)


def parent_of(checkpoint: SnapshotLike, world_dir: Path) -> tuple[Path, str]:
    """Return the path and the digest of the snapshot that instances are forked from. Blocks.

    Args:
        checkpoint: Its path, or a mapping with ``path`` and perhaps ``sha256``.
        world_dir: One of the places of a relative path, see :func:`find_snapshot`.

    Raises:
        ConfigError: The file cannot be read, or is not the one that was saved.
    """
    given, known = snapshot_of(checkpoint, "checkpoint")
    path = find_snapshot(given, world_dir, "checkpoint")
    try:
        digest = digest_of(path)
    except OSError as error:
        message = f"the snapshot to fork from cannot be read: {error.strerror}"
        raise ConfigError(message, path=path, key="checkpoint") from error
    if known not in (None, digest):
        raise _other_digest(path, "checkpoint", known)
    return path, digest


def snapshot_places(given: object, world_dir: Path, key: str) -> list[Path]:
    """Return where a snapshot that a caller names may be: one place, or two for a relative path.

    Raises:
        ConfigError: It is no path.
    """
    path = path_of(given, key)
    return list(dict.fromkeys((world_dir / path, path.absolute())))


def find_snapshot(given: object, world_dir: Path, key: str) -> Path:
    """Return the file of a snapshot that a caller names. Blocks.

    A relative path means the file in the world directory if there is one, else the one in the
    current directory.

    Args:
        given: Its path.
        world_dir: The world directory, absolute.
        key: The argument that it was given as.

    Raises:
        ConfigError: There is no such file, there are two, or it is an archive.
    """
    places = snapshot_places(given, world_dir, key)
    try:
        found = [place for place in places if place.is_file()]
        if not found:
            raise _no_snapshot(places, key, given)
        if not all(place.samefile(found[0]) for place in found):
            raise ConfigError(
                f"there are two files of this name: {found[0]} and {found[1]}",
                key=key,
                value=str(given),
                hint="give the absolute path of the one that is meant",
            )
    except OSError as error:
        message = f"the snapshot cannot be looked for: {error.strerror}"
        raise ConfigError(message, key=key, value=str(given)) from error
    _refuse_archive(found[0], key)
    return found[0]


def _no_snapshot(places: Sequence[Path], key: str, given: object) -> ConfigError:
    if existing := [place for place in places if place.exists()]:
        message, path = "the snapshot is not a file", existing[0]
    elif len(places) == 1:
        message, path = "the snapshot does not exist", places[0]
    else:
        message, path = f"the snapshot does not exist: neither {places[0]} nor {places[1]}", None
    return ConfigError(message, path=path, key=key, value=str(given))


def source_run_dir(snapshot: Path) -> Path | None:
    """Return the run directory that a snapshot was saved in. Blocks.

    Returns:
        None when no manifest above the file tells.
    """
    found = find_checkpoint(snapshot)
    if found is None:
        return None
    # One of many has its manifest in worlds/<name>, which may be below .clawblox.
    home = found[0].state_root
    candidates = (home, *home.parents[:3])
    return next((one for one in candidates if has_records(one)), home)


def _other_digest(path: Path, key: str, known: str | None) -> ConfigError:
    message = "the file is not the snapshot that was saved: its digest is another one"
    return ConfigError(message, path=path, key=key, value=known)


def _refuse_archive(path: Path, key: str) -> None:
    if path.suffix == protocol.ARCHIVE_SUFFIX:
        raise ConfigError(
            "this is an archive of world and agents, not the snapshot of a world",
            path=path,
            key=key,
            value=str(path),
            hint="load_checkpoint(path, run_dir), or clawblox ckpt extract, gives the snapshot",
        )


def plan_attach(config: WorldConfig, run_dir: Path, record: InstanceRecord) -> Launch:
    """Return the launch that a running instance's record tells of."""
    return Launch(
        config=config,
        run_dir=run_dir,
        instance_dir=Path(record.instance_dir),
        index=record.index,
        name=record.name,
        host=record.host,
        port=record.port,
        port_wait=0.0,
        base_path=record.base_path,
        record_dir=None,
        resume_path=Path(record.resume_path) if record.resume_path else None,
        parent_sha256=None,
        reseed=None,
        restart=RestartPolicy(),
        health_timeout=0.0,
        command_file=Path(record.command_file),
        log_file=Path(record.log_file),
        env={},
        detach=True,
        tmux_session=None,
    )


def _is_instance_name(name: object) -> bool:
    return isinstance(name, str) and _INSTANCE_NAME.fullmatch(name) is not None


def _run_dir(config: WorldConfig, run_dir: str | Path | None, record_dir: Path | None) -> Path:
    if run_dir is not None:
        return run_dir_of(run_dir)
    return run_dir_of(config.dir if record_dir is None else record_dir.parent)


def _resume(config: WorldConfig, resume: SnapshotLike | None) -> tuple[Path | None, str | None]:
    """Return the path of the snapshot to restore, and its digest when that came with it. Blocks."""
    if resume is None:
        return None, None
    given, digest = snapshot_of(resume, "resume")
    path = find_snapshot(given, config.dir, "resume")
    if digest is not None and not has_digest(path, digest):
        raise _other_digest(path, "resume", digest)
    return path, digest


def _in_existing_dir(key: str, value: str | Path | None) -> Path | None:
    if value is None:
        return None
    path = path_of(value, key).absolute()
    try:
        is_there = path.parent.is_dir()
    except OSError as error:
        raise ConfigError(f"not usable: {error.strerror}", key=key, value=str(path)) from error
    if not is_there:
        raise ConfigError("its directory does not exist", key=key, value=str(path))
    return path
