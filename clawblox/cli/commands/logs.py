"""``clawblox logs``: the logs of the instances of a run directory."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import TypeAlias

import anyio
import attrs
import click
from anyio.streams.memory import MemoryObjectSendStream

from clawblox.cli.parameters import CountType, existing_run_dir, json_option, run_dir_arguments
from clawblox.cli.terminal.output import Output, OutputGone, note
from clawblox.concurrency.tasks import Tasks
from clawblox.results import LogLine
from clawblox.rundir.status import read_logs, select_records
from clawblox.telemetry.logs import LogReader

__all__ = ["command"]

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red")
_BACKLOG = 256

_Formatter: TypeAlias = Callable[[LogLine], str]


@click.command(
    "logs",
    epilog="""\
    \b
    Examples:
      clawblox logs                       the logs of this directory
      clawblox logs runs/r001 -f          and wait for more
      clawblox logs runs/r001 w000 -n 20  the last 20 lines of one
    """,
)
@run_dir_arguments
@click.option("-f", "--follow", is_flag=True, help="Wait for more until the instances have ended.")
@click.option(
    "-n",
    "--tail",
    type=CountType(0),
    metavar="LINES",
    show_default="all lines",
    help="Print only this many lines from the end of each log.",
)
@json_option
def command(
    run_dir: str, names: tuple[str, ...], follow: bool, tail: int | None, as_json: bool
) -> None:
    """Print the logs of instances, running or ended.

    RUN_DIR is the current directory by default; without an INSTANCE, the logs of all instances are
    printed, one after the other. With several instances each line begins with the instance's name.
    With --follow, lines are printed as they are written.

    \f
    Raises:
        ClawbloxError: The run directory does not exist, or nothing ever ran in it.
        UsageError: There is no instance of one of the names.
        OSError: The output is a file, and the disk is full.
    """
    directory = existing_run_dir(run_dir)
    for record in select_records(directory, names):
        if not Path(record.log_file).exists():
            note(f"{record.name}: log file is missing: {record.log_file}")
    readers = read_logs(directory, names, follow=follow, tail=tail)
    formatter = _make_formatter(list(readers), as_json=as_json)
    # A pager that was closed early is not an error.
    with contextlib.suppress(OutputGone):
        anyio.run(_follow if follow else _print, list(readers.values()), formatter)


async def _print(readers: Sequence[LogReader], formatter: _Formatter) -> None:
    with Output(sys.stdout) as output:
        for reader in readers:
            async for line in reader:
                await output.write_line(formatter(line))


async def _follow(readers: Sequence[LogReader], formatter: _Formatter) -> None:
    send, receive = anyio.create_memory_object_stream[LogLine](_BACKLOG)
    with Output(sys.stdout) as output:
        async with Tasks() as tasks, receive:
            for reader in readers:
                tasks.start_soon(_pump, reader, send.clone())
            send.close()
            async for line in receive:
                await output.write_line(formatter(line))


async def _pump(reader: LogReader, lines: MemoryObjectSendStream[LogLine]) -> None:
    async with lines:
        async for line in reader:
            await lines.send(line)


def _make_formatter(names: Sequence[str], *, as_json: bool) -> _Formatter:
    """Return a function that formats a line: with its instance's name if there are several."""
    if as_json:
        return lambda line: json.dumps(attrs.asdict(line), ensure_ascii=False)
    if len(names) < 2:
        return lambda line: line.text
    width = max(map(len, names))
    prefixes = {name: f"{name.ljust(width)} |" for name in names}
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        colours = cycle(_COLOURS)
        prefixes = {
            name: click.style(prefix, fg=next(colours)) for name, prefix in prefixes.items()
        }
    return lambda line: f"{prefixes[line.instance]} {line.text}"
