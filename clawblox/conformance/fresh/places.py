"""The directories of a run in fresh places, and its command. Blocks."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.sandbox.inside import SYSTEM_DIRS
from clawblox.conformance.fresh.footprints import SHARED_DIRS
from clawblox.system.files import make_private_dir
from clawblox.system.process import run_briefly

_PROBE_TIMEOUT_S: Final = 20.0
_SYSTEM: Final = (*map(str, SYSTEM_DIRS), "/lib32", "/etc", "/opt", "/nix", "/gnu", "/snap")
_PACKAGE: Final = str(Path(__file__).parents[2])
_PYTHON_DIRS: Final = (sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix), _PACKAGE)
"""The directories of our interpreter and of this package."""
_HOME_VARIABLES: Final = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "home/.cache",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
}
"""Variables with directories of a user, and the fresh directories that replace them."""
BYTECODE_ENV: Final = "PYTHONPYCACHEPREFIX"

ALONE: Final = (
    "its own /tmp, /dev/shm, home, caches, run directory, processes and network (bubblewrap)"
)
BESIDE: Final = (
    "its own home, caches, temporary and run directory (no bubblewrap: other files and processes"
    " of this machine could be reached)"
)


@attrs.frozen(kw_only=True)
class FreshPlace:
    """A fresh place for a run.

    Attributes:
        directory: Directory for all files of the run.
        world: The copy of the world, as the world sees it.
        run_dir: The run directory, as the world sees it.
        save: Path of the snapshot to restore, as the world sees it; the file is in ``directory``.
        is_alone: Whether the run has its own processes, network and temporary directories.
        command: Command of the run, which reads the request from standard input.
        env: The environment of the command.
    """

    directory: Path
    world: Path
    run_dir: Path
    save: Path
    is_alone: bool
    command: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def described(self) -> str:
        """The properties in words, to follow ``a run with``."""
        return ALONE if self.is_alone else BESIDE


def find_bubblewrap() -> str | None:
    """Return the path of bubblewrap if it can be used here, else None."""
    found = shutil.which("bwrap")
    if found is None:
        return None
    path = os.path.realpath(found)
    fresh = ("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-net")
    words = [path, *fresh, "--ro-bind", "/", "/", "--proc", "/proc", "--dev-bind", "/dev", "/dev"]
    try:
        outcome = run_briefly([*words, "true"], env=os.environ, timeout=_PROBE_TIMEOUT_S)
    except (OSError, TimeoutError):
        return None
    return None if outcome.status else path


def make_place(
    directory: Path,
    *,
    world: Path,
    copy: Path | None,
    commands: Sequence[Sequence[str]],
    run_dir: Path,
    bubblewrap: str | None,
    since: float,
    views: int,
) -> FreshPlace:
    """Make a place.

    Args:
        directory: A new private directory.
        world: Directory of the world in its other runs.
        copy: Directory of another private copy of the world, in ``directory``; None for no copy.
        commands: The commands that start the world.
        run_dir: Run directory of its other runs.
        bubblewrap: Path of bubblewrap; None for a place without it.
        since: UTC time in seconds since 1970 before the first start.
        views: Descriptor of a file for the bubblewrap arguments that are the same for all places.
    """
    inside = _module("inside")
    make_private_dir(directory / "save")
    if bubblewrap is None:
        names = (*_HOME_VARIABLES.items(), (BYTECODE_ENV, "bytecode"))
        fresh = {variable: str(directory / name) for variable, name in names}
        for path in fresh.values():
            Path(path).mkdir(parents=True, exist_ok=True)
        return FreshPlace(
            directory=directory,
            world=copy or world,
            run_dir=directory / "run",
            save=directory / "save",
            is_alone=False,
            command=inside,
            env={**os.environ, **fresh},
        )
    home = os.path.realpath(Path.home())
    save = run_dir.parent / "saves"
    temporary = sorted({*SHARED_DIRS, os.path.realpath(tempfile.gettempdir())})
    seen = _Shown(home, [world, run_dir.parent], temporary)
    for path in (*_PYTHON_DIRS, *_search_dirs()):
        seen.add_directory(path)
    for word in itertools.chain(*commands):
        seen.add_word(word)
    own = [(str(directory / "save"), str(save))]
    if copy is not None:
        own.append(_pair_tops(directory, copy, world))
    plan = {
        "bubblewrap": bubblewrap,
        "since": since,
        "system": [path for path in _SYSTEM if os.path.lexists(path)],
        "home": home,
        "temporary": temporary,
        "shown": [*seen.directories, *([] if copy else [str(world)])],
        "files": seen.files,
        "own": own,
        "directories": [str(run_dir)],
        "cwd": "/",
        "command": inside,
    }
    return FreshPlace(
        directory=directory,
        world=world,
        run_dir=run_dir,
        save=save,
        is_alone=True,
        command=(*_module("enter"), json.dumps(plan), str(views)),
        env=dict(os.environ),
    )


def _pair_tops(directory: Path, copy: Path, world: Path) -> tuple[str, str]:
    """Return the top directory of a copy, and the path where the sandbox shows it."""
    top = directory / copy.relative_to(directory).parts[0]
    inner = len(copy.relative_to(top).parts)
    return str(top), str((world, *world.parents)[inner])


def _module(name: str) -> tuple[str, ...]:
    """Return the command that runs a module of this package; -P prevents imports of other files."""
    return sys.executable, "-P", "-m", f"{__package__}.{name}"


class _Shown:
    """Directories and files that a world needs, outside the usual directories.

    Args:
        home: The home directory, which is shown completely.
        own: Directories that are never shown.
        temporary: Directories for temporary files.
    """

    def __init__(self, home: str, own: Sequence[Path], temporary: Sequence[str]) -> None:
        self.directories: list[str] = []
        self.files: list[str] = []
        self._own = [str(path) for path in own]
        self._known = [*_SYSTEM]
        self._never = {"/", home, *temporary}

    def add_word(self, word: str) -> None:
        """Add the path that a word of a command names, if any."""
        path = Path(word.rpartition("=")[2])
        if not path.is_absolute() or not path.exists() or self._is_known(str(path)):
            return
        directory = str(path if path.is_dir() else path.parent)
        if directory in self._never:
            self.files += [] if path.is_dir() else [str(path)]
        else:
            self.add_directory(directory)

    def add_directory(self, path: str) -> None:
        """Add a directory."""
        if path in self._never or not Path(path).is_dir() or self._is_known(path):
            return
        inner = [known for known in self.directories if known.startswith(f"{path}/")]
        self.directories = [known for known in self.directories if known not in inner] + [path]

    def _is_known(self, path: str) -> bool:
        shown = (*self._own, *self._known, *self.directories)
        return any(path == known or path.startswith(f"{known}/") for known in shown)


def _search_dirs() -> Iterator[str]:
    """Yield the directories of programs, and the Python environments that they belong to."""
    for path in filter(os.path.isabs, os.get_exec_path()):
        parent = Path(path).parent
        yield str(parent) if (parent / "pyvenv.cfg").exists() else path
    for path in filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        yield path
