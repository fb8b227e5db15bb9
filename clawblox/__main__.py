"""Runs ``clawblox`` as ``python -m clawblox``."""

from __future__ import annotations

from clawblox.cli import main

if __name__ == "__main__":
    main(prog_name="clawblox")
