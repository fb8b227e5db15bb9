"""The checks, by area.

- ``static``: the files of a world.
- ``contract``: the routes, used as intended or nearly so.
- ``gate``: what a world refuses, and to whom.
- ``restore``: a restored world continues exactly.
- ``refuse``: snapshots that a world cannot restore.
- ``invisible``: what agents must not see.
- ``hygiene``: what a world keeps and leaves.
"""

from __future__ import annotations

from typing import Final

from clawblox.conformance.checks import contract, gate, hygiene, invisible, refuse, restore, static
from clawblox.conformance.registry import Check

CHECKS: Final[tuple[Check, ...]] = (
    *static.CHECKS,
    *contract.CHECKS,
    *gate.CHECKS,
    *restore.CHECKS,
    *refuse.CHECKS,
    *invisible.CHECKS,
    *hygiene.CHECKS,
)
"""All checks in the order in which they are reported."""
