"""Saving running instances and showing each result: for ``save``, ``fork`` and ``stop --save``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from clawblox.cli.terminal.output import Output
from clawblox.cli.terminal.screen import progress_bar, relay
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.concurrency.batch import Batch, Outcome
from clawblox.config.options import SaveOptions
from clawblox.results import SavedSnapshot
from clawblox.rundir.operations import OnSaved, save_instances
from clawblox.system.amounts import format_bytes
from clawblox.views.event_lines import describe_error
from clawblox.views.formatting import shorten_path


async def save_and_show(
    run_dir: Path, names: Sequence[str], options: SaveOptions, *, is_quiet: bool = False
) -> Batch[SavedSnapshot]:
    """Save instances with a progress bar, and print for each where it is or why it failed.

    Args:
        run_dir: The run directory.
        names: The instances.
        options: How they are saved.
        is_quiet: Print nothing on standard output.

    Raises:
        UsageError: One of ``names`` does not exist.

    Cancellation: each instance has both file and manifest entry, or neither.
    """
    configure_logging()
    done: dict[str, SavedSnapshot] = {}
    failed: dict[str, Exception] = {}

    async def work(show_soon: OnSaved) -> None:
        def on_saved(outcome: Outcome[SavedSnapshot]) -> None:
            if outcome.value is not None:
                done[outcome.instance] = outcome.value
            elif outcome.error is not None:
                failed[outcome.instance] = outcome.error
            bar.advance(is_failed=outcome.value is None)
            show_soon(outcome)

        await save_instances(run_dir, names, options, on_saved=on_saved)

    async def show(outcome: Outcome[SavedSnapshot]) -> None:
        if outcome.error is not None:
            await bar.note(f"{outcome.instance}: not saved: {describe_error(outcome.error)}")
        elif outcome.value is not None and not is_quiet:
            await bar.write_line(output, describe_saved(outcome.value))

    with Output(sys.stdout) as output:
        async with progress_bar("Saving", len(names)) as bar:
            await relay(work, show)
    return Batch(done, failed)


def describe_saved(saved: SavedSnapshot) -> str:
    """Return where a snapshot is, and how large."""
    time = "" if saved.time is None else f", sim time {saved.time:.1f}"
    size = format_bytes(saved.size_bytes)
    return f"{saved.instance}: saved {shorten_path(saved.path)} ({size}{time})"
