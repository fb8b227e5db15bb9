"""Checks of what agents' sandboxes need, made by the sandboxes themselves."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clawblox.agents.sandbox.bubblewrap import Bubblewrap
from clawblox.agents.sandbox.endpoints import WORLD_ENDPOINT
from clawblox.agents.sandbox.native import NATIVE_PROGRAMS, NativeSandbox
from clawblox.cli.doctor.check import Check, CheckResult, missing, ok, warning
from clawblox.cli.doctor.programs import run_program
from clawblox.cli.doctor.scratch import scratch_agent_dir
from clawblox.errors import AgentSetupError
from clawblox.system.network_namespace import helper_command, open_channel, receive_listeners
from clawblox.system.short_process import run_briefly

_TIMEOUT_S = 4.0
_PROGRAM: Final = Path("/usr/bin/env")
"""What is tried in the sandboxes; it is on every machine."""


def look_for_namespaces() -> CheckResult:
    """Make the network of a sandbox, in a process that ends at once."""
    channel, helper_end = open_channel()
    with channel, helper_end:
        descriptor = helper_end.fileno()
        listen = [(WORLD_ENDPOINT.address, WORLD_ENDPOINT.port)]
        command = helper_command(descriptor, listen, [sys.executable, "-I", "-S", "-c", ""])
        run_briefly(command, env={}, timeout=_TIMEOUT_S, pass_fds=[descriptor])
        helper_end.close()
        for listener in receive_listeners(channel, len(listen)):
            listener.close()
    return ok("users and network")


def look_for_bubblewrap() -> CheckResult:
    """Run a program in the sandbox of an agent."""
    version = run_program("bwrap", "--version").removeprefix("bubblewrap ")
    try:
        facts = _try_sandbox(has_native=False)
    except AgentSetupError as error:
        return missing(f"{version}: {error.message}", remedy=error.hint or _ALLOW)
    found = f"{version}, level {facts['level']}"
    if facts["weakness"] is not None:
        return warning(f"{found}: {facts['weakness']}", remedy=_LEAVE_ROOT)
    return ok(found)


def look_for_native_sandbox() -> CheckResult:
    """Run a program in a sandbox like that of Claude Code, alone and in ours."""
    absent = [name for name in NATIVE_PROGRAMS if shutil.which(name) is None]
    if absent:
        return missing(f"not installed: {', '.join(absent)}")
    try:
        with scratch_agent_dir() as directory:
            NativeSandbox("", lambda: None, dict).open(directory, _PROGRAM)
        _try_sandbox(has_native=True)
    except AgentSetupError as error:
        return missing(error.message, remedy=error.hint or _ALLOW)
    return ok(", ".join(NATIVE_PROGRAMS))


def _try_sandbox(*, has_native: bool) -> Mapping[str, Any]:
    """Open the sandbox of an agent that has no world, and return the facts about it.

    Raises:
        AgentSetupError: There can be none on this machine; the text says why.
    """
    sandbox = Bubblewrap("", api_hosts=(), host=lambda: None, settings=dict, has_native=has_native)
    with scratch_agent_dir() as directory:
        sandbox.open(directory, _PROGRAM)
    return sandbox.facts


_GROUP: Final = "Sandboxes"
_WITHOUT: Final = "Agents cannot be run in a sandbox, so they can read the tokens of your worlds."
_ALLOW: Final = (
    "In a container, allow it: docker run --security-opt seccomp=unconfined "
    "--security-opt systempaths=unconfined."
)

_LEAVE_ROOT: Final = (
    'Its programs are user 0 of this machine; sandbox="strict" refuses that. Run clawblox as '
    "another user, or give the container CAP_SYS_ADMIN."
)

SANDBOX_CHECKS: Final = (
    Check(
        _GROUP,
        "namespaces",
        look_for_namespaces,
        _WITHOUT,
        "Allow them: sysctl user.max_user_namespaces=10000; on Ubuntu also "
        "kernel.apparmor_restrict_unprivileged_userns=0; in a container, its seccomp profile.",
    ),
    Check(
        _GROUP,
        "bubblewrap",
        look_for_bubblewrap,
        _WITHOUT,
        "Install it: apt install bubblewrap.",
    ),
    Check(
        _GROUP,
        "native sandbox",
        look_for_native_sandbox,
        "Agents cannot be run with claude_native_sandbox=True, Claude Code's own sandbox.",
        "Install what is missing: apt install bubblewrap socat ripgrep.",
    ),
)
