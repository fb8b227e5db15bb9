"""The process of a tool, which reads a line and writes a line of JSON per step; see ``peers``.

python -m benchmarks.tools NAME DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.tools import TOOLS
from benchmarks.worlds import WorldSpec

__all__ = ["main"]


def main(name: str, directory: str) -> None:
    """Open the tool; start and stop its worlds on request."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)

        def tell(**facts: object) -> None:
            print(json.dumps(facts), file=answers, flush=True)

        specs = [WorldSpec.from_json(line) for line in json.loads(sys.stdin.readline())]
        tool = TOOLS[name](specs, Path(directory))
        try:
            begun = time.monotonic()
            tool.open()
        except ImportError as error:
            tell(missing=str(error))
            return
        tell(init_s=time.monotonic() - begun)
        sys.stdin.readline()
        begun = time.monotonic()
        tool.start()
        tell(begun=begun, known=time.monotonic(), root=tool.root)
        sys.stdin.readline()
        begun = time.monotonic()
        tool.stop()
        tell(stop_s=time.monotonic() - begun)
        tool.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
