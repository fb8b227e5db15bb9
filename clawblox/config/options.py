"""The options of starts and saves: names, defaults, units and error messages, in one place.

``AsyncWorld.start`` and its siblings, the control socket, the command line and the records take
their options from these classes. Values are checked when the object is made, without reading the
file system; the start itself checks what paths lead to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, get_args

import attrs

from clawblox.config.arguments import (
    check_count,
    check_env,
    check_host,
    check_labels,
    check_path,
    check_port,
    check_seconds,
    check_snapshot,
    check_text,
)
from clawblox.errors import ConfigError
from clawblox.protocol import SEEDS, normalise_base_path
from clawblox.results import DataStoreBackend, Labels, RestartMode, SnapshotLike
from clawblox.spelling import nearest_name

OnFailure: TypeAlias = Literal["keep", "stop_all"]
"""What happens to the other instances when one of many cannot be started."""

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_HEALTH_TIMEOUT_S: Final = 60.0
DEFAULT_MAX_RESTARTS: Final = 3
DEFAULT_RESTART_WINDOW_S: Final = 60.0
DEFAULT_GRACE_S: Final = 10.0
DEFAULT_KEEP: Final = 3
DEFAULT_SAVE_TIMEOUT_S: Final = 300.0
DEFAULT_MAX_SNAPSHOT_BYTES: Final = 16 << 30
DEFAULT_IDLE_WAIT_S: Final = 2.0

_INSTANCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def is_instance_name(value: object) -> bool:
    """Return whether an instance can have this name."""
    return isinstance(value, str) and _INSTANCE_NAME.fullmatch(value) is not None


# -- checks: converters return the value to keep, validators only raise -------------------------


def _to_host(value: str) -> str:
    return check_host(value)


def _to_base_path(value: str) -> str:
    return normalise_base_path(check_text(value, "base_path"))


def _to_port(value: int | None) -> int | None:
    return check_port(value)


def _to_env(value: Mapping[str, str] | None) -> Mapping[str, str]:
    return dict(check_env(value))


def _to_labels(value: Labels | None) -> Labels:
    return check_labels(value)


def _to_record_dir(value: str | Path | None) -> Path | None:
    return None if value is None else check_path(value, "record_dir").absolute()


def _to_command_file(value: str | Path | None) -> Path | None:
    return None if value is None else check_path(value, "command_file").absolute()


def _to_log_file(value: str | Path | None) -> Path | None:
    return None if value is None else check_path(value, "log_file").absolute()


def _to_dir(value: str | Path | None) -> Path | None:
    return None if value is None else check_path(value, "dir").absolute()


def _check_seconds(_owner: Any, field: attrs.Attribute[float], value: float) -> None:  # noqa: ANN401
    check_seconds(value, field.name)


def _check_wait(_owner: Any, field: attrs.Attribute[float], value: float) -> None:  # noqa: ANN401
    check_seconds(value, field.name, may_be_zero=True)


def _check_count(_owner: Any, field: attrs.Attribute[int], value: int) -> None:  # noqa: ANN401
    check_count(value, field.name)


def _check_path(_owner: Any, field: attrs.Attribute[Any], value: object) -> None:  # noqa: ANN401
    if value is not None:
        check_path(value, field.name)


def _check_snapshot(_owner: Any, field: attrs.Attribute[Any], value: object) -> None:  # noqa: ANN401
    if value is not None:
        check_snapshot(value, field.name)


def _check_env(_owner: Any, _field: attrs.Attribute[Any], value: Any) -> None:  # noqa: ANN401
    check_env(value)


def _check_labels(_owner: Any, _field: attrs.Attribute[Any], value: Any) -> None:  # noqa: ANN401
    check_labels(value)


def _check_name(_owner: Any, field: attrs.Attribute[Any], value: object) -> None:  # noqa: ANN401
    if value is not None and not is_instance_name(value):
        message = "an instance name has 1 to 64 letters, digits, '_', '.' or '-'"
        raise ConfigError(message, key=field.name, value=value)


def _check_restart(_owner: Any, field: attrs.Attribute[Any], value: object) -> None:  # noqa: ANN401
    modes = get_args(RestartMode)
    if value not in modes:
        raise ConfigError(f"one of {', '.join(modes)}", key=field.name, value=value)


def _check_datastore(_owner: Any, field: attrs.Attribute[Any], value: object) -> None:  # noqa: ANN401
    backends = get_args(DataStoreBackend)
    if value is not None and value not in backends:
        raise ConfigError(f"one of {', '.join(backends)}", key=field.name, value=value)


def _check_on_failure(_owner: Any, field: attrs.Attribute[Any], value: object) -> None:  # noqa: ANN401
    if value not in get_args(OnFailure):
        raise ConfigError("keep or stop_all", key=field.name, value=value)


def _check_seed(_owner: Any, field: attrs.Attribute[Any], value: object) -> None:  # noqa: ANN401
    if value is not None and (type(value) is not int or value not in SEEDS):
        raise ConfigError("a whole number from 0 to 2**64 - 1", key=field.name, value=value)


# -- starting -----------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class SharedOptions:
    """The options of every start, of one instance or of many.

    Attributes:
        record: Whether the world records.
        env: Additional environment variables.
        host: Address that the world binds.
        base_path: Prefix of its routes.
        health_timeout: Seconds until the world must be ready, from the moment it is spawned.
        detach: Whether the instance lives on when this orchestrator ends.
        restart: What happens when the instance dies: ``never`` leaves it dead, ``fresh`` starts it
            again as it was started, ``checkpoint`` restores its last good save.
        max_restarts: Number of restarts allowed within ``restart_window``; after that the
            instance stays dead.
        restart_window: Length of that window in seconds.
        reseed: Seed of a fresh world, or set after a restore; the seed counts up by 1 from
            instance to instance. None draws one for each fresh world, and keeps the random state
            of a snapshot.
        labels: What the caller says about the instance, by name: texts, numbers or booleans.
        datastore: Where an engine world keeps the rows of its data stores; None means SQLite.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    record: bool = attrs.field(default=False, converter=bool)
    env: Mapping[str, str] = attrs.field(default=None, converter=_to_env, repr=False)
    host: str = attrs.field(default=DEFAULT_HOST, converter=_to_host)
    base_path: str = attrs.field(default="", converter=_to_base_path)
    health_timeout: float = attrs.field(default=DEFAULT_HEALTH_TIMEOUT_S, validator=_check_seconds)
    detach: bool = attrs.field(default=False, converter=bool)
    restart: RestartMode = attrs.field(default="never", validator=_check_restart)
    max_restarts: int = attrs.field(default=DEFAULT_MAX_RESTARTS, validator=_check_count)
    restart_window: float = attrs.field(default=DEFAULT_RESTART_WINDOW_S, validator=_check_seconds)
    reseed: int | None = attrs.field(default=None, validator=_check_seed)
    labels: Labels = attrs.field(default=None, converter=_to_labels)
    datastore: DataStoreBackend | None = attrs.field(default=None, validator=_check_datastore)

    def shared(self) -> dict[str, Any]:
        """Return the values of the shared options, by name."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(SharedOptions)}


@attrs.frozen(kw_only=True)
class StartOptions(SharedOptions):
    """The options for the start of one instance.

    Attributes:
        port: Port of the world; None leases a free one.
        port_wait: Seconds to wait for a given port to become free; 0 does not wait.
        record_dir: Directory for recordings; None means ``recordings`` in the run directory.
        resume: Snapshot to restore; None starts afresh.
        run_dir: Directory of the run; None means the parent of ``record_dir``, else the world
            directory.
        name: Name of the instance; None takes the first free one of ``w000``, ``w001``, …
        command_file: File for the rerunnable launch script; None means one in ``runtime``.
        log_file: File for the output of the world; None means one in ``logs``.
        watch: Whether an engine world starts over when its scripts change.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    port: int | None = attrs.field(default=None, converter=_to_port)
    port_wait: float = attrs.field(default=0.0, validator=_check_wait)
    record_dir: Path | None = attrs.field(default=None, converter=_to_record_dir)
    resume: SnapshotLike | None = attrs.field(default=None, validator=_check_snapshot)
    run_dir: str | Path | None = attrs.field(default=None, validator=_check_path)
    name: str | None = attrs.field(default=None, validator=_check_name)
    command_file: Path | None = attrs.field(default=None, converter=_to_command_file)
    log_file: Path | None = attrs.field(default=None, converter=_to_log_file)
    watch: bool = attrs.field(default=False, converter=bool)


@attrs.frozen(kw_only=True)
class ManyOptions(SharedOptions):
    """The options that the instances of one start share; see also :class:`InstanceSpec`.

    Attributes:
        resume: Snapshot to restore, unless an instance has its own; None starts afresh.
        on_failure: ``keep`` leaves the other instances alone when one fails; ``stop_all`` stops
            them all at the first failure.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    resume: SnapshotLike | None = attrs.field(default=None, validator=_check_snapshot)
    on_failure: OnFailure = attrs.field(default="keep", validator=_check_on_failure)


@attrs.frozen
class InstanceSpec:
    """The options of one of many instances; None means the option that they share.

    Attributes:
        name: Its name; None takes the next free one of ``w000``, ``w001``, …
        resume: Snapshot to restore: its path, or what ``save`` returned. A relative path is looked
            up in the world directory, then in the current directory.
        env: Environment variables in addition to the shared ones.
        record: Whether it records.
        labels: Labels in addition to the shared ones.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    name: str | None = attrs.field(default=None, validator=_check_name)
    resume: SnapshotLike | None = attrs.field(default=None, validator=_check_snapshot)
    env: Mapping[str, str] | None = attrs.field(default=None, validator=_check_env, repr=False)
    record: bool | None = None
    labels: Labels | None = attrs.field(default=None, validator=_check_labels)

    @classmethod
    def parse(cls, given: object) -> Self:
        """Return a spec, or make one from a mapping with its fields.

        Raises:
            ConfigError: ``given`` is neither, or has an unknown key or a wrong value; names it.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ConfigError("an InstanceSpec, or its fields", key="instances", value=given)
        known = attrs.fields_dict(cls)
        for key in given:
            if key not in known:
                message = f"an instance of its own has {', '.join(known)}"
                likely = nearest_name(str(key), known)
                hint = f"did you mean {likely}?" if likely else None
                raise ConfigError(message, key=f"instances.{key}", value=given[key], hint=hint)
        return cls(**given)


# -- saving -------------------------------------------------------------------------------------


@attrs.frozen
class SaveOptions:
    """The options of a save.

    Attributes:
        dir: Directory for the file; None means ``checkpoints`` of the instance.
        timeout: Seconds for the transfer.
        max_bytes: Size limit of the snapshot, in bytes.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    dir: Path | None = attrs.field(default=None, converter=_to_dir)
    timeout: float = attrs.field(default=DEFAULT_SAVE_TIMEOUT_S, validator=_check_seconds)
    max_bytes: int = attrs.field(default=DEFAULT_MAX_SNAPSHOT_BYTES, validator=_check_count)
