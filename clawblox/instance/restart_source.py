"""The saves for restarting an instance, and requests for restarts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import anyio
import msgspec

from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import RestartOptions
from clawblox.errors import ConfigError, UsageError
from clawblox.instance.launch import Launch
from clawblox.instance.seeds import require_seedable
from clawblox.results import SavedSnapshot
from clawblox.rundir.saves import is_good_save
from clawblox.rundir.snapshot_files import find_resume, is_archive
from clawblox.supervision.tree import Grace

NO_GOOD_SAVE = "there is no good save"


class RestartRequest(msgspec.Struct, eq=False):
    """A restart on request.

    Attributes:
        launch: The plan of the restart.
        grace: Time between TERM and KILL for its processes.
        reason: Reason why it does not continue from a save; None if it does, or was not requested
            to.
        failure: The failure of the restart; None before its end or if it succeeded.
        is_over: Set when the restart has succeeded or failed.
    """

    launch: Launch
    grace: Grace
    reason: str | None = None
    failure: Exception | None = None
    is_over: anyio.Event = msgspec.field(default_factory=anyio.Event)


class RestartSource:
    """The saves of an instance, and its first launch, used if there is no good save.

    Args:
        first: The launch of its start.
        saves: Its saves so far, oldest first.

    Attributes:
        first: The launch of its start.
    """

    def __init__(self, first: Launch, saves: Iterable[SavedSnapshot] = ()) -> None:
        self.first = first
        self._saves = list(saves)

    @property
    def saves(self) -> tuple[SavedSnapshot, ...]:
        """The saves that a restart may restore, oldest first."""
        return tuple(self._saves)

    def add(self, saved: SavedSnapshot) -> None:
        """Add a save."""
        self._saves.append(saved)

    def remove(self, spent: Collection[Path]) -> None:
        """Remove saves whose files no longer exist, or are about to be removed."""
        self._saves = [saved for saved in self._saves if saved.path not in spent]

    def refuse(self, launch: Launch) -> None:
        """Remove the save that a launch restored, because the world does not accept it."""
        self._saves = [saved for saved in self._saves if saved.path != launch.resume_path]

    async def next_launch(self, *, from_save: bool) -> Launch | None:
        """Return the launch of a restart: from the last good save, else the launch of its start.

        Args:
            from_save: Whether to look for a save.

        Returns:
            The launch. None if the snapshot of the first launch no longer exists, since a new world
            is never started instead.
        """
        while from_save and self._saves:
            saved = self._saves[-1]
            if await run_blocking(is_good_save, saved):
                return self.first.restored(saved.path, saved.sha256)
            self.remove([saved.path])  # another save may have been added meanwhile
        path = self.first.resume_path
        return self.first if path is None or await run_blocking(path.is_file) else None

    async def choose(self, options: RestartOptions) -> tuple[Launch, str | None]:
        """Return the launch of a requested restart, and the reason if it does not use a save.

        Raises:
            ConfigError: There is no such snapshot, it differs from the saved snapshot, or the world
                does not take seeds.
            UsageError: There is no good save, and the snapshot of the first launch no longer
                exists.
        """
        config = self.first.config
        require_seedable(config, options.reseed, 1)
        if options.resume is None:
            if (launch := await self.next_launch(from_save=not options.fresh)) is None:
                path = self.first.resume_path
                raise UsageError(f"cannot restart: its first snapshot, {path}, no longer exists")
        else:
            path, digest = await run_blocking(find_resume, options.resume, config.dir)
            assert path is not None, "a snapshot was named"
            if await run_blocking(is_archive, path):
                raise ConfigError(
                    "must be a snapshot, not an archive", key="resume", value=str(path)
                )
            launch = self.first.restored(path, digest)
        reason = NO_GOOD_SAVE if not options.fresh and launch is self.first else None
        if options.reseed is not None:
            launch = launch.reseeded(options.reseed)
            self.first = launch.begun
        return launch, reason
