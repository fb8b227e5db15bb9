"""The helper that gives a program its own network, and passes out the sockets in it.

A socket stays in the network namespace in which it was created. So the helper creates user and
network namespaces, listens there, sends the sockets to the orchestrator (``SCM_RIGHTS``), and
becomes the program. The program reaches only the services of the orchestrator, on these sockets:
there is no forwarder and no route out. Before it becomes the program, the helper gives up
privileges that the program must not have: root's user, further namespaces, and more processes than
a limit. See user_namespaces(7) and network_namespaces(7).

Standard library only: the helper runs as ``python -I -S`` with the environment of the program that
it becomes. A refusal by the kernel is reported in the kernel's words.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal  # noqa: TID251 - restores signals that Python ignores and the program must not ignore
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from clawblox.system.helper import close_all_but, python_command
from clawblox.system.outer_user import CLONE_NEWUSER, OUTER_PROC, become, call

HELPER_NAME = "clawblox-netns"
"""Name of the helper in a process list until it becomes the program."""

_CLONE_NEWNET = 0x40000000
_KEYCTL = {"x86_64": 250, "aarch64": 219}
"""Number of the system call keyctl(2) by machine; the C library has no function for it."""

_JOIN_SESSION_KEYRING = 1
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_IFF_UP = 0x1
_BACKLOG = 128
_MOST_LISTENERS = 250
"""Maximum number of listeners; the kernel passes at most 253 descriptors in a message."""

_DONE = b"ok"
_MESSAGE_BYTES = 4096


class Confinement(NamedTuple):
    """Restrictions that the helper puts on the program, in addition to its own network.

    Attributes:
        user: User id of the program outside of its namespaces; None keeps the user of this process.
            Any other value requires root.
        own: Files that this user owns in ``outer_user.OUTER_DIR``, named by their order.
        shown: Further files there, which the program need not be able to write.
        namespaces: Maximum number of nested namespaces of each kind, by the names in
            ``/proc/sys/user``. Skipped if that cannot be written.
        processes: Maximum number of processes and threads; None sets no limit.
        groups: The ``cgroup.procs`` files of the control groups that the program joins.
    """

    user: int | None = None
    own: Sequence[str] = ()
    shown: Sequence[str] = ()
    namespaces: Mapping[str, int] = {}
    processes: int | None = None
    groups: Sequence[str] = ()


_UNCONFINED = Confinement()


class NamespaceRefused(OSError):  # noqa: N818 - names the condition
    """The namespaces, or the sockets in them, cannot be created on this machine."""


# ------------------------------------------------------------------------- the orchestrator's side


def open_channel() -> tuple[socket.socket, socket.socket]:
    """Return both ends of the channel on which a helper answers: the own end and the helper's end.

    Raises:
        OSError: No descriptor is available.
    """
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def helper_command(
    channel: int,
    listen: Sequence[tuple[str, int]],
    command: Sequence[str],
    *,
    keep: Sequence[int] = (),
    confinement: Confinement = _UNCONFINED,
) -> list[str]:
    """Return the command that runs ``command`` in its own network.

    Args:
        channel: The helper's end of the channel; the helper inherits it under the same number.
        listen: Numeric addresses and ports to listen on in that network.
        command: An absolute path, and arguments.
        keep: Other descriptors that the program inherits.
        confinement: Further restrictions.

    Raises:
        ValueError: There are more addresses than can be passed in a message.
    """
    if len(listen) > _MOST_LISTENERS:
        raise ValueError(f"{len(listen)} addresses to listen on; at most {_MOST_LISTENERS}")
    request = json.dumps([list(listen), list(keep), confinement])
    words, paths = (str(channel), request, *command), [str(Path(__file__).parents[2])]
    return python_command(HELPER_NAME, f"{__name__}:main", words, paths)


def receive_listeners(channel: socket.socket, count: int) -> list[socket.socket]:
    """Return the sockets of a helper in the order of the request. Blocks until it answers.

    Args:
        channel: The own end; the helper's end must be closed in this process.
        count: Number of sockets in the request.

    Raises:
        NamespaceRefused: The helper failed; the message names the refused call.
        OSError: The helper did not answer within the timeout of ``channel``.
    """
    message, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, _MOST_LISTENERS)
    listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    if message == _DONE and len(listeners) == count:
        return listeners
    for listener in listeners:
        listener.close()
    raise NamespaceRefused(message.decode(errors="replace") or "the helper ended without an answer")


# ---------------------------------------------------------------------------------- the program


def main(channel: str, request: str, *command: str) -> None:
    """Run the helper: create the namespaces, pass out the sockets, become ``command``."""
    listen, keep, values = json.loads(request)
    confinement = Confinement(*values)
    with socket.socket(fileno=int(channel)) as answer:
        try:
            close_all_but({0, 1, 2, answer.fileno(), *keep})
            _give_up(confinement)
            _leave_keys()
            _enter_namespaces()
            _limit(confinement)
            _raise_loopback([address for address, _ in listen])
            listeners = [_listen(address, port) for address, port in listen]
        except NamespaceRefused as error:
            answer.send(str(error).encode()[:_MESSAGE_BYTES])
            sys.exit(1)
        with contextlib.suppress(BrokenPipeError):  # the orchestrator is gone
            socket.send_fds(answer, [_DONE], [listener.fileno() for listener in listeners])
        for listener in listeners:
            listener.close()
    _become(command)


def _give_up(confinement: Confinement) -> None:
    """Join the control groups, and become another user."""
    for group in confinement.groups:
        with _refusal(f"write {group}"):
            Path(group).write_text("0")
    if confinement.user is not None:
        with _refusal(f"become user {confinement.user}"):
            become(confinement.user, confinement.own, confinement.shown)


def _limit(confinement: Confinement) -> None:
    """Set the limits of the new user namespace."""
    for name, most in confinement.namespaces.items():
        for place in ("/proc", OUTER_PROC):
            with contextlib.suppress(OSError):  # a container may show /proc/sys read-only
                Path(place, "sys/user", name).write_text(str(most))
                break
    if confinement.processes is not None:
        # Not before the namespace exists, because the limit would also apply to all processes of
        # its creator.
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = confinement.processes
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _leave_keys() -> None:
    """Join an empty session keyring, because processes inherit the keys of the login's keyring."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:  # a kernel without keyrings has no keys
        ctypes.CDLL(None).syscall(number, _JOIN_SESSION_KEYRING, None)


@contextlib.contextmanager
def _refusal(call: str) -> Iterator[None]:
    """Report a refusal of ``call`` by the kernel."""
    try:
        yield
    except OSError as error:
        raise NamespaceRefused(f"{call}: {error.strerror}") from error


def _enter_namespaces() -> None:
    """Enter new user and network namespaces, in which this user is root."""
    uid, gid = os.geteuid(), os.getegid()
    with _refusal("unshare(CLONE_NEWUSER | CLONE_NEWNET)"):
        # os.unshare requires Python 3.12.
        call("", "unshare", CLONE_NEWUSER | _CLONE_NEWNET)
    # An ordinary user may map a group only after this denial.
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        with _refusal(f"write /proc/self/{name}"):
            Path("/proc/self", name).write_text(text)


def _raise_loopback(addresses: Sequence[str]) -> None:
    """Bring up the loopback interface, and add the addresses that it lacks by default."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        with _refusal("ioctl(SIOCSIFFLAGS, lo up)"):
            request = struct.pack("16sh14x", b"lo", 0)
            flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        others = {address for address in addresses if not _is_loopback(address)}
        for number, address in enumerate(sorted(others), 1):
            name = f"lo:{number}".encode()
            place = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
            with _refusal(f"ioctl(SIOCSIFADDR, {address})"):
                fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s", name, place))


def _is_loopback(address: str) -> bool:
    return address in ("::1", "0.0.0.0") or address.startswith("127.")  # noqa: S104 - not bound


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    with _refusal(f"bind({address}, {port})"):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    return listener


def _become(command: Sequence[str]) -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    # The environment as the helper received it; Python adds LC_CTYPE to os.environ.
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    variables = (entry.partition(b"=") for entry in entries if entry)
    try:
        os.execve(  # noqa: S606 - the purpose of a helper
            command[0], [*command], {name: value for name, _, value in variables}
        )
    except OSError as error:
        sys.exit(f"cannot execute {command[0]!r}: {error.strerror}")
