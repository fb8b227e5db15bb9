"""What ``python -m clawblox.luau`` runs."""

from clawblox.luau.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
