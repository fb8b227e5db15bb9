"""What one start, or many, mean: arguments checked, paths made absolute, names and seeds.

What the processes are given is ``environment``'s. Plain values; nothing is started here, and
nothing but the file system is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from clawblox import protocol
from clawblox.config.arguments import (
    check_env,
    check_host,
    check_path,
    check_port,
    check_seconds,
    check_text,
)
from clawblox.config.options import InstanceSpec, RestartPolicy
from clawblox.config.world_toml import CONFIG_NAME, WorldConfig
from clawblox.errors import ConfigError
from clawblox.results import SnapshotLike
from clawblox.rundir.paths import files_dir, resolve_run_dir
from clawblox.rundir.records import InstanceRecord
from clawblox.rundir.snapshot_files import find_resume

__all__ = ["Launch", "plan_attach", "plan_launch", "plan_many", "spec_of"]

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
    resume_path, digest = find_resume(resume, config.dir)
    recordings = check_path(record_dir, "record_dir").absolute() if record_dir is not None else None
    check_path(config.dir, "dir")
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
        host=check_host(host),
        port=check_port(port),
        port_wait=check_seconds(port_wait, "port_wait", may_be_zero=True),
        base_path=protocol.normalise_base_path(check_text(base_path, "base_path")),
        record_dir=(recordings or directory / "recordings") if record else None,
        resume_path=resume_path,
        parent_sha256=parent_sha256 or digest,
        reseed=reseed,
        restart=restart,
        health_timeout=check_seconds(health_timeout, "health_timeout"),
        command_file=_in_existing_dir("command_file", command_file),
        log_file=_in_existing_dir("log_file", log_file),
        env=dict(check_env(env)),
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
    path, digest = find_resume(resume, config.dir)  # once, however many there are
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
            env={**check_env(env), **check_env(spec.env)},
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
        return resolve_run_dir(run_dir)
    return resolve_run_dir(config.dir if record_dir is None else record_dir.parent)


def _in_existing_dir(key: str, value: str | Path | None) -> Path | None:
    if value is None:
        return None
    path = check_path(value, key).absolute()
    try:
        is_there = path.parent.is_dir()
    except OSError as error:
        raise ConfigError(f"not usable: {error.strerror}", key=key, value=str(path)) from error
    if not is_there:
        raise ConfigError("its directory does not exist", key=key, value=str(path))
    return path
