"""The checks of ``clawblox doctor``.

Each check is a small function that looks at one thing and undoes its changes. Checks do not print.

- ``machine``: kernel, clock and limits.
- ``software``: optional extras and other programs.
- ``agents``: the agents' programs and the requirements of their sandboxes.
- ``resources``: file systems, ports and the loopback; and leftover worlds that still use them.
- ``nodes``: the nodes of a cluster, each of which checks itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from clawblox.checks import MachineCheck, MachineCheckResult

_F = TypeVar("_F", bound=Callable[[], MachineCheckResult])


class DoctorChecks(list[MachineCheck]):
    """The checks of a module, in order."""

    def add(
        self, group: str, name: str, without: str, remedy: str, *, is_required: bool = False
    ) -> Callable[[_F], _F]:
        """Return a decorator that adds a check; see :class:`MachineCheck`."""

        def decorate(look: _F) -> _F:
            self.append(MachineCheck(group, name, look, without, remedy, is_required))
            return look

        return decorate
