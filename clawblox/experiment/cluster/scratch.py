"""The files of hosts on a node: a place for each host, and the worlds that they share.

A host holds a lock in its place. The next host removes the leftovers of killed hosts, first their
processes, found by their marks. All functions except :func:`make_place` block.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError
from clawblox.experiment.cluster.node import SCRATCH_ENV, scratch_parent
from clawblox.experiment.cluster.trees import unpack
from clawblox.experiment.live.left_attempts import end_left
from clawblox.system.clock import utc_now
from clawblox.system.files import make_private_dir
from clawblox.system.locks import lock_file, unlock_file
from clawblox.system.trees import discard_tree
from clawblox.telemetry.own_log import OwnLog

_NEW: Final = ".new-"
"""Prefix of a place that may not have its lock yet."""
_NEW_S: Final = 60.0
"""Seconds after which a place without a lock is assumed to belong to a killed host."""
_UNUSED_S: Final = 7 * 86400.0
"""Seconds after which an unused world is removed."""

_log = OwnLog(__name__)


def scratch_dir() -> Path:
    """Return the directory for the files of hosts, private to this user.

    Raises:
        ClawbloxError: Another user owns it or can access it.
        OSError: It cannot be made.
    """
    path = make_private_dir(scratch_parent() / f"clawblox-hosts-{os.getuid()}")
    facts = path.lstat()
    if facts.st_uid != os.getuid() or not stat.S_ISDIR(facts.st_mode) or facts.st_mode & 0o077:
        hint = f"remove it, or set {SCRATCH_ENV} to another directory"
        raise ClawbloxError(f"{path} must be a directory that only this user can use", hint=hint)
    return path


async def make_place() -> Path:
    """Make a place for this host, and remove the leftovers of killed hosts.

    Raises:
        ClawbloxError: The parent directory is unusable.
        OSError: It cannot be made.

    Cancellation: some leftovers may remain.
    """
    place = await run_blocking(_make_place)
    for left in await run_blocking(_find_left):
        try:
            await end_left(left)
        except ClawbloxError as error:
            _log.warning(
                "processes of a killed host are still running", path=str(left), error=str(error)
            )
        else:
            await run_blocking(discard_tree, left)
    return place


def _make_place() -> Path:
    hosts = make_private_dir(scratch_dir() / "hosts")
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=hosts))
    lock_file(_lock_path(new))  # held until this process ends
    return new.rename(hosts / f"host-{new.name.removeprefix(_NEW)}")


def _lock_path(place: Path) -> Path:
    return place / "lock"


def _find_left() -> list[Path]:
    """Return the places of ended hosts; remove worlds that were not used recently."""
    now = utc_now().timestamp()
    worlds = scratch_dir() / "worlds"
    for world in worlds.glob("*"):
        if now - world.stat().st_mtime > _UNUSED_S:
            discard_tree(world)
    left = []
    for place in (scratch_dir() / "hosts").iterdir():
        with contextlib.suppress(OSError):
            is_new = place.name.startswith(_NEW) and now - place.stat().st_ctime < _NEW_S
            if not is_new and (lock := lock_file(_lock_path(place))):
                unlock_file(_lock_path(place), lock)
                left.append(place)
    return left


def world_path(name: str) -> Path:
    """Return the path of a world, present or not.

    Args:
        name: The digest of its files.
    """
    return scratch_dir() / "worlds" / name


def has_world(name: str) -> bool:
    """Return whether a world is here; if so, keep it for some days."""
    try:
        os.utime(world_path(name))
    except FileNotFoundError:
        return False
    return True


def keep_world(file: Path, name: str) -> None:
    """Unpack a world completely or not at all.

    Args:
        file: The archive that was sent.
        name: The digest of its files.
    """
    make_private_dir(world_path(name).parent)
    try:
        unpack(file, world_path(name))
    except OSError:
        if not has_world(name):  # else another host was faster
            raise
