"""Checks of Python and of the optional extras."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from typing import Final

import attrs

from clawblox.cli.doctor.check import Check, CheckResult, missing, ok
from clawblox.extras import EXTRAS, install_command

_OLDEST_PYTHON = (3, 11)


def _look_at_python() -> CheckResult:
    found = f"{platform.python_version()}, {sys.executable}"
    return ok(found) if sys.version_info >= _OLDEST_PYTHON else missing(found)


def look_for_packages(names: Sequence[str]) -> CheckResult:
    """Look whether all of some packages are installed."""
    absent = []
    found = []
    for name in names:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            absent.append(name)
    return (
        missing(f"no {', '.join(absent)}") if absent else ok(", ".join(found) or "part of Python")
    )


def look_for_extra(name: str) -> CheckResult:
    """Look whether the packages of an extra are installed."""
    is_in_python = name == "zstd" and sys.version_info >= (3, 14)
    result = look_for_packages(() if is_in_python else tuple(EXTRAS[name].values()))
    remedy = None if result.state == "ok" else f"Install it: {install_command(name)}"
    return attrs.evolve(result, remedy=remedy)


def _extra(name: str, without: str) -> Check:
    return Check("Extras", name, partial(look_for_extra, name), without, "Install the extra.")


PACKAGE_CHECKS: Final = (
    Check(
        "Python",
        "interpreter",
        _look_at_python,
        "clawblox does not run.",
        "Use Python 3.11 or later.",
        is_required=True,
    ),
    _extra(
        "server",
        "Worlds written on clawblox.server, clawblox init's among them, do not start.",
    ),
    _extra(
        "engine",
        "Worlds made of Luau scripts do not start.",
    ),
    _extra("postgres", "Data stores cannot be kept on Postgres."),
    _extra("mujoco", "Worlds that simulate with MuJoCo do not start."),
    _extra("metrics", "clawblox up --metrics-port does not work."),
    _extra(
        "play",
        "clawblox play has no history and no completion.",
    ),
    _extra("zstd", "Conversations compressed with Zstandard cannot be saved."),
    _extra("re2", "The scan for secrets is slower."),
    _extra("isal", "Packing archives is slower."),
)
