"""A world based on a web framework: Starlette on uvicorn, without clawblox code.

It writes the monotonic time at which it starts to listen to the path in ``BENCH_READY``.
"""

import os
import socket
import time
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


class Server(uvicorn.Server):
    """A uvicorn server that reports when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen and report the time."""
        await super().startup(sockets)
        at = time.monotonic()
        Path(os.environ["BENCH_READY"]).write_text(f"{at:.9f}\n")  # a fifo: at once or never


async def describe(_: Request) -> PlainTextResponse:
    """Answer ``GET /api.md``."""
    return PlainTextResponse("ok")


def main() -> None:
    """Serve until TERM."""
    config = uvicorn.Config(
        Starlette(routes=[Route("/api.md", describe)]),
        host=os.environ["WORLD_HOST"],
        port=int(os.environ["WORLD_PORT"]),
        log_level="warning",
    )
    Server(config).run()


if __name__ == "__main__":
    main()
