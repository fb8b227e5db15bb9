"""Runs the command ``python -m clawblox.luau``."""

from clawblox.luau.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
