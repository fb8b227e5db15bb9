"""Plans starts: resolves the options of one start, or of many, to paths, names and seeds.

The functions return plain values, and only read the file system. ``environment`` builds the
environment of the processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import msgspec

from clawblox.config.arguments import check_path
from clawblox.config.options import InstanceSpec, ManyOptions, StartOptions
from clawblox.config.world_toml import LivenessRule, WorldConfig
from clawblox.errors import ConfigError
from clawblox.extras import find_missing, install_command
from clawblox.instance.seeds import choose_seed, require_seedable
from clawblox.protocol import SECRET_ENV
from clawblox.results import SavedSnapshot
from clawblox.rundir.interrupted import Interrupted, read_saves
from clawblox.rundir.manifest_updates import RestartedBy
from clawblox.rundir.paths import DATASTORE_DIR_NAME, files_dir, resolve_run_dir
from clawblox.rundir.records import InstanceRecord
from clawblox.rundir.snapshot_files import find_resume
from clawblox.snapshot.rows import rows_beside
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.process_tree import read_variables
from clawblox.telemetry.own_log import OwnLog
from clawblox.world_keys import CONFIG_NAME

_log = OwnLog(__name__)

_NUMBERED_NAME = re.compile(r"w[0-9]{3,9}")


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a resumed instance before this orchestrator.

    Attributes:
        run_id: Id of its continued run.
        started_at: UTC time of the start of the run.
        number: Number of this restart of the run, from 1; 0 if the run was planned but not started.
        exit: Description of its previous exit.
        at: UTC time of this restart.
        reason: Reason why it does not continue from its newest save; None if it does.
        port: Its previous port; 0 for none.
        by: The cause of the restart: a new orchestrator, or a request to this orchestrator.
        is_labelled: Whether the manifest describes the run.
    """

    run_id: str
    started_at: str
    number: int
    exit: str
    at: str
    reason: str | None = None
    port: int = 0
    by: RestartedBy = "resume"
    is_labelled: bool = True


@attrs.frozen(kw_only=True)
class Launch:
    """The checked plan of a start; all paths are absolute.

    Attributes:
        config: The world.
        options: The options of the start.
        run_dir: Directory with the records of the run's instances.
        instance_dir: Directory with the manifest and files of this instance; the run directory
            itself, unless it is one of many instances.
        index: Its index among many instances; None if it was started alone.
        record_dir: Directory for recordings of the world or of its agents; None to not record.
        resume_path: Snapshot to restore; None for a new world.
        parent_sha256: Digest of the snapshot; None if unknown.
        archive: The archive that the snapshot comes from, or None.
        inherited: The environment of this process, read once for all instances started together.
        has_own_rows: Whether its data stores have their own rows, instead of sharing them with all
            instances of the world on the same port.
        first: The first launch of the run; None if this is the first.
        past: The history of the instance under earlier orchestrators; None for a new run.
        saves: The saves of its run so far, oldest first.
    """

    config: WorldConfig
    options: StartOptions
    run_dir: Path
    instance_dir: Path
    index: int | None = None
    record_dir: Path | None = None
    resume_path: Path | None = None
    parent_sha256: str | None = None
    archive: Path | None = None
    inherited: Mapping[str, str] = attrs.field(
        factory=lambda: dict(os.environ), eq=False, repr=False
    )
    has_own_rows: bool = False
    first: Launch | None = attrs.field(default=None, repr=False)
    past: Past | None = attrs.field(default=None, repr=False)
    saves: tuple[SavedSnapshot, ...] = attrs.field(default=(), repr=False)

    @property
    def begun(self) -> Launch:
        """The first launch of the run."""
        return self.first or self

    def restored(self, path: Path, sha256: str | None) -> Launch:
        """Return the launch that continues from a save, including its random state."""
        return attrs.evolve(
            self,
            options=attrs.evolve(self.options, reseed=None),
            resume_path=path,
            parent_sha256=sha256,
            archive=None,
            first=self.begun,
        )

    def reseeded(self, seed: int) -> Launch:
        """Return the launch with another seed, also as the first seed of the run from now on."""
        begun = attrs.evolve(self.begun, options=attrs.evolve(self.begun.options, reseed=seed))
        if self.first is None:
            return begun
        options = attrs.evolve(self.options, reseed=seed)
        return attrs.evolve(self, options=options, first=begun)

    @property
    def seed(self) -> int | None:
        """The latest seed given to its run, or None."""
        reseed = self.options.reseed
        return self.begun.options.reseed if reseed is None else reseed

    @property
    def liveness(self) -> LivenessRule | None:
        """The rule by which the instance counts as hung; None if it is not probed.

        A world that watches its scripts stays halted until a script is repaired, so it is probed
        only if its ``world.toml`` requests probes.
        """
        is_left_alone = self.options.watch and not self.config.asks_for_probes
        return None if is_left_alone else self.config.liveness

    @property
    def files_dir(self) -> Path:
        """The default directory for logs, launch scripts and checkpoints."""
        return files_dir(self.config.dir, self.instance_dir)

    def name_files(self, name: str) -> tuple[Path, Path]:
        """Return the launch script and the log of an instance with a name."""
        options, files = self.options, self.files_dir
        return (
            options.command_file or files / "runtime" / f"{name}.sh",
            options.log_file or files / "logs" / f"{name}.log",
        )

    def own_rows(self, name: str) -> Path | None:
        """Return the data store file of an instance with a name, if it has its own rows.

        Unless it is external, a world with a command may also run the engine.
        """
        is_in_sqlite = self.options.datastore in (None, "sqlite") and not self.config.is_external
        if not (self.has_own_rows and is_in_sqlite):
            return None
        return self.files_dir / DATASTORE_DIR_NAME / f"{name}.db"

    @property
    def shares_rows_of_origin(self) -> bool:
        """True if it starts from a snapshot and its rows are in a shared database."""
        is_new = self.resume_path is not None and self.past is None
        return is_new and self.options.datastore == "postgres"

    @property
    def source(self) -> str:
        """Description of its source: ``fresh``, or ``from checkpoints/w000-….json``."""
        path = self.resume_path
        if path is None:
            return "fresh"
        is_inside = path.is_relative_to(self.instance_dir)
        return f"from {path.relative_to(self.instance_dir) if is_inside else path}"

    @property
    def how_back(self) -> str | None:
        """Description of its restart; None for a new run."""
        if self.past is None or not self.past.number:
            return None
        return f"{'resumed' if self.past.by == 'resume' else 'restarted'} {self.source}"

    @property
    def hands_listener_over(self) -> bool:
        """True if the world inherits its listening socket; impossible under tmux."""
        return self.config.inherits_listener and self.options.tmux_session is None

    @property
    def lineage(self) -> dict[str, Any]:
        """Its origin, in the form that ``run_update`` takes for the manifest."""
        return {
            "resume_from": self.resume_path,
            "parent_sha256": self.parent_sha256,
            "resume_archive": self.archive,
        }

    @cached_property
    def recorded_options(self) -> dict[str, Any]:
        """The options for the record; only names of ``env``, whose values may be secret."""
        values = attrs.asdict(self.options, recurse=False)
        return {**{key: _plain(value) for key, value in values.items()}, "env": [*self.options.env]}


def new_run_id(name: str, begun_at: datetime) -> str:
    """Return the id of a run, from the name and start time of its instance."""
    return f"{name}-{begun_at:%Y%m%dT%H%M%S%fZ}"


def plan_launch(config: WorldConfig, options: StartOptions) -> Launch:
    """Return the plan for the start of one instance. Blocks.

    Args:
        config: The world.
        options: The options of the start.

    Raises:
        ConfigError: The world has no command, or an option is invalid, for example because a
            directory is missing; names the key and the value.
    """
    resume_path, digest = _check_start(config, options, 1)
    _require_recorder(config, options.record)
    for key, path in (("command_file", options.command_file), ("log_file", options.log_file)):
        _require_parent(key, path)
    if options.record_dir is not None and not options.record:
        _log.warning("record_dir has no effect without record")
    given = options.run_dir
    if given is None:
        given = config.dir if options.record_dir is None else options.record_dir.parent
    run_dir = resolve_run_dir(given)
    seed = choose_seed(config, options.reseed, resume_path)
    return Launch(
        config=config,
        options=attrs.evolve(options, reseed=seed),
        run_dir=run_dir,
        instance_dir=run_dir,
        record_dir=(options.record_dir or run_dir / "recordings") if options.record else None,
        resume_path=resume_path,
        parent_sha256=digest,
        # A port chosen by the caller determines the rows, unless the snapshot has its own.
        has_own_rows=options.port is None
        or (resume_path is not None and rows_beside(resume_path).exists()),
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
        options: The shared options.
        specs: The options of each instance.
        names: Names for instances without a name.
        parent_sha256: Digest of ``options.resume``; None if unknown.

    Raises:
        ConfigError: The world has no command, an option is invalid, or two instances would have
            the same name; names the key and the value.
    """
    resume_path, digest = _check_start(config, options, len(specs))  # once for all instances
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
        has_own_rows=True,
    )
    return [
        _member(common, spec, spec.name or next(free), place) for place, spec in enumerate(specs)
    ]


def _member(common: Launch, spec: InstanceSpec, name: str, place: int) -> Launch:
    """Return the launch of one of many instances: the common launch, changed by its spec."""
    options = common.options
    record = options.record if spec.record is None else spec.record
    _require_recorder(common.config, record)
    env = options.env if spec.env is None else {**options.env, **spec.env}
    labels = options.labels if spec.labels is None else {**options.labels, **spec.labels}
    directory = common.instance_dir / name
    resume_path, digest = common.resume_path, common.parent_sha256
    if spec.resume is not None:
        resume_path, digest = find_resume(spec.resume, common.config.dir)
    given = None if options.reseed is None else options.reseed + place
    reseed = choose_seed(common.config, given, resume_path)
    return attrs.evolve(
        common,
        options=attrs.evolve(
            options, name=name, record=record, env=env, labels=labels, reseed=reseed
        ),
        instance_dir=directory,
        index=int(name[1:]) if _NUMBERED_NAME.fullmatch(name) else place,
        record_dir=directory / "recordings" if record else None,
        resume_path=resume_path,
        parent_sha256=digest,
    )


def plan_resume(
    config: WorldConfig, run_dir: Path, found: Interrupted, env: Mapping[str, str]
) -> Launch:
    """Return the launch that resumes an interrupted instance, from its record. Blocks.

    Args:
        config: The world.
        run_dir: Directory of the run, resolved.
        found: The instance, and the save that it continues from.
        env: Values of its environment variables; see :func:`find_variables`.

    Raises:
        ConfigError: The world has no command, or a recorded option is invalid.
    """
    require_command(config)
    record = found.record
    past = Past(
        run_id=record.run_id,
        started_at=record.started_at,
        number=found.number,
        exit=found.exit,
        at=format_utc(utc_now()),
        reason=found.reason,
        port=record.port,
        is_labelled=found.is_labelled,
    )
    begun = _plan_begun(config, run_dir, record, env)
    _require_recorder(config, begun.options.record)
    first = attrs.evolve(begun, past=past, saves=found.saves)
    return first if (save := found.last_save) is None else first.restored(save.path, save.sha256)


def find_variables(
    record: InstanceRecord, given: Mapping[str, str], ours: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the environment variables that an instance was started with.

    Args:
        record: The record, which contains their names.
        given: Values from the caller, possibly of further variables.
        ours: The environment of this process.

    Returns:
        The values, and the names of the variables without a value here. Tokens are not among these
        names, because they are created again.
    """
    names = _recorded_env(record)
    values = {name: ours[name] for name in names if name in ours} | dict(given)
    return values, [name for name in names if name not in values and name not in SECRET_ENV]


def _recorded_env(record: InstanceRecord) -> list[str]:
    names = record.options.get("env")
    return [str(name) for name in names] if isinstance(names, list) else []


def _plan_begun(
    config: WorldConfig, run_dir: Path, record: InstanceRecord, env: Mapping[str, str]
) -> Launch:
    """Return the first launch of the run in a record."""
    known = {field.name for field in attrs.fields(StartOptions)} - {"tmux_session"}  # see its docs
    recorded = {key: value for key, value in record.options.items() if key in known}
    options = StartOptions(**{**recorded, "name": record.name, "env": env})
    directory = Path(record.instance_dir)
    record_dir = options.record_dir or directory / "recordings"
    return Launch(
        config=config,
        options=options,
        run_dir=run_dir,
        instance_dir=directory,
        index=record.index,
        record_dir=record_dir if options.record else None,
        resume_path=Path(record.first_resume_path) if record.first_resume_path else None,
        parent_sha256=record.first_sha256,
        has_own_rows=record.datastore_path is not None,
    )


def plan_attach(config: WorldConfig, run_dir: Path, record: InstanceRecord) -> Launch:
    """Return the launch of a running instance, from its record and its process. Blocks.

    Raises:
        ConfigError: A recorded option is invalid.
    """
    variables = read_variables(record.pid)  # their values are not on disk
    env = {name: variables.get(name, "") for name in _recorded_env(record)}
    begun = attrs.evolve(_plan_begun(config, run_dir, record, env), saves=read_saves(record))
    options = attrs.evolve(
        begun.options,
        host=record.host,
        port=record.port,
        base_path=record.base_path,
        command_file=record.command_file,
        log_file=record.log_file,
        detach=True,
        reseed=None,
    )
    resume_path = Path(record.resume_path) if record.resume_path else None
    return attrs.evolve(begun, options=options, resume_path=resume_path, first=begun)


def _plain(value: object) -> object:
    """Return a JSON-able form of a value."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    return str(value) if isinstance(value, Path) else value


def require_command(config: WorldConfig) -> None:
    """Refuse a world that cannot be started.

    Raises:
        ConfigError: The world is external and has no command, the engine is not installed, or its
            path cannot be stored in a record.
    """
    check_path(config.dir, "dir")
    if config.is_external and config.run_command is None:
        raise ConfigError(
            "the world is external and has no command that starts it",
            path=config.dir / CONFIG_NAME,
            key="run.command",
            hint='add [run] command = ["…"], or set [runtime] mode = "clawblox" for a world of '
            "Luau scripts",
        )
    if config.is_engine_world and find_missing("engine"):
        raise ConfigError(
            "the built-in engine is not installed, and the world has no [run] command",
            path=config.dir / CONFIG_NAME,
            key="run.command",
            hint=f"install it: {install_command('engine')}",
        )


def _check_start(
    config: WorldConfig, options: StartOptions | ManyOptions, count: int
) -> tuple[Path | None, str | None]:
    """Refuse options that the world does not support; return the snapshot with its digest."""
    require_command(config)
    require_seedable(config, options.reseed, count)
    for key in ("datastore", "watch"):
        value = getattr(options, key, None)
        if value and not config.is_engine_world:
            raise ConfigError(
                "only for worlds of the built-in engine, which have no [run] command",
                key=key,
                value=value,
                hint="leave it out",
            )
    return find_resume(options.resume, config.dir)


def _require_recorder(config: WorldConfig, record: bool) -> None:  # noqa: FBT001, RUF100
    """Refuse to record a world through clawblox if a requirement is missing."""
    if not record or config.records_itself:
        return
    from clawblox.zstd import find_zstandard  # here, because few worlds are recorded in this way

    if find_zstandard() is None:
        raise ConfigError(
            "recordings need the package zstandard, or Python 3.14",
            key="record",
            value=record,
            hint=f"install it: {install_command('zstd')}",
        )


def _require_parent(key: str, path: Path | None) -> None:
    """Refuse a file whose directory does not exist."""
    try:
        if path is None or path.parent.is_dir():
            return
        problem = "does not exist"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise ConfigError(f"its directory {problem}", key=key, value=str(path))
