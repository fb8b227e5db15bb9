"""The tmux window of an agent, which shows the agent's activity across restarts of its program.

The agent's program does not run in the window, so closing the window does no harm, and the window
stays open while the program is restarted.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

from clawblox.agents.layout import AgentDir
from clawblox.system.files import read_size
from clawblox.system.process_tree import read_start_time
from clawblox.system.tmux import Pane, close_window, has_pane, open_view, tmux_name

_PASSED_ON: Final = ("LANG", "LC_ALL", "PATH", "PYTHONPATH")
"""Variables passed on to the window's program."""

_numbers: dict[str, dict[Path, int]] = {}
_numbering = threading.Lock()


class AgentWindow:
    """The window of one agent, ``agent-0-<i>`` in a tmux session.

    The number counts this process's agents in that session, in the order in which their windows
    were created. A second window for the same agent directory gets the same number, so that a new
    agent object finds the window. The constructor does not call tmux.

    Args:
        session: Name of the session; it need not exist.
        directory: The agent's directory, absolute.
        driver: Name of its driver.

    Attributes:
        name: Name of the window.
    """

    def __init__(self, session: str, directory: AgentDir, driver: str) -> None:
        self._session = session
        self._directory = directory
        self._driver = driver
        self._pane: Pane | None = None
        self.name = f"agent-0-{_take_number(session, directory.path)}"

    @property
    def pane_id(self) -> str | None:
        """Id of its pane, for example ``%3``; None while the window is closed."""
        return None if self._pane is None else self._pane.id

    def open(self) -> None:
        """Open the window, and its session if needed, unless it is already open. Blocks.

        The window shows subsequent additions to the agent's log and events.

        Raises:
            TmuxError: The window cannot be opened.
        """
        if self._pane is not None and has_pane(self._pane):
            return
        pid = os.getpid()
        words = (
            *(str(self._directory.path), self._driver, str(pid), str(read_start_time(pid))),
            str(read_size(self._directory.log_file)),
            str(read_size(self._directory.events_file)),
        )
        self._pane = open_view(
            self._session,
            self.name,
            [sys.executable, "-P", "-m", "clawblox.agents.screen", *words],
            cwd=Path("/"),
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        )

    def close(self) -> None:
        """Close the window. Idempotent. Blocks."""
        if self._pane is not None:
            close_window(self._pane.pid)
            self._pane = None


def _take_number(session: str, directory: Path) -> int:
    with _numbering:
        numbers = _numbers.setdefault(tmux_name(session), {})
        return numbers.setdefault(directory, len(numbers))
