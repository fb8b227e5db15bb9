"""A program with the output of Claude Code at a given rate; for ``agents``.

It supports the flags and messages of Claude Code's message loop, and writes a transcript to the
same place as the real program. The word ``lines=N`` in a message makes it write N lines per second
until its input ends; other messages are answered with one short turn. Received signals, and a
SIGSTOP when it ends with SIGCONT, are written as lines to the file ``signals`` next to its
transcripts.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time

_BATCHES_PER_S = 50


def main() -> None:
    """Run the program."""
    if "--version" in sys.argv:
        print("2.1.197 (Claude Code)")
        return
    words = dict(zip(sys.argv, sys.argv[1:], strict=False))
    session = words.get("--resume") or words.get("--session-id") or "no-session"
    slug = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath("."))
    project = os.path.join(os.environ["CLAUDE_CONFIG_DIR"], "projects", slug)
    os.makedirs(project, exist_ok=True)
    transcript = os.path.join(project, f"{session}.jsonl")
    _note_signals(os.path.join(os.environ["CLAUDE_CONFIG_DIR"], "signals"))
    for line in iter(sys.stdin.readline, ""):
        with open(transcript, "a", encoding="utf-8") as file:
            file.write(line)
        _write(type="system", subtype="init", session_id=session, claude_code_version="2.1.197")
        wanted = re.search(r"lines=(\d+)", line)
        if wanted:
            _write_lines(session, int(wanted[1]))
        _say(session, "Done.")
        usage = {"input_tokens": 10, "output_tokens": 5}
        _write(type="result", subtype="success", is_error=False, session_id=session, usage=usage)


def _note_signals(path: str) -> None:
    """Write the names of signals to a file, except those that should end this program."""

    def note(number: int, _frame: object) -> None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{signal.Signals(number).name}\n")

    for number in (signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGALRM):
        signal.signal(number, note)


def _write_lines(session: str, rate: int) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    line = _assistant(session, "x" * 160) * (rate // _BATCHES_PER_S)
    due = time.monotonic()
    while not ended.is_set():
        os.write(1, line)
        due += 1 / _BATCHES_PER_S
        time.sleep(max(0.0, due - time.monotonic()))


def _assistant(session: str, text: str) -> bytes:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    event = {"type": "assistant", "session_id": session, "message": message}
    return json.dumps(event).encode() + b"\n"


def _say(session: str, text: str) -> None:
    os.write(1, _assistant(session, text))


def _write(**event: object) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    main()
