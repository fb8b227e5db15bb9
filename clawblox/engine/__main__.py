"""``python -m clawblox.engine DIR``: serve an engine world."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_PROGRAM = "python -m clawblox.engine"
_EXTRA = ("numpy", "rapier3d", "starlette", "uvicorn", "wsproto")


def _run() -> None:
    absent = [name for name in _EXTRA if find_spec(name) is None]
    if absent:
        sys.stderr.write(
            f'{_PROGRAM}: not installed: {", ".join(absent)}; pip install "clawblox[engine]"\n'
        )
        raise SystemExit(1)
    from clawblox.engine.runner import main

    sys.argv[0] = _PROGRAM  # the kit begins its errors with it
    main()


_run()
