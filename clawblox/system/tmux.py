"""Windows of tmux sessions, in which a person can watch instances and agents.

Commands reach tmux through its standard input, never through an argument list, because the
environment of a window contains secrets and every user can read argument lists. A window's first
process is a small shell that mirrors the log with escaped control characters, runs the program with
its output in the log file, and writes the exit status to a file; tmux closes the window when this
shell ends.

A window for viewing runs its program directly, without the variables of tmux. A tmux server passes
the environment of the program that started it to every window, so a server started here gets none
of the orchestrator's secrets.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import string
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from clawblox import printable

_TIMEOUT_S = 10.0
_ATTEMPTS = 3
_PLACEHOLDER = "clawblox-placeholder"
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits}_-+=/.,:@ ".encode())
_ESCAPED = [chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in range(256)]
_PASSED_ON = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ"}
    | {"TMUX", "TMUX_TMPDIR", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"}
)
"""Variables of the orchestrator that are passed to tmux, in addition to ``LC_*``."""

_OPTIONS_OFF = ("automatic-rename", "allow-rename", "remain-on-exit")

# The shell starts when the status file appears, so that it is watched before it can end. TERM
# reaches the whole tree; the shell must outlive the program to report its status. When a person
# closes the window, HUP ends the shell and with it the program. The variables have names that do
# not occur in environments; otherwise the program would see their values. The filter ends with its
# input, and does not need the secrets.
_WINDOW_PROGRAM = """\
clawblox_log=$1 clawblox_status=$2 clawblox_python=$3 clawblox_filter=$4
shift 4
trap : INT TERM
until [ -e "$clawblox_status" ]; do sleep 0.01; done
tail -c "+$(($(wc -c <"$clawblox_log") + 1))" -F "$clawblox_log" 2>/dev/null |
    env -i "$clawblox_python" -IS "$clawblox_filter" &
"$@" >>"$clawblox_log" 2>&1 </dev/null
echo $? >"$clawblox_status"
"""

# Keys typed by habit must not close the window. Ignored signals stay ignored after exec.
_VIEW_PROGRAM = "trap '' INT QUIT TSTP; exec \"$@\""

_opening = threading.Lock()


class TmuxError(Exception):
    """tmux is missing, or it refused a command."""


class Pane(NamedTuple):
    """The only pane of a window.

    Attributes:
        id: Name of the pane in tmux, such as ``%3``.
        pid: First process; tmux closes the window when it ends.
    """

    id: str
    pid: int


def open_window(
    session: str,
    window: str,
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log_file: Path,
    status_file: Path,
    is_numbered: bool = False,
) -> int:
    """Run a program in a new window; a missing session is created.

    Args:
        session: Name of the session.
        window: Permanent name of the window.
        command: Program and arguments.
        cwd: Working directory.
        env: Variables of the window, added to the environment of the tmux server.
        log_file: File for the program's output, which the window shows as it grows.
        status_file: File for the exit status of the program, which starts when the caller creates
            this file.
        is_numbered: Whether to append the first free suffix of ``-0``, ``-1``, … to the name.

    Returns:
        Pid of the window's first process; it leads its own session.

    Raises:
        TmuxError: The window was not opened.
    """
    session = tmux_name(session)
    variables = [word for key, value in env.items() for word in ("-e", f"{key}={value}")]
    files = (str(log_file), str(status_file), sys.executable, printable.__file__)
    shell = ("/bin/sh", "-c", _WINDOW_PROGRAM, "clawblox-window", *files, *command)
    with _opening:  # concurrent starts must not take the same number
        name = _free_name(session, window) if is_numbered else window
        return _open_pane(session, name, [*variables, *shell], cwd).pid


def open_view(
    session: str, window: str, command: Sequence[str], *, cwd: Path, env: Mapping[str, str]
) -> Pane:
    """Run a viewing program in a new window, with the given environment only.

    A missing session is created.

    Args:
        session: Name of the session.
        window: Permanent name of the window.
        command: Program and arguments, which every user can read.
        cwd: Working directory.
        env: The whole environment of the program, which every user can read.

    Raises:
        TmuxError: The window was not opened.
    """
    variables = [f"{key}={value}" for key, value in env.items()]
    with _opening:
        shell = ("/bin/sh", "-c", _VIEW_PROGRAM, "clawblox-view", *command)
        return _open_pane(tmux_name(session), window, ["env", "-i", *variables, *shell], cwd)


def tmux_name(session: str) -> str:
    """Return the name that tmux uses for a session."""
    return session.translate({ord(":"): "_", ord("."): "_"})


def has_pane(pane: Pane) -> bool:
    """Return whether a pane still exists."""
    return f"{pane.id} {pane.pid}" in _list("#{pane_id} #{pane_pid}", "list-panes", "-a")


def close_window(pid: int) -> None:
    """Close the window whose first process was ``pid``, unless tmux has closed it."""
    with contextlib.suppress(TmuxError):
        for line in _list("#{pane_pid} #{window_id}", "list-panes", "-a"):
            pane_pid, window_id = line.split()
            if int(pane_pid) == pid:
                _run(["kill-window", "-t", window_id])


def _free_name(session: str, prefix: str) -> str:
    taken = set(_list("#{window_name}", "list-windows", "-t", f"={session}:"))
    names = (f"{prefix}-{index}" for index in itertools.count())
    return next(name for name in names if name not in taken)


def _open_pane(session: str, window: str, words: Sequence[str], cwd: Path) -> Pane:
    """Open a window; ``words`` are options of ``new-window``, then a command."""
    directory = str(cwd).replace("#", "##")  # otherwise tmux expands it as a format
    form = "#{window_id} #{pane_id} #{pane_pid}"
    options = ["-P", "-F", form, "-n", window, "-c", directory, *words]
    window_id, pane_id, pid = _open(session, options)
    for option in _OPTIONS_OFF:
        _run(["set-option", "-w", "-q", "-t", window_id, option, "off"], may_fail=True)
    return Pane(pane_id, int(pid))


def _open(session: str, options: Sequence[str]) -> Sequence[str]:
    """Create a window, and its session if that is missing; return the output of tmux."""
    placeholder = f"={session}:={_PLACEHOLDER}"
    for attempt in range(1, _ATTEMPTS + 1):
        if session in _list("#{session_name}", "list-sessions"):
            lines = [["new-window", "-d", "-t", f"={session}:", *options]]
        else:
            # Every later window of the session would inherit the variables of `new-session -e`:
            # the tokens, and the mark by which all processes of the instance are ended.
            create = ["new-session", "-d", "-s", session, "-n", _PLACEHOLDER, "sleep 60"]
            lines = [create, ["new-window", "-d", "-k", "-t", placeholder, *options]]
        script = "".join(f"{_quote(line)}\n" for line in lines)
        try:
            return _run(["start-server", ";", "source-file", "-"], script).split()
        except TmuxError:
            _run(["kill-window", "-t", placeholder], may_fail=True)
            # A session ends with its last window, perhaps between our two commands.
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _quote(words: Sequence[str]) -> str:
    # Within quotes, tmux drops blanks at the start of a line, and refuses bytes that are not UTF-8.
    return " ".join(f'"{"".join(map(_ESCAPED.__getitem__, os.fsencode(word)))}"' for word in words)


def _list(form: str, *command: str) -> list[str]:
    return _run([*command, "-F", form], may_fail=True).splitlines()


def _run(arguments: Sequence[str], text: str = "", *, may_fail: bool = False) -> str:
    try:
        result = subprocess.run(
            ["tmux", *arguments],
            env={name: value for name, value in os.environ.items() if _is_passed_on(name)},
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise TmuxError("tmux is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise TmuxError(f"tmux did not answer in {_TIMEOUT_S:.0f} s") from error
    if result.returncode and not may_fail:
        # The text of tmux is not used, because it may quote the command, including secrets.
        raise TmuxError(f"tmux {' '.join(arguments)} failed with status {result.returncode}")
    return result.stdout


def _is_passed_on(name: str) -> bool:
    return name in _PASSED_ON or name.startswith("LC_")
