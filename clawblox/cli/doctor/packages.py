"""Checks of Python and of the optional extras."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from typing import Final

from clawblox.cli.doctor.check import Check, CheckResult, missing, ok
from clawblox.instance.launch import ENGINE_PACKAGES

__all__ = ["PACKAGE_CHECKS", "look_for_packages"]

_OLDEST_PYTHON = (3, 11)
_ZSTD_PACKAGES = () if sys.version_info >= (3, 14) else ("zstandard",)


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


def _extra(name: str, packages: Sequence[str], without: str) -> Check:
    remedy = f'Install it: pip install "clawblox[{name}]".'
    return Check("Extras", name, partial(look_for_packages, packages), without, remedy)


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
        ("starlette", "uvicorn"),
        "Worlds written on clawblox.server, clawblox init's among them, do not start.",
    ),
    _extra(
        "engine",
        ENGINE_PACKAGES,
        "Worlds made of Luau scripts do not start.",
    ),
    _extra("postgres", ("psycopg",), "Data stores cannot be kept on Postgres."),
    _extra("mujoco", ("mujoco",), "Worlds that simulate with MuJoCo do not start."),
    _extra("metrics", ("prometheus-client",), "clawblox up --metrics-port does not work."),
    _extra(
        "play",
        ("prompt-toolkit",),
        "clawblox play has no history and no completion.",
    ),
    _extra("zstd", _ZSTD_PACKAGES, "Conversations compressed with Zstandard cannot be saved."),
    _extra("re2", ("google-re2",), "The scan for secrets is slower."),
    _extra("isal", ("isal",), "Packing archives is slower."),
)
