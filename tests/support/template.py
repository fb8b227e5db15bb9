"""Starts of programs that share the start of one interpreter, and its imports.

A start with imports costs up to a third of a second of CPU, most of the cost of a command-line
test. So one process, the template, imports some packages of clawblox and forks itself for each
program. The program is a process with its own streams, directory and environment; only
``/proc/<pid>/cmdline`` and ``environ`` show those of the template. It ends like any interpreter,
but does not delete its modules, because that would copy the memory that the programs share.
"""

from __future__ import annotations

import atexit
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

COMMAND_LINE = "clawblox"
"""Program name for the command line in a request; any other name is the path of a script."""

UNSHARED = "clawblox.experiment.cluster.ray_engine"
"""A module that the template does not import, because it needs Ray, a slow optional import."""

_MAX_REQUEST_BYTES = 1 << 17


class ForkedProgram:
    """A program for which a template was forked; used like a :class:`subprocess.Popen`."""

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
            raise subprocess.TimeoutExpired(f"the program, pid {self.pid}", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(os.read(self._status, 100) or b"-9")
            os.close(self._status)
        return self.returncode


class Template:
    """The process that imports packages of clawblox, and forks itself for each program."""

    def __init__(self, *rooms: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), *rooms],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(
        self,
        program: str,
        words: Sequence[str],
        streams: Sequence[int],
        env: Mapping[str, str],
        cwd: Path | str | None = None,
    ) -> ForkedProgram:
        """Start a program with these words, standard streams, variables and working directory.

        A fourth stream is an inherited socket, as in sd_listen_fds(3).
        """
        request = {
            "argv": [program, *words],
            "env": dict(env),
            "cwd": str(cwd or Path.cwd()),
        }
        reader, writer = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams, writer])
        finally:
            os.close(writer)
        return ForkedProgram(int(self._socket.recv(100)), reader)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@contextlib.contextmanager
def running_template(*rooms: str) -> Iterator[Template]:
    template = Template(*rooms)
    try:
        yield template
    finally:
        template.close()


# ------------------------------------------------------------------- in the template itself


def serve(requests: socket.socket) -> list[str]:
    """Fork for each request, and report each exit; in the program, return its arguments."""
    running: dict[int, tuple[int, int]] = {}  # pid and status pipe, by pidfd
    while True:
        for ready in select.select([requests, *running], [], [])[0]:
            if ready is not requests:
                os.close(ready)
                pid, status = running.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(BrokenPipeError):  # its caller has stopped waiting
                    os.write(status, str(code).encode())
                os.close(status)
                continue
            data, fds, *_ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 5)
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
    """Set up this process for a request; return the arguments of its program."""
    *streams, _ = fds
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(len(streams), 1024)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["env"])
    if len(streams) > 3:
        os.environ.setdefault("LISTEN_FDS", "1")
        os.environ.setdefault("LISTEN_PID", str(os.getpid()))
        os.environ.setdefault("LISTEN_FDNAMES", "world")
    time.tzset()
    return list(request["argv"])


class End:
    """The end of a program, after its threads and exit handlers.

    Attributes:
        status: Exit status; None leaves the end to the interpreter.
    """

    def __init__(self) -> None:
        self.status: int | None = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the exit status of the program that the block runs."""
        try:
            yield
            self.status = 0
        except SystemExit as error:
            if error.code is None or isinstance(error.code, int):
                self.status = (error.code or 0) & 0xFF
            raise
        except Exception:
            self.status = 1
            raise

    def leave(self) -> None:
        if self.status is not None:
            gc.collect()  # for warnings about unclosed resources
            with contextlib.suppress(Exception):  # the interpreter reports broken streams
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self.status)


def main() -> None:
    end = End()
    atexit.register(end.leave)  # before the modules, to be called last
    descriptor, *rooms = sys.argv[1:]
    for room in rooms:
        package = importlib.import_module(f"clawblox.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name != UNSHARED and not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    gc.freeze()  # a collection would copy the memory that the programs share
    with socket.socket(fileno=int(descriptor)) as requests:
        sys.argv[:] = serve(requests)
        requests.detach()
    with end.noted():
        if sys.argv[0] == COMMAND_LINE:
            runpy.run_module(COMMAND_LINE, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
            runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
