"""The checks, by area.

- ``static``: the files of a world.
- ``contract``: the routes, with correct and slightly incorrect requests.
- ``gate``: requests that a world must refuse.
- ``restore``: a restored world continues exactly.
- ``refuse``: snapshots that a world cannot restore.
- ``invisible``: facts that agents must not see.
- ``hygiene``: data that a world keeps, and files and processes that it leaves.
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
"""All checks, in the order of the report."""
