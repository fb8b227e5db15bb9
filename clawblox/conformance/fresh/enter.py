"""Prepares the sandbox of a run in fresh places, and becomes bubblewrap.

python -m clawblox.conformance.fresh.enter PLAN DESCRIPTOR

This is a separate process, because reading whole directories would delay the checks. The plan is
JSON, made by ``places``. The descriptor is a file for the arguments of bubblewrap, which may be
longer than a command line; if it already contains arguments, they are reused without a search.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from clawblox.conformance.fresh.views import DirectoryView, TooMuch

MountPath: TypeAlias = Callable[[str, float], list[str]]
"""Returns the arguments that show a path in its state at a given time."""

NOT_SEARCHED: Final = "not searched: "
"""Start of an output line that names a directory with too much to search."""

_FRESH: Final = (
    *("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts"),
    *("--proc", "/proc", "--dev-bind", "/dev", "/dev"),
    *("--perms", "1777", "--tmpfs", "/dev/shm"),  # noqa: S108 - it is made here
)
_QUEUES: Final = "/dev/mqueue"


def make_arguments(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of bubblewrap before the command."""
    yield from _FRESH
    if os.path.isdir(_QUEUES):  # noqa: PTH112
        yield from ("--mqueue", _QUEUES)
    yield from ("--ro-bind-try", "/sys", "/sys")
    since, home = plan["since"], plan["home"]
    mounts: dict[str, MountPath] = {
        **dict.fromkeys(plan["shown"], _show),
        **dict.fromkeys(plan["system"], _show_system),
        home: _show_home,
        **dict.fromkeys(plan["temporary"], _empty),
    }
    has_home = False
    for path in sorted(mounts, key=lambda path: path.count("/")):  # outer directories first
        if has_home and path.startswith(f"{home}/") and mounts[path] is _show:
            continue  # included in the home
        arguments = mounts[path](path, since)
        has_home = has_home or (path == home and len(arguments) > len(_new(home)))
        yield from arguments
    for path in plan["files"]:
        yield from ("--ro-bind", path, path)
    for source, target in plan["own"]:
        yield from ("--bind", source, target)
    for path in plan["directories"]:
        yield from ("--dir", path)
    yield from ("--chdir", plan["cwd"])


def _show_system(path: str, since: float) -> list[str]:
    if os.path.islink(path):  # noqa: PTH114 - paths are texts here
        return ["--symlink", os.readlink(path), path]  # noqa: PTH115
    as_it_is = ["--ro-bind-try", path, path]
    if not os.access(path, os.W_OK):  # only root can have changed it
        return as_it_is
    return _show(path, since) or as_it_is


def _show_home(path: str, since: float) -> list[str]:
    return [*_new(path), *_show(path, since, is_writable=True)]


def _show(path: str, since: float, *, is_writable: bool = False) -> list[str]:
    try:
        return DirectoryView(path, since).arguments(is_writable=is_writable)
    except TooMuch:
        print(f"{NOT_SEARCHED}{path}", file=sys.stderr, flush=True)  # noqa: T201 - for our caller
        return []


def _empty(path: str, _since: float) -> list[str]:
    return ["--perms", "1777", *_new(path)]


def _new(path: str) -> list[str]:
    return ["--tmpfs", path]


def main(words: Sequence[str]) -> None:
    """Become bubblewrap."""
    gc.disable()  # it would traverse all the paths repeatedly
    plan = json.loads(words[0])
    descriptor = int(words[1])
    if not os.fstat(descriptor).st_size:
        text = "".join(f"{argument}\0" for argument in make_arguments(plan))
        with open(descriptor, "wb", closefd=False) as file:
            file.write(os.fsencode(text))
    os.lseek(descriptor, 0, os.SEEK_SET)
    bubblewrap = plan["bubblewrap"]
    argv = [bubblewrap, "--args", str(descriptor), "--", *plan["command"]]
    os.execv(bubblewrap, argv)  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main(sys.argv[1:])
