"""Additional variables for the instances of a world under test."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from random import Random
from typing import Final

from clawblox.conformance.disguise import draw_variable

_NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"


def make_secret(random: Random) -> dict[str, str]:
    """Return a variable with a secret value that no world needs.

    Args:
        random: Chooses its name.
    """
    return {draw_variable(random, os.environ): secrets.token_hex(16)}


def bytecode_cache(scratch: Path) -> dict[str, str]:
    """Return variables with which a world in Python is compiled once, and not at every start.

    Where bytecode may be written, it is written next to the sources anyway.
    """
    if not os.environ.get(_NO_BYTECODE):
        return {}
    return {_NO_BYTECODE: "", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}
