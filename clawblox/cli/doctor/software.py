"""Checks of the optional extras and of other programs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from typing import Final

import attrs

from clawblox.checks import MachineCheckResult, missing, ok, warning
from clawblox.cli.doctor import DoctorChecks
from clawblox.extras import EXTRAS, install_command
from clawblox.system.process import run_briefly

_TIMEOUT_S = 4.0
_OLDEST_TMUX = (3, 0)
"""The first version that can set the variables of a window."""

CHECKS: Final = DoctorChecks()


def look_for_packages(names: Sequence[str]) -> MachineCheckResult:
    """Check whether all the packages are installed."""
    absent, versions = [], []
    for name in names:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            absent.append(name)
    if absent:
        return missing(f"no {', '.join(absent)}")
    return ok(", ".join(versions) or "part of Python")


def _look_for_extra(name: str) -> MachineCheckResult:
    """Check whether the packages of an extra are installed."""
    is_in_python = name == "zstd" and sys.version_info >= (3, 14)
    result = look_for_packages(() if is_in_python else tuple(EXTRAS[name].values()))
    remedy = None if result.status == "ok" else f"Install it: {install_command(name)}"
    return attrs.evolve(result, remedy=remedy)


for _name, _without in (
    ("server", "Worlds written on clawblox.server, such as those of clawblox init, do not start."),
    ("app", "clawblox app does not work."),
    ("engine", "Worlds made of Luau scripts do not start."),
    ("postgres", "Data stores cannot be kept on Postgres."),
    ("mujoco", "Worlds that simulate with MuJoCo do not start."),
    ("metrics", "clawblox up --metrics-port does not work."),
    ("pandas", "Results.dataframe does not work."),
    ("play", "clawblox play has no history and no completion."),
    ("zstd", "Conversations compressed with Zstandard cannot be saved."),
    ("re2", "The scan for secrets is slower."),
    ("check", "`clawblox check` tries no saves at random moments."),
    ("ray", "Experiments cannot use the nodes of a cluster."),
):
    CHECKS.add("Extras", _name, _without, "Install the extra.")(partial(_look_for_extra, _name))


@CHECKS.add(
    "Programs", "tmux", "clawblox run --tmux does not work.", "Install it: apt install tmux."
)
def _look_for_tmux() -> MachineCheckResult:
    """Run tmux and compare its version."""
    version = run_program("tmux", "-V").removeprefix("tmux ")
    number = re.search(r"(\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < _OLDEST_TMUX:
        return warning(f"{version} is too old: 3.0 or later is needed")
    return ok(version)


def run_program(program: str, *arguments: str) -> str:
    """Run a short-lived program, and return the first line of its output. Blocks.

    Raises:
        OSError: The program is not installed, fails, or does not end.
    """
    try:
        outcome = run_briefly([program, *arguments], env=os.environ, timeout=_TIMEOUT_S)
    except FileNotFoundError:
        raise OSError("not installed") from None
    if outcome.status:
        raise OSError(f"it failed with status {outcome.status}")
    return outcome.first_line
