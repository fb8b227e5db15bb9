"""``python -m clawblox.engine DIR``: serve an engine world."""

from __future__ import annotations

import sys

_EXTRA = ("starlette", "uvicorn", "wsproto", "rapier3d")

try:
    from clawblox.engine.runner import main
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in _EXTRA:
        raise
    sys.stderr.write(
        f'python -m clawblox.engine: {error.name} is missing: pip install "clawblox[engine]"\n'
    )
    raise SystemExit(1) from None

main()
