"""uvicorn, set up for a world. Imported late: it brings a command line with it."""

from __future__ import annotations

import logging
import socket
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

__all__ = ["run_server"]

CLOSE_TIMEOUT_S: Final = 1
"""Seconds that requests under way get when the world is told to end."""
MAX_HEADER_BYTES: Final = 16 * 1024

_log = logging.getLogger("clawblox.server")


class _Server(uvicorn.Server):
    """Ends with an ordinary return: whoever stops a world in order sees exit status 0."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        _log.info("Listening on %s", self._url)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


def run_server(app: ASGIApp, listener: socket.socket, url: str) -> None:
    """Serve until SIGTERM or SIGINT; a second one drops the requests under way.

    Args:
        app: The application.
        listener: A bound socket; it starts to listen when the application is up.
        url: The address to announce in the log.
    """
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,  # it would show agents the host's time
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
    )
    _Server(config, url).run(sockets=[listener])
