"""``clawblox ps``: instances and agents, running or ended."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import click

from clawblox.agents.listing import Scope, make_scope
from clawblox.cli.parameters import PATH, examples, existing_path, filter_option, json_option
from clawblox.cli.terminal.width import table_width
from clawblox.columns import format_lines
from clawblox.printable import printable
from clawblox.results import Labels
from clawblox.rundir.find_runs import MAX_DEPTH
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.status import InstanceStatus
from clawblox.views.formatting import format_json, format_labels, shorten_path, suggest
from clawblox.views.rows import agent_columns, instance_columns, make_row, order_states


@examples(f"""
  clawblox ps                     running instances of all your runs
  clawblox ps -a                  and ended instances
  clawblox ps runs/r001           the instances of a run, running or ended
  clawblox ps runs                all runs in a directory, {MAX_DEPTH} levels deep
  clawblox ps runs/r001 -w        its live table
  clawblox ps runs/r001 --tree    the tree of forks
  clawblox ps runs/r001 --json    every field, for programs

States: starting, ready, restarting, stopping; exited (with its status or signal), halted
(with the reason of the world), failed (it never became ready), interrupted (its
orchestrator was killed), unknown (only its manifest is left). SAVED is the age of the last
save, SIM TIME the simulation time in it.
The agents of a run follow its instances; clawblox agent status shows more of an agent.
""")
@click.command("ps")
@click.argument("directory", type=PATH, default=None, required=False, metavar="[DIR]")
@click.option("-a", "--all", "wants_ended", is_flag=True, help="Also show ended instances.")
@filter_option
@click.option("-w", "--watch", is_flag=True, help="Show a live table until no instance is running.")
@click.option("--tree", is_flag=True, help="Show the instances as a tree of forks.")
@json_option
def command(
    *,
    directory: str | None,
    wants_ended: bool,
    labels: Labels,
    watch: bool,
    tree: bool,
    as_json: bool,
) -> None:
    """Show the instances and agents of runs.

    DIR is a run directory, or a directory that contains run directories; by default the running
    instances of all your runs are shown. --watch does not affect a run: Ctrl-C closes the table,
    and the run continues. In the table, ? shows the keys that select and steer an instance.

    \f
    Raises:
        ClawbloxError: The directory does not exist.
        click.UsageError: Two of --watch, --tree and --json were given.
    """
    if watch + tree + as_json > 1:
        raise click.UsageError("--watch, --tree and --json cannot be combined.")
    place = None if directory is None else resolve_run_dir(existing_path(directory))
    wants_all = wants_ended or (place is not None and (as_json or tree))
    scope = make_scope(place, wants_ended=wants_all, watches=watch, labels=labels)
    statuses = scope.read()
    if as_json:
        click.echo(format_json([attrs.asdict(status) for status in statuses]))
    elif not statuses:
        click.echo(_describe_empty(scope))
    elif watch:
        # The live table takes long to import, and a single listing does not need it.
        import anyio

        from clawblox.cli.running.run_scenes import watch_runs

        anyio.run(watch_runs, scope)
    else:
        click.echo("\n".join(_format_runs(statuses, scope, is_tree=tree)))


def _format_runs(shown: Sequence[InstanceStatus], scope: Scope, *, is_tree: bool) -> Iterator[str]:
    width = table_width()
    runs = itertools.groupby(shown, lambda status: status.run_dir)
    for place, (run_dir, group) in enumerate(runs):
        statuses = list(group)
        if not scope.is_one_run:
            yield from ([""] if place else [])
            yield _heading(run_dir, statuses)
        if is_tree:
            yield from _format_tree(run_dir)
            continue
        rows = [make_row(status, status.state) for status in statuses]
        yield from format_lines(instance_columns(rows), width)
        if agents := scope.read_agents([run_dir]):
            yield from ("", *format_lines(agent_columns(agents), width))
    if more := _describe_more(scope):
        yield from ("", more)


def _format_tree(run_dir: Path) -> list[str]:
    # The tree takes long to import, and a table does not need it.
    from clawblox.rundir.lineage import read_lineage
    from clawblox.views.lineage_text import format_forks

    return format_forks(read_lineage(run_dir)).splitlines()


def _heading(run_dir: Path, statuses: Sequence[InstanceStatus]) -> str:
    worlds = ", ".join(sorted({status.world for status in statuses}))
    counts = order_states(Counter(status.state for status in statuses))
    parts = (shorten_path(run_dir), worlds, *(f"{count} {state}" for state, count in counts))
    return printable(" · ".join(filter(None, parts)))


def _describe_more(scope: Scope) -> str:
    """Return a line with the command that shows more of an experiment; empty if there is none."""
    if scope.experiment is None:
        return ""
    status = suggest("experiment status", scope.experiment)
    if scope.shows_ended:
        return f"See {status}."
    return f"--all shows ended runs, and {status} the chains."


def _describe_empty(scope: Scope) -> str:
    """Return the text to show if there are no instances."""
    if scope.labels:
        return f"No instance here has {format_labels(scope.labels)}."
    if scope.is_one_run:
        return ""
    if scope.directory is None:
        hint = "Nothing runs. --all shows ended runs."
        return "Nothing has run." if scope.shows_ended else hint
    verb, place = "has run" if scope.shows_ended else "runs", shorten_path(scope.directory)
    return f"Nothing {verb} in '{place}' or below. {_describe_more(scope)}".rstrip()
