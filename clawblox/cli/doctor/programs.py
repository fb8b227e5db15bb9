"""Checks of other programs, each tried by running it."""

from __future__ import annotations

import os
import re
from typing import Final

from clawblox.cli.doctor.check import Check, CheckResult, ok, warning
from clawblox.system.short_process import run_briefly

_TIMEOUT_S = 4.0
_OLDEST_TMUX = (3, 0)
"""The first that can set variables of a window."""


def look_for_tmux() -> CheckResult:
    """Run tmux and compare its version."""
    version = run_program("tmux", "-V").removeprefix("tmux ")
    found = re.search(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < _OLDEST_TMUX:
        return warning(f"{version} is too old: 3.0 or later is needed")
    return ok(version)


def run_program(program: str, *arguments: str) -> str:
    """Run a program that ends soon, and return the first line that it writes. Blocks.

    Raises:
        OSError: It is not installed, fails, or does not end.
    """
    try:
        outcome = run_briefly([program, *arguments], env=os.environ, timeout=_TIMEOUT_S)
    except FileNotFoundError:
        raise OSError("not installed") from None
    if outcome.status:
        raise OSError(f"it failed with status {outcome.status}")
    return outcome.first_line


PROGRAM_CHECKS: Final = (
    Check(
        "Programs",
        "tmux",
        look_for_tmux,
        "clawblox run --tmux does not work.",
        "Install it: apt install tmux.",
    ),
)
