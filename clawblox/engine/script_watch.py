"""``--watch``: restarts the program when a script or a document of the world changes.

The process replaces itself and keeps its process id, its log and its place in an orchestrator. If
the new files have the same content hash, the world continues exactly. Otherwise its state does not
match the scripts, so it starts again with the same seed. Assets and renderers are served from disk
without a restart.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

import anyio
import attrs
from anyio import to_thread

from clawblox.engine.scripts.script_tree import find_files
from clawblox.engine.settings import EngineSettings
from clawblox.protocol import (
    LISTEN_FDNAMES_ENV,
    LISTEN_FDS_ENV,
    LISTEN_PID_ENV,
    RESEED_ENV,
    RESUME_ENV,
)
from clawblox.server import HostedWorld
from clawblox.server.payload import encode_large_json
from clawblox.server.snapshot_document import make_snapshot
from clawblox.world_keys import CONFIG_NAME

INTERVAL_S: Final = 0.5
CHANGED_ENV: Final = "CLAWBLOX_ENGINE_CHANGED"
"""Environment variable that names the changed files to the replacing program."""
_ONCE: Final = ("--resume", "--reseed")
"""Flags for the first start only."""
_ONCE_ENV: Final = (
    *(RESUME_ENV, RESEED_ENV),
    *(LISTEN_FDS_ENV, LISTEN_PID_ENV, LISTEN_FDNAMES_ENV),
)
_SNAPSHOT_PATH = re.compile(r"/proc/self/fd/([0-9]+)")

_Stamps: TypeAlias = dict[str, tuple[int, int]]


class ScriptWatch:
    """Waits for a change of a world's files.

    Args:
        settings: The world's settings.
        check: Takes the changed files, and returns the content hash of the current files; raises
            ValueError if they are invalid.
        announce: Called with lines for people.

    Attributes:
        changed: The changed files below the world's directory; initially empty.
        content_hash: The content hash of the changed files.
    """

    def __init__(
        self,
        settings: EngineSettings,
        check: Callable[[Sequence[str]], str],
        announce: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._check = check
        self._announce = announce
        self._seen = _stamps(settings)
        self.changed: list[str] = []
        self.content_hash = ""

    async def wait(self) -> None:
        """Wait until files have changed, are completely written, and are valid.

        Cancellation: has no effect.
        """
        while not self.changed:
            await anyio.sleep(INTERVAL_S)
            stamps = await to_thread.run_sync(_stamps, self._settings)
            while stamps != self._seen:
                changed = [
                    name
                    for name in dict.fromkeys([*stamps, *self._seen])
                    if stamps.get(name) != self._seen.get(name)
                ]
                self._seen = stamps
                await anyio.sleep(INTERVAL_S)
                stamps = await to_thread.run_sync(_stamps, self._settings)
                if stamps == self._seen:
                    await to_thread.run_sync(self._take, changed)

    def _take(self, changed: list[str]) -> None:
        try:
            self.content_hash = self._check(changed)
        except (OSError, ValueError) as error:
            names = ", ".join(changed)
            text = f"{names} changed, but the world continues unchanged: {error}"
            for line in text.split("\n"):
                self._announce(f"[Watch] {line}")
        else:
            self.changed = changed


def _stamps(settings: EngineSettings) -> _Stamps:
    """Return the time and size of each file that is read at the start. Blocks."""
    return {
        str(path.relative_to(settings.directory)): (status.st_mtime_ns, status.st_size)
        for path in _files(settings)
        if (status := _stat(path)) is not None
    }


def _files(settings: EngineSettings) -> Iterator[Path]:
    directory = settings.directory
    yield from (directory / name for name in (CONFIG_NAME, settings.skill))
    yield from find_files(directory, settings.main, settings.tree)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


@attrs.frozen
class NextStart:
    """A start of the program that replaces this process.

    Attributes:
        command: Its command.
        environment: Its environment.
        keeps_state: Whether the world keeps its state.
    """

    command: list[str]
    environment: dict[str, str] = attrs.field(repr=False)
    keeps_state: bool

    def begin(self) -> NoReturn:
        """Replace this process."""
        os.execve(sys.executable, self.command, self.environment)  # noqa: S606 - what started us


def plan_next_start(
    world: HostedWorld,
    watch: ScriptWatch,
    environment: Mapping[str, str],
    announce: Callable[[str], None],
) -> NextStart:
    """Return the next start of a world, with its state if possible.

    Args:
        world: The world, after serving has ended.
        watch: The watch that has found a change.
        environment: The environment of this process at its start, including secrets.
        announce: Called with lines for people.
    """
    command = strip_flags(sys.orig_argv, _ONCE)
    reason = _reason_to_begin_fresh(world, watch.content_hash)
    changed = ", ".join(watch.changed)
    if reason is None:
        announce(f"[Watch] {changed} changed: the world continues where it was")
        command += ["--resume", _keep_snapshot(world)]
    else:
        announce(f"[Watch] {changed} changed: the world starts over, {reason}")
        command += [] if world.seed is None else ["--reseed", str(world.seed)]
    inherited = {key: value for key, value in environment.items() if key not in _ONCE_ENV}
    inherited[CHANGED_ENV] = changed
    return NextStart(command, inherited, keeps_state=reason is None)


def _reason_to_begin_fresh(world: HostedWorld, content_hash: str) -> str | None:
    if world.failure is not None:
        return "because it had halted"
    if content_hash != world.simulation.content_hash():
        return "because its state belongs to other scripts or settings"
    return None


def _keep_snapshot(world: HostedWorld) -> str:
    """Return the path of an in-memory snapshot that the next program inherits."""
    descriptor = os.memfd_create("snapshot", 0)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(encode_large_json(make_snapshot(world)))
    return f"/proc/self/fd/{descriptor}"


def keep_from_children(resume_path: Path | None) -> None:
    """Make the descriptor of an inherited snapshot non-inheritable."""
    if match := _SNAPSHOT_PATH.fullmatch(str(resume_path)):
        os.set_inheritable(int(match[1]), False)


def strip_flags(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return a command without some flags and their values."""
    kept: list[str] = []
    words = iter(command)
    for word in words:
        if word in flags:
            next(words, None)
        elif word.partition("=")[0] not in flags:
            kept.append(word)
    return kept
