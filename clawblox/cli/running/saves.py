"""Saving what runs, and telling of it as it lands: for ``save``, ``fork`` and ``stop --save``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from clawblox.cli.running.relay import relay
from clawblox.cli.tables.event_lines import reason_of
from clawblox.cli.terminal.output import Output, format_bytes, shorten_path
from clawblox.cli.terminal.screen import progress_bar
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.concurrency.batch import Outcome
from clawblox.config.options import SaveOptions
from clawblox.results import SavedSnapshot
from clawblox.rundir.operations import OnSaved, save_instances

__all__ = ["Saves", "save_and_tell"]


@attrs.define
class Saves:
    """What saves came to, by name of the instance."""

    done: dict[str, SavedSnapshot] = attrs.field(factory=dict)
    failed: dict[str, Exception] = attrs.field(factory=dict)

    def take(self, outcome: Outcome[SavedSnapshot]) -> None:
        """Take what one of them came to."""
        if outcome.value is not None:
            self.done[outcome.instance] = outcome.value
        elif outcome.error is not None:
            self.failed[outcome.instance] = outcome.error


async def save_and_tell(
    run_dir: Path,
    names: Sequence[str],
    *,
    directory: Path | None,
    timeout: float,
    is_quiet: bool = False,
) -> Saves:
    """Save instances, with a progress bar, and say of each where it is or why it is not.

    Args:
        run_dir: The run directory.
        names: The instances.
        directory: Where the files go, absolute; None means ``checkpoints`` of each instance.
        timeout: Seconds for each transfer.
        is_quiet: Print nothing on standard output.

    Cancellation: each instance has both file and manifest entry, or neither.
    """
    configure_logging()
    saves = Saves()

    async def work(show_soon: OnSaved) -> None:
        def take(outcome: Outcome[SavedSnapshot]) -> None:
            saves.take(outcome)
            bar.advance(is_failed=outcome.value is None)
            show_soon(outcome)

        await save_instances(run_dir, names, SaveOptions(directory, timeout), on_saved=take)

    async def show(outcome: Outcome[SavedSnapshot]) -> None:
        if outcome.error is not None:
            await bar.note(f"{outcome.instance}: not saved: {reason_of(outcome.error)}")
        elif outcome.value is not None and not is_quiet:
            await bar.write_line(output, _line(outcome.value))

    with Output(sys.stdout) as output:
        async with progress_bar("Saving", len(names)) as bar:
            await relay(work, show)
    return saves


def _line(saved: SavedSnapshot) -> str:
    time = "" if saved.time is None else f", sim time {saved.time:.1f}"
    size = format_bytes(saved.size_bytes)
    return f"{saved.instance}: saved {shorten_path(saved.path)} ({size}{time})"
