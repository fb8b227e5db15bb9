"""The viewer of a world in the foreground: what it writes is printed, and it ends with this."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path

from clawblox.cli.running.command_signals import CommandSignals, shell_status
from clawblox.cli.terminal.output import Output, OutputGone, note
from clawblox.concurrency.threads import run_blocking
from clawblox.supervision.tree import SharedStop
from clawblox.views.formatting import shorten_path
from clawblox.world.viewer import GRACE_S, HOST, require_viewer, run_viewer


async def show_viewer(world_dir: Path, recording: Path) -> int:
    """Run the viewer of a world with a recording, until it ends or a signal ends it.

    Its world is noted first. What it writes is printed. Whatever it has started ends with it.

    Args:
        world_dir: The world.
        recording: The file to show, absolute.

    Returns:
        The exit status: the viewer's; or 128 and the number of the signal that ended it or this.

    Raises:
        ConfigError: The world has no viewer.
        ClawbloxError: It cannot be started.

    Cancellation: ends it.
    """
    viewer = await run_blocking(require_viewer, world_dir)
    note(f"World: {shorten_path(viewer.cwd)}")
    ending, signals = SharedStop(), CommandSignals()

    async def stop(_: object) -> bool:
        ending.begin(GRACE_S)
        ending.scope.cancel()
        return True

    async def kill() -> None:
        ending.kill_now()

    def begin(_words: object, port: int) -> None:
        if viewer.has_port:
            note(f"The viewer gets the address http://{HOST}:{port}")

    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with Output(sys.stdout) as output:

        async def print_output(data: bytes) -> None:
            try:
                await output.write(decoder.decode(data, final=not data))
            except OutputGone:
                ending.scope.cancel()

        async with signals.obeyed(stop, kill):
            end = await run_viewer(viewer, recording, begin, print_output, ending)
    return shell_status(end) if signals.exit_status is None else signals.exit_status
