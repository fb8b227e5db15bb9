"""What killed orchestrators left in the run directories of a fleet, noted and removed."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.find_runs import add_run
from clawblox.rundir.leftovers import close_interrupted, remove_leftovers, settle_unlisted_saves
from clawblox.rundir.manifest_updates import run_update
from clawblox.rundir.manifest_writer import ManifestWriters


class Leftovers:
    """Clears run directories before instances are started there.

    Args:
        writers: The writers of the manifests.
    """

    def __init__(self, writers: ManifestWriters) -> None:
        self._writers = writers
        self._cleared: set[Path] = set()

    async def clear(self, run_dir: Path) -> None:
        """Mark the runs of killed orchestrators as interrupted, and remove what they left.

        The directory is added to the index of the user's runs.

        Args:
            run_dir: The run directory.

        Raises:
            OSError: A record cannot be written.
            ManifestError: A manifest cannot be written.

        Cancellation: some runs may be marked; the next call goes on.
        """
        await self.close_runs(run_dir)
        if run_dir not in self._cleared:
            self._cleared.add(run_dir)
            await run_blocking(remove_leftovers, run_dir)
            await run_blocking(settle_unlisted_saves, run_dir)
            await run_blocking(add_run, run_dir)

    async def close_runs(self, run_dir: Path, *, without: Collection[str] = ()) -> None:
        """Mark the runs of killed orchestrators as interrupted; see :meth:`clear`.

        Args:
            run_dir: The run directory.
            without: Names of instances whose runs go on.

        Cancellation: some runs may be marked; the next call goes on.
        """
        close = partial(close_interrupted, run_dir, without=without)
        for directory in await run_blocking(close):
            await self._writers.of(directory).apply(run_update(status="interrupted"))
