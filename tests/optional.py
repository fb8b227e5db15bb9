"""Programs that some tests need and a machine may lack.

A test without its program is skipped, and the reason names the package to install. If
:data:`REQUIRED_ENV` is set, as in `.ci/run`, the test fails instead, so that every test runs there.

``python -m tests.optional`` prints the packages that are missing on this machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRED_ENV = "REQUIRE_ALL_PROGRAMS"
"""Variable that turns each skip for lack of a program into a failure, unless it is empty."""

PACKAGES: Mapping[str, str] = {
    "bsdtar": "libarchive-tools",
    "bwrap": "bubblewrap",
    "chromium": "chromium",
    "curl": "curl",
    "git": "git",
    "initdb": "postgresql",
    "ip": "iproute2",
    "npm": "npm",
    "openssl": "openssl",
    "rg": "ripgrep",
    "socat": "socat",
    "strace": "strace",
    "tmux": "tmux",
    "unzip": "unzip",
    "zip": "zip",
}
"""Debian's package of each program."""

OTHER_NAMES: Mapping[str, str] = {"chromium": "chromium-browser"}
"""Alternative names of programs."""


def find_program(name: str) -> Path | None:
    """Return the path of an optional program; None if it is not installed."""
    if path := shutil.which(name) or shutil.which(OTHER_NAMES.get(name, name)):
        return Path(path)
    if name == "initdb":  # Debian does not put Postgres' server in PATH
        return max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None, key=_version)
    return None


def _version(path: Path) -> int:
    number = path.parts[-3]
    return int(number) if number.isdigit() else 0


def require_program(name: str) -> Path:
    """Return the path of an optional program; skip or fail the test if it is not installed.

    Tests use ``@pytest.mark.needs(name)``; fixtures call this.
    """
    path = find_program(name)
    if path is None:
        unavailable(f"{name} is not installed (Debian: apt-get install {PACKAGES[name]})")
    return path


def require_package(name: str, extra: str) -> None:
    """Skip or fail the test if a package of an extra is not installed."""
    if find_spec(name) is None:
        unavailable(f"{name} is not installed (pip install 'clawblox[{extra}]')")


def unavailable(reason: str) -> NoReturn:
    """Skip the test for lack of a program; fail it if all programs are required."""
    if os.environ.get(REQUIRED_ENV):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


if __name__ == "__main__":
    print(*(package for name, package in PACKAGES.items() if find_program(name) is None))
