"""Checks of other programs, each tried by running it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Final

from clawblox.cli.doctor.check import Check, CheckResult, missing, ok, warning

__all__ = ["PROGRAM_CHECKS"]

_TIMEOUT_S = 4.0
_OLDEST_TMUX = (3, 0)
"""The first that can set variables of a window."""

_UNSHARE = """
import ctypes, sys
unshare = ctypes.CDLL(None, use_errno=True).unshare
sys.exit(ctypes.get_errno() if unshare(0x10000000 | 0x20000000 | 0x40000000) else 0)
"""
"""New user, pid and network namespaces at once; the exit status is the errno."""

_SANDBOX: Final = (
    *("--unshare-user", "--uid", "1000", "--gid", "1000"),
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108
    *("--die-with-parent", "--new-session"),
)


def look_for_tmux() -> CheckResult:
    """Run tmux and compare its version."""
    version = _run("tmux", "-V").stdout.strip().removeprefix("tmux ")
    found = re.search(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < _OLDEST_TMUX:
        return warning(f"{version} is too old: 3.0 or later is needed")
    return ok(version)


def look_for_namespaces() -> CheckResult:
    """Make new namespaces in a process that ends at once."""
    status = _run(sys.executable, "-I", "-S", "-c", _UNSHARE, may_fail=True).returncode
    return ok("user, pid and network") if status == 0 else missing(os.strerror(status))


def look_for_bubblewrap() -> CheckResult:
    """Run a program in a sandbox like that of an agent."""
    version = _run("bwrap", "--version").stdout.strip().removeprefix("bubblewrap ")
    tried = _run("bwrap", *_SANDBOX, "true", may_fail=True)
    if tried.returncode == 0:
        return ok(version)
    reason = tried.stderr.strip().partition("\n")[0].removeprefix("bwrap: ")
    return missing(f"{version} cannot run: {reason or f'exit status {tried.returncode}'}")


def _run(program: str, *arguments: str, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
    try:
        result = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise OSError("not installed") from None
    except subprocess.TimeoutExpired:
        raise OSError(f"no answer within {_TIMEOUT_S:g} s") from None
    if result.returncode and not may_fail:
        raise OSError(f"it failed with status {result.returncode}")
    return result


_GROUP: Final = "Programs"

PROGRAM_CHECKS: Final = (
    Check(
        _GROUP,
        "tmux",
        look_for_tmux,
        "clawblox run --tmux does not work.",
        "Install it: apt install tmux.",
    ),
    Check(
        _GROUP,
        "namespaces",
        look_for_namespaces,
        "Agents cannot be run in a sandbox, so they can read the tokens of your worlds.",
        "Allow them: sysctl user.max_user_namespaces=10000; on Ubuntu also "
        "kernel.apparmor_restrict_unprivileged_userns=0; in a container, its seccomp profile.",
    ),
    Check(
        _GROUP,
        "bubblewrap",
        look_for_bubblewrap,
        "Agents cannot be run in a sandbox, so they can read the tokens of your worlds.",
        "Install it: apt install bubblewrap.",
    ),
)
