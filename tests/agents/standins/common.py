"""The common part of the stand-ins: faults, commands in messages, tools.

It imports slow modules only on use, so that a stand-in starts in a few milliseconds. It must run
without the package and the other tests.
"""

import json
import os
import signal
import sys
import time

FAULTS_FILE = ".standin.json"
"""File in the working directory with the faults; it is read before each turn."""
HOLD_FILE = ".standin-hold"
"""File in the working directory that prevents the end of turns."""
OWN_HOLD_FILE = ".standin-hold-own"
"""File in the working directory that prevents the end of the program's own turns."""
DUMP_FILE = ".standin-dump.jsonl"
LEFT_FILE = ".standin-left.txt"

ANSWER = "I have noted that."
ERROR = "The stand-in refuses."

USAGE = {"input": 11, "cached": 7, "written": 3, "output": 5, "reasoning": 2, "cost": 0.001}
"""Usage of each turn."""

POLL_S = 0.005


# ------------------------------------------------------------------------------- faults


def read_faults():
    try:
        with open(FAULTS_FILE) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def fault(name):
    """Return the value of a fault, None if it is off; ``after`` and ``times`` count down."""
    faults = read_faults()
    value = faults.get(name)
    if value is False:
        return None
    if isinstance(value, dict) and value.get("after"):
        value["after"] -= 1
        write_faults(faults)
        return None
    if isinstance(value, dict) and "times" in value:
        if value["times"] < 1:
            return None
        value["times"] -= 1
        write_faults(faults)
    return value


def write_faults(faults):
    with open(f"{FAULTS_FILE}.{os.getpid()}", "w") as file:
        json.dump(faults, file)
    os.replace(file.name, FAULTS_FILE)


def failed_tries():
    """Yield the number and the announced delay in seconds of each attempt of ``api_retry``.

    A delay passes before the next attempt.
    """
    value = fault("api_retry")
    tries = value if isinstance(value, dict) else {"attempts": int(value or 0)}
    delay_s = tries.get("delay_s", 0.0)
    for attempt in range(1, tries["attempts"] + 1):
        yield attempt, delay_s
        time.sleep(delay_s)


def begin(program):
    """Perform the faults at the start of a program; the first call of each stand-in."""
    if fault("dump"):
        dump(program)
    if delay := fault("slow_start"):
        time.sleep(delay)
    if fault("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    at("start")


def at(phase):
    """Perform the faults of a phase: ``start``, ``session``, ``turn`` or ``tool``."""
    if fault(f"silent_at_{phase}"):
        wait_forever()
    if found := fault(f"crash_at_{phase}"):
        found = found if isinstance(found, dict) else {}
        if number := found.get("signal"):
            signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
            os.kill(os.getpid(), number)
        leave(found.get("status", 1), found.get("words", "Error: the stand-in crashed."))
    if fault(f"exit_at_{phase}"):
        leave(0)


def wait_forever():
    while True:
        time.sleep(60)


def hold():
    """Wait for the duration of a turn, and until it is not held."""
    time.sleep(read_faults().get("turn_s", 0.01))
    wait_while(HOLD_FILE)


def wait_while(file):
    """Wait while a file is in the working directory."""
    while os.path.exists(file):
        time.sleep(POLL_S)


def leave(status, words=""):
    """Exit immediately; write ``words`` to standard error."""
    if words:
        os.write(2, f"{words}\n".encode())
    os._exit(status)


def on_term(action):
    """Call ``action`` at SIGTERM, unless the stand-in ignores SIGTERM."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, lambda *_: action())


def dump(program):
    """Append the start facts of the program to a file in the working directory."""
    found = {
        "program": program,
        "argv": sys.argv,
        "environ": read_environ(),
        "cwd": os.getcwd(),
        "pid": os.getpid(),
        "uid": os.getuid(),
        "stdin": kind_of_stdin(),
        "ignored": [number for number in range(1, 32) if is_ignored(number)],
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    }
    append_line(DUMP_FILE, found)


def read_environ():
    """Return the original environment; the interpreter may add variables to its own."""
    with open("/proc/self/environ", "rb") as file:
        entries = os.fsdecode(file.read()).split("\0")
    return dict(entry.partition("=")[::2] for entry in entries if entry)


def is_ignored(number):
    return number not in (9, 19) and signal.getsignal(number) is signal.SIG_IGN


def kind_of_stdin():
    import stat

    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return "closed"
    if os.isatty(0):
        return "terminal"
    if stat.S_ISCHR(mode):
        return "null"
    return "pipe" if stat.S_ISFIFO(mode) else "other"


# ------------------------------------------------------------------------------- output


def emit(record):
    """Print a record as a line."""
    data = memoryview(encode(record).encode())
    while data:
        data = data[os.write(1, data) :]


def encode(record):
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def append_line(path, record):
    """Append a record to a file with one write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, encode(record).encode())
    os.close(descriptor)


def read_lines(path):
    """Return the records of a transcript, without torn lines."""
    records = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
    return records


def tear(path):
    """Leave half a record at the end of a transcript, as a full disk or a kill can."""
    with open(path, "a") as file:
        file.write('{"type":"user","message":{"role":"user","content":"torn')


def flood(make):
    """Print records until killed: ``{"per_s": 1000}`` per second, or as many as possible."""
    options = fault("endless")
    if not options:
        return
    rate = options.get("per_s") if isinstance(options, dict) else None
    number, start = 0, time.monotonic()
    while True:
        emit(make(f"line {number}"))
        number += 1
        if rate and (early := start + number / rate - time.monotonic()) > 0.02:
            time.sleep(early)


# --------------------------------------------------------------------------- time and ids


def now():
    """Return the UTC time as the programs write it."""
    seconds = time.time()
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def uuid4():
    return format_uuid(os.urandom(16), 4)


def uuid7():
    return format_uuid(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10), 7)


def format_uuid(raw, version):
    raw = bytearray(raw)
    raw[6] = raw[6] & 0x0F | version << 4
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def is_uuid(text):
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(
        character in "0123456789abcdefABCDEF" for character in "".join(parts)
    )


# -------------------------------------------------------------------- what a turn is about


def plan(prompt, told, system):
    """Return the commands and the answer of the stand-in's model for a message.

    Lines that start with one of these words are executed, the rest is recorded: ``RUN`` a shell
    command, ``GET`` an address, ``SAY`` words, ``WHO`` (messages and authors).
    """
    commands, words = [], []
    for line in prompt.splitlines():
        verb, _, rest = line.strip().partition(" ")
        if verb == "RUN":
            commands.append(rest)
        elif verb == "GET":
            commands.append(["GET", rest])
        elif verb == "SAY":
            words.append(rest)
        elif verb == "WHO":
            words.append(json.dumps({"system": system, "told": told}))
    return commands, "\n".join(words) or ANSWER


class Tool:
    """A command of the model, executed like by the program."""

    def __init__(self, command, own_session):
        self.command = command if isinstance(command, str) else " ".join(command)
        self.fetched = command[1] if not isinstance(command, str) else None
        self.own_session = own_session

    def run(self):
        """Return its output and exit status."""
        if self.fetched:
            return fetch(self.fetched)
        import subprocess

        process = subprocess.Popen(
            ["/bin/bash", "-c", self.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=self.own_session,
        )
        output = process.communicate()[0].decode(errors="replace")
        return output, process.returncode


def fetch(address):
    """Return status and body of the answer to a GET request."""
    import http.client

    host, slash, path = address.removeprefix("http://").partition("/")
    try:
        connection = http.client.HTTPConnection(host, timeout=120)
        connection.request("GET", slash + path or "/")
        answer = connection.getresponse()
        return f"{answer.status} {answer.read().decode(errors='replace')}", 0
    except OSError as error:
        return f"GET {address}: {error}", 7


def leave_behind():
    """Start sleepers that outlive the program and lead sessions of their own.

    They are not children of the program, like background commands of a shell.
    """
    count = fault("leave_behind")
    for _ in range(count.get("count", 1) if isinstance(count, dict) else int(count or 0)):
        read_end, write_end = os.pipe()
        if child := os.fork():
            os.waitpid(child, 0)
            pid = os.read(read_end, 16).decode()
            with open(LEFT_FILE, "a") as file:
                file.write(f"{pid}\n")
            continue
        if os.fork():
            os._exit(0)
        os.setsid()
        for descriptor in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        os.write(write_end, str(os.getpid()).encode())
        os.execv("/bin/sleep", ["sleep", "600"])
