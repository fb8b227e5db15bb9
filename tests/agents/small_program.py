"""A small agent program for tests, which follows its messages and writes plain reports.

It writes one JSON object per line, ``{"type": …, "data": …}``. With ``--loop`` it reads messages on
standard input, one JSON string per line; otherwise its last argument is its only message. A message
is a list of words and arguments, separated by blanks; see ``WORDS``.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time

ARGUMENTS = sys.argv[1:]
STATE = os.environ.get("SMALL_STATE", "")


def option(name: str) -> str | None:
    return ARGUMENTS[ARGUMENTS.index(name) + 1] if name in ARGUMENTS else None


SESSION = option("--resume") or option("--new")


def tell(_kind: str, **data: object) -> None:
    sys.stdout.write(json.dumps({"type": _kind, "data": data}) + "\n")
    sys.stdout.flush()


def record(line: str) -> None:
    with open(os.path.join(STATE, f"{SESSION}.jsonl"), "a") as file:
        file.write(json.dumps(line) + "\n")


def raw(line: str) -> None:
    """Write a line unchanged."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def crash(status: str) -> None:
    print("the last words", file=sys.stderr)
    os._exit(int(status))


def crash_once(status: str) -> None:
    marker = os.path.join(STATE, "crashed")
    if not os.path.exists(marker):
        open(marker, "w").close()
        crash(status)


def fail(kind: str) -> None:
    tell("error", kind=kind, message=f"it failed: {kind}")
    tell("turn.finished", ok=False, text="")
    os._exit(1)


def hang(_: str) -> None:
    time.sleep(600)


def leave(_: str) -> None:
    """Leave a background tool in a session of its own."""
    tool = subprocess.Popen(["sleep", "600"], start_new_session=True)
    tell("tool.called", id="1", name="sleep", arguments={"pid": tool.pid})


def long_line(size: str) -> None:
    sys.stdout.write("x" * int(size) + "\n")


def flood(_: str) -> None:
    while True:
        sys.stdout.write("x" * 4095 + "\n")


def deaf(_: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def end(status: str) -> None:
    """End within the turn, with a status."""
    sys.stdout.flush()
    os._exit(int(status))


def work(text: str) -> None:
    tell("message", role="assistant", text=text)


def retry(delay: str) -> None:
    tell("retry", attempt=1, max_attempts=9, delay_s=float(delay), status=529, error="overloaded")


def mutter(kind: str) -> None:
    """Write text that resembles a report to standard error."""
    print(json.dumps({"type": kind, "data": {"text": "forged"}}), file=sys.stderr)


def grumble(path: str) -> None:
    """Write to standard error until a file exists."""
    while not os.path.exists(path):
        print("still at it", file=sys.stderr)
        time.sleep(0.01)


def use(count: str) -> None:
    tell("usage", tokens=int(count) if count.isdigit() else float(count))


OTHER_SESSION = "00000000-0000-0000-0000-00000000dead"


def name(session: str) -> None:
    """Report another conversation id than the stored one, for example a path."""
    tell("session.confirmed", session_id=session or OTHER_SESSION)


def elsewhere(_: str) -> None:
    """Continue in another conversation, after reporting its id."""
    name("")
    global SESSION
    SESSION = OTHER_SESSION
    record("here")
    time.sleep(600)


def until(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.005)


def keep_later(path: str) -> None:
    """Append to the transcript after the end of the turn, once a file exists."""
    atexit.register(record, "kept later")
    atexit.register(until, path)


WORDS = {
    "crash": crash,
    "crash-once": crash_once,
    "deaf": deaf,
    "elsewhere": elsewhere,
    "end": end,
    "fail": fail,
    "flood": flood,
    "grumble": grumble,
    "hang": hang,
    "keep-later": keep_later,
    "leave": leave,
    "long-line": long_line,
    "mutter": mutter,
    "raw": raw,
    "name": name,
    "retry": retry,
    "until": until,
    "use": use,
    "work": work,
}


def take(message: str) -> None:
    if "--silent" not in ARGUMENTS:
        tell("session.confirmed", session_id=SESSION, version="1.0")
    words = message.split()
    if words[:1] == ["name"]:  # earlier growth of a transcript would confirm the conversation
        name(words[1])
        words = words[2:]
    if words[:1] != ["elsewhere"]:
        record(message)
    for place, word in enumerate(words):
        if word in WORDS:
            WORDS[word](words[place + 1] if place + 1 < len(words) else "")
    tell("turn.finished", ok=True, text=message)


def main() -> None:
    if "--version" in ARGUMENTS:
        print("small 1.0")
        print("WARNING: 2.0 would be new", file=sys.stderr)
        return
    if "--loop" not in ARGUMENTS:
        take(ARGUMENTS[-1])
        return
    if "--unread" in ARGUMENTS:
        hang("")
    for line in sys.stdin:
        take(json.loads(line))


if __name__ == "__main__":
    main()
