"""Starts that a world may refuse."""

from __future__ import annotations

import socket

from clawblox.conformance.failed_starts import find_free_port
from clawblox.system.ports import ephemeral_range


def test_port_for_a_world_is_free_and_outside_the_ephemeral_range() -> None:
    for _ in range(20):
        port = find_free_port()
        assert port not in ephemeral_range()
        socket.create_server(("127.0.0.1", port)).close()
