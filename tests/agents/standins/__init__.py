"""Stand-ins for the agent programs, which behave as those do until they are told to misbehave.

:func:`install` writes a stand-in as one executable file with the program's own name. It keeps the
conversations where the program keeps them, prints what it prints, takes its flags, and refuses
what it refuses, in its words. It was compared with the program itself (``test_programs.py``).

:func:`misbehave` switches faults on, in a file of the agent's workspace that is read anew at each
start and before each turn:

- ``slow_start``: seconds before it does anything.
- ``silent_at_<phase>``: it says nothing more, and stays. A phase is ``start``, ``session`` (its id
  was told), ``turn`` (the message was taken) or ``tool`` (a tool was asked for).
- ``crash_at_<phase>``: it ends there: ``{"status": 3}``, ``{"signal": 9}``, ``{"words": "…"}``.
- ``exit_at_<phase>``: it ends there with status 0, without a turn.
- ``torn``: it dies within its transcript's last line.
- ``ignore_term``: it stays at SIGTERM.
- ``leave_behind``: how many sleepers it leaves, each in a session of its own; :func:`left_behind`
  returns their pids.
- ``endless``: it prints lines for ever: ``{"per_s": 1000}`` of them a second, ``true`` for more.
- ``oversize``: length of one line in each turn.
- ``wrong_id``: it continues in another conversation than it was told to.
- ``api_retry``: how many tries it reports as failed before it answers; with a pause after each:
  ``{"attempts": 3, "delay_s": 0.5}``.
- ``usage_limit``: its provider refuses each turn, until ``{"resets_at": 1790000000}`` (Claude,
  Codex), or for ``{"resets_in": 5}`` seconds (Claude).
- ``api_error``: status of the model's API (400, 401, 403, 429, 500, 529) that ends each turn.
- ``needs_login``: it refuses to work without a key in its environment (Claude).
- ``cannot_load`` and ``loads_unknown``: it continues no conversation, or any id (ACP).
- ``own_turns_before``, ``own_turns_within`` and ``own_turns_after``: how many turns it begins by
  itself before, during and after the turn of each message, as when something that it ran in the
  background reports (Claude); with the requests to the model in each and its origin: ``{"count":
  2, "steps": 1, "origin": null}``. Before the message itself is the phase ``message``
  (``crash_at_message``).
- ``joins_own_turn``: it reads each message in the middle of such a turn, and ends only that
  (Claude).
- ``dump``: it notes what it was started with; :func:`read_dumps` returns that.
- ``turn_s``: seconds that a turn takes, 0.01 unless told.

With ``times`` in its value, a fault occurs that many times: ``crash_at_turn={"times": 1}``; with
``after``, only after it could have occurred that many times: ``api_error={"after": 2, "status":
401}`` is a login that expires after two turns.
:func:`hold` lets no turn end, :func:`hold_own` none that it has begun by itself.

A message may have lines that begin with a command: ``RUN`` a shell command and ``GET`` an address
are tools, ``SAY`` words are the answer, and ``WHO`` answers what the stand-in was told by whom.
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

    It is one file that needs nothing but the interpreter, so that it works in a sandbox too.

    Args:
        directory: Where the file is written; made if it is missing.
        program: ``claude``, ``codex``, ``kimi``, ``opencode`` or ``acp``.
        name: Name of the file; None takes that of the program.
        version: The version that it gives itself out for; None takes the usual one.
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
    """Switch exactly these faults on, for the stand-in that works there."""
    new = workspace / f"{FAULTS_FILE}.new"
    new.write_text(json.dumps(faults))
    new.replace(workspace / FAULTS_FILE)


@contextlib.contextmanager
def hold(workspace: Path) -> Iterator[None]:
    """Let no turn end in the block."""
    with _file_in(workspace / common.HOLD_FILE):
        yield


@contextlib.contextmanager
def hold_own(workspace: Path) -> Iterator[None]:
    """Let no turn end in the block that the stand-in has begun by itself."""
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
    """Return what each process with the fault ``dump`` was started with.

    Each has ``argv``, ``environ``, ``cwd``, ``pid``, ``uid``, ``stdin`` (``null``, ``pipe``,
    ``terminal``, ``closed`` or ``other``), ``ignored`` signals and open ``descriptors``.
    """
    return [json.loads(line) for line in (workspace / common.DUMP_FILE).read_text().splitlines()]


def left_behind(workspace: Path) -> list[int]:
    """Return the pids of what was left behind so far with the fault ``leave_behind``."""
    file = workspace / common.LEFT_FILE
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def told(transcript: Path) -> list[str]:
    """Return the messages of the user in a transcript of any of the programs, in order.

    What a program adds by itself, all of which begins with a tag, is left out.
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
