"""The filter of system calls, interpreted like in the kernel."""

from __future__ import annotations

import errno
import struct

import pytest

from clawblox.agents.sandbox.system_calls import build_filter

ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEW_CGROUP, NEW_USER, NEW_NET, THREAD = 0x02000000, 0x10000000, 0x40000000, 0x003D0F00


def judge(machine: str, number: int, *arguments: int, may_nest: bool = False, arch: int = 0) -> int:
    """Return the verdict of the filter, which uses only a few BPF instructions."""
    code = build_filter(machine, may_nest=may_nest)
    assert code is not None
    whole = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, arch or ARCHITECTURES[machine], 0, *whole)
    rules = list(struct.iter_unpack("<HBBI", code))
    value = place = 0
    while True:
        operation, if_true, if_false, operand = rules[place]
        place += 1
        if operation == 0x06:
            return operand
        if operation == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
            continue
        is_true = {
            0x15: value == operand,
            0x35: value >= operand,
            0x45: bool(value & operand),
        }[operation]
        place += if_true if is_true else if_false


CALLS = {
    "x86_64": {"clone": 56, "unshare": 272, "socket": 41, "fchmod": 91, "fsetxattr": 190},
    "aarch64": {"clone": 220, "unshare": 97, "socket": 198, "fchmod": 52, "fsetxattr": 7},
}
FORBIDDEN = {
    "x86_64": (248, 249, 250, 298, 321, 425, 426, 427),
    "aarch64": (217, 218, 219, 241, 280, 425, 426, 427),
}


@pytest.mark.parametrize("machine", list(CALLS))
def test_calls_are_refused_by_number_and_by_flag(machine: str) -> None:
    calls = CALLS[machine]
    for number in FORBIDDEN[machine]:
        assert judge(machine, number) == REFUSE | errno.EPERM
    assert judge(machine, 435) == REFUSE | errno.ENOSYS  # clone3
    assert judge(machine, calls["clone"], THREAD) == ALLOW
    for call in ("clone", "unshare"):
        for flags in (NEW_CGROUP, NEW_USER, NEW_NET | NEW_USER):
            assert judge(machine, calls[call], flags) == REFUSE | errno.EPERM
            # The kernel ignores the upper half of the register.
            assert judge(machine, calls[call], flags | 1 << 32) == REFUSE | errno.EPERM
        assert judge(machine, calls[call], NEW_NET | NEW_USER, may_nest=True) == ALLOW
        nested = NEW_CGROUP | NEW_USER
        assert judge(machine, calls[call], nested, may_nest=True) == REFUSE | errno.EPERM
    verdicts = {family: judge(machine, calls["socket"], family) for family in range(46)}
    assert {family for family, verdict in verdicts.items() if verdict == ALLOW} == {0, 1, 2, 10, 16}
    assert set(verdicts.values()) == {ALLOW, REFUSE | errno.EAFNOSUPPORT}
    for mode, verdict in ((0o755, ALLOW), (0o4755, REFUSE | errno.EPERM), (0o2775, ALLOW)):
        assert judge(machine, calls["fchmod"], 3, mode) == verdict
        assert judge(machine, 452, 3, 0, mode) == verdict
    assert judge(machine, calls["fsetxattr"]) == ALLOW
    assert judge(machine, calls["fsetxattr"], may_nest=True) == REFUSE | errno.EOPNOTSUPP


@pytest.mark.parametrize("machine", list(CALLS))
def test_all_other_calls_are_allowed(machine: str) -> None:
    refused = {number for number in range(600) if judge(machine, number) != ALLOW}
    assert refused == {*FORBIDDEN[machine], 435}


def test_calls_of_other_tables_are_refused() -> None:
    for machine in CALLS:
        assert judge(machine, 1, arch=0x40000003) == KILL
    assert judge("x86_64", 0x40000000 | 1) == REFUSE | errno.ENOSYS


def test_there_is_no_filter_for_other_machines() -> None:
    assert build_filter("riscv64", may_nest=False) is None
