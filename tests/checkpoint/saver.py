"""A program that saves repeatedly, for failing system calls. Arguments: a run directory, a count.

It prints a line for each save: ``returned <archive>`` or ``refused <error>``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from clawblox.errors import CheckpointError
from tests.checkpoint.runs import Run


def main(directory: str, count: str) -> None:
    run = Run(Path(directory))
    for number in range(int(count)):
        try:
            print("returned", run.save(f"s{number}"), flush=True)
        except CheckpointError as error:
            print("refused", type(error).__name__, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
