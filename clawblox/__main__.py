"""Runs ``clawblox`` as ``python -m clawblox``."""

from __future__ import annotations

import gc

gc.disable()  # until a command runs: modules stay, and are not worth looking through

from clawblox.cli import main  # noqa: E402 - after the switch

if __name__ == "__main__":
    main(prog_name="clawblox")
