"""A filter for seccomp(2) of a sandboxed program's system calls. Pure.

The filter checks only numbers and flags, because it cannot follow pointers. It refuses calls that
namespaces do not confine: the kernel's keys, its programs and counters, queues of system calls that
bypass the filter, and sockets that reach across network namespaces. It also refuses calls whose
effect would outlast the sandbox: file modes and attributes that grant the owner's rights to anyone
who runs the file, because the owner outside may be root. See bpf(4) and the kernel's
seccomp_filter.rst.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

_NUMBER: Final = 0
_ARCHITECTURE: Final = 4
_FIRST_ARGUMENT: Final = 16
"""Offsets in ``struct seccomp_data``; both supported machines are little-endian."""

_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_REFUSE: Final = 0x00050000
"""Verdict that refuses a call; its lower half is the error number."""

_X32: Final = 0x40000000
"""Bit in the numbers of the x32 table of calls, for programs with short pointers on x86-64."""

_NEW_CGROUP: Final = 0x02000000
_NEW_USER: Final = 0x10000000
_SET_USER_ID: Final = 0o4000
"""The mode bit set-user-ID. Set-group-ID is allowed, because directories inherit it."""

_SOCKET_FAMILIES: Final = (0, 1, 2, 10, 16)
"""Unspecified, Unix, IPv4, IPv6, netlink. Others, such as vsock, ignore network namespaces."""


@attrs.frozen
class _Machine:
    """A machine with known system calls.

    Attributes:
        architecture: The kernel's audit value for it.
        numbers: The numbers of the calls that the filter checks.
    """

    architecture: int
    numbers: Mapping[str, int]


_SAME: Final = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "clone3": 435,
    "fchmodat2": 452,
    "setxattrat": 463,
}
"""Recent calls, which have the same number on every machine."""

_MACHINES: Final[Mapping[str, _Machine]] = {
    "x86_64": _Machine(
        0xC000003E,
        {
            **_SAME,
            "socket": 41,
            "clone": 56,
            "chmod": 90,
            "fchmod": 91,
            "setxattr": 188,
            "lsetxattr": 189,
            "fsetxattr": 190,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "fchmodat": 268,
            "unshare": 272,
            "perf_event_open": 298,
            "bpf": 321,
        },
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            **_SAME,
            "setxattr": 5,
            "lsetxattr": 6,
            "fsetxattr": 7,
            "fchmod": 52,
            "fchmodat": 53,
            "unshare": 97,
            "socket": 198,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "clone": 220,
            "perf_event_open": 241,
            "bpf": 280,
        },
    ),
}

_FORBIDDEN: Final = (
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
)
_ATTRIBUTE_CALLS: Final = ("setxattr", "lsetxattr", "fsetxattr", "setxattrat")
_MODE_CALLS: Final = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
"""Calls that set a mode, with the index of the mode argument."""

_Rule = tuple[int, int, int, int]


def build_filter(machine: str, *, may_nest: bool) -> bytes | None:
    """Return the filter for bubblewrap; None for an unknown machine.

    Args:
        machine: The machine's name, as printed by ``uname -m``.
        may_nest: Whether the program may create user namespaces for a sandbox of its own. As root
            there, it could give its files capabilities that are valid outside.
    """
    calls = _MACHINES.get(machine)
    if calls is None:
        return None
    numbers = calls.numbers
    new_namespaces = _NEW_CGROUP | (0 if may_nest else _NEW_USER)
    rules = _check_architecture(calls)
    for name in _FORBIDDEN:
        rules += _if_called(numbers[name], [_refuse(errno.EPERM)])
    # The flags of clone3 are behind a pointer. Programs fall back to clone, whose flags are an
    # argument.
    rules += _if_called(numbers["clone3"], [_refuse(errno.ENOSYS)])
    for name in ("clone", "unshare"):
        rules += _if_called(numbers[name], _refuse_bits(0, new_namespaces))
    for name, argument in _MODE_CALLS.items():
        if name in numbers:
            rules += _if_called(numbers[name], _refuse_bits(argument, _SET_USER_ID))
    if may_nest:
        for name in _ATTRIBUTE_CALLS:
            rules += _if_called(numbers[name], [_refuse(errno.EOPNOTSUPP)])
    rules += _if_called(numbers["socket"], _refuse_others(_SOCKET_FAMILIES, errno.EAFNOSUPPORT))
    rules.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *rule) for rule in rules)


def _check_architecture(machine: _Machine) -> list[_Rule]:
    """Return rules that kill programs for other machines and load the number of the call."""
    rules = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, machine.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if "chmod" in machine.numbers:  # x86-64
        rules += [(_IF_AT_LEAST, 0, 1, _X32), _refuse(errno.ENOSYS)]
    return rules


def _if_called(number: int, rules: list[_Rule]) -> list[_Rule]:
    """Return rules for one call; they end with a verdict, as they may load an argument."""
    return [(_IF_EQUAL, 0, len(rules), number), *rules]


def _refuse(number: int) -> _Rule:
    return _RETURN, 0, 0, _REFUSE | number


def _refuse_bits(argument: int, bits: int) -> list[_Rule]:
    return [
        (_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * argument),
        (_IF_ANY_BIT, 0, 1, bits),
        _refuse(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _refuse_others(values: Iterable[int], number: int) -> list[_Rule]:
    allowed = tuple(values)
    rules: list[_Rule] = [(_LOAD, 0, 0, _FIRST_ARGUMENT)]
    rules += [(_IF_EQUAL, len(allowed) - i, 0, value) for i, value in enumerate(allowed)]
    return [*rules, _refuse(number), (_RETURN, 0, 0, _ALLOW)]
