"""Programs in separate networks, whose listening sockets this process holds."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from clawblox.system.network_namespace import (
    Confinement,
    NamespaceRefused,
    helper_command,
    open_channel,
    receive_listeners,
)
from tests.support.waiting import HANG_S

ROOT = Path(__file__).parents[2]
PYTHON = (sys.executable, "-I", "-S", "-c")


@contextmanager
def enclosed(
    command: Sequence[str],
    listen: Sequence[tuple[str, int]] = (),
    *,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    more: Sequence[int] = (),
    confinement: Confinement | None = None,
) -> Iterator[tuple[subprocess.Popen[bytes], list[socket.socket]]]:
    """Run a command in its own network; yield the process and the sockets."""
    with ExitStack() as stack:
        ours, theirs = open_channel()
        stack.enter_context(ours)
        ours.settimeout(HANG_S)
        confinement = confinement or Confinement()
        with theirs:
            whole = helper_command(theirs.fileno(), listen, command, confinement=confinement)
            process = subprocess.Popen(
                [*before, *whole],
                env={"PATH": "/usr/bin:/bin"} if env is None else env,
                pass_fds=[theirs.fileno(), *more],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        stack.enter_context(process)
        stack.callback(process.kill)
        listeners = receive_listeners(ours, len(listen))
        for listener in listeners:
            stack.enter_context(listener)
        yield process, listeners


def output(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    text = process.stdout.read().decode()
    assert process.wait(HANG_S) == 0, text
    return text


def answer(listener: socket.socket, text: str) -> threading.Thread:
    """Answer the next connection of a listener, in a thread."""

    def serve() -> None:
        listener.settimeout(HANG_S)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(text.encode())

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


ASK = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            print(place, connection.recv(99).decode())
    except OSError as error:
        print(place, error.strerror)
"""


def test_the_orchestrator_serves_the_sockets_in_the_programs_network() -> None:
    places = [("127.0.0.1", 80), ("127.0.1.1", 80), ("10.20.30.40", 4000), ("::1", 4001)]
    words = [f"{address}:{port}" for address, port in places]
    with enclosed([*PYTHON, ASK, *words], places) as (process, listeners):
        threads = [answer(listener, word) for listener, word in zip(listeners, words, strict=True)]
        said = output(process)
        for thread in threads:
            thread.join()
    assert said.splitlines() == [f"{word} {word}" for word in words]


LOG_IN_AND_RUN = """
import ctypes, os, sys
add, keyctl = map(int, sys.argv[1].split(","))
call, join, session = ctypes.CDLL(None).syscall, 1, -3
if call(keyctl, join, None) < 0 or call(add, b"user", b"password", b"canary", 6, session) < 0:
    print("no keys")
os.execv(sys.argv[2], sys.argv[2:])
"""
SEARCH_KEY = """
import ctypes, sys
add, keyctl = map(int, sys.argv[1].split(","))
call, search, read, session = ctypes.CDLL(None).syscall, 10, 11, -3
text = ctypes.create_string_buffer(64)
key = call(keyctl, search, session, b"user", b"password", 0)
print(key > 0 and call(keyctl, read, key, text, 64) > 0 and text.value.decode())
"""
KEY_CALLS = {"x86_64": "248,250", "aarch64": "217,219"}
"""Numbers of add_key(2) and keyctl(2)."""


def test_keys_that_the_kernel_keeps_for_a_login_are_out_of_reach() -> None:
    calls = KEY_CALLS.get(platform.machine())
    if calls is None:
        pytest.skip("the numbers of the system calls are not known for this machine")
    log_in, search = [*PYTHON, LOG_IN_AND_RUN, calls], [*PYTHON, SEARCH_KEY, calls]
    outside = subprocess.run([*log_in, *search], stdout=subprocess.PIPE, check=True)
    if outside.stdout != b"canary\n":
        pytest.skip("the kernel keeps no keys here")
    with enclosed(search, before=log_in) as (process, _):
        assert output(process) == "False\n"


def test_neither_this_machine_nor_the_internet_can_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as host:
        port = host.getsockname()[1]
        with enclosed([*PYTHON, ASK, f"127.0.0.1:{port}", "192.0.2.1:80"]) as (process, _):
            said = output(process)
    assert said.splitlines() == [
        f"127.0.0.1:{port} Connection refused",
        "192.0.2.1:80 Network is unreachable",
    ]


MAKE = """
import ctypes, errno, json, resource
lib = ctypes.CDLL(None, use_errno=True)
said = {}
for name, flag in {"cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000}.items():
    said[name] = [lib.unshare(flag) and errno.errorcode[ctypes.get_errno()] for _ in range(2)]
print(json.dumps([said, resource.getrlimit(resource.RLIMIT_NPROC)]))
"""


def test_a_program_is_limited_in_namespaces_and_processes() -> None:
    limits = {"max_cgroup_namespaces": 0, "max_uts_namespaces": 1, "max_of_nothing_known": 0}
    confinement = Confinement(namespaces=limits, processes=77)
    with enclosed([*PYTHON, MAKE], confinement=confinement) as (process, _):
        said, processes = json.loads(output(process))
    # The second one is created before the first is released.
    assert said == {"cgroup": ["ENOSPC"] * 2, "uts": [0, "ENOSPC"], "ipc": [0, 0]}
    assert processes == [77, 77]


def test_a_control_group_that_cannot_be_joined_is_reported() -> None:
    confinement = Confinement(groups=["/nowhere/cgroup.procs"])
    expected = r"^write /nowhere/cgroup.procs: No such file or directory$"
    with (
        pytest.raises(NamespaceRefused, match=expected),
        enclosed(["/bin/true"], confinement=confinement),
    ):
        pass


GLIBC_SIGNALS = 1 << 31 | 1 << 32
"""Signals 32 and 33, which glibc's posix_spawn ignores in its children."""

SHOW = """
import json, os
open_descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
environ = open("/proc/self/environ").read().split("\\0")
print(json.dumps([sorted(open_descriptors)[:-1], environ]))
"""


def test_the_program_inherits_only_its_environment() -> None:
    env = {"PATH": "/usr/bin:/bin", "MARK": "one two"}
    listen = [("127.0.0.1", 80)]
    with Path("/dev/null").open() as other:
        command = [*PYTHON, SHOW]
        with enclosed(command, listen, env=env, more=[other.fileno()]) as (process, _):
            said = output(process)
    descriptors, environ = json.loads(said)
    assert descriptors == [0, 1, 2]
    assert sorted(environ) == ["", "MARK=one two", "PATH=/usr/bin:/bin"]


def test_the_program_does_not_inherit_ignored_signals() -> None:
    with enclosed(["/bin/grep", "SigIgn", "/proc/self/status"]) as (process, _):
        ignored = int(output(process).split()[1], 16)
    assert ignored & ~GLIBC_SIGNALS == 0


def test_the_kernels_error_is_reported_for_a_port_requested_twice() -> None:
    twice = [("127.0.0.1", 80)] * 2
    expected = r"^bind\(127\.0\.0\.1, 80\): Address already in use$"
    with pytest.raises(NamespaceRefused, match=expected), enclosed(["/bin/true"], twice):
        pass


FORBID = """
import ctypes, os, struct, sys
# seccomp(2): unshare fails with EPERM, all else is allowed.
machine = os.uname().machine
audit, number = {"x86_64": (0xC000003E, 272), "aarch64": (0xC00000B7, 97)}[machine]
rules = [
    (0x20, 0, 0, 4), (0x15, 0, 3, audit), (0x20, 0, 0, 0),
    (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000),
]
code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(program)) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_the_kernels_error_is_reported_if_namespaces_are_forbidden() -> None:
    expected = r"^unshare\(CLONE_NEWUSER \| CLONE_NEWNET\): Operation not permitted$"
    with (
        pytest.raises(NamespaceRefused, match=expected),
        enclosed(["/bin/true"], before=[*PYTHON, FORBID]),
    ):
        pass


def test_the_death_of_a_helper_is_reported_as_a_refusal() -> None:
    with (
        pytest.raises(NamespaceRefused, match="ended without an answer"),
        enclosed(["/bin/true"], before=["/bin/false"]),
    ):
        pass


def may_read(uid: int, path: Path) -> bool:
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "test", "-r", path]
    return subprocess.run(command, check=False).returncode == 0


AS_ANOTHER_USER = f"""
import sys; sys.path.append({str(ROOT)!r})
import socket, subprocess
from clawblox.system.network_namespace import helper_command, open_channel, receive_listeners
ours, theirs = open_channel()
command = helper_command(theirs.fileno(), [("127.0.0.1", 80)], ["/usr/bin/id", "-u"])
process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
theirs.close()
ours.settimeout({HANG_S})
print(receive_listeners(ours, 1)[0].getsockname(), process.wait(), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_an_ordinary_user_can_listen_on_port_80_in_the_namespace() -> None:
    uid = 65534
    if not may_read(uid, ROOT / "clawblox" / "__init__.py"):
        pytest.skip("another user may not read this checkout")
    result = subprocess.run(
        [
            *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
            *("/usr/bin/python3", "-I", "-S", "-c", AS_ANOTHER_USER),
        ],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        cwd="/",
    )
    assert result.stdout.splitlines() == ["0", "('127.0.0.1', 80) 0"], result.stderr


def test_a_program_that_cannot_be_executed_is_an_error_with_the_reason() -> None:
    with enclosed(["/nowhere/program"]) as (process, _):
        assert process.stdout is not None
        assert process.stdout.read() == (
            b"cannot execute '/nowhere/program': No such file or directory\n"
        )
        assert process.wait(HANG_S) == 1
