"""Stand-ins for the agent programs, which behave like them unless faults are switched on.

:func:`install` writes a stand-in as one executable file with the program's own name. It stores
conversations in the same places, prints the same output, takes the same flags, and refuses the same
input with the same messages. ``test_programs.py`` compares it with the real program.

:func:`misbehave` switches faults on, in a file of the agent's workspace that is read at each start
and before each turn:

- ``slow_start``: seconds before its first action.
- ``silent_at_<phase>``: it becomes silent, but keeps running. A phase is ``start``, ``session``
  (after its id was reported), ``turn`` (after it took the message) or ``tool`` (after a tool call).
- ``crash_at_<phase>``: it ends there: ``{"status": 3}``, ``{"signal": 9}``, ``{"words": "…"}``.
- ``exit_at_<phase>``: it ends there with status 0, without a turn.
- ``torn``: it dies while writing its transcript's last line.
- ``ignore_term``: it ignores SIGTERM.
- ``leave_behind``: number of background sleepers, each in a session of its own; :func:`left_behind`
  returns their pids.
- ``endless``: it prints lines forever: ``{"per_s": 1000}`` per second, or without limit for
``true``.
- ``oversize``: length of one line in each turn.
- ``wrong_id``: it continues in another conversation than requested.
- ``api_retry``: number of reported failed attempts before its answer, with a pause after each:
  ``{"attempts": 3, "delay_s": 0.5}``.
- ``usage_limit``: its provider refuses each turn, until ``{"resets_at": 1790000000}`` (Claude,
  Codex), or for ``{"resets_in": 5}`` seconds (Claude).
- ``api_error``: status of the model's API (400, 401, 403, 429, 500, 529) that ends each turn.
- ``needs_login``: it refuses to work without a key in its environment (Claude).
- ``cannot_load`` and ``loads_unknown``: it continues no conversation, or any id (ACP).
- ``own_turns_before``, ``own_turns_within`` and ``own_turns_after``: number of turns that
  it starts by itself before, during and after the turn of each message, as when a background task
  reports (Claude); with the number of requests to the model in each and its origin: ``{"count":
  2, "steps": 1, "origin": null}``. The phase ``message`` precedes the message itself
    (``crash_at_message``).
- ``joins_own_turn``: it reads each message in the middle of such a turn, and ends only that turn
  (Claude).
- ``dump``: it records its arguments and environment; :func:`read_dumps` returns them.
- ``turn_s``: seconds per turn, by default 0.01.

With ``times`` in its value, a fault occurs that many times: ``crash_at_turn={"times": 1}``; with
``after``, only after it could have occurred that many times: ``api_error={"after": 2, "status":
401}`` is a login that expires after two turns.
:func:`hold` prevents the end of any turn, :func:`hold_own` only of the program's own turns.

Lines of a message may start with a command: ``RUN`` (a shell command) and ``GET`` (an address) are
tools, ``SAY`` gives the answer, and ``WHO`` answers with all messages and their authors.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import py_compile
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.agents.standins import common

__all__ = [
    "ANSWER",
    "FAULTS_FILE",
    "USAGE",
    "hold",
    "hold_own",
    "install",
    "left_behind",
    "misbehave",
    "read_dumps",
    "told",
]

ANSWER = common.ANSWER
USAGE = common.USAGE
FAULTS_FILE = common.FAULTS_FILE

_HERE = Path(__file__).parent
_MODULES = ("common", "claude", "codex", "kimi", "acp", "opencode", "player")


def install(
    directory: Path,
    program: str,
    *,
    name: str | None = None,
    version: str | None = None,
    plays: bool = False,
) -> Path:
    """Write a stand-in into a directory and return its path.

    It is one file that needs only the interpreter, so that it also works in a sandbox.

    Args:
        directory: Directory for the file; created if missing.
        program: ``claude``, ``codex``, ``kimi``, ``opencode`` or ``acp``.
        name: Name of the file; None means the program's name.
        version: The version that it reports; None means the usual version.
        plays: Whether it plays marbles in each turn, better the more notes it has (``player.py``).
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (name or program)
    interpreter = Path(sys.executable).resolve()
    with path.open("wb") as file:
        file.write(b"#!%s -IS\n" % os.fsencode(interpreter))
        with zipfile.ZipFile(file, "w") as archive:
            for module in _MODULES:
                archive.writestr(f"{module}.pyc", _compiled(module))
            setting = f"{program}.VERSION = {version!r}\n" if version else ""
            setting += "import common, player\ncommon.plan = player.plan\n" if plays else ""
            archive.writestr("__main__.py", f"import {program}\n{setting}{program}.main()\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


@functools.cache
def _compiled(module: str) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "module.pyc"
        py_compile.compile(str(_HERE / f"{module}.py"), cfile=str(target), doraise=True)
        return target.read_bytes()


def misbehave(workspace: Path, **faults: Any) -> None:
    """Switch on exactly these faults for the stand-in in a workspace."""
    new = workspace / f"{FAULTS_FILE}.new"
    new.write_text(json.dumps(faults))
    new.replace(workspace / FAULTS_FILE)


@contextlib.contextmanager
def hold(workspace: Path) -> Iterator[None]:
    """Prevent the end of any turn during the block."""
    with _file_in(workspace / common.HOLD_FILE):
        yield


@contextlib.contextmanager
def hold_own(workspace: Path) -> Iterator[None]:
    """Prevent the end of the stand-in's own turns during the block."""
    with _file_in(workspace / common.OWN_HOLD_FILE):
        yield


@contextlib.contextmanager
def _file_in(path: Path) -> Iterator[None]:
    path.touch()
    try:
        yield
    finally:
        path.unlink()


def read_dumps(workspace: Path) -> list[dict[str, Any]]:
    """Return the start facts of each process with the fault ``dump``.

    Each has ``argv``, ``environ``, ``cwd``, ``pid``, ``uid``, ``stdin`` (``null``, ``pipe``,
    ``terminal``, ``closed`` or ``other``), ``ignored`` signals and open ``descriptors``.
    """
    return [json.loads(line) for line in (workspace / common.DUMP_FILE).read_text().splitlines()]


def left_behind(workspace: Path) -> list[int]:
    """Return the pids of all background processes of the fault ``leave_behind``."""
    file = workspace / common.LEFT_FILE
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def told(transcript: Path) -> list[str]:
    """Return the user's messages in a transcript of any program, in order.

    Messages added by the program, which start with a tag, are left out.
    """
    texts = []
    for record in common.read_lines(transcript):
        message = record.get("message") or record.get("payload") or {}
        if record.get("type") == "turn.prompt":
            message = {"role": "user", "content": record["input"]}
        if record.get("type") not in ("user", "response_item", "turn.prompt"):
            continue
        content = message.get("content")
        if message.get("role") != "user" or not content:
            continue
        blocks = [{"text": content}] if isinstance(content, str) else content
        texts += [block["text"] for block in blocks if "text" in block]
    return [text for text in texts if not text.startswith("<")]
