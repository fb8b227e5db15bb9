"""What the engine's own work costs the script that asks for it.

A step stands for about a tenth of a microsecond. What takes longer is charged, and so is what a
script keeps in the engine, so that the limits of steps and memory hold whatever a script calls.
"""

from __future__ import annotations

from clawblox.luau.core.context import current

__all__ = ["charge", "charge_memory"]


def charge(steps: int) -> None:
    """Charge the running script steps; outside of scripts, nothing.

    Raises:
        LuaError: It has used up its steps.
    """
    if current.vm is not None:
        current.vm.charge_work(steps)


def charge_memory(size: int) -> None:
    """Charge the running script bytes that it keeps; outside of scripts, nothing.

    Raises:
        OutOfMemory: There is no room for them.
    """
    if current.vm is not None:
        current.vm.allocate(size)
