"""``clawblox stop``: end what runs in a run directory, whoever started it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import attrs
import click

from clawblox.cli.parameters import existing_run_dir, grace_option, json_option, run_dir_arguments
from clawblox.cli.running.saves import Saves, save_and_tell
from clawblox.cli.terminal.output import format_seconds, note
from clawblox.cli.terminal.screen import progress_bar
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.config.options import DEFAULT_SAVE_TIMEOUT_S
from clawblox.results import StopResult
from clawblox.rundir.operations import stop_instances
from clawblox.rundir.status import select_records

__all__ = ["command"]

_RUNG_WORDS = {
    "not_running": "was not running",
    "already_exited": "had ended already",
    "terminated": "stopped",
    "killed": "killed",
}


@click.command(
    "stop",
    epilog="""\
    \b
    Examples:
      clawblox stop runs/r001               everything that runs there
      clawblox stop runs/r001 w000 w003     these two
      clawblox stop runs/r001 --save        saved before; else they go on
      clawblox stop runs/r001 --grace 0     at once
    """,
)
@run_dir_arguments
@click.option("--save", "wants_save", is_flag=True, help="Save each before; else it goes on.")
@grace_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    run_dir: str,
    names: tuple[str, ...],
    wants_save: bool,
    grace: float,
    as_json: bool,
) -> None:
    """Stop instances of a run directory, and wait for their end.

    RUN_DIR is the current directory unless it is given; without an INSTANCE all of them are
    stopped, and starts that wait for their turn are given up. Each gets TERM, the grace, then
    KILL for every process that is left, daemons included. The program that started them is
    asked to do it, if it lives. Stopping what does not run is not an error.
    """
    configure_logging()
    run = existing_run_dir(run_dir).absolute()
    alive = {record.name: record.is_alive for record in select_records(run, names)}
    saves = _save(run, alive, is_quiet=as_json) if wants_save else Saves()
    # Without names everything is meant, what is just being started too.
    meant = [name for name in alive if name not in saves.failed] if wants_save else names
    if meant or not wants_save:
        _stop_and_tell(run, meant, len(meant) or len(alive), grace, as_json=as_json)
    if saves.failed:
        note(f"Not saved, so still running: {', '.join(sorted(saves.failed))}")
        ctx.exit(1)


def _save(run_dir: Path, alive: Mapping[str, bool], *, is_quiet: bool) -> Saves:
    names = [name for name, is_alive in alive.items() if is_alive]
    if not names:
        return Saves()
    return anyio.run(
        partial(
            save_and_tell,
            run_dir,
            names,
            directory=None,
            timeout=DEFAULT_SAVE_TIMEOUT_S,
            is_quiet=is_quiet,
        )
    )


def _stop_and_tell(
    run_dir: Path, names: Sequence[str], total: int, grace: float, *, as_json: bool
) -> None:
    """Stop instances, and tell of those that have ended even when another one does not."""
    results: list[StopResult] = []
    try:
        anyio.run(_stop, run_dir, names, total, grace, results)
    finally:
        results.sort(key=lambda result: result.instance)
        if as_json:
            click.echo(json.dumps([attrs.asdict(each) for each in results], indent=2))
        else:
            for result in results:
                click.echo(_format(result))


async def _stop(
    run_dir: Path, names: Sequence[str], total: int, grace: float, results: list[StopResult]
) -> None:
    async with progress_bar("Stopping", total) as bar:

        def take(result: StopResult) -> None:
            results.append(result)
            bar.advance()

        await stop_instances(run_dir, names, grace_seconds=grace, on_stopped=take)


def _format(result: StopResult) -> str:
    words = f"{result.instance}: {_RUNG_WORDS[result.rung]}"
    if result.rung in ("not_running", "already_exited"):
        return words
    exit_text = f", {result.exit}" if result.exit else ""
    line = f"{words} in {format_seconds(result.elapsed_s)}{exit_text}"
    return "\n".join((line, *(f"  killed: {each}" for each in result.killed)))
