"""One process of an agent's program: its logs, its standard input, its exit."""

from __future__ import annotations

import os
import signal  # noqa: TID251 - numbers only, nothing is sent
from contextlib import ExitStack
from pathlib import Path

from clawblox.agents.layout import AgentDir
from clawblox.agents.running.hooks import Enclosed
from clawblox.agents.running.stdin import StdinWriter
from clawblox.results import ProcessExit
from clawblox.system.process import Process, spawn
from clawblox.telemetry.logs import open_log


def spawn_program(
    enclosed: Enclosed, *, cwd: Path, directory: AgentDir, stdin: StdinWriter | None
) -> Process:
    """Start a process that writes to the agent's logs itself. Blocks.

    Args:
        enclosed: What is started.
        cwd: Its working directory on this machine.
        directory: The agent's directory.
        stdin: Its standard input; None for an empty one.

    Raises:
        CannotExecute: It cannot be executed.
        OSError: A log cannot be written, or no descriptor is left.
    """
    with ExitStack() as opened:
        if stdin is not None:
            opened.callback(stdin.close_read_end)
        output = _open(directory.log_file, opened)
        errors = _open(directory.errors_file, opened)
        return spawn(
            enclosed.argv,
            cwd=cwd,
            env=enclosed.env,
            output=output,
            errors=errors,
            stdin=None if stdin is None else stdin.read_end,
            pass_fds=enclosed.pass_fds,
        )


def _open(log_file: Path, opened: ExitStack) -> int:
    fd, _ = open_log(log_file)
    opened.callback(os.close, fd)
    return fd


def exit_code(found: ProcessExit) -> int | None:
    """Return an exit status, negative for a signal; None if it is not known."""
    if found.signal is None:
        return found.status
    named = signal.Signals.__members__.get(found.signal)
    return -int(found.signal.rpartition(" ")[2]) if named is None else -named
