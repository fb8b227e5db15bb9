"""What a start can be told: every option by its name, with its default and its complaint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

import attrs

from clawblox.config.arguments import count_of, path_of, seconds_of
from clawblox.errors import ConfigError
from clawblox.results import RestartMode, SnapshotLike

__all__ = [
    "DEFAULT_GRACE_S",
    "DEFAULT_KEEP",
    "DEFAULT_MAX_RESTARTS",
    "DEFAULT_MAX_SNAPSHOT_BYTES",
    "DEFAULT_SAVE_TIMEOUT_S",
    "DEFAULT_WINDOW_S",
    "InstanceSpec",
    "ManyOptions",
    "RestartPolicy",
    "SaveOptions",
]

DEFAULT_GRACE_S: Final = 10.0
DEFAULT_KEEP: Final = 3
DEFAULT_SAVE_TIMEOUT_S: Final = 300.0
DEFAULT_MAX_SNAPSHOT_BYTES: Final = 16 << 30

DEFAULT_MAX_RESTARTS = 3
DEFAULT_WINDOW_S = 60.0


@attrs.frozen
class RestartPolicy:
    """What becomes of an instance that dies.

    Attributes:
        mode: Nothing, a fresh start, or a start from its last good snapshot.
        max_restarts: So many restarts are allowed within the window.
        window: The window, in seconds.
    """

    mode: RestartMode = "never"
    max_restarts: int = DEFAULT_MAX_RESTARTS
    window: float = DEFAULT_WINDOW_S

    def __attrs_post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: One of them cannot be; names it by its argument of ``start``.
        """
        modes = get_args(RestartMode)
        if self.mode not in modes:
            raise ConfigError(f"one of {', '.join(modes)}", key="restart", value=self.mode)
        count_of(self.max_restarts, "max_restarts")
        seconds_of(self.window, "restart_window")


@attrs.frozen
class InstanceSpec:
    """What one of many instances has of its own; what is None is as it is for all.

    Attributes:
        name: Its name; None takes the next free of ``w000``, ``w001``, …
        resume: Snapshot to restore: its path, or what ``save`` returned. A relative path means the
            file in the world directory if there is one, else the one in the current directory.
        env: Further environment variables, on top of those for all.
        record: Whether it shall record.
    """

    name: str | None = None
    resume: SnapshotLike | None = None
    env: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    record: bool | None = None


@attrs.frozen(kw_only=True)
class ManyOptions:
    """What the start of many instances can be told, besides what each of them has of its own.

    Attributes:
        record: Whether the worlds record.
        env: Further environment variables.
        host: Address that the worlds bind.
        base_path: Prefix of their routes.
        health_timeout: Seconds until a world must be ready.
        detach: Whether the instances live on when this orchestrator ends.
        restart: What becomes of an instance that dies.
        max_restarts: How many restarts within ``restart_window`` are allowed.
        restart_window: Length of that window in seconds.
        resume: Snapshot that those restore that name none of their own; None is a fresh start.
        reseed: Seed for the random state of the first instance; each of the others gets one more.
        on_failure: ``keep`` lets a failed start cost nothing but itself; ``stop_all`` ends all the
            others after the first.
    """

    record: bool = False
    env: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    host: str = "127.0.0.1"
    base_path: str = ""
    health_timeout: float = 60.0
    detach: bool = False
    restart: RestartMode = "never"
    max_restarts: int = DEFAULT_MAX_RESTARTS
    restart_window: float = DEFAULT_WINDOW_S
    resume: SnapshotLike | None = None
    reseed: int | None = None
    on_failure: Literal["keep", "stop_all"] = "keep"


def _to_dir(value: str | Path | None) -> Path | None:
    return None if value is None else path_of(value, "dir").absolute()


def _check_seconds(_owner: Any, field: attrs.Attribute[float], value: float) -> None:  # noqa: ANN401
    seconds_of(value, field.name)


def _check_count(_owner: Any, field: attrs.Attribute[int], value: int) -> None:  # noqa: ANN401
    count_of(value, field.name)


@attrs.frozen
class SaveOptions:
    """What a save can be told.

    Attributes:
        dir: Where the file goes; None means ``checkpoints`` beside the other files of the instance.
        timeout: Seconds for the transfer.
        max_bytes: Largest snapshot that is accepted, in bytes.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    dir: Path | None = attrs.field(default=None, converter=_to_dir)
    timeout: float = attrs.field(default=DEFAULT_SAVE_TIMEOUT_S, validator=_check_seconds)
    max_bytes: int = attrs.field(default=DEFAULT_MAX_SNAPSHOT_BYTES, validator=_check_count)
