"""Drivers: how each agent program is started, continued, spoken to and understood.

A driver starts no process and opens no socket. It writes files in the agent's private home, returns
command lines, and reads lines of output. ``running`` does the rest.

- ``driver``: what every driver offers.
- ``known_program``: what the drivers of Claude Code, Codex, Kimi Code and opencode share.
- ``claude``: Claude Code.
- ``codex``: Codex.
- ``kimi``: Kimi Code.
- ``opencode``: opencode.
- ``acp``: programs that speak the Agent Client Protocol.
- ``acp_client``: our side of that protocol.
- ``command``: any program, by a template of its command line.
- ``reading``: understanding what a program has written without talking to it.
- ``output``: lines of JSON that programs write.
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
from clawblox.errors import ConfigError
from clawblox.spelling import nearest_name

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
    """Return the driver of that name.

    Args:
        name: The value of an agent's ``agent=``.

    Raises:
        ConfigError: No driver has this name.
    """
    driver = DRIVERS.get(str(name))
    if driver is None:
        likely = nearest_name(str(name), DRIVERS)
        raise ConfigError(
            f"must be one of {', '.join(sorted(DRIVERS))}, not {name!r}",
            key="agent",
            value=name,
            hint=f"did you mean {likely}?" if likely else None,
        )
    return driver
