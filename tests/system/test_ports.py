"""Port leases between processes, and the listeners on a port."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from clawblox.system import port_leases as leases
from clawblox.system import ports, sock_diag
from clawblox.system.ports import (
    NoFreePort,
    PortBusy,
    PortLease,
    connect_host,
    describe_owner,
    every_listener,
    find_owners,
    listeners_at,
    listeners_on,
    open_listener,
    take_free_port,
    take_port,
    wait_for_port,
)
from clawblox.system.sock_diag import Listener, has_sock_diag
from tests.support.resources import open_fds
from tests.support.sockets import free_port
from tests.support.waiting import HANG_S, wait_until

HOST = "127.0.0.1"
NOWHERE = "192.0.2.1"
"""A reserved address that no machine has (RFC 5737)."""

TIME_WAIT = "06"

TAKE = """
import subprocess, sys
from clawblox.system import port_leases as leases
from clawblox.system import ports
host, first, last, count, *command = sys.argv[1:]
if int(last):
    ports.LEASE_RANGE = range(int(first), int(last))
    leases = [ports.take_free_port(host) for _ in range(int(count))]
else:
    leases = [ports.take_port(host, int(first))]
if command:
    subprocess.Popen(command, stdout=subprocess.DEVNULL)
print(*(lease.port for lease in leases), flush=True)
sys.stdin.read()
"""

TAKE_OVER = """
import sys
from clawblox.system import ports
try:
    print(ports.take_port(sys.argv[1], int(sys.argv[2])).token, flush=True)
except ports.PortBusy:
    print("busy", flush=True)
sys.stdin.read()
"""

LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))):
    print("listening", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def program(
    text: str, *arguments: object, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a program that ends with its input, or is killed."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        text=True,
        process_group=0,
    )
    with process:
        yield process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextlib.contextmanager
def holding(port: int, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Let another process lease a port, with a child that runs ``command``."""
    with program(TAKE, HOST, port, 0, 0, *command) as holder:
        assert first_line(holder) == str(port)
        yield holder


@contextlib.contextmanager
def listening(host: str, port: int = 0, *, only_v6: bool = False) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like servers
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_v6)
        listener.bind((host, port))
        listener.listen()
        yield listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def inode_of(listener: socket.socket) -> int:
    return os.fstat(listener.fileno()).st_ino


LEASES = Path(f"/tmp/clawblox-{os.getuid()}/leases")


def is_leased(port: int, path: Path = LEASES) -> bool:
    """Return whether another process holds the lock on a port's slot."""
    slot = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, port * 256, 256, 0)
    with path.open("r+b") as file:
        found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, slot)
    return struct.unpack("hhqqi0q", found)[0] != fcntl.F_UNLCK


@pytest.fixture
def one_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Leave a single port to lease, and return it."""
    port = free_port()
    monkeypatch.setattr(ports, "LEASE_RANGE", range(port, port + 1))
    return port


# ----------------------------------------------------------------------------------- leases


def test_a_leased_port_is_refused_until_it_is_released() -> None:
    port = free_port()
    lease = take_port(HOST, port)
    with pytest.raises(PortBusy) as caught:
        take_port(HOST, port)
    assert caught.value.port == port
    assert caught.value.owner.startswith(f"pid {os.getpid()} (")
    lease.release()
    lease.release()
    assert not is_leased(port)
    take_port(HOST, port).release()


def test_a_lease_of_another_process_is_honoured_and_names_the_process() -> None:
    port = free_port()
    with holding(port) as holder:
        with pytest.raises(PortBusy) as caught:
            take_port(HOST, port)
        assert caught.value.owner.startswith(f"pid {holder.pid} ({sys.executable} -c")
        assert f"port {port} is in use by pid {holder.pid} (" in str(caught.value)


@pytest.mark.thorough
def test_a_lease_ends_with_its_owner_even_if_a_child_survives() -> None:
    port = free_port()
    with holding(port, "sleep", "60") as holder:
        holder.kill()
        holder.wait()
        take_port(HOST, port).release()
    assert not is_leased(port)


@contextlib.contextmanager
def taking_over(port: int, token: str) -> Iterator[str]:
    """Let another process take a port with a token; yield its new token, or ``busy``."""
    with program(TAKE_OVER, HOST, port, env={"CLAWBLOX_LEASE": token}) as process:
        yield first_line(process)


@pytest.mark.thorough
def test_only_one_process_at_a_time_takes_over_a_lease_with_its_token() -> None:
    lease = take_port(HOST, free_port())
    with taking_over(lease.port, lease.token) as inner:
        assert inner.startswith("1.")
        with taking_over(lease.port, lease.token) as second:
            assert second == "busy"
        with taking_over(lease.port, inner) as innermost:
            assert innermost.startswith("2.")
    with taking_over(lease.port, lease.token) as again:  # the world was restarted
        assert again.startswith("1.")
        assert again != inner
        with taking_over(lease.port, inner) as late:
            assert late == "busy"
    lease.release()
    assert not is_leased(lease.port)


@pytest.mark.thorough
def test_a_wrong_token_does_not_take_over_a_lease() -> None:
    lease, other = (take_port(HOST, free_port()) for _ in range(2))
    last = "A" if lease.token[-1] != "A" else "B"
    guesses = ["", "0.", "0", "x", other.token, f"1{lease.token[1:]}", f"7{lease.token[1:]}"]
    guesses += [lease.token[:-1], lease.token[:-1] + last, f"-1{lease.token[1:]}", lease.token * 9]
    for guess in guesses:
        with taking_over(lease.port, guess) as token:
            assert token == "busy", guess
    with pytest.raises(PortBusy):
        take_port(HOST, lease.port)
    lease.release()
    with taking_over(lease.port, lease.token) as free:
        assert free.startswith("0.")  # it has no owner any more
        assert free != lease.token
        with taking_over(lease.port, lease.token) as late:
            assert late == "busy"
    other.release()


def test_the_token_of_a_lease_is_not_on_disk() -> None:
    lease = take_port(HOST, free_port())
    with LEASES.open("rb") as file:
        slot = os.pread(file.fileno(), 256, lease.port * 256)
    assert str(os.getpid()).encode() in slot
    assert lease.token.encode() not in slot
    lease.release()


def test_the_lease_file_is_private_and_shared_by_all_orchestrators(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    port = free_port()
    lease = take_port(HOST, port)
    try:
        assert is_leased(port)
        assert LEASES.stat().st_mode & 0o777 == 0o600
        assert LEASES.parent.stat().st_mode & 0o777 == 0o700
    finally:
        lease.release()


def test_leases_survive_the_removal_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_ROOT", tmp_path)
    path = tmp_path / LEASES.parent.name / LEASES.name
    first, second = free_port(), free_port()
    lease = take_port(HOST, first)
    path.unlink()
    other = take_port(HOST, second)
    assert is_leased(first, path)
    assert is_leased(second, path)
    lease.release()
    other.release()
    assert not is_leased(first, path)


def test_a_forked_child_does_not_hold_the_leases_of_its_parent() -> None:
    port = free_port()
    lease = take_port(HOST, port)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(PortBusy):
            take_port(HOST, port)
            os._exit(1)
        lease.release()  # held by the parent only
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert is_leased(port)
    lease.release()
    assert not is_leased(port)


def test_an_address_of_another_machine_is_an_error_and_leaves_no_lease() -> None:
    port = free_port()
    with pytest.raises(OSError, match="Cannot assign requested address") as caught:
        take_port(NOWHERE, port)
    assert caught.value.errno == errno.EADDRNOTAVAIL
    assert not is_leased(port)
    with pytest.raises(OSError, match="Cannot assign requested address"):
        take_free_port(NOWHERE)


def test_a_requested_port_is_leased_if_it_is_free() -> None:
    port = free_port()
    lease = take_free_port(HOST, first=port)
    other = take_free_port(HOST, first=port)
    assert lease.port == port
    assert other.port != port
    lease.release()
    other.release()


def test_free_ports_are_independent_of_the_programs_random_numbers() -> None:
    before = random.getstate()
    try:
        found = set()
        for _ in range(3):
            random.seed(1)
            found.add(_leased_and_released())
        assert len(found) > 1
        after = random.random()
        random.seed(1)
        assert random.random() == after
    finally:
        random.setstate(before)


def _leased_and_released() -> int:
    lease = take_free_port(HOST)
    lease.release()
    return lease.port


def test_a_port_is_leased_below_the_ephemeral_range() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    leases = [take_free_port(HOST) for _ in range(20)]
    try:
        assert len({lease.port for lease in leases}) == 20
        assert all(1024 <= lease.port < first for lease in leases)
    finally:
        for lease in leases:
            lease.release()


OPENED = """
import sys
from clawblox.system.ports import take_free_port

opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(args[0]))
first = take_free_port("127.0.0.1")
opened.clear()
second = take_free_port("127.0.0.1")
assert not opened, opened
second.release()
first.release()
"""


def test_only_the_first_lease_of_a_process_opens_files() -> None:
    subprocess.run([sys.executable, "-c", OPENED], check=True, timeout=HANG_S)


def test_ephemeral_ports_are_avoided_if_other_ports_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    monkeypatch.setattr(ports, "LEASE_RANGE", range(port - 3, port + 1))
    monkeypatch.setattr(ports, "ephemeral_range", lambda: range(1024, port))
    for _ in range(10):
        lease = take_free_port(HOST)
        assert lease.port == port
        lease.release()


def test_an_ephemeral_port_is_leased_if_all_ports_are_ephemeral(
    one_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "ephemeral_range", lambda: range(1024, 65536))
    lease = take_free_port(HOST)
    assert lease.port == one_port
    lease.release()


def test_leasing_fails_when_every_port_is_leased(one_port: int) -> None:
    with holding(one_port), pytest.raises(NoFreePort, match=f"{one_port}..{one_port}"):
        take_free_port(HOST)
    take_free_port(HOST).release()


def test_leasing_fails_when_every_port_is_bound(one_port: int) -> None:
    with listening(HOST, one_port), pytest.raises(NoFreePort):
        take_free_port(HOST)
    assert not is_leased(one_port)


def test_concurrent_processes_never_lease_the_same_port() -> None:
    first, last, count = 12_000, 12_200, 25
    with contextlib.ExitStack() as stack:
        takers = [stack.enter_context(program(TAKE, HOST, first, last, count)) for _ in range(4)]
        taken = [int(port) for taker in takers for port in first_line(taker).split()]
        for taker in takers:
            taker.kill()
    assert len(taken) == 4 * count
    assert len(set(taken)) == len(taken)
    for port in taken:
        take_port(HOST, port).release()
        assert not is_leased(port)


# -------------------------------------------------------------------------------- listeners

LISTENERS = {
    "127.0.0.1": ("127.0.0.1", "127.0.0.1"),
    "127.0.0.9": ("127.0.0.9", "127.0.0.9"),
    "every IPv4 address": ("0.0.0.0", "0.0.0.0"),
    "::1": ("::1", "::1"),
    "every address": ("::", "::"),
    "127.0.0.1 by an IPv6 socket": ("::ffff:127.0.0.1", "127.0.0.1"),
}


@pytest.mark.parametrize("protocol", [sock_diag._NETLINK_SOCK_DIAG, 63], ids=["sock_diag", "proc"])
@pytest.mark.parametrize(("host", "shown"), LISTENERS.values(), ids=LISTENERS)
def test_a_listener_has_an_address_and_an_inode(
    host: str, shown: str, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sock_diag, "_NETLINK_SOCK_DIAG", protocol)  # 63 does not exist anywhere
    with listening(host) as listener:
        assert listeners_on(port_of(listener)) == [Listener(shown, inode_of(listener))]
        found = (port_of(listener), Listener(shown, inode_of(listener)))
        assert every_listener().count(found) == 1
    assert found not in every_listener()
    assert has_sock_diag() == (protocol != 63)
    assert listeners_on(port_of_closed := free_port()) == [], port_of_closed


def test_all_listeners_on_a_port_are_found() -> None:
    with listening("127.0.0.1") as first:
        port = port_of(first)
        with listening("::1", port) as second, listening("127.0.0.2", port) as third:
            assert set(listeners_on(port)) == {
                Listener("127.0.0.1", inode_of(first)),
                Listener("::1", inode_of(second)),
                Listener("127.0.0.2", inode_of(third)),
            }


def test_only_listening_sockets_are_listeners() -> None:
    port = free_port()
    with socket.socket() as bound, listening(HOST) as listener, socket.socket() as client:
        bound.bind((HOST, port))
        assert listeners_on(port) == []
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert len(listeners_on(port_of(listener))) == 1
            assert listeners_on(port_of(client)) == []


def test_socket_owners_are_searched_only_among_the_given_processes() -> None:
    port = free_port()
    with program(LISTEN, HOST, port) as server, listening("::1", port) as mine:
        assert first_line(server) == "listening"
        inodes = {listener.address: listener.inode for listener in listeners_on(port)}
        theirs = inodes[HOST]
        assert inodes["::1"] == inode_of(mine)
        assert find_owners([theirs, inode_of(mine), 1], [server.pid]) == {theirs: server.pid}
        assert find_owners([theirs], [os.getpid()]) == {}
        assert find_owners(inodes.values(), [os.getpid(), server.pid]) == {
            theirs: server.pid,
            inode_of(mine): os.getpid(),
        }
        assert describe_owner(port).startswith("pid ")


def test_the_owner_of_a_port_is_named_with_its_command() -> None:
    port = free_port()
    assert describe_owner(port) == ""
    with program(LISTEN, HOST, port) as server:
        assert first_line(server) == "listening"
        assert describe_owner(port).startswith(f"pid {server.pid} ({sys.executable} -c")
        assert len(describe_owner(port)) < 250


HOSTS = {
    "the same address": (HOST, HOST, True),
    "every IPv4 address is asked for": (HOST, "0.0.0.0", True),
    "every address is asked for": (HOST, "::", True),
    "every IPv4 address is bound": ("0.0.0.0", HOST, True),
    "every address is bound": ("::", HOST, True),
    "localhost is asked for": (HOST, "localhost", True),
    "the same IPv6 address": ("::1", "::1", True),
    "another address": ("127.0.0.9", HOST, False),
    "the other family": ("::1", HOST, False),
}


@pytest.mark.parametrize(("bound", "asked", "is_busy"), HOSTS.values(), ids=HOSTS)
def test_a_port_is_busy_if_a_conflicting_listener_exists(
    bound: str, asked: str, is_busy: bool
) -> None:
    port = free_port()
    with listening(bound, port):
        if is_busy:
            with pytest.raises(PortBusy):
                take_port(asked, port)
        else:
            take_port(asked, port).release()
    assert not is_leased(port)
    take_port(asked, port).release()


def states_on(port: int) -> set[str]:
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {fields[3] for fields in rows if fields[1].endswith(f":{port:04X}")}


def test_closed_connections_of_an_earlier_run_do_not_block_a_port() -> None:
    port = free_port()
    with listening(HOST, port) as listener, socket.create_connection((HOST, port)) as client:
        accepted, _ = listener.accept()
        accepted.close()  # the side that closes first waits
        assert client.recv(1) == b""
    wait_until(lambda: TIME_WAIT in states_on(port))
    take_port(HOST, port).release()


@pytest.mark.parametrize(
    ("host", "literal"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("localhost", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
    ],
)
def test_a_bound_host_is_reached_at_a_literal_address(host: str, literal: str) -> None:
    assert connect_host(host) == literal


ANSWERERS: dict[str, tuple[str, list[str], list[str]]] = {
    "its own address": ("127.0.0.1", ["127.0.0.1"], ["127.0.0.1"]),
    "every IPv4 address": ("127.0.0.1", ["0.0.0.0"], ["0.0.0.0"]),
    "every address": ("127.0.0.1", ["::"], ["::"]),
    "asked for everywhere": ("0.0.0.0", ["127.0.0.1"], ["127.0.0.1"]),
    "by an IPv6 socket": ("127.0.0.1", ["::ffff:127.0.0.1"], ["127.0.0.1"]),
    "of its name": ("localhost", ["127.0.0.1"], ["127.0.0.1"]),
    "::1": ("::1", ["::1"], ["::1"]),
    "every address, asked for by IPv6": ("::1", ["::"], ["::"]),
    "elsewhere on this machine": ("127.0.0.1", ["127.0.0.2"], []),
    "of the other family": ("127.0.0.1", ["::1"], []),
    "of the other family, the other way": ("::1", ["127.0.0.1"], []),
    "IPv4 before IPv6": ("127.0.0.1", ["127.0.0.1", ":: alone"], ["127.0.0.1"]),
    "IPv6 beside IPv4": ("::1", ["127.0.0.1", ":: alone"], ["::"]),
    "no listener": ("127.0.0.1", [], []),
}


@pytest.mark.parametrize(("host", "bound", "shown"), ANSWERERS.values(), ids=ANSWERERS)
def test_the_listener_that_answers_at_an_address_is_found(
    host: str, bound: list[str], shown: list[str]
) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        for address in bound:
            only_v6 = address.endswith("alone")
            stack.enter_context(listening(address.split()[0], port, only_v6=only_v6))
        assert [found.address for found in listeners_at(host, port)] == shown


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_listener_for_a_world_accepts_connections_before_the_world_runs(host: str) -> None:
    port = free_port()
    with open_listener(host, port) as listener:
        assert not listener.get_inheritable()
        socket.create_connection((connect_host(host), port), timeout=HANG_S).close()
        with pytest.raises(PortBusy) as caught:
            open_listener(host, port)
        assert caught.value.port == port
    open_listener(host, port).close()


def test_opening_a_listener_at_another_machines_address_fails() -> None:
    before = open_fds()
    with pytest.raises(OSError, match="Cannot assign requested address"):
        open_listener(NOWHERE, free_port())
    assert open_fds() == before


# ---------------------------------------------------------------------------------- waiting


@pytest.mark.anyio
async def test_a_port_that_becomes_free_in_time_is_leased() -> None:
    port = free_port()
    leases: list[PortLease] = []

    async def wait() -> None:
        leases.append(await wait_for_port(HOST, port, 60.0))

    with listening(HOST, port) as listener:
        with anyio.fail_after(HANG_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                assert leases == []
                listener.close()
    assert leases[0].port == port
    await anyio.to_thread.run_sync(leases[0].release)


@pytest.mark.anyio
@pytest.mark.parametrize("is_leased", [True, False])
async def test_the_error_for_a_busy_port_names_its_owner(is_leased: bool) -> None:
    port = free_port()
    occupied = holding(port) if is_leased else program(LISTEN, HOST, port)
    with occupied as owner:
        if not is_leased:
            assert first_line(owner) == "listening"
        for seconds in (0.0, 0.1):
            with pytest.raises(PortBusy) as caught:
                await wait_for_port(HOST, port, seconds)
            assert caught.value.owner.startswith(f"pid {owner.pid} (")


@pytest.mark.anyio
async def test_a_cancelled_wait_leaves_no_lease() -> None:
    port = free_port()
    with listening(HOST, port), anyio.move_on_after(0.02) as scope:
        await wait_for_port(HOST, port, 60.0)
    assert scope.cancelled_caught
    assert not is_leased(port)
    lease = await anyio.to_thread.run_sync(take_port, HOST, port)
    await anyio.to_thread.run_sync(lease.release)


def test_a_lease_directory_of_another_user_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (tmp_path / f"clawblox-{os.getuid()}").symlink_to(foreign)
    monkeypatch.setattr(leases, "LEASE_ROOT", tmp_path)
    with pytest.raises(PermissionError, match="another user"):
        take_free_port("127.0.0.1")
