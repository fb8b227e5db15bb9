"""``clawblox logs``: the logs of the instances of a run directory."""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import attrs
import click
from anyio.streams.memory import MemoryObjectSendStream

from clawblox.cli.field_options import add_options
from clawblox.cli.parameters import (
    PATTERN,
    SINCE,
    Selection,
    count_type,
    examples,
    json_option,
    run_dir_arguments,
)
from clawblox.cli.terminal.output import Output, OutputGone, note
from clawblox.concurrency.tasks import Tasks
from clawblox.printable import printable, printable_json, printable_name
from clawblox.results import LogLine
from clawblox.rundir.find_runs import shown_log
from clawblox.rundir.records import InstanceRecord
from clawblox.rundir.run_logs import read_logs
from clawblox.system.files import read_size
from clawblox.telemetry.log_reader import LogReader
from clawblox.telemetry.log_times import index_path

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red")
_BACKLOG = 256
_TIME_COLUMNS = len("2026-06-22T18:59:25.104Z")

_Formatter: TypeAlias = Callable[[LogLine], str]


log_options = add_options(
    click.option(
        "-f",
        "--follow",
        is_flag=True,
        help="Print further lines until the instances have ended.",
    ),
    click.option(
        "-n",
        "--tail",
        type=count_type(0),
        metavar="LINES",
        show_default="all lines",
        help="Print only this many lines from the end of each log, including notes of clawblox.",
    ),
    click.option(
        "-t",
        "--timestamps",
        "has_times",
        is_flag=True,
        help="Print when each line arrived, in UTC, and merge the logs by time.",
    ),
    click.option(
        "--since",
        type=SINCE,
        help="Print only lines since a UTC time like 2026-06-22T18:59:25Z, or since a duration "
        "ago, like 90s, 10m, 2h or 1d.",
    ),
    click.option(
        "--grep",
        "pattern",
        type=PATTERN,
        help="Print only lines that match this Python regular expression anywhere; a leading "
        "(?i) ignores case. --tail counts these lines.",
    ),
    json_option,
)
"""Adds the options of ``logs`` to a command."""


@examples("""
  clawblox logs                        the logs of this directory
  clawblox logs runs/r001 -f           and wait for more lines
  clawblox logs runs/r001 w000 -n 20   the last 20 lines of w000
  clawblox logs runs/r001 -t           with times, all logs merged
  clawblox logs runs/r001 --since 10m  the last ten minutes
  clawblox logs runs/r001 --grep '(?i)error|warning'

Lines such as "-- exited: killed by SIGKILL --" are notes of clawblox about the end or the
return of an instance. They are not in the log file.
""")
@click.command("logs")
@run_dir_arguments
@log_options
def command(*, chosen: Selection, **options: Any) -> None:
    """Print the logs of instances, running or ended.

    RUN_DIR is the current directory by default. Without an INSTANCE, the logs of all instances are
    printed one after the other. With several instances, each line starts with the name of its
    instance.

    \f
    Raises:
        ClawbloxError: The run directory does not exist, or contains no run.
        UsageError: There is no instance of one of the names, or none with the labels.
        OSError: The output is a file, and the disk is full.
    """
    print_logs(chosen, **options)


def print_logs(
    chosen: Selection,
    *,
    follow: bool,
    tail: int | None,
    has_times: bool,
    since: str | None,
    pattern: re.Pattern[str] | None,
    as_json: bool,
) -> None:
    """Print the logs of instances, with the options of :func:`log_options`.

    Raises:
        UsageError: There is no instance of one of the names, or none with the labels.
        OSError: The output is a file, and the disk is full.
    """
    records = [record for record in chosen.records if _may_show(chosen.run_dir, record)]
    if not records:
        return
    if has_times or since is not None:
        _note_unknown_times(records)
    names = [record.name for record in records]
    readers = read_logs(
        chosen.run_dir, names, follow=follow, tail=tail, since=since, pattern=pattern
    )
    formatter = _make_formatter(list(readers), as_json=as_json, has_times=has_times)
    # Closing a pager early is not an error.
    with contextlib.suppress(OutputGone):
        anyio.run(_print, list(readers.values()), formatter, has_times, follow)


def _may_show(run_dir: Path, record: InstanceRecord) -> bool:
    """Return whether the log of an instance may be shown; if not, print a note with the reason."""
    log = Path(record.log_file)
    if shown_log(run_dir, log) is None:
        place = "outside of the run directory, in which no world of yours has run"
        note(f"{record.name}: log file is not shown: it is {place}: {log}")
        return False
    if not log.exists():
        note(f"{record.name}: log file is missing: {log}")
    return True


def _note_unknown_times(records: Sequence[InstanceRecord]) -> None:
    logs = {record.name: Path(record.log_file) for record in records}
    without = [
        name for name, log in logs.items() if read_size(log) and not index_path(log).exists()
    ]
    if without:
        note(f"No times are known for the logs of: {', '.join(without)}")


async def _print(
    readers: Sequence[LogReader], formatter: _Formatter, has_times: bool, follow: bool
) -> None:
    with Output(sys.stdout) as output:
        if has_times:
            await _print_merged(readers, formatter, output)
        if follow:
            await _follow(readers, formatter, output)
        else:
            for reader in readers:
                async for line in reader:
                    await output.write_line(formatter(line))


async def _print_merged(
    readers: Sequence[LogReader], formatter: _Formatter, output: Output
) -> None:
    """Print the existing lines by time; a line without a time stays after its predecessor."""
    heads: list[tuple[str, int, LogLine]] = []

    async def add_next(place: int, last: str) -> None:
        if (line := await readers[place].next_written()) is not None:
            heapq.heappush(heads, (max(last, line.at or ""), place, line))

    for place in range(len(readers)):
        await add_next(place, "")
    while heads:
        at, place, line = heapq.heappop(heads)
        await output.write_line(formatter(line))
        await add_next(place, at)


async def _follow(readers: Sequence[LogReader], formatter: _Formatter, output: Output) -> None:
    send, receive = anyio.create_memory_object_stream[LogLine](_BACKLOG)
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


def _make_formatter(names: Sequence[str], *, as_json: bool, has_times: bool) -> _Formatter:
    """Return a function that formats a line, with its instance's name if there are several."""
    if as_json:
        return lambda line: printable_json(json.dumps(attrs.asdict(line), ensure_ascii=False))
    has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = max(map(len, names)) if len(names) > 1 else 0
    colours = dict(zip(names, cycle(_COLOURS), strict=False))

    def paint(text: str, **style: str | bool) -> str:
        return click.style(text, **style) if has_colours else text  # type: ignore[arg-type]

    def format_line(line: LogLine) -> str:
        at = f"{line.at or '':{_TIME_COLUMNS}} " if has_times else ""
        name = f"{line.instance:{width}} " if width else ""
        if line.event is not None:
            return paint(f"{name}-- {at}{printable(line.text)} --", dim=True)
        text = printable_name(line.text)
        if not name and text.startswith("--"):  # lines of clawblox itself start with it
            text = f"\\{text}"
        return f"{paint(f'{name}| ', fg=colours[line.instance]) if name else ''}{at}{text}"

    return format_line
