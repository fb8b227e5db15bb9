"""Starts and watches processes. Only this module, guard and tmux start programs.

:func:`run_briefly` runs a program that ends soon. Every other process leads its own session, has an
empty standard input unless it is given a descriptor, and writes its output to given descriptors. It
is watched through a pidfd, which works without SIGCHLD and threads in any event loop.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import attrs
import msgspec

from clawblox.protocol import (
    LISTEN_FD,
    LISTEN_FD_NAME,
    LISTEN_FDNAMES_ENV,
    LISTEN_FDS_ENV,
    LISTEN_PID_ENV,
)
from clawblox.results import ProcessExit
from clawblox.system.process_tree import read_process, read_start_time
from clawblox.system.regular_files import closing_fd

_HAND_OVER = f'export {LISTEN_PID_ENV}=$$; exec "$@" {LISTEN_FD}<&0 </dev/null'
"""Shell command that turns standard input into the descriptor to hand over. A shell does this,
because only the process itself knows its pid before its program runs."""

_MAX_OUTPUT_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 16
_HEAD_BYTES = 256
"""Bytes of a program that the kernel reads to recognize its format."""

_released_lock = threading.Lock()
_released: set[int] = set()
"""Pidfds of children that are no longer watched and not yet reaped."""


class CannotExecute(Exception):  # noqa: N818 - names the condition
    """A program cannot be executed.

    Args:
        message: The program and the reason.
        program: The program.
    """

    def __init__(self, message: str, program: str) -> None:
        super().__init__(message)
        self.program = program


@attrs.define
class Process:
    """A process that leads the session of an instance or of one of its sidecars.

    Attributes:
        pid: Process id.
        start_time: Start of the process, in clock ticks since boot; identifies it with the pid.
        is_child: Whether this orchestrator spawned the process, so that its status can be read.
    """

    pid: int
    start_time: int
    is_child: bool
    _pidfd: int = attrs.field(alias="pidfd", repr=False)
    _exit: ProcessExit | None = attrs.field(default=None, alias="exit")
    _lock: anyio.Lock = attrs.field(
        factory=lambda: anyio.Lock(fast_acquire=True), init=False, repr=False
    )

    async def wait(self) -> ProcessExit:
        """Wait until the process has ended, and leave it unreaped.

        Cancellation: has no effect; the call can be repeated.
        """
        async with self._lock:  # one task at a time may wait for a descriptor
            if self._exit is None:
                if not self.has_exited:
                    await anyio.wait_readable(self._pidfd)
                self._exit = self._read_exit()
            return self._exit

    @property
    def pidfd(self) -> int:
        """Pidfd of the process, for callers that poll it themselves; -1 after the release."""
        return self._pidfd

    @property
    def has_exited(self) -> bool:
        """True if the process has ended; costs a system call while it runs."""
        if self._exit is not None or self._pidfd < 0:
            return True
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return bool(poller.poll(0))

    def kill(self) -> None:
        """Kill the process, and its group if it is a child, without opening a descriptor."""
        if self._pidfd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if self.is_child:  # unreaped, so the number of its group is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def release(self) -> None:
        """Reap the process and close its pidfd; a child that keeps running is reaped later."""
        if self._pidfd < 0:
            return
        if self.is_child:
            _released.add(self._pidfd)
            _reap_released()
        else:
            os.close(self._pidfd)
        self._pidfd = -1

    def _read_exit(self) -> ProcessExit:
        # Unreaped, so that the pid and its session are not reused.
        result = None
        with contextlib.suppress(ChildProcessError):  # other code may wait for every child
            if self.is_child:
                result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if result is None:
            return ProcessExit()
        if result.si_code == os.CLD_EXITED:
            return ProcessExit(status=result.si_status)
        return ProcessExit(signal=signal_name(result.si_status))


def _reap_released() -> None:
    """Reap the released children that have ended; the rest is retried later."""
    with _released_lock:
        for pidfd in tuple(_released):
            try:
                is_over = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG) is not None
            except ChildProcessError:  # other code in this process waits for every child
                is_over = True
            if is_over:
                _released.discard(pidfd)
                os.close(pidfd)


def spawn(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: int,
    errors: int | None = None,
    listener: int | None = None,
    stdin: int | None = None,
    pass_fds: Sequence[int] = (),
) -> Process:
    """Start a process in its own session. Blocks until the program is executed.

    Args:
        command: Program and arguments; a relative program is taken from ``cwd``.
        cwd: Working directory.
        env: The whole environment.
        output: Descriptor for standard output.
        errors: Descriptor for standard error; None means the same as standard output.
        listener: Descriptor of a listening socket to hand over, as sd_listen_fds(3) describes. A
            shell does that, so variables with names that no shell allows do not reach the program.
        stdin: Descriptor for standard input; excludes ``listener``. None means empty input.
        pass_fds: Further descriptors that the program inherits, under their own numbers.

    Raises:
        CannotExecute: The program is missing or not executable, or the system lacks memory for it.
        OSError: No descriptor is available to watch the process, which was killed.
    """
    _reap_released()
    argv = command
    if listener is not None:
        assert stdin is None, "a listener is handed over as standard input"
        stdin = listener
        require_executable(command[0], cwd, env)
        argv = ["/bin/sh", "-c", _HAND_OVER, command[0], *command]
        env = {**env, LISTEN_FDS_ENV: "1", LISTEN_FDNAMES_ENV: LISTEN_FD_NAME}
    try:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=output,
            stderr=output if errors is None else errors,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        place = "" if error.filename in (None, argv[0]) else f": {error.filename}"
        raise _cannot_execute(command[0], error, place) from error
    return _watch(child)


@contextlib.contextmanager
def memory_log(name: str) -> Iterator[int]:
    """Open a file in memory for the output of processes; yield its descriptor.

    Each write is appended. Otherwise, processes that share the descriptor would overwrite each
    other's lines, because the kernel does not guard the position in such a file.

    Args:
        name: Name of the file in ``/proc``.

    Raises:
        OSError: No descriptor is available.
    """
    with closing_fd(os.memfd_create(name)) as fd:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        yield fd


def _watch(child: subprocess.Popen[bytes]) -> Process:
    try:
        process = _open(child.pid, is_child=True)
    except ProcessLookupError:  # ended and reaped by other code that waits for every child
        process = Process(child.pid, 0, is_child=True, pidfd=-1, exit=ProcessExit())
    except OSError:
        child.kill()
        child.wait()
        raise
    # The pidfd replaces Popen from now on, which must neither wait nor warn.
    child.returncode = 0
    return process


def require_executable(program: str, cwd: Path, env: Mapping[str, str]) -> None:
    """Make sure that a shell can execute a program.

    A shell would report the reason only in the log, and would run any text as a script.

    Args:
        program: A path, relative to ``cwd``, or a name to look up in ``PATH``.
        cwd: Working directory.
        env: The environment; its ``PATH`` is searched.

    Raises:
        CannotExecute: The program cannot be executed; the reason is that of a direct execution.
    """
    places = [""] if "/" in program else os.get_exec_path(env)
    failures: list[OSError] = []
    for place in places:
        try:
            _check_executable(cwd / place / program, cwd)
        except OSError as error:
            failures.append(error)
        else:
            return
    # As execvp(3): a program that cannot be executed is reported rather than a missing program.
    failures.sort(key=lambda error: isinstance(error, FileNotFoundError | NotADirectoryError))
    raise _cannot_execute(program, failures[0]) from failures[0]


def _check_executable(path: Path, cwd: Path) -> None:
    """Raise the error that executing ``path`` would; see execve(2)."""
    if not stat.S_ISREG(path.stat().st_mode) or not os.access(path, os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        with path.open("rb") as file:
            head = file.readline(_HEAD_BYTES)
    except PermissionError:  # an executable need not be readable
        return
    if head.startswith(b"#!") and (words := head[2:].split()):
        (cwd / os.fsdecode(words[0])).stat()
    elif not head.startswith(b"\x7fELF"):
        raise OSError(errno.ENOEXEC, os.strerror(errno.ENOEXEC))


def _cannot_execute(program: str, error: OSError, place: str = "") -> CannotExecute:
    return CannotExecute(f"cannot execute {program!r}: {error.strerror}{place}", program)


def adopt(pid: int) -> Process:
    """Watch a process that another process spawned, or that this process detached before.

    Raises:
        ProcessLookupError: There is no such process.
        OSError: No descriptor is available to watch the process.
    """
    found = read_process(pid)
    return _open(pid, is_child=found is not None and found.ppid == os.getpid())


def _open(pid: int, *, is_child: bool) -> Process:
    pidfd = os.pidfd_open(pid)
    try:
        return Process(pid, read_start_time(pid), is_child, pidfd)
    except ProcessLookupError:
        os.close(pidfd)
        raise


def signal_name(number: int) -> str:
    """Return the name of a signal, for example ``SIGKILL``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class ProgramOutcome(msgspec.Struct, frozen=True):
    """The outcome of a program.

    Attributes:
        status: Exit status, or the negative number of the signal that ended the program.
        output: Standard output and error of the program.
    """

    status: int
    output: str

    @property
    def first_line(self) -> str:
        """First line of the output."""
        return self.output.strip().partition("\n")[0]


def run_briefly(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    cwd: str = "/",
    pass_fds: Sequence[int] = (),
    max_bytes: int = _MAX_OUTPUT_BYTES,
    has_errors: bool = True,
) -> ProgramOutcome:
    """Run a program to its end. Blocks.

    Args:
        command: Program and arguments.
        env: The whole environment.
        timeout: Seconds after which the program and its process group are killed.
        cwd: Working directory.
        pass_fds: Further descriptors that the program inherits, under their own numbers.
        max_bytes: Maximum output in bytes; a program that writes more is also killed.
        has_errors: Whether standard error is part of the output.

    Raises:
        OSError: The program cannot be executed, or wrote too much and was killed.
        TimeoutError: The program did not end in time, and was killed.
    """
    deadline = time.monotonic() + timeout
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if has_errors else subprocess.DEVNULL,
        pass_fds=pass_fds,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            output = _read_output(process.stdout.fileno(), deadline, max_bytes)
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            _kill_group(process)
            raise TimeoutError(f"{command[0]} did not end within {timeout:g} s") from None
        except BaseException:
            _kill_group(process)
            raise
    return ProgramOutcome(status, output.decode(errors="replace"))


def _kill_group(leader: subprocess.Popen[bytes]) -> None:
    if leader.returncode is None:  # unreaped, so the number of its group is still its own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader.pid, signal.SIGKILL)


def _read_output(pipe: int, deadline: float, max_bytes: int) -> bytes:
    """Read a pipe to its end.

    Raises:
        TimeoutError: The deadline has passed.
        OSError: The output has more than ``max_bytes``.
    """
    output = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        chunk = os.read(pipe, _CHUNK_BYTES)
        if not chunk:
            return bytes(output)
        output += chunk
        if len(output) > max_bytes:
            raise OSError(errno.EFBIG, f"the program wrote more than {max_bytes} bytes")
    raise TimeoutError
