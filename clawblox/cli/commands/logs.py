"""``clawblox logs``: what the worlds of a run directory have written."""

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

from clawblox.cli.parameters import existing_run_dir, json_option, not_negative, run_dir_arguments
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
      clawblox logs                       what the worlds of this directory wrote
      clawblox logs runs/r001 -f          and what they are going to write
      clawblox logs runs/r001 w000 -n 20  the last lines of one
    """,
)
@run_dir_arguments
@click.option("-f", "--follow", is_flag=True, help="Go on until the instances have ended.")
@click.option(
    "-n",
    "--tail",
    type=int,
    callback=not_negative,
    metavar="LINES",
    help="Begin so many lines before the end.  [default: the first line]",
)
@json_option
def command(
    run_dir: str, names: tuple[str, ...], follow: bool, tail: int | None, as_json: bool
) -> None:
    """Print the logs of a run directory's instances, running or not.

    RUN_DIR is the current directory unless it is given; without an INSTANCE all of them are
    meant. Lines carry the name of their instance when there are several. Those of finished
    instances come one instance after the other, followed ones as they are written.
    """
    directory = existing_run_dir(run_dir)
    for record in select_records(directory, names):
        if not Path(record.log_file).exists():
            note(f"{record.name}: its log is gone: {record.log_file}")
    readers = read_logs(directory, names, follow=follow, tail=tail)
    formatter = _format_json if as_json else _formatter(list(readers))
    # Nobody reads any more: then nothing is wrong, and nothing is left to do.
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


def _formatter(names: Sequence[str]) -> _Formatter:
    """Return what writes a line: as it is, or below the names of several instances."""
    if len(names) < 2:
        return lambda line: line.text
    width = max(map(len, names))
    prefixes = {
        name: _coloured(f"{name.ljust(width)} |", colour)
        for name, colour in zip(names, cycle(_COLOURS), strict=False)
    }
    return lambda line: f"{prefixes[line.instance]} {line.text}"


def _coloured(text: str, colour: str) -> str:
    wants_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return click.style(text, fg=colour) if wants_colour else text


def _format_json(line: LogLine) -> str:
    return json.dumps(attrs.asdict(line), ensure_ascii=False)
