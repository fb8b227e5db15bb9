"""The checks, by area.

- ``static``: the files of a world.
- ``contract``: the routes, used as intended or nearly so.
- ``restore``: a restored world continues exactly.
"""

from __future__ import annotations

from typing import Final

from clawblox.conformance.checks import contract, restore, static
from clawblox.conformance.registry import Check

CHECKS: Final[tuple[Check, ...]] = (*static.CHECKS, *contract.CHECKS, *restore.CHECKS)
"""All checks in the order in which they are reported."""
