"""Updates the files that are derived from the journal: tables and pointers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.layout import chain_dir, experiment_prefix
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.tables.chain_files import (
    PlannedChain,
    is_moving,
    moved_attempts,
    write_chain_files,
)
from clawblox.experiment.tables.results import collect_results, write_results
from clawblox.telemetry.own_log import OwnLog

_CHANGES_FILES = frozenset({"checkpoint", "committed", "failed", "imported", "plan.amended"})
_CHANGES_RESULTS = frozenset(
    {"committed", "failed", "paused", "interrupted", "imported", "rescored", "plan.amended"}
)

_PAUSE_S: Final = 1.0
"""Minimum seconds between two updates of the files."""
_MAX_SHARE: Final = 0.05
"""Maximum fraction of the time spent on updates."""

_log = OwnLog(__name__)


class DerivedFiles:
    """Writes the tables and pointers of an experiment after the lines that change them.

    Args:
        directory: The directory of the experiment.
        plans: The plans of the experiment; the caller keeps their state up to date.
        lines: All lines so far.
    """

    def __init__(self, directory: Path, plans: Plans, lines: Sequence[JournalLine]) -> None:
        self._directory = directory
        self._plans = plans
        self._by_chain: dict[str, list[JournalLine]] = {}
        self._moved: dict[str, str] = {}
        self._changed: set[str] = set()
        self._has_results = True
        self._news = anyio.Event()
        self._writing = anyio.Lock()
        for line in lines:
            self.note(line)
        self._changed.update(self._by_chain)

    def note(self, line: JournalLine) -> None:
        """Apply a line; the files are written soon after."""
        if line.chain is not None:
            self._by_chain.setdefault(line.chain, []).append(line)
            if line.type in _CHANGES_FILES:
                self._changed.add(line.chain)
            if moved := moved_attempts([line]):
                self._moved |= moved
                branches = self._plans.state.branches.items()  # their tables name its archives
                self._changed |= {name for name, own in branches if own.source.chain == line.chain}
        self._has_results = self._has_results or line.type in _CHANGES_RESULTS
        if self._changed or self._has_results:
            self._news.set()

    async def run(self) -> None:
        """Write the files whenever new journal lines affect them.

        Cancellation: each file is complete; :meth:`flush` writes the rest.
        """
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            begun_at = anyio.current_time()
            await self.flush()
            taken_s = anyio.current_time() - begun_at  # long for large experiments
            await anyio.sleep(max(_PAUSE_S, taken_s / _MAX_SHARE))

    async def flush(self, *, with_results: bool = True) -> None:
        """Write changed files; a file that cannot be written is logged, and written later.

        Args:
            with_results: Whether to write the results too, besides the tables and pointers of the
                chains.

        Cancellation: each file is complete; missing files are written later.
        """
        async with self._writing:
            changed, self._changed = self._changed, set()
            has_results = self._has_results and with_results
            self._has_results &= not with_results
            is_done = False
            try:
                await self._write_changed(changed, has_results=has_results)
                is_done = True
            except OSError as error:
                _log.warning("tables not written", path=str(self._directory), error=str(error))
            finally:
                if not is_done:
                    self._changed |= changed
                    self._has_results |= has_results

    async def _write_changed(self, changed: Collection[str], *, has_results: bool) -> None:
        planned = [
            (chain, list(self._by_chain[chain.name]), list(self._describe(chain)))
            for chain in self._plans.chains.values()
            if chain.name in changed
        ]
        moving = await run_blocking(partial(self._write, planned, dict(self._moved)))
        if moving:  # the line comes before the rename
            self._changed |= moving
            self._news.set()
        if has_results:
            results = await collect_results(self._plans)
            await run_blocking(partial(write_results, self._directory, results))

    def _write(
        self,
        chains: Sequence[tuple[Chain, Sequence[JournalLine], Sequence[PlannedChain]]],
        moved: Mapping[str, str],
    ) -> set[str]:
        """Return the chains to be written again, since a directory is about to be renamed."""
        layout = self._plans.present.layout
        moving = set()
        for chain, lines, revisions in chains:
            place = chain_dir(self._directory, chain.name, layout)
            write_chain_files(place, lines, revisions, layout, moved)
            if is_moving(place, lines, moved):
                moving.add(chain.name)
        return moving

    def _describe(self, chain: Chain) -> Iterator[PlannedChain]:
        """Yield a chain in each revision of the plan."""
        for revision, plan in enumerate(self._plans.revisions):
            own = self._plans.chains_at(revision).get(chain.name, chain).plan
            yield PlannedChain(
                templates=[agent.template for agent in own.agents],
                duration_s=own.duration,
                runs=experiment_prefix(plan.name, given=plan.run_prefix),
                tmux=plan.tmux,
            )
