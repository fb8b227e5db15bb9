"""The process on a node in which a host runs. It knows no engine."""

from __future__ import annotations

import os
import signal  # noqa: TID251 - unblocks one for the programs of a host, nothing is sent
from collections.abc import MutableMapping
from typing import Any, Final, NoReturn

ENGINE_PREFIX = "RAY_"
"""Beginning of the names of Ray's environment variables, of which one is the token."""
_MAX_LINES: Final = 1000


def prepare_process() -> int:
    """Prepare this thread and its process for programs that they start, which inherit both.

    Environment variables of Ray are removed, and SIGINT, which Ray blocks, is unblocked. Call it
    in the thread of the host's event loop, before anything is started there.

    Returns:
        The niceness of the process. Ray's own is 15 unless ``RAY_worker_niceness=0`` was set when
        its node was started; a process without privileges cannot lower it.
    """
    for name in [name for name in os.environ if name.startswith(ENGINE_PREFIX)]:
        del os.environ[name]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return os.getpriority(os.PRIO_PROCESS, 0)


def requires_token() -> bool:
    """Return whether the node of this process refuses calls without a token."""
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


class NodeLog:
    """The lines of this package's own log in this process, which the driver takes.

    It configures structlog, as an application does.
    """

    def __init__(self) -> None:
        import structlog

        self._lines: list[tuple[str, str, dict[str, str]]] = []
        structlog.configure(processors=[self._keep])

    def _keep(self, _logger: object, level: str, entry: MutableMapping[str, Any]) -> NoReturn:
        from structlog import DropEvent

        if len(self._lines) < _MAX_LINES:
            event = str(entry.pop("event", ""))
            self._lines.append((level, event, {name: str(entry[name]) for name in entry}))
        raise DropEvent

    def take(self) -> list[tuple[str, str, dict[str, str]]]:
        """Return the lines since the call before: level, event and fields."""
        lines, self._lines = self._lines, []
        return lines
