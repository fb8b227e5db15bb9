"""The control sockets of one open world: one for each run directory it has instances in."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import anyio

from clawblox.concurrency.tasks import Tasks
from clawblox.rundir.control_server import ControlServer, Operation
from clawblox.telemetry.own_log import OwnLog

Operations: TypeAlias = Mapping[str, Operation]
"""What other processes can ask for, by ``op``."""

_serial = itertools.count()

_log = OwnLog(__name__)


class ControlSockets:
    """Opens a control socket for each run directory, once.

    Args:
        tasks: Task group that serves the sockets.
        make_operations: Returns the operations on the instances of a run directory.
    """

    def __init__(self, tasks: Tasks, make_operations: Callable[[Path], Operations]) -> None:
        self._tasks = tasks
        self._make_operations = make_operations
        self._name = f"{os.getpid()}-{next(_serial)}"
        self._servers: dict[Path, ControlServer | None] = {}
        self._lock = anyio.Lock()

    async def open(self, run_dir: Path) -> str:
        """Open the socket of a run directory, unless it is open already.

        Returns:
            Its name; '' if it cannot be opened; that is only logged.

        Cancellation: a socket that is being opened is closed.
        """
        async with self._lock:
            if run_dir not in self._servers:
                self._servers[run_dir] = await self._serve(run_dir)
        return "" if self._servers[run_dir] is None else self._name

    async def _serve(self, run_dir: Path) -> ControlServer | None:
        server = ControlServer(run_dir, self._name, self._make_operations(run_dir))
        try:
            await server.open()
        except OSError as error:
            _log.warning("no control socket", run_dir=str(run_dir), error=str(error))
            return None
        self._tasks.start_soon(server.run)
        return server

    async def aclose(self) -> None:
        """Close the sockets; call it shielded."""
        for server in filter(None, self._servers.values()):
            await server.aclose()
