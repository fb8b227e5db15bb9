"""What a start can be told: every option by its name, with its default and its complaint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import attrs

from clawblox.config.arguments import check_count, check_seconds
from clawblox.errors import ConfigError
from clawblox.results import RestartMode, SnapshotLike

__all__ = ["DEFAULT_MAX_RESTARTS", "DEFAULT_WINDOW_S", "InstanceSpec", "RestartPolicy"]

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
        check_count(self.max_restarts, "max_restarts")
        check_seconds(self.window, "restart_window")


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
