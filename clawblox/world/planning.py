"""Plans of starts: the run directories that they claim, and the names that they reserve."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeAlias

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.instance.launch import Launch
from clawblox.rundir.claims import RunClaim, claim_run, free_names

Plan: TypeAlias = Callable[[Iterator[str]], list[Launch]]
"""Returns the launches to start, given free names. Blocks."""


class Planning:
    """The run directories that one open world has claimed, and the launches that are planned.

    Attributes:
        launches: The planned launches by name, until their instances have claimed these names.
    """

    def __init__(self) -> None:
        self.launches: dict[str, Launch] = {}
        self._unnamed: list[Launch] = []
        self._claims: dict[Path, RunClaim] = {}
        self._lock = anyio.Lock()

    async def claim(self, run_dir: Path) -> None:
        """Claim a run directory for this process; a second call does nothing.

        Raises:
            RunLockedError: Another orchestrator runs many instances there.

        Cancellation: the directory may be claimed.
        """
        claim = await run_blocking(claim_run, run_dir)
        if self._claims.setdefault(run_dir, claim) is not claim:
            claim.release()

    async def release(self) -> None:
        """Give all run directories back."""
        for claim in self._claims.values():
            await run_blocking(claim.release)

    @property
    def snapshots(self) -> set[Path | None]:
        """The snapshots that planned launches will restore."""
        return {launch.resume_path for launch in (*self.launches.values(), *self._unnamed)}

    @contextmanager
    def preparing(self, launch: Launch) -> Iterator[None]:
        """Keep the snapshot of a launch, which has no name yet, until the block is left."""
        self._unnamed.append(launch)
        try:
            yield
        finally:
            self._unnamed.remove(launch)

    @asynccontextmanager
    async def reserved(
        self, run_dir: Path, plan: Plan, known: Collection[str], *, reuse: bool
    ) -> AsyncIterator[Mapping[str, Launch]]:
        """Plan launches by name; their names are reserved until the block is left.

        Args:
            run_dir: Their run directory, which was claimed.
            plan: Returns the launches.
            known: Names that instances of this world have.
            reuse: Whether the name of an instance that has ended is free.

        Raises:
            ConfigError: An option does not work here.
        """
        claim = self._claims[run_dir]

        def plan_here() -> dict[str, Launch]:
            with claim.naming() as planned:
                names = free_names(run_dir, {*known, *self.launches, *planned}, reuse=reuse)
                launches = {str(one.options.name): one for one in plan(names)}
                planned.update(launches)
            return launches

        async with self._lock:
            launches = await run_blocking(plan_here)
            self.launches.update(launches)
        try:
            yield launches
        finally:
            for name in launches:
                del self.launches[name]
            claim.forget(launches)
