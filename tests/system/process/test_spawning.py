"""Spawning of processes: inheritance, and errors."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.results import ProcessExit
from clawblox.system.process import CannotExecute, memory_log, require_executable, spawn
from tests.support.processes import command_line, descendants
from tests.support.waiting import wait_until_async
from tests.system.process.support import SLEEP, Spawn

pytestmark = pytest.mark.anyio

TELL = """
import json, os, sys
told = {"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ), "sid": os.getsid(0)}
told["stdin"] = os.read(0, 1).decode()
told["pid"] = os.getpid()
listed = "/proc/self/fd/"
told["fds"] = sorted(int(fd) for fd in os.listdir(listed) if os.path.exists(listed + fd))
print(json.dumps(told), flush=True)
print("to standard error", file=sys.stderr)
"""

SERVE = """
import json, os, socket
connection = socket.socket(fileno=3).accept()[0]
told = {name: value for name, value in os.environ.items() if name.startswith("LISTEN_")}
connection.sendall(json.dumps(told).encode() + b"\\n")
"""

LISTEN = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture(params=["directly", "with a socket"])
def hand_over(request: pytest.FixtureRequest, listener: socket.socket) -> dict[str, Any]:
    """Return each way to spawn; both must otherwise behave the same."""
    return {"listener": listener.fileno()} if request.param == "with a socket" else {}


def children() -> set[int]:
    """Return the children of this process, zombies included."""
    return descendants(os.getpid())


async def test_a_process_inherits_only_what_it_was_given(
    tmp_path: Path, start: Spawn, hand_over: dict[str, Any]
) -> None:
    with open(os.devnull) as inheritable:
        os.set_inheritable(inheritable.fileno(), True)
        program = (sys.executable, "-I", "-S", "-c", TELL, "a b", "", "ü", "$HOME")
        process = await start(*program, COLOUR="a\nb", **hand_over)
        assert await process.wait() == ProcessExit(status=0)
    first, second = (tmp_path / "log").read_text().splitlines()
    told = json.loads(first)
    assert told["argv"] == ["-c", "a b", "", "ü", "$HOME"]
    assert told["cwd"] == str(tmp_path)
    assert told["env"].items() >= {"COLOUR": "a\nb", "PATH": os.defpath}.items()
    own = {"LC_CTYPE", "PWD", "SHLVL", "_"}  # set by Python and the shell
    assert told["env"].keys() - own == {"COLOUR", "PATH", *(LISTEN if hand_over else ())}
    assert told["pid"] == told["sid"] == process.pid
    assert told["stdin"] == ""
    assert told["fds"] == ([0, 1, 2, 3] if hand_over else [0, 1, 2])
    assert second == "to standard error"


async def test_a_socket_is_handed_over_as_systemd_does(
    tmp_path: Path, start: Spawn, listener: socket.socket
) -> None:
    with socket.create_connection(listener.getsockname()) as early:
        process = await start(
            sys.executable, "-I", "-S", "-c", SERVE, listener=listener.fileno(), LISTEN_PID="1"
        )
        told = json.loads(early.makefile().readline())
    assert told == {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "world", "LISTEN_PID": str(process.pid)}
    assert await process.wait() == ProcessExit(status=0)
    assert os.get_inheritable(listener.fileno()) is False


async def test_the_shell_is_replaced_by_the_program_with_the_socket(
    start: Spawn, listener: socket.socket
) -> None:
    before = children()
    process = await start(*SLEEP, listener=listener.fileno())
    await wait_until_async(lambda: command_line(process.pid) == " ".join(SLEEP))
    assert children() - before == {process.pid}
    os.kill(process.pid, signal.SIGTERM)
    assert await process.wait() == ProcessExit(signal="SIGTERM")


async def test_errors_found_only_by_the_shell_are_in_the_log(
    tmp_path: Path, start: Spawn, listener: socket.socket
) -> None:
    program = script_of(str(tmp_path))(tmp_path / "program")
    process = await start(program, listener=listener.fileno())
    assert await process.wait() in (ProcessExit(status=126), ProcessExit(status=127))
    assert program in (tmp_path / "log").read_text()


async def test_a_relative_program_is_taken_from_the_working_directory(
    tmp_path: Path, start: Spawn, hand_over: dict[str, Any]
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "seven"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o700)
    assert await (await start("bin/seven", **hand_over)).wait() == ProcessExit(status=7)


def text_file(path: Path) -> str:
    path.write_text("neither a script nor a program\n")
    path.chmod(0o700)
    return str(path)


def private_file(path: Path) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o600)
    return str(path)


def script_of(interpreter: str) -> Callable[[Path], str]:
    def write(path: Path) -> str:
        path.write_text(f"#!{interpreter}\n")
        path.chmod(0o700)
        return str(path)

    return write


BAD_PROGRAMS: dict[str, tuple[Callable[[Path], str], int]] = {
    "missing": (str, errno.ENOENT),
    "not on the path": (lambda path: "no-such-program", errno.ENOENT),
    "not executable": (private_file, errno.EACCES),
    "a directory": (lambda path: str(path.parent), errno.EACCES),
    "below a file": (lambda path: private_file(path) + "/program", errno.ENOTDIR),
    "of no format": (text_file, errno.ENOEXEC),
    "without its interpreter": (script_of("/no/such/interpreter"), errno.ENOENT),
    "with too long a name": (lambda path: str(path) + "x" * 5000, errno.ENAMETOOLONG),
}


@pytest.mark.parametrize(("write", "number"), BAD_PROGRAMS.values(), ids=BAD_PROGRAMS)
async def test_a_program_that_cannot_be_executed_is_named_with_the_reason(
    tmp_path: Path,
    start: Spawn,
    hand_over: dict[str, Any],
    write: Callable[[Path], str],
    number: int,
) -> None:
    program = write(tmp_path / "program")
    before = children()
    with pytest.raises(CannotExecute) as caught:
        await start(program, **hand_over)
    assert str(caught.value) == f"cannot execute {program!r}: {os.strerror(number)}"
    assert children() == before


def test_a_program_is_searched_for_in_the_whole_path(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        directory.mkdir()
    path = {"PATH": f"{tmp_path / 'missing'}:first:{second}:{tmp_path}"}
    private_file(first / "program")
    with pytest.raises(CannotExecute, match="Permission denied"):
        require_executable("program", tmp_path, path)
    script_of("/bin/sh")(second / "program")
    require_executable("program", tmp_path, path)
    with pytest.raises(CannotExecute, match="No such file"):
        require_executable("other", tmp_path, path)


def test_a_program_need_not_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> None:  # as for every user except root
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    program = script_of("/bin/sh")(tmp_path / "program")
    monkeypatch.setattr(Path, "open", refuse)
    require_executable(program, tmp_path, {})


async def test_the_error_for_too_long_arguments_names_the_reason(
    start: Spawn, hand_over: dict[str, Any]
) -> None:
    with pytest.raises(CannotExecute, match=r"'true': Argument list too long$"):
        await start("true", "x" * (1 << 20), **hand_over)


def test_the_error_names_a_missing_working_directory(
    tmp_path: Path, log: int, hand_over: dict[str, Any]
) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(CannotExecute) as caught:
        spawn(SLEEP, cwd=missing, env={"PATH": os.defpath}, output=log, **hand_over)
    assert str(caught.value) == f"cannot execute 'sleep': No such file or directory: {missing}"


async def test_a_process_that_cannot_be_watched_is_killed(
    tmp_path: Path, start: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = children()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", fail)
        with pytest.raises(OSError, match="Too many open files"):
            await start(*SLEEP)
    assert children() == before


def test_processes_do_not_overwrite_lines_in_a_shared_memory_file() -> None:
    with memory_log("shared") as fd:
        os.write(fd, b"one\n")
        os.lseek(fd, 0, os.SEEK_SET)  # like two processes that write concurrently
        os.write(fd, b"two\n")
        assert os.pread(fd, 100, 0) == b"one\ntwo\n"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


async def test_standard_error_can_have_its_own_descriptor(tmp_path: Path, log: int) -> None:
    command = (sys.executable, "-I", "-S", "-c", "import os; os.write(1, b'o'); os.write(2, b'e')")
    with memory_log("errors") as errors:
        job = partial(spawn, command, cwd=tmp_path, env={}, output=log, errors=errors)
        process = await run_blocking(job)
        assert await process.wait() == ProcessExit(status=0)
        process.release()
        assert ((tmp_path / "log").read_bytes(), os.pread(errors, 9, 0)) == (b"o", b"e")
