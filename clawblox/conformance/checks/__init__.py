"""The checks, by area.

- ``restore``: a restored world continues exactly.
"""

from __future__ import annotations

from typing import Final

from clawblox.conformance.checks import restore
from clawblox.conformance.registry import Check

CHECKS: Final[tuple[Check, ...]] = (*restore.CHECKS,)
"""All checks in the order in which they are reported."""
