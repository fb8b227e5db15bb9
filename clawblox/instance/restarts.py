"""Restart policies: whether a dead instance is brought back, and from what. Pure.

``supervisor`` asks and does it. The restart intensity is that of Erlang's supervisors: so many
in so much time, and what dies faster than that stays dead.
"""

from __future__ import annotations

from collections import deque
from typing import get_args

import attrs

from clawblox.config.arguments import count_of, seconds_of
from clawblox.errors import ConfigError
from clawblox.results import RestartMode

__all__ = ["DEFAULT_MAX_RESTARTS", "DEFAULT_WINDOW_S", "Intensity", "RestartPolicy"]

DEFAULT_MAX_RESTARTS = 3
DEFAULT_WINDOW_S = 60.0

_FIRST_DELAY_S = 0.1
_LAST_DELAY_S = 5.0


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


class Intensity:
    """Counts the restarts of one instance against its policy."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._times: deque[float] = deque()

    def take(self, now: float) -> float | None:
        """Use up one restart.

        Args:
            now: Monotonic time in seconds.

        Returns:
            Seconds to wait before it, growing with those that went before in the window; None
            when the window has had all of its restarts.
        """
        while self._times and self._times[0] <= now - self._policy.window:
            self._times.popleft()
        if len(self._times) >= self._policy.max_restarts:
            return None
        before = len(self._times)
        self._times.append(now)
        return min(_FIRST_DELAY_S * 2.0 ** min(before - 1, 16), _LAST_DELAY_S) if before else 0.0
