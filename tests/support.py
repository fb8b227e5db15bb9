"""What the tests stand on: worlds to start, processes to find, resources to count.

It looks at processes and descriptors by itself, through proc(5) and never through the
package, so that a mistake there cannot hide behind the same mistake here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import attrs

MISBEHAVING = Path(__file__).parent / "worlds" / "misbehaving.py"
WRAPPER = Path(__file__).parent / "worlds" / "wrapper.sh"
INSTANCE_ENV = "CLAWBLOX_INSTANCE"
GUARD_NAME = "clawblox-guard"
KEEPER_THREAD = "clawblox-guard-keeper"
PORTAL_THREAD = "clawblox-portal"
WORKER_THREADS = ("AnyIO worker thread", "Trio thread")

POLL_INTERVAL_S = 0.005

HANG_S = 120.0
"""Seconds after which a wait counts as a hang; no test measures time with it."""

T = TypeVar("T")


# ----------------------------------------------------------------------------- conditions


def wait_until(condition: Callable[[], T], timeout: float = HANG_S, what: str = "") -> T:
    """Look at a condition until it is true; return its value, or fail after ``timeout`` s."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what or condition}"
        time.sleep(POLL_INTERVAL_S)
    return value


async def wait_until_async(
    condition: Callable[[], T], timeout: float = HANG_S, what: str = ""
) -> T:
    """Do as :func:`wait_until` does, and let the other tasks run meanwhile."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what or condition}"
        await anyio.sleep(POLL_INTERVAL_S)
    return value


# --------------------------------------------------------------------------------- worlds


def world_command(*flags: str, wrapper: str | None = None) -> list[str]:
    """Return the command that runs the misbehaving world, by a way of ``wrapper.sh`` or none."""
    wrapped = ["bash", str(WRAPPER), wrapper] if wrapper else []
    return [*wrapped, sys.executable, "-I", "-S", str(MISBEHAVING), *flags]


def make_world(
    parent: Path,
    *flags: str,
    name: str = "counter",
    toml_extra: str = "",
    sidecars: Mapping[str, Sequence[str]] | None = None,
    wrapper: str | None = None,
) -> Path:
    """Write a world directory below ``parent`` and return it.

    Args:
        parent: Where the directory is made.
        *flags: Flags of ``misbehaving.py`` for the world.
        name: Name of the world and of its directory.
        toml_extra: Further tables of the ``world.toml``, for example ``[run.ready]``.
        sidecars: Flags of ``misbehaving.py --sidecar`` by name of the sidecar.
        wrapper: A way of ``wrapper.sh`` to run the world by; None runs it directly.
    """
    directory = parent / name
    directory.mkdir()
    lines = [
        f"name = {json.dumps(name)}",
        'description = "Agents add to a number."',
        "[run]",
        f"command = {json.dumps(world_command(*flags, wrapper=wrapper))}",
    ]
    for sidecar, its_flags in (sidecars or {}).items():
        command = json.dumps(world_command("--sidecar", *its_flags))
        lines += ["[[run.sidecar]]", f"name = {json.dumps(sidecar)}", f"command = {command}"]
    (directory / "world.toml").write_text("\n".join([*lines, toml_extra, ""]))
    return directory


_HAND_OVER = """
import os, sys
descriptor, *command = sys.argv[1:]
os.dup2(int(descriptor), 3)
os.closerange(4, 256)
os.environ.setdefault("LISTEN_FDS", "1")
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.environ.setdefault("LISTEN_FDNAMES", "world")
os.execv(command[0], command)
"""


def with_inherited_socket(command: Sequence[str], descriptor: int) -> list[str]:
    """Return a command that becomes ``command``, which finds ``descriptor`` as its descriptor 3.

    The variables of sd_listen_fds(3) tell it so, unless they are set already. The caller must
    pass ``descriptor`` on (``pass_fds``).
    """
    return [sys.executable, "-I", "-S", "-c", _HAND_OVER, str(descriptor), *command]


class Answer(NamedTuple):
    """An HTTP answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    port: int,
    method: str,
    target: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
    timeout: float = HANG_S,
) -> Answer:
    """Send one request to a local server.

    Raises:
        OSError: No process listens, or the connection broke.
        http.client.HTTPException: The answer is cut short.
    """
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=timeout)) as connection:
        connection.request(method, target, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, response.read())


@attrs.define
class RunningWorld:
    """A world that runs without any orchestrator."""

    process: subprocess.Popen[bytes]
    directory: Path
    port: int
    token: str
    cookie: str

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return (self.directory / "world.log").read_text(errors="replace")

    def ask(self, method: str, target: str, **options: Any) -> Answer:
        return ask(self.port, method, target, **options)

    def snapshot(self, **options: Any) -> Answer:
        return self.ask("GET", "/snapshot", headers={"X-Operator-Token": self.token}, **options)

    def join(self, name: str = "Rocky") -> dict[str, str]:
        """Join as an agent; return the headers that name its session."""
        return {"X-Session": self.ask("POST", f"/join?name={name}").json()["session"]}

    def set(self, **options: object) -> None:
        """Switch faults while it runs: ``set(snapshot="empty")``."""
        pairs = (f"{name.replace('_', '-')}={value}" for name, value in options.items())
        self.ask("POST", f"/__set?{'&'.join(pairs)}")

    def wait(self, timeout: float = HANG_S) -> int:
        """Return its exit status, negative for a signal."""
        return self.process.wait(timeout)


@contextlib.contextmanager
def running_world(
    parent: Path,
    *flags: str,
    env: Mapping[str, str] | None = None,
    wrapper: str | None = None,
    listens: bool = True,
    descriptor: int | None = None,
    command: Sequence[str] | None = None,
    directory: Path | None = None,
) -> Iterator[RunningWorld]:
    """Run a world in a directory of its own; at the end kill all that is left of it.

    Args:
        parent: Where its directory is made.
        *flags: Its flags.
        env: Variables beside ``WORLD_PORT``, ``WORLD_OPERATOR_TOKEN`` and the cookie.
        wrapper: A way of ``wrapper.sh``.
        listens: Wait until something listens on its port.
        descriptor: What it inherits as its listening socket; None for nothing.
        command: The world's program; None for the misbehaving world.
        directory: An existing directory to run it in; None for a new one.
    """
    if directory is None:
        directory = parent / f"world-{uuid.uuid4().hex[:8]}"
        directory.mkdir()
    port, token, cookie = free_port(), uuid.uuid4().hex, uuid.uuid4().hex
    own = {"WORLD_PORT": str(port), "WORLD_OPERATOR_TOKEN": token, INSTANCE_ENV: cookie}
    command = [*command, *flags] if command else world_command(*flags, wrapper=wrapper)
    if descriptor is not None:
        command = with_inherited_socket(command, descriptor)
    with (directory / "world.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={"PATH": os.defpath, **own, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=() if descriptor is None else (descriptor,),
            start_new_session=True,
        )
    world = RunningWorld(process, directory, port, token, cookie)
    try:
        if listens:
            wait_until(lambda: is_listening(port), what="the world listens")
        yield world
    finally:
        kill_processes(lambda: processes_in(directory))
        process.wait()


# ------------------------------------------------------------------------------ processes


class Process(NamedTuple):
    """One process, as ``/proc/<pid>/stat`` shows it; state ``Z`` is a zombie."""

    parent: int
    state: str
    start_time: int

    @property
    def is_live(self) -> bool:
        return self.state not in "ZX"


def read_process(pid: int) -> Process | None:
    """Return a process, or None."""
    stat = _read_proc(pid, "stat")
    if not stat:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Process(int(fields[1]), fields[0].decode(), int(fields[19]))


def all_processes() -> dict[int, Process]:
    """Return every process by its id."""
    found = {int(name): read_process(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: process for pid, process in found.items() if process}


def live_processes() -> set[int]:
    """Return every process that is not a zombie."""
    return {pid for pid, process in all_processes().items() if process.is_live}


def is_alive(pid: int) -> bool:
    """Return whether a process lives; a zombie does not."""
    process = read_process(pid)
    return process is not None and process.is_live


def descendants(pid: int) -> set[int]:
    """Return the children of a process and theirs, zombies included."""
    return _descendants(pid, all_processes())


def _descendants(pid: int, processes: Mapping[int, Process]) -> set[int]:
    family = {pid}
    while (
        more := {child for child, process in processes.items() if process.parent in family} - family
    ):
        family |= more
    return family - {pid}


def find_guards(*orchestrators: int) -> list[int]:
    """Return the live guards that name one of some processes as their orchestrator."""
    named = {str(pid) for pid in orchestrators}
    words = {pid: command_line(pid).split() for pid in _younger_processes(all_processes())}
    return [
        pid
        for pid, line in words.items()
        if line[-3:-2] == [GUARD_NAME] and line[-2] in named and line[1] == "-I"
    ]


def marked_processes(cookie: str | None = None) -> set[int]:
    """Return the live processes that carry an instance's cookie.

    Args:
        cookie: Its value; None means any instance of this test session.
    """
    entry = f"{INSTANCE_ENV}={cookie or ''}".encode()
    marked = {
        pid
        for pid in _younger_processes(all_processes())
        if any(
            variable == entry if cookie else variable.startswith(entry)
            for variable in _read_proc(pid, "environ").split(b"\0")
        )
    }
    return marked if cookie else {pid for pid in marked if _is_in(pid, _Session.directory)}


def processes_in(directory: Path) -> set[int]:
    """Return the live processes that name a path below ``directory``, or work in it or below.

    Environment, arguments and working directory are looked at. This process is not meant.
    """
    return {pid for pid in _younger_processes(all_processes()) if _is_in(pid, directory)}


def _is_in(pid: int, directory: Path) -> bool:
    below = f"{directory}/".encode()
    return (
        below in _read_proc(pid, "environ")
        or below in _read_proc(pid, "cmdline")
        or f"{_working_directory(pid)}/".encode().startswith(below)
    )


def _younger_processes(processes: Mapping[int, Process]) -> set[int]:
    """Return the live processes that began after this one: no other can be of its making."""
    return {
        pid
        for pid, process in processes.items()
        if process.start_time >= _SELF.start_time and process.is_live and pid != os.getpid()
    }


def command_line(pid: int) -> str:
    """Return the arguments of a process, separated by blanks."""
    return _read_proc(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def kill_processes(find: Callable[[], Iterable[int]]) -> None:
    """Kill what ``find`` returns until it finds nothing."""

    def kill_once() -> bool:
        found = list(find())
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_until(kill_once, what="killed processes are gone")


def _read_proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""


_SELF = all_processes()[os.getpid()]


def _working_directory(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


# -------------------------------------------------------------------------------- sockets


def free_port() -> int:
    """Return a free port that no test of this run has been given before.

    It lies outside the ephemeral range, where an outgoing connection could take it, and among the
    ports of this process of the run: another one would only see it taken once a program listens.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while True:
        port = 10_000 + worker + workers * secrets.randbelow(10_000 // workers)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _returned_ports:
                _returned_ports.add(port)
                return port


_returned_ports: set[int] = set()


@contextlib.contextmanager
def stranger_on(port: int, host: str = "127.0.0.1") -> Iterator[None]:
    """Listen on a port as a stranger's server does, also where an ended connection has it still."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind((host, port))
        stranger.listen()
        yield


def is_listening(port: int) -> bool:
    """Return whether any process listens on a TCP port, without connecting to it."""
    suffix = f":{port:04X}"
    return any(address.endswith(suffix) for address in _listening_addresses())


def _listening_addresses() -> Iterator[str]:
    """Yield the local addresses that are listened on, in the hexadecimal of proc_net_tcp."""
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as lines:
            next(lines)
            for line in lines:
                _, address, _, state, *_ = line.split(maxsplit=4)
                if state != "0A":
                    break  # the kernel lists the listeners first, and then every connection
                yield address


# ------------------------------------------------------------------------------ resources


class _Session:
    """The test session; conftest names its directory."""

    directory = Path("/nonexistent")
    _newest: bytes = b""
    _processes: frozenset[int] = frozenset()

    @classmethod
    def processes(cls) -> frozenset[int]:
        """Return what descends from this process, guards it, or works below the directory.

        Most tests start no process. So all processes are looked at only when one has begun since
        the last look, anywhere on the machine, or one that was seen then has ended.
        """
        newest = _newest_pid()
        if newest != cls._newest or not all(map(is_alive, cls._processes)):
            processes = all_processes()
            inside = {pid for pid in _younger_processes(processes) if _is_in(pid, cls.directory)}
            family = _descendants(os.getpid(), processes)
            cls._processes = frozenset({*family, *inside, *find_guards(os.getpid(), *family)})
            cls._newest = newest
        return cls._processes


def _newest_pid() -> bytes:
    """Return the id that the kernel gave out last, to a process or a thread; see proc(5)."""
    with open("/proc/loadavg", "rb", buffering=0) as file:
        return file.read().split()[-1]


def name_session(directory: Path) -> None:
    """Set the directory below which every test of this session works."""
    _Session.directory = directory
    _Session._newest = b""


def open_fds() -> dict[int, str]:
    """Return what each descriptor of this process refers to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this very listing
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


@attrs.frozen
class Resources:
    """What this process holds at one moment, its processes and files included."""

    fds: Mapping[int, str]
    threads: Mapping[int, str]
    processes: Mapping[int, str]
    files: frozenset[str]

    @classmethod
    def now(cls, *directories: Path) -> Resources:
        """Count, with the files below ``directories``."""
        return cls(
            fds=open_fds(),
            threads={t.ident or 0: t.name for t in threading.enumerate()},
            processes={pid: command_line(pid) for pid in _Session.processes()},
            files=frozenset(str(path) for root in directories for path in root.rglob("*")),
        )

    def processes_since(self, before: Resources) -> dict[int, str]:
        """Return the processes that came since ``before``, without this process's guard.

        By their ids: for an instant after its exec, a process shows no command line.
        """
        added = {
            pid: command for pid, command in self.processes.items() if pid not in before.processes
        }
        if guard := next((pid for pid, command in added.items() if GUARD_NAME in command), None):
            del added[guard]
        return added

    def leaks_since(self, before: Resources) -> list[str]:
        """Name everything that came since ``before`` and may not stay.

        The guard and the portal live as long as their orchestrator, this process. So one of
        each may come, with the descriptors that belong to it, and workers of the event loops.
        """
        processes = self.processes_since(before)
        threads = _added(self.threads, before.threads)
        allowed: list[str] = []
        if self.processes.keys() - before.processes.keys() - processes.keys():
            allowed += ["pipe:", "anon_inode:[pidfd]"]  # the guard's lifeline, and itself
            if keeper := next((t for t in threads if threads[t] == KEEPER_THREAD), None):
                del threads[keeper]
        if portal := next((t for t in threads if threads[t] == PORTAL_THREAD), None):
            del threads[portal]
            allowed += ["anon_inode:[eventpoll]", "socket:", "socket:"]
        return [
            *(f"process {pid}: {command or 'zombie'}" for pid, command in processes.items()),
            *(f"thread {name}" for name in threads.values() if not name.startswith(WORKER_THREADS)),
            *_descriptors_beyond(_added(self.fds, before.fds), allowed),
            *(f"file {path}" for path in sorted(self.files - before.files)),
        ]


def _added(after: Mapping[int, str], before: Mapping[int, str]) -> dict[int, str]:
    return dict(after.items() - before.items())


def _descriptors_beyond(fds: Mapping[int, str], allowed: Iterable[str]) -> list[str]:
    left = dict(fds)
    for kind in allowed:
        if match := next((fd for fd, target in left.items() if target.startswith(kind)), None):
            del left[match]
    return [f"descriptor {fd}: {target}" for fd, target in left.items()]
