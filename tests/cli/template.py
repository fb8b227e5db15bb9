"""Starts of ``clawblox`` that share the start of one interpreter, and its imports.

They cost a third of a second of CPU, most of what a test of the command line spends. So one
process, the template, imports the command line once and forks itself for each command. Such a
command is a process with streams, a directory and an environment of its own, which ends as any
interpreter does; only ``/proc/<pid>/cmdline`` and ``environ`` show those of the template.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PRELOADED = ("cli", "world", "checkpoint")
"""Rooms whose modules are imported before a command is forked."""

_MAX_REQUEST_BYTES = 1 << 17


class ForkedCommand:
    """A command that the template was forked for; used as a :class:`subprocess.Popen` is."""

    stdout = stderr = None

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._read(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"clawblox, pid {self.pid}", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(os.read(self._status, 100) or b"-9")
            os.close(self._status)
        return self.returncode


class Template:
    """The process that imports the command line, and forks itself for each command."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(
        self,
        words: Sequence[str],
        streams: Sequence[int],
        env: Mapping[str, str],
        cwd: Path | str | None = None,
    ) -> ForkedCommand:
        """Start a command with these words, standard streams, variables and working directory."""
        request = {"words": words, "env": dict(env), "cwd": str(cwd or Path.cwd())}
        reader, writer = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams, writer])
        finally:
            os.close(writer)
        return ForkedCommand(int(self._socket.recv(100)), reader)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@contextlib.contextmanager
def running_template() -> Iterator[Template]:
    template = Template()
    try:
        yield template
    finally:
        template.close()


# ------------------------------------------------------------------- in the template itself


def serve(requests: socket.socket) -> list[str]:
    """Fork for each request, and tell how each command ended; return its words in the command."""
    running: dict[int, tuple[int, int]] = {}  # pid and status pipe, by pidfd
    while True:
        for ready in select.select([requests, *running], [], [])[0]:
            if ready is not requests:
                os.close(ready)
                pid, status = running.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(BrokenPipeError):  # nothing waits for it any more
                    os.write(status, str(code).encode())
                os.close(status)
                continue
            data, fds, *_ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 4)
            if not data:
                sys.exit()
            if not (pid := os.fork()):
                return become(json.loads(data), fds)
            *streams, status = fds
            for fd in streams:
                os.close(fd)
            running[os.pidfd_open(pid)] = pid, status
            requests.send(str(pid).encode())


def become(request: Mapping[str, object], fds: Sequence[int]) -> list[str]:
    """Make this process what the request asks for; return the words of its command."""
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.closerange(3, 1024)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    return list(request["words"])


def main() -> None:
    for room in PRELOADED:
        package = importlib.import_module(f"clawblox.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    gc.freeze()  # a collection would copy the memory that commands share
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        sys.argv[1:] = serve(requests)
        requests.detach()
    runpy.run_module("clawblox", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
