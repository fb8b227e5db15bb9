"""``clawblox wait``: waits until the instances of a run directory have ended."""

from __future__ import annotations

import contextlib
import math
import signal
import sys

import anyio
import click

from clawblox.cli.parameters import SECONDS, Selection, examples, run_dir_arguments
from clawblox.cli.terminal.output import Output, OutputGone, note
from clawblox.printable import printable
from clawblox.results import ProcessExit, describe_end
from clawblox.rundir.presence import EndedInstance, EndWatch
from clawblox.views.formatting import format_seconds

_TIMED_OUT_STATUS = 124


@examples("""
  clawblox wait runs/r001                  all instances
  clawblox wait runs/r001 w000             this instance, and exit as it did
  clawblox wait runs/r001 --timeout 3600   an hour at most

The exit status is the status of the world, or 128 and the number of the signal that killed it.
It is 1 instead of 0 for a world that halted or never became ready, and 1 if the end is unknown.
For several instances, the exit status is the first status, by name, that is not 0. After
--timeout it is 124.
""")
@click.command("wait")
@run_dir_arguments
@click.option(
    "--timeout",
    type=SECONDS,
    default=math.inf,
    show_default="no limit",
    help="Give up after this time, with status 124.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
def command(*, chosen: Selection, timeout: float, quiet: bool) -> int:
    """Wait until instances have ended for good, and exit with their status.

    RUN_DIR is the current directory by default; without an INSTANCE, the command waits for all
    instances, including instances that are still waiting to start. A line is printed for each ended
    instance. An instance that is being restarted does not count as ended. Ctrl-C ends the command,
    and the run continues.

    \f
    Raises:
        ClawbloxError: The run directory does not exist, or contains no run.
        UsageError: There is no instance of one of the names, or none with the labels.
        OSError: The output is a file, and the disk is full.
    """
    return anyio.run(_wait, EndWatch(chosen.run_dir, chosen.names), timeout, quiet)


async def _wait(watch: EndWatch, timeout: float, is_quiet: bool) -> int:
    """Print the end of each instance; return the exit status."""
    statuses: dict[str, int] = {}
    with watch, Output(sys.stdout) as output, anyio.move_on_after(timeout) as limit:
        while ended := await watch.next_ends():
            for end in ended:
                statuses[end.name] = _exit_status(end)
                if not is_quiet:
                    with contextlib.suppress(OutputGone):
                        await output.write_line(f"{end.name}: {_describe(end)}")
    if limit.cancelled_caught:
        if not is_quiet:
            note(f"Gave up after {format_seconds(timeout)}; not ended: {', '.join(watch.left)}")
        return _TIMED_OUT_STATUS
    return next((status for _, status in sorted(statuses.items()) if status), 0)


def _describe(end: EndedInstance) -> str:
    if end.state == "interrupted":
        return "interrupted: it ended without an orchestrator"
    how = printable(describe_end(end.exit, end.halt))
    return how if end.state in ("exited", "halted") else f"{end.state}: {how}"


def _exit_status(end: EndedInstance) -> int:
    # A world that ends with status 0 has failed if it was never ready, or if it had halted.
    return shell_status(end.exit or ProcessExit()) or (0 if end.state == "exited" else 1)


def shell_status(end: ProcessExit) -> int:
    """Return the exit status with which a shell reports an end; 1 if the status is unknown."""
    if end.signal is not None:
        real_time = end.signal.removeprefix("signal ")  # real-time signals have no names
        return 128 + (int(real_time) if real_time.isdigit() else signal.Signals[end.signal])
    return 1 if end.status is None else end.status
