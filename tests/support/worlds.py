"""Worlds to start: directories, commands, requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attrs

from tests.support.processes import INSTANCE_ENV, kill_processes, processes_in
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import HANG_S, wait_until

MISBEHAVING = Path(__file__).parents[1] / "worlds" / "misbehaving.py"
WRAPPER = Path(__file__).parents[1] / "worlds" / "wrapper.sh"


def world_command(*flags: str, wrapper: str | None = None) -> list[str]:
    """Return the command that runs the misbehaving world, optionally through ``wrapper.sh``."""
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
        parent: Parent of the directory.
        *flags: Flags of ``misbehaving.py`` for the world.
        name: Name of the world and of its directory.
        toml_extra: Further tables of the ``world.toml``, for example ``[run.ready]``.
        sidecars: Flags of ``misbehaving.py --sidecar`` by name of the sidecar.
        wrapper: Mode of ``wrapper.sh`` that runs the world; None runs it directly.
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
    """Return a command that becomes ``command`` with ``descriptor`` as its descriptor 3.

    The variables of sd_listen_fds(3) are set unless they exist already. The caller must pass
    ``descriptor`` on (``pass_fds``).
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
        """Output of the world so far."""
        return (self.directory / "world.log").read_text(errors="replace")

    def ask(self, method: str, target: str, **options: Any) -> Answer:
        return ask(self.port, method, target, **options)

    def snapshot(self, **options: Any) -> Answer:
        return self.ask("GET", "/snapshot", headers={"X-Operator-Token": self.token}, **options)

    def join(self, name: str = "Rocky") -> dict[str, str]:
        """Join as an agent; return the headers that name its session."""
        return {"X-Session": self.ask("POST", f"/join?name={name}").json()["session"]}

    def set(self, **options: object) -> None:
        """Switch faults while the world runs: ``set(snapshot="empty")``."""
        pairs = (f"{name.replace('_', '-')}={value}" for name, value in options.items())
        self.ask("POST", f"/__set?{'&'.join(pairs)}")

    def wait(self, timeout: float = HANG_S) -> int:
        """Wait for the end; return the exit status, negative for a signal."""
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
    """Run a world in its own directory, and kill its remaining processes at the end.

    Args:
        parent: Parent of the directory.
        *flags: Flags of the world.
        env: Variables in addition to ``WORLD_PORT``, ``WORLD_OPERATOR_TOKEN`` and the cookie.
        wrapper: Mode of ``wrapper.sh``, or None.
        listens: Whether to wait until a process listens on the port.
        descriptor: Descriptor to inherit as the listening socket, or None.
        command: The world's program; None for the misbehaving world.
        directory: An existing directory to run the world in; None for a new one.
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
