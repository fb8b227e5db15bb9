"""Checks of the agents' programs: installation, version and keys.

Each program is asked for its version as at the start of an agent: with the environment of an
agent, and a home that is removed afterwards.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from clawblox.agents.drivers import DRIVERS
from clawblox.agents.drivers.acp import KNOWN_PROGRAMS
from clawblox.agents.drivers.driver import AgentSetup, Begin, Driver, Turn
from clawblox.agents.layout import AgentDir
from clawblox.agents.running.preparation import (
    VersionAnswer,
    agent_environment,
    ask_version,
    find_number,
)
from clawblox.agents.sandbox.bubblewrap import Bubblewrap
from clawblox.agents.sandbox.endpoints import WORLD_ENDPOINT
from clawblox.agents.sandbox.native import NATIVE_PROGRAMS, NativeSandbox
from clawblox.checks import MachineCheckResult, missing, ok, warning
from clawblox.cli.doctor import DoctorChecks
from clawblox.cli.doctor.software import run_program
from clawblox.errors import AgentSetupError
from clawblox.protocol import INSTANCE_ENV
from clawblox.supervision.tree import Grace, ProcessTree
from clawblox.system.files import make_private_dir
from clawblox.system.network_namespace import helper_command, open_channel, receive_listeners
from clawblox.system.process import CannotExecute, run_briefly
from clawblox.system.scratch import temporary_directory

_TIMEOUT_S = 8.0
"""Seconds for each program; Node.js takes a second or more, and all run at the same time."""
_GRACE_S = 1.0
_SANDBOX_TIMEOUT_S = 4.0
_PROGRAM: Final = Path("/usr/bin/env")
"""The program that runs in the sandboxes; every machine has it."""
_SHOWN_DIR: Final = AgentDir(Path("DIR"))
"""Placeholder for the directory of an agent in texts for people."""
_WITHOUT: Final = "Agents cannot be run in a sandbox, so they can read the tokens of your worlds."
_ALLOW: Final = (
    "In a container, allow it: docker run --security-opt seccomp=unconfined "
    "--security-opt systempaths=unconfined."
)
_LEAVE_ROOT: Final = (
    'Its programs are user 0 of this machine; sandbox="strict" refuses that. Run clawblox as '
    "another user, or give the container CAP_SYS_ADMIN."
)

CHECKS: Final = DoctorChecks()
_sandbox_check = partial(CHECKS.add, "Sandboxes")


@contextlib.contextmanager
def _scratch_agent_dir() -> Iterator[AgentDir]:
    """Make the directory of an agent, and remove it with its contents at the end. Blocks.

    Raises:
        OSError: The directory cannot be made.
    """
    with temporary_directory("clawblox-doctor-") as scratch:
        directory = AgentDir(scratch)
        for place in (directory.workspace, directory.runtime, directory.home, directory.state):
            make_private_dir(place)
        yield directory


def look_for_program(driver: Driver, command: str) -> MachineCheckResult:
    """Ask a program for its version, and its driver for unmet requirements."""
    path = shutil.which(command)
    if path is None:
        return missing("not installed")
    with _scratch_agent_dir() as directory:
        # Symbolic links are not resolved.
        setup = AgentSetup(directory=directory, binary=os.path.abspath(path))  # noqa: PTH100
        env = _build_environment(driver, setup)
        try:
            answer = anyio.run(_ask_version, driver.version_argv(setup.binary), env)
        except CannotExecute as error:
            return warning(str(error))
    return _judge(driver, answer, env)


async def _ask_version(argv: Sequence[str], env: Mapping[str, str]) -> VersionAnswer | None:
    tree = ProcessTree(env[INSTANCE_ENV])
    try:
        return await ask_version(argv, env=env, tree=tree, timeout=_TIMEOUT_S)
    finally:
        with anyio.CancelScope(shield=True):
            await tree.end(Grace(_GRACE_S))


def _judge(
    driver: Driver, answer: VersionAnswer | None, env: Mapping[str, str]
) -> MachineCheckResult:
    if answer is None:
        return warning(f"it did not print its version within {_TIMEOUT_S:g} s")
    number = find_number(answer.text)
    if answer.exit.status != 0 or number is None:
        last_line = answer.text.rpartition("\n")[2]
        return warning(f"it printed {last_line!r:.80}, no version ({answer.exit})")
    required = driver.check(AgentSetup(directory=_SHOWN_DIR, binary=""), env, answer.text)
    problems = [requirement.problem for requirement in required]
    version = [] if any(number in text for text in problems) else [number]
    keys = _describe_keys(driver.program.credential_variables, env)
    if not required:
        return ok("; ".join([*version, keys]))
    hints = dict.fromkeys(requirement.hint for requirement in required)
    return warning("; ".join([*version, *problems]), remedy=f"To do: {'; '.join(hints)}.")


def _describe_keys(names: Sequence[str], env: Mapping[str, str]) -> str:
    present = [name for name in names if env.get(name)]
    if present:
        return f"{', '.join(present)} set"
    return f"none of {', '.join(names)} is set" if names else "its keys are given with env="


def _build_environment(driver: Driver, setup: AgentSetup) -> dict[str, str]:
    turn = Turn(prompt="", start=Begin(""))
    return agent_environment(
        driver.program,
        inherited=os.environ,
        home=setup.home,
        own=driver.invocation(setup, turn).env,
        given={},
        cookie=secrets.token_hex(16),
    )


_OWN_DRIVERS: Final = {driver.program.command: driver for driver in DRIVERS.values()}
_ACP: Final = {name: DRIVERS["acp"] for name in KNOWN_PROGRAMS if name not in _OWN_DRIVERS}

for _command, _driver in {**_OWN_DRIVERS, **_ACP}.items():
    if _command:  # some drivers do not require a particular program
        _package = (KNOWN_PROGRAMS[_command] if _command in _ACP else _driver.program).package
        _binary = f', binary="{_command}"' if _command in _ACP else ""
        CHECKS.add(
            "Agents",
            _command,
            f'Agents with agent="{_driver.program.driver}"{_binary} run this program; without it '
            "they do not start.",
            f"Install it: npm install -g {_package}@latest, with Node 22 or newer.",
        )(partial(look_for_program, _driver, _command))


@_sandbox_check(
    "namespaces",
    _WITHOUT,
    "Allow them: sysctl user.max_user_namespaces=10000; on Ubuntu also "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container, its seccomp profile.",
)
def look_for_namespaces() -> MachineCheckResult:
    """Set up the network of a sandbox in a process that ends immediately."""
    channel, helper_end = open_channel()
    with channel, helper_end:
        descriptor = helper_end.fileno()
        listen = [(WORLD_ENDPOINT.address, WORLD_ENDPOINT.port)]
        command = helper_command(descriptor, listen, [sys.executable, "-I", "-S", "-c", ""])
        run_briefly(command, env={}, timeout=_SANDBOX_TIMEOUT_S, pass_fds=[descriptor])
        helper_end.close()
        for listener in receive_listeners(channel, len(listen)):
            listener.close()
    return ok("users and network")


@_sandbox_check("bubblewrap", _WITHOUT, "Install it: apt install bubblewrap.")
def look_for_bubblewrap() -> MachineCheckResult:
    """Run a program in the sandbox of an agent."""
    version = run_program("bwrap", "--version").removeprefix("bubblewrap ")
    try:
        facts = _try_sandbox(has_native=False)
    except AgentSetupError as error:
        return missing(f"{version}: {error.message}", remedy=error.hint or _ALLOW)
    text = f"{version}, level {facts['level']}"
    if facts["weakness"] is not None:
        return warning(f"{text}: {facts['weakness']}", remedy=_LEAVE_ROOT)
    return ok(text)


@_sandbox_check(
    "native sandbox",
    "Agents cannot be run with claude_native_sandbox=True, Claude Code's own sandbox.",
    "Install the missing programs: apt install bubblewrap socat ripgrep.",
)
def look_for_native_sandbox() -> MachineCheckResult:
    """Run a program in a sandbox like Claude Code's own, both alone and inside ours."""
    absent = [name for name in NATIVE_PROGRAMS if shutil.which(name) is None]
    if absent:
        return missing(f"not installed: {', '.join(absent)}")
    try:
        with _scratch_agent_dir() as directory:
            NativeSandbox(lambda: None, dict).open(directory, _PROGRAM)
        _try_sandbox(has_native=True)
    except AgentSetupError as error:
        return missing(error.message, remedy=error.hint or _ALLOW)
    return ok(", ".join(NATIVE_PROGRAMS))


def _try_sandbox(*, has_native: bool) -> Mapping[str, Any]:
    """Open the sandbox of an agent without a world, and return the facts about the sandbox.

    Raises:
        AgentSetupError: This machine allows no sandbox; the text has the reason.
    """
    sandbox = Bubblewrap(api_hosts=(), host=lambda: None, settings=dict, has_native=has_native)
    with _scratch_agent_dir() as directory:
        sandbox.open(directory, _PROGRAM)
    return sandbox.facts
