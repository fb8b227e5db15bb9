"""The options of starts and saves: names, defaults, units and documentation, in one place.

``AsyncWorld.start`` and similar calls, the control socket, the command line and the records use the
options of these classes, and ``python -m docs.option_docstrings`` copies the documentation of each
option to the functions that accept it. Values are checked on construction without reading the file
system; the start checks the files that paths refer to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar, get_args

import attrs

from clawblox.config.arguments import (
    ANY_SECONDS,
    COUNT,
    SECONDS,
    Validator,
    check_choice,
    check_count,
    check_env,
    check_host,
    check_labels,
    check_path,
    check_port,
    check_seed,
    check_snapshot,
    check_text,
    checked,
    mismatch,
)
from clawblox.errors import ConfigError
from clawblox.protocol import normalise_base_path
from clawblox.results import DataStoreBackend, Labels, RestartMode, SnapshotLike
from clawblox.spelling import suggest_nearest
from clawblox.system.port_leases import MAX_LEASES

OnFailure: TypeAlias = Literal["keep", "stop_all"]
"""The policy for the other instances of a start when one of them fails."""

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_HEALTH_TIMEOUT_S: Final = 60.0
DEFAULT_MAX_RESTARTS: Final = 3
DEFAULT_RESTART_WINDOW_S: Final = 60.0
DEFAULT_GRACE_S: Final = 10.0
DEFAULT_KEEP: Final = 3
DEFAULT_SAVE_TIMEOUT_S: Final = 300.0
DEFAULT_MAX_SNAPSHOT_BYTES: Final = 16 << 30
DEFAULT_MAX_FILE_BYTES: Final = 4 << 30
DEFAULT_MAX_TOTAL_BYTES: Final = 16 << 30
DEFAULT_IDLE_WAIT_S: Final = 2.0
DEFAULT_STALL_TIMEOUT_S: Final = 120.0
DEFAULT_CHECK_TIMEOUT_S: Final = 120.0

_OPTIONAL_SNAPSHOT: Final = checked(check_snapshot, optional=True)
_INSTANCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


_Options = TypeVar("_Options", bound=attrs.AttrsInstance)


def build_options(kind: type[_Options], table: Mapping[str, Any]) -> _Options:
    """Build options from a record or a table of ``world.toml``.

    Args:
        kind: The class of the options.
        table: The values by name; unknown names are ignored, and missing options keep their
            defaults.

    Raises:
        ConfigError: A value is invalid.
    """
    names = [field.alias or field.name for field in attrs.fields(kind)]
    return kind(**{name: table[name] for name in names if name in table})


def is_instance_name(value: object) -> bool:
    """Return whether ``value`` is a valid name of an instance."""
    return isinstance(value, str) and _INSTANCE_NAME.fullmatch(value) is not None


def _check_name(value: object, key: str) -> None:
    if not is_instance_name(value):
        expected = "1 to 64 letters, digits, '_', '.' or '-', the first a letter or digit"
        raise mismatch(key, expected, value)


def _check_literal(literal: Any, *, optional: bool = False) -> Validator:  # noqa: ANN401 - a Literal
    return checked(check_choice, choices=get_args(literal), optional=optional)


# -- converters for options that are stored in another form ---------------------------------------


def _to_base_path(value: str) -> str:
    return normalise_base_path(check_text(value, "base_path"))


def to_env(value: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return a copy of the variables after checking them; a converter for fields called ``env``.

    Raises:
        ConfigError: A variable is invalid.
    """
    return dict(check_env(value))


def _to_record_dir(value: str | Path | None) -> Path | None:
    return None if value is None else check_path(value, "record_dir").absolute()


def _to_command_file(value: str | Path | None) -> Path | None:
    return None if value is None else check_path(value, "command_file").absolute()


def _to_log_file(value: str | Path | None) -> Path | None:
    return None if value is None else check_path(value, "log_file").absolute()


def _to_dir(value: str | Path | None) -> Path | None:
    return None if value is None else check_path(value, "dir").absolute()


# -- starting -----------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class CommonOptions:
    """The options of a start that plans of experiments also contain.

    Attributes:
        host: Address to which the world binds.
        health_timeout: Seconds from spawning the world until it must be ready.
        datastore: Storage of an engine world's data stores; None means SQLite.
    """

    host: str = attrs.field(default=DEFAULT_HOST, converter=check_host)
    health_timeout: float = attrs.field(default=DEFAULT_HEALTH_TIMEOUT_S, validator=SECONDS)
    datastore: DataStoreBackend | None = attrs.field(
        default=None, validator=_check_literal(DataStoreBackend, optional=True)
    )


@attrs.frozen(kw_only=True)
class SharedOptions(CommonOptions):
    """The options of every start, of one instance or of many.

    Attributes:
        record: Whether the world records.
        env: Additional environment variables.
        base_path: Prefix of the world's routes.
        detach: Whether the instance keeps running when this orchestrator ends.
        restart: Policy for an instance that dies: ``never`` leaves it dead, ``fresh`` starts it
            again with the same options, ``checkpoint`` restores its last good save, or starts it
            fresh if there is no save. Name and port stay the same; sessions survive if the snapshot
            contains them.
        max_restarts: Number of restarts allowed within ``restart_window``; after that the instance
            stays dead.
        restart_window: Length of that window in seconds.
        reseed: Seed of the random state of a fresh world, or set after a snapshot is restored, 0 or
            more; increases by 1 from instance to instance. A world with a command must have
            ``[run] reseed = true``. None draws a seed for each fresh world, and keeps the random
            state of a snapshot.
        labels: At most 16 strings, numbers or booleans by name that describe the instance:
            ``{"model": "…", "seed": 3}``. Labels appear in the manifest, records, events, tables
            and metrics, and select instances: ``clawblox ps --filter seed=3``.

    Raises:
        ConfigError: A value is invalid; the error names the option and the value.
    """

    record: bool = attrs.field(default=False, converter=bool)
    env: Mapping[str, str] = attrs.field(default=None, converter=to_env, repr=False)
    base_path: str = attrs.field(default="", converter=_to_base_path)
    detach: bool = attrs.field(default=False, converter=bool)
    restart: RestartMode = attrs.field(default="never", validator=_check_literal(RestartMode))
    max_restarts: int = attrs.field(default=DEFAULT_MAX_RESTARTS, validator=COUNT)
    restart_window: float = attrs.field(default=DEFAULT_RESTART_WINDOW_S, validator=SECONDS)
    reseed: int | None = attrs.field(default=None, validator=checked(check_seed, optional=True))
    labels: Labels = attrs.field(default=None, converter=check_labels)

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments for the call that accepts them."""
        return {field.alias: getattr(self, field.name) for field in attrs.fields(type(self))}

    def shared(self) -> dict[str, Any]:
        """Return the options common to all starts, by name."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(SharedOptions)}


@attrs.frozen(kw_only=True)
class StartOptions(SharedOptions):
    """The options for the start of one instance.

    Attributes:
        port: Port of the world; None or 0 leases a free one.
        port_wait: Seconds to wait until a given port becomes free; 0 does not wait.
        record_dir: Directory for recordings; None means ``recordings`` in the run directory.
        resume: Snapshot to restore: its path, or the result of ``save``, whose digest is then
            checked. A relative path is looked up in the world directory, then in the current
            directory. An archive (``.ckpt``) is loaded into the run directory, as by
            ``load_checkpoint``, and its snapshot is restored; ``run_dir`` must then not be the
            world directory. None starts a fresh run.
        run_dir: Directory of the run, with its manifest; None means the directory of this object,
            or else the parent of ``record_dir``, or else the directory in which this object first
            started an instance, which is the world directory by default.
        name: Name of the instance, unique in the run directory and in this object; None uses the
            first free name of ``w000``, ``w001``, …
        command_file: File for the rerunnable launch script, in an existing directory; None means a
            file in ``runtime``.
        log_file: File for the output of the world, in an existing directory; None means a file in
            ``logs``.
        watch: Whether an engine world restarts when its scripts change.
        tmux_session: tmux session, created if needed, in whose window ``world-0`` the world runs;
            None, or a resume, runs the world without tmux.

    Raises:
        ConfigError: A value is invalid; the error names the option and the value.
    """

    port: int | None = attrs.field(default=None, converter=check_port)
    port_wait: float = attrs.field(default=0.0, validator=ANY_SECONDS)
    record_dir: Path | None = attrs.field(default=None, converter=_to_record_dir)
    resume: SnapshotLike | None = attrs.field(default=None, validator=_OPTIONAL_SNAPSHOT)
    run_dir: str | Path | None = attrs.field(
        default=None, validator=checked(check_path, optional=True)
    )
    name: str | None = attrs.field(default=None, validator=checked(_check_name, optional=True))
    command_file: Path | None = attrs.field(default=None, converter=_to_command_file)
    log_file: Path | None = attrs.field(default=None, converter=_to_log_file)
    watch: bool = attrs.field(default=False, converter=bool)
    tmux_session: str | None = attrs.field(default=None, alias="_tmux_session")


@attrs.frozen(kw_only=True)
class ManyOptions(SharedOptions):
    """The options that the instances of one start share; see also :class:`InstanceSpec`.

    Attributes:
        resume: Snapshot to restore, as for ``start``, unless an instance has its own. From an
            archive, only the world's snapshot is used; it is put into ``checkpoints`` of the run
            directory and stays there. None starts fresh runs.
        on_failure: ``keep`` leaves the other instances running when one fails; ``stop_all`` stops
            them all at the first failure.

    Raises:
        ConfigError: A value is invalid; the error names the option and the value.
    """

    resume: SnapshotLike | None = attrs.field(default=None, validator=_OPTIONAL_SNAPSHOT)
    on_failure: OnFailure = attrs.field(default="keep", validator=_check_literal(OnFailure))


@attrs.frozen
class InstanceSpec:
    """The options of one of many instances; None means the shared option.

    Attributes:
        name: Name of the instance; None uses the next free name of ``w000``, ``w001``, …
        resume: Snapshot to restore: its path, or the result of ``save``. A relative path is looked
            up in the world directory, then in the current directory.
        env: Environment variables in addition to the shared ones.
        record: Whether the instance records.
        labels: Labels in addition to the shared ones.

    Raises:
        ConfigError: A value is invalid; the error names the option and the value.
    """

    name: str | None = attrs.field(default=None, validator=checked(_check_name, optional=True))
    resume: SnapshotLike | None = attrs.field(default=None, validator=_OPTIONAL_SNAPSHOT)
    env: Mapping[str, str] | None = attrs.field(
        default=None, validator=checked(check_env), repr=False
    )
    record: bool | None = None
    labels: Labels | None = attrs.field(default=None, validator=checked(check_labels))

    @classmethod
    def parse(cls, given: object) -> Self:
        """Return a spec, or build one from a mapping with its fields.

        Raises:
            ConfigError: ``given`` is neither, or has an unknown key or an invalid value.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise mismatch("instances", "an InstanceSpec, or a mapping with its fields", given)
        known = attrs.fields_dict(cls)
        for key in given:
            if key not in known:
                message = f"must be left out, as an InstanceSpec has only {', '.join(known)}"
                hint = suggest_nearest(str(key), known)
                raise ConfigError(message, key=f"instances.{key}", value=given[key], hint=hint)
        return cls(**given)

    @classmethod
    def parse_all(cls, given: object) -> list[Self]:
        """Return the specs of many instances, from their number or from a list of specs.

        Raises:
            ConfigError: ``given`` is neither, too large, or has an invalid member.
        """
        if isinstance(given, int):
            return [cls()] * check_count(given, "instances", at_most=MAX_LEASES)
        if not isinstance(given, Sequence) or isinstance(given, str):
            message = "a number of instances, or a list with an InstanceSpec for each"
            raise ConfigError(message, key="instances", value=given)
        check_count(len(given), "instances", at_least=0, at_most=MAX_LEASES)
        return [cls.parse(spec) for spec in given]


# -- saving -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class RestartOptions:
    """The options of a restart on request.

    Attributes:
        save: True to save the instance first if it is ready.
        fresh: Whether to repeat the first start, without saving.
        resume: Snapshot to restart from, without saving first; None means the last save.
        reseed: Seed of the random state; None keeps the seed of a fresh start, or the random state
            of the save.
        grace_seconds: Seconds between TERM and KILL.

    Raises:
        ConfigError: A value is invalid; the error names the option and the value.
    """

    save: bool = True
    fresh: bool = False
    resume: SnapshotLike | None = None
    reseed: int | None = attrs.field(default=None, validator=checked(check_seed, optional=True))
    grace_seconds: float = attrs.field(default=DEFAULT_GRACE_S, validator=ANY_SECONDS)

    def __attrs_post_init__(self) -> None:
        if self.fresh and self.resume is not None:
            raise ConfigError("must be left out with fresh", key="resume", value=self.resume)

    @property
    def wants_save(self) -> bool:
        """True to save the instance first if it is ready."""
        return self.save and not self.fresh and self.resume is None


@attrs.frozen
class SaveOptions:
    """The options of a save.

    Attributes:
        dir: Directory for the file; None means ``checkpoints`` of the instance.
        timeout: Seconds for the transfer of the snapshot.
        max_bytes: Size limit of the snapshot, in bytes.

    Raises:
        ConfigError: A value is invalid; the error names the option and the value.
    """

    dir: Path | None = attrs.field(default=None, converter=_to_dir)
    timeout: float = attrs.field(default=DEFAULT_SAVE_TIMEOUT_S, validator=SECONDS)
    max_bytes: int = attrs.field(default=DEFAULT_MAX_SNAPSHOT_BYTES, validator=COUNT)
