"""Drivers: how each agent program is started and continued, and how its output is read.

A driver starts no process and opens no socket. It writes files in the agent's private home, returns
command lines, and parses lines of output. ``running`` does the rest.

- ``driver``: the interface of every driver.
- ``known_program``: the common base of the drivers of Claude Code, Codex, Kimi Code and opencode.
- ``claude``: Claude Code.
- ``codex``: Codex.
- ``kimi``: Kimi Code.
- ``opencode``: opencode.
- ``acp``: programs that speak the Agent Client Protocol.
- ``acp_client``: the client side of that protocol.
- ``command``: any program, by a template of its command line.
- ``output``: parsing lines of JSON from programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clawblox.agents.drivers.acp import AcpDriver
from clawblox.agents.drivers.claude import ClaudeDriver
from clawblox.agents.drivers.codex import CodexDriver
from clawblox.agents.drivers.command import CommandDriver
from clawblox.agents.drivers.driver import Driver
from clawblox.agents.drivers.kimi import KimiDriver
from clawblox.agents.drivers.opencode import OpencodeDriver
from clawblox.config.arguments import check_known

__all__ = ["DRIVERS", "find_driver"]

_ALL: Final[tuple[Driver, ...]] = (
    ClaudeDriver(),
    CodexDriver(),
    KimiDriver(),
    OpencodeDriver(),
    AcpDriver(),
    CommandDriver(),
)

DRIVERS: Final[Mapping[str, Driver]] = MappingProxyType(
    {driver.program.driver: driver for driver in _ALL}
)
"""All drivers, by the name in an agent's ``agent=``."""


def find_driver(name: str) -> Driver:
    """Return the driver with this name.

    Args:
        name: The value of an agent's ``agent=``.

    Raises:
        ConfigError: No driver has this name.
    """
    return DRIVERS[check_known(name, "agent", names=sorted(DRIVERS))]
