"""Windows of tmux sessions, for instances that a person wants to look at.

Commands reach tmux through its standard input, never through an argument list, because the
environment of a window holds secrets and everybody can read an argument list. A window's
first process is a small shell that mirrors the log, runs the program with its output on the
log file, and leaves the exit status in a file; tmux closes the window when it ends.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["TmuxError", "free_window_name", "open_window"]

_TIMEOUT_S = 10.0

# The shell begins when the status file appears, so that it is watched before it can end. TERM
# reaches the whole tree at once; the shell must outlive the program to tell its status.
_WINDOW_PROGRAM = """\
log=$1 status=$2; shift 2
trap : HUP INT TERM
until [ -e "$status" ]; do sleep 0.01; done
tail -n 0 -F "$log" 2>/dev/null &
"$@" >>"$log" 2>&1 </dev/null
echo $? >"$status"
"""


class TmuxError(Exception):
    """tmux is missing, or it refused a command; the message is its own."""


def free_window_name(session: str, prefix: str) -> str:
    """Return the first of ``<prefix>-0``, ``<prefix>-1``, … that ``session`` does not have.

    Raises:
        TmuxError: tmux cannot be run.
    """
    taken = set(_window_names(session))
    return next(name for index in itertools.count() if (name := f"{prefix}-{index}") not in taken)


def open_window(
    session: str,
    window: str,
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log_file: Path,
    status_file: Path,
) -> int:
    """Run a program in a new window; the session is created when it is missing.

    Args:
        session: Name of the session.
        window: Name of the window, which nothing renames.
        command: Program and arguments.
        cwd: Working directory.
        env: Variables of the window, on top of what the tmux server has.
        log_file: Where the program's output goes; the window shows what is added to it.
        status_file: Where the exit status goes when the program has ended; the program
            starts when the caller creates this file.

    Returns:
        Pid of the window's first process, which leads a session of its own.

    Raises:
        TmuxError: The window was not opened.
    """
    create = (
        ["new-window", "-d", "-t", f"={session}:"]
        if _has_session(session)
        else ["new-session", "-d", "-s", session]
    )
    words = [
        *create,
        *("-n", window, "-c", str(cwd), "-P", "-F", "#{window_id} #{pane_pid}"),
        *(word for key, value in env.items() for word in ("-e", f"{key}={value}")),
        *("/bin/sh", "-c", _WINDOW_PROGRAM, "clawblox-window", str(log_file), str(status_file)),
        *command,
    ]
    window_id, pid = _run(["start-server", ";", "source-file", "-"], _quote(words)).split()
    for option in ("automatic-rename", "allow-rename"):
        _run(["set-option", "-w", "-q", "-t", window_id, option, "off"], may_fail=True)
    return int(pid)


def _has_session(session: str) -> bool:
    return session in _run(["list-sessions", "-F", "#{session_name}"], may_fail=True).splitlines()


def _window_names(session: str) -> list[str]:
    listing = _run(["list-windows", "-t", f"={session}:", "-F", "#{window_name}"], may_fail=True)
    return listing.splitlines()


def _quote(words: Sequence[str]) -> str:
    # In single quotes tmux takes everything as it is, line ends included.
    return " ".join("'" + word.replace("'", "'\"'\"'") + "'" for word in words) + "\n"


def _run(arguments: Sequence[str], text: str = "", *, may_fail: bool = False) -> str:
    try:
        result = subprocess.run(
            ["tmux", *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise TmuxError("tmux is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise TmuxError(f"tmux did not answer in {_TIMEOUT_S:.0f} s") from error
    if result.returncode and not may_fail:
        # Not the whole text: it may quote the command, and with it a secret.
        raise TmuxError(f"tmux {arguments[-1]} failed with status {result.returncode}")
    return result.stdout
