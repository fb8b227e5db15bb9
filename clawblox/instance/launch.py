"""Plans starts: resolves the options of one start, or of many, to paths, names and seeds.

Plain values. Nothing is started here; the file system is only read. The environment of the
processes is built by ``environment``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from clawblox.config.arguments import check_path
from clawblox.config.options import InstanceSpec, ManyOptions, StartOptions
from clawblox.config.world_toml import CONFIG_NAME, WorldConfig
from clawblox.errors import ConfigError
from clawblox.protocol import SEEDS
from clawblox.rundir.paths import files_dir, resolve_run_dir
from clawblox.rundir.records import InstanceRecord
from clawblox.rundir.snapshot_files import find_resume

__all__ = ["Launch", "plan_attach", "plan_launch", "plan_many"]

_NUMBERED_NAME = re.compile(r"w[0-9]{3,9}")


@attrs.frozen(kw_only=True)
class Launch:
    """The plan of one start, checked; all paths are absolute.

    Attributes:
        config: The world.
        options: The options of the start.
        run_dir: Directory with the records of the run's instances.
        instance_dir: Directory with the manifest and files of this instance; the run directory
            itself, except for one of many.
        index: Its index among many; None if it was started alone.
        record_dir: Directory for recordings; None does not record.
        resume_path: Snapshot to restore; None starts afresh.
        parent_sha256: Digest of that snapshot; None if not known.
        reseed: Seed of the random state after the restore; None keeps the state of the snapshot.
        tmux_session: tmux session to run in; None runs without tmux.
        inherited: Our own environment, read once for all that are started together.
    """

    config: WorldConfig
    options: StartOptions
    run_dir: Path
    instance_dir: Path
    index: int | None = None
    record_dir: Path | None = None
    resume_path: Path | None = None
    parent_sha256: str | None = None
    reseed: int | None = None
    tmux_session: str | None = None
    inherited: Mapping[str, str] = attrs.field(
        factory=lambda: dict(os.environ), eq=False, repr=False
    )

    @property
    def files_dir(self) -> Path:
        """The default directory for logs, launch scripts and checkpoints."""
        return files_dir(self.config.dir, self.instance_dir)

    @property
    def source(self) -> str:
        """What it starts from, in words: ``fresh``, or ``from checkpoints/w000-….json``."""
        path = self.resume_path
        if path is None:
            return "fresh"
        is_inside = path.is_relative_to(self.instance_dir)
        return f"from {path.relative_to(self.instance_dir) if is_inside else path}"

    @property
    def hands_listener_over(self) -> bool:
        """Whether the world inherits its listening socket; impossible under tmux."""
        return self.config.inherits_listener and self.tmux_session is None

    @cached_property
    def recorded_options(self) -> dict[str, Any]:
        """The options for the record; of ``env``, which may be secret, only the names."""
        values = attrs.asdict(self.options, recurse=False)
        return {**{key: _plain(value) for key, value in values.items()}, "env": [*self.options.env]}


def plan_launch(
    config: WorldConfig, options: StartOptions, *, tmux_session: str | None = None
) -> Launch:
    """Return the plan for the start of one instance. Blocks.

    Args:
        config: The world.
        options: The options of the start.
        tmux_session: tmux session to run in; None runs without tmux.

    Raises:
        ConfigError: The world has no command, or an option does not work here, for example
            because a directory is missing; names the key and the value.
    """
    _require_command(config)
    resume_path, digest = find_resume(options.resume, config.dir)
    for key, path in (("command_file", options.command_file), ("log_file", options.log_file)):
        _require_parent(key, path)
    given = options.run_dir
    if given is None:
        given = config.dir if options.record_dir is None else options.record_dir.parent
    run_dir = resolve_run_dir(given)
    return Launch(
        config=config,
        options=options,
        run_dir=run_dir,
        instance_dir=run_dir,
        record_dir=(options.record_dir or run_dir / "recordings") if options.record else None,
        resume_path=resume_path,
        parent_sha256=digest,
        tmux_session=tmux_session,
    )


def plan_many(
    config: WorldConfig,
    run_dir: Path,
    options: ManyOptions,
    specs: Sequence[InstanceSpec],
    names: Iterator[str],
    *,
    parent_sha256: str | None = None,
) -> list[Launch]:
    """Return the plans for the start of many instances, in the order of ``specs``. Blocks.

    Args:
        config: The world.
        run_dir: Directory of the run, resolved.
        options: The options that all of them share.
        specs: The options of each of them.
        names: Names for those without one.
        parent_sha256: Digest of ``options.resume``; None if not known.

    Raises:
        ConfigError: The world has no command, an option does not work here, or two instances
            would have the same name; names the key and the value.
    """
    _require_command(config)
    if options.reseed is not None:
        _require_reseed(config, options.reseed, len(specs))
    resume_path, digest = find_resume(options.resume, config.dir)  # once for all of them
    own = [spec.name for spec in specs if spec.name is not None]
    if len(set(own)) < len(own):
        raise ConfigError("two instances have the same name", key="name", value=own)
    free = (name for name in names if name not in own)
    home = files_dir(config.dir, run_dir) / "worlds"
    common = Launch(
        config=config,
        options=StartOptions(**options.shared()),
        run_dir=run_dir,
        instance_dir=home,
        resume_path=resume_path,
        parent_sha256=parent_sha256 or digest,
        reseed=options.reseed,
    )
    return [
        _member(common, spec, spec.name or next(free), place) for place, spec in enumerate(specs)
    ]


def _member(common: Launch, spec: InstanceSpec, name: str, place: int) -> Launch:
    """Return the launch of one of many: the common one, changed by its spec."""
    options = common.options
    record = options.record if spec.record is None else spec.record
    env = options.env if spec.env is None else {**options.env, **spec.env}
    directory = common.instance_dir / name
    resume_path, digest = common.resume_path, common.parent_sha256
    if spec.resume is not None:
        resume_path, digest = find_resume(spec.resume, common.config.dir)
    return attrs.evolve(
        common,
        options=attrs.evolve(options, name=name, record=record, env=env),
        instance_dir=directory,
        index=int(name[1:]) if _NUMBERED_NAME.fullmatch(name) else place,
        record_dir=directory / "recordings" if record else None,
        resume_path=resume_path,
        parent_sha256=digest,
        reseed=None if common.reseed is None else common.reseed + place,
    )


def plan_attach(config: WorldConfig, run_dir: Path, record: InstanceRecord) -> Launch:
    """Return the launch of a running instance, from its record."""
    return Launch(
        config=config,
        options=StartOptions(
            name=record.name,
            host=record.host,
            port=record.port,
            base_path=record.base_path,
            command_file=record.command_file,
            log_file=record.log_file,
            detach=True,
        ),
        run_dir=run_dir,
        instance_dir=Path(record.instance_dir),
        index=record.index,
        resume_path=Path(record.resume_path) if record.resume_path else None,
    )


def _plain(value: object) -> object:
    """Return a value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    return str(value) if isinstance(value, Path) else value


def _require_command(config: WorldConfig) -> None:
    check_path(config.dir, "dir")
    if not config.is_delegated:
        raise ConfigError(
            "the world has no [run] command, and this version has no built-in engine",
            path=config.dir / CONFIG_NAME,
            key="run.command",
            hint='add [run] command = ["…"] to world.toml',
        )


def _require_reseed(config: WorldConfig, first: int, count: int) -> None:
    if not config.takes_reseed:
        raise ConfigError(
            "this world does not support reseeding",
            path=config.dir / CONFIG_NAME,
            key="run.reseed",
            hint="fork without reseed=, or set reseed = true if the world reads WORLD_RESEED",
        )
    last = first + max(0, count - 1)
    if last not in SEEDS:
        raise ConfigError("must be a whole number from 0 to 2**64 - 1", key="reseed", value=last)


def _require_parent(key: str, path: Path | None) -> None:
    """Refuse a file whose directory does not exist."""
    if path is None:
        return
    try:
        is_there = path.parent.is_dir()
    except OSError as error:
        raise ConfigError(
            f"its directory cannot be read: {error.strerror}", key=key, value=str(path)
        ) from error
    if not is_there:
        raise ConfigError("its directory does not exist", key=key, value=str(path))
