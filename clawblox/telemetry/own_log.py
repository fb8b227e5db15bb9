"""The library's own log: structlog's loggers, with structlog imported at the first line.

It takes longer to load than the rest of the package, and most processes never log a line. How
lines look and where they go is the application's choice; the library never configures structlog.
"""

from __future__ import annotations

from typing import Any

__all__ = ["OwnLog"]


class OwnLog:
    """A logger with the methods of structlog's: ``info``, ``warning``, ``exception`` and so on.

    A line is dropped when structlog cannot be loaded for lack of descriptors: logging never fails.

    Args:
        name: The module that logs.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:  # noqa: ANN401 - structlog's own methods
        try:
            from structlog import get_logger
        except (OSError, ImportError):  # the latter while it fails to load in another thread
            return _drop
        return getattr(get_logger(self._name), method)


def _drop(_event: str, **_fields: object) -> None:
    pass
