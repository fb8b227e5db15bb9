"""The checks of ``clawblox doctor``.

Each check is a small function that looks at one thing and undoes what it tried. Nothing prints.

- ``machine``: kernel, clock and limits.
- ``software``: optional extras, and other programs.
- ``agents``: the agents' programs, and what their sandboxes need.
- ``resources``: file systems, ports and the loopback; and worlds that still use them.
- ``nodes``: the nodes of a cluster, which are asked to look at themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from clawblox.checks import MachineCheck, MachineCheckResult

_F = TypeVar("_F", bound=Callable[[], MachineCheckResult])


class DoctorChecks(list[MachineCheck]):
    """The checks of a module, in their order."""

    def add(
        self, group: str, name: str, without: str, remedy: str, *, is_required: bool = False
    ) -> Callable[[_F], _F]:
        """Return a decorator that adds a check; see :class:`MachineCheck`."""

        def decorate(look: _F) -> _F:
            self.append(MachineCheck(group, name, look, without, remedy, is_required))
            return look

        return decorate
