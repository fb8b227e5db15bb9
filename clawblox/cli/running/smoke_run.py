"""A smoke run: runs each condition of a plan for a minute, in a separate directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import click

from clawblox.cli.running.experiment_run import ExperimentRunner
from clawblox.cli.terminal.output import Output
from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.layout import format_stamp
from clawblox.experiment.plan import Plan
from clawblox.experiment.plan.smoke import first_chains, make_smoke_plan
from clawblox.experiment.reading.record import ExperimentRecord, read_experiment
from clawblox.printable import printable
from clawblox.rundir.experiments import SMOKE_PART
from clawblox.system.clock import utc_now
from clawblox.system.trees import discard_tree
from clawblox.views.formatting import count_words, format_json, format_table, shorten_path

_SIGNALS: Final = 128
"""Exit statuses above this value mean signals."""


@attrs.frozen
class SmokeResult:
    """The result of a smoke run for one condition.

    Attributes:
        condition: The name of the condition's chains, without repeat or seed; empty for the only
            condition.
        is_ok: Whether its generation was committed, and scored if the plan has a score.
        reason: Reason of the failure; empty if ``is_ok``.
    """

    condition: str
    is_ok: bool
    reason: str


def smoke_directory(directory: Path) -> Path:
    """Return the directory of a smoke run, next to the directory of its experiment."""
    return directory.with_name(f"{directory.name}{SMOKE_PART}{format_stamp(utc_now())}")


async def run_smoke(plan: Plan, directory: Path, *, as_json: bool) -> int:
    """Run each condition of a plan for a minute, and print the results.

    The directory is removed if all conditions succeeded.

    Args:
        plan: The plan of the experiment.
        directory: The directory of the smoke run.
        as_json: Whether to print the results as JSON; events then go to standard error.

    Returns:
        The exit status: 0 if all conditions succeeded, 128 plus the signal that ended the run, or
        1.

    Raises:
        ClawbloxError: The smoke run could not be started.

    Cancellation: the worlds and agents are stopped, and the directory stays.
    """
    smoke = make_smoke_plan(plan)
    with Output(sys.stderr if as_json else sys.stdout) as output:
        runner = ExperimentRunner(
            AsyncExperiment(smoke, dir=directory), output, is_summarised=False
        )
        status = await runner.run_until_asked()
    results = _judge(plan, await run_blocking(read_experiment, directory))
    is_ok = all(result.is_ok for result in results)
    if is_ok:
        await run_blocking(discard_tree, directory)
    if status <= _SIGNALS:  # otherwise a signal has ended the run
        status = int(not is_ok)
    if as_json:
        facts = [attrs.asdict(result) for result in results]
        kept = None if is_ok else str(directory)
        click.echo(format_json({"conditions": facts, "directory": kept, "exit_status": status}))
    else:
        click.echo("\n".join(_describe(results, directory)))
    return status


def _judge(plan: Plan, record: ExperimentRecord) -> list[SmokeResult]:
    rows = {row.chain: row for row in record.results().rows()}
    states = {chain.name: chain for chain in record.status().chains}
    results = []
    for chain, run in zip(first_chains(plan), record.plan.chains(), strict=True):
        row, state = rows.get(run.name), states[run.name]
        if row is None or row.status != "committed":
            cause = f"{state.cause}: {state.reason}" if state.cause else ""
            reason = cause or ("was not started" if row is None else row.status)
        else:
            reason = f"score: {row.error}" if row.error else ""
        results.append(SmokeResult(chain.name.rpartition("-")[0], not reason, reason))
    return results


def _describe(results: Sequence[SmokeResult], directory: Path) -> list[str]:
    rows: list[Any] = [
        (
            printable(result.condition or "the only one"),
            "ok" if result.is_ok else "failed",
            printable(result.reason),
        )
        for result in results
    ]
    failed = sum(not result.is_ok for result in results)
    conditions = count_words(len(results), "condition")
    end = (
        f"{failed} of {conditions} failed; everything is in {shorten_path(directory)}"
        if failed
        else f"{conditions}: all ok. Nothing was kept."
    )
    return [format_table(("CONDITION", "RESULT", "REASON"), rows), printable(end)]
