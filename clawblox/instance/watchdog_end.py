"""The reason that the watchdog of an engine world gives when it ends the world."""

from __future__ import annotations

from collections.abc import Sequence

from clawblox.instance.instance import Instance
from clawblox.protocol import WATCHDOG_MARK, WATCHDOG_STATUS
from clawblox.results import ProcessExit


def read_watchdog_end(instance: Instance) -> str | None:
    """Return why its watchdog ended an instance; None if it ended in another way. Blocks."""
    is_engine_world = instance.launch.config.is_engine_world
    if not is_engine_world or instance.exit != ProcessExit(status=WATCHDOG_STATUS):
        return None
    lines: Sequence[str] = instance.error_fields()["log_lines"]
    marked = [line for line in lines if line.startswith(WATCHDOG_MARK)]
    reason = marked[-1].removeprefix(WATCHDOG_MARK) if marked else "its log has no reason"
    return f"the watchdog ended it: {reason}"
