"""Optional packages: the modules of each extra, and the command that installs it.

Packages are only searched for, never imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from clawblox.printable import quote_words

_ZSTD: Final = {} if sys.version_info >= (3, 14) else {"zstandard": "zstandard"}
"""Package for Zstandard; Python 3.14 has its own module."""
_SERVER: Final = {"starlette": "starlette", "uvicorn": "uvicorn", **_ZSTD}

EXTRAS: Final[Mapping[str, Mapping[str, str]]] = {
    "server": _SERVER,
    "app": _SERVER,
    "engine": {"numpy": "numpy", "rapier3d": "rapier3d", **_SERVER, "wsproto": "wsproto"},
    "mujoco": {"mujoco": "mujoco", **_SERVER},
    "postgres": {"psycopg": "psycopg"},
    "metrics": {"prometheus_client": "prometheus-client"},
    "pandas": {"pandas": "pandas"},
    "play": {"prompt_toolkit": "prompt-toolkit"},
    "zstd": {"zstandard": "zstandard"},
    "re2": {"re2": "google-re2"},
    "check": {"hypothesis": "hypothesis"},
    "ray": {"ray": "ray"},
}
"""Modules that each extra adds, with the names of their packages."""

_SHARED: Final = frozenset({"numpy"})
"""Modules that programs may import for other reasons, so they do not indicate a missing extra."""

_PACKAGE: Final = Path(__file__).resolve().parent


def find_missing(extra: str) -> tuple[str, ...]:
    """Return the modules of an extra that are not installed, in alphabetical order. Blocks."""
    return tuple(sorted(name for name in EXTRAS[extra] if find_spec(name) is None))


def require_extra(extra: str, user: str) -> None:
    """Raise an error if packages of an extra are missing. Blocks.

    Args:
        extra: Name of the extra.
        user: The module that needs it, for the message.

    Raises:
        ModuleNotFoundError: A package is missing; the message contains the command to install it.
    """
    for name in find_missing(extra):
        raise ModuleNotFoundError(
            f"No module named {name!r}, which {user} needs: {install_command(extra)}", name=name
        )


def name_extra(module: str) -> str | None:
    """Return the smallest extra that adds a module, or None."""
    name = module.partition(".")[0]
    adding = [extra for extra, modules in EXTRAS.items() if name in modules]
    return None if name in _SHARED else min(adding, key=lambda e: len(EXTRAS[e]), default=None)


def install_command(extra: str) -> str:
    """Return the shell command that installs an extra from the origin of this package. Blocks.

    The origin is the package index, a clone of the repository, a repository's address or an
    archive.
    """
    if _is_clone(_PACKAGE.parent):
        return _install_from(_PACKAGE.parent, extra, "-e")
    origin = _read_origin()
    url = str(origin.get("url", ""))
    if "dir_info" in origin:
        clone = Path(unquote(urlsplit(url).path))
        if _is_clone(clone):
            return _install_from(clone, extra)
    elif "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return _pip(f"clawblox[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}")
    elif "archive_info" in origin:
        return _pip(f"clawblox[{extra}] @ {url}")
    return _pip(f"clawblox[{extra}]")


def _is_clone(directory: Path) -> bool:
    """Return whether a directory is the root of this package's repository."""
    path = directory / "pyproject.toml"
    return path.is_file() and '\nname = "clawblox"\n' in path.read_text(encoding="utf-8")


def _install_from(clone: Path, extra: str, *flags: str) -> str:
    place = "." if clone == Path.cwd() else clone
    return _pip(f"{place}[{extra}]", *flags)


def _pip(requirement: str, *flags: str) -> str:
    return quote_words(("pip", "install", *flags, requirement))


def _read_origin() -> dict[str, Any]:
    """Return the installer's record of the package's origin; empty for a package index.

    The format is defined by PEP 610.
    """
    from importlib import metadata  # rarely needed, and slow to import

    try:
        text = metadata.distribution("clawblox").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    origin: dict[str, Any] = json.loads(text) if text else {}
    return origin
