"""Free ports and listening sockets, read from proc(5)."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator


def free_port() -> int:
    """Return a free port that is new in this test run.

    The port is outside of the ephemeral range, where an outgoing connection could take it, and
    belongs to this process of the run, because other processes would notice it only once a program
    listens.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while True:
        port = 10_000 + worker + workers * secrets.randbelow(10_000 // workers)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _returned_ports:
                _returned_ports.add(port)
                return port


_returned_ports: set[int] = set()


@contextlib.contextmanager
def stranger_on(port: int, host: str = "127.0.0.1") -> Iterator[None]:
    """Listen on a port like a foreign server, even if a closed connection still uses the port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind((host, port))
        stranger.listen()
        yield


def is_listening(port: int) -> bool:
    """Return whether any process listens on a TCP port, without connecting to it."""
    suffix = f":{port:04X}"
    return any(address.endswith(suffix) for address in _listening_addresses())


def _listening_addresses() -> Iterator[str]:
    """Yield the local addresses that are listened on, in the hexadecimal of proc_net_tcp."""
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as lines:
            next(lines)
            for line in lines:
                _, address, _, state, *_ = line.split(maxsplit=4)
                if state != "0A":
                    break  # the kernel lists the listeners before the connections
                yield address
