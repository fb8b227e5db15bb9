"""``python -m clawblox.engine DIR``: serve an engine world."""

from __future__ import annotations

import gc
import sys

from clawblox.extras import find_missing, install_command

_PROGRAM = "python -m clawblox.engine"


def _run() -> None:
    if missing := find_missing("engine"):
        how = install_command("engine")
        sys.stderr.write(f"{_PROGRAM}: not installed: {', '.join(missing)}; {how}\n")
        raise SystemExit(1)
    gc.disable()  # until it serves: scanning new module objects takes a tenth of the start
    from clawblox.engine.runner import main

    sys.argv[0] = _PROGRAM  # prefix of the server's error messages
    main()


_run()
