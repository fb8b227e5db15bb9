"""Checks of the agents' programs: which are installed, how old, and whether they have keys.

Each program is asked for its version as a start of an agent asks it: with the environment of an
agent, and a home that is removed afterwards.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import attrs

from clawblox import protocol
from clawblox.agents.drivers import DRIVERS
from clawblox.agents.drivers.acp import KNOWN_PROGRAMS
from clawblox.agents.drivers.driver import AgentSetup, Driver, Turn
from clawblox.agents.environment import agent_environment
from clawblox.agents.layout import AgentDir
from clawblox.agents.running.version import VersionAnswer, ask_version, find_number
from clawblox.cli.doctor.check import Check, CheckResult, missing, ok, warning
from clawblox.cli.doctor.scratch import scratch_agent_dir
from clawblox.system.process import CannotExecute

_TIMEOUT_S = 8.0
"""Programs that run in Node.js take a second or more, and they are asked all at once."""


_SHOWN_DIR: Final = AgentDir(Path("DIR"))
"""The directory of an agent, in what the user is told."""


def look_for_program(driver: Driver, command: str) -> CheckResult:
    """Ask a program for its version, and its driver for what the program misses."""
    path = shutil.which(command)
    if path is None:
        return missing("not installed")
    with scratch_agent_dir() as directory:
        setup = _set_up(os.path.abspath(path), directory)  # noqa: PTH100 - links stay as they are
        env = _build_environment(driver, setup)
        try:
            answer = anyio.run(_ask, driver.version_argv(setup.binary), env)
        except CannotExecute as error:
            return warning(str(error))
    return _judge(driver, answer, env)


async def _ask(argv: Sequence[str], env: Mapping[str, str]) -> VersionAnswer | None:
    cookie = env[protocol.INSTANCE_ENV]
    return await ask_version(argv, env=env, cookie=cookie, timeout=_TIMEOUT_S)


def _judge(driver: Driver, answer: VersionAnswer | None, env: Mapping[str, str]) -> CheckResult:
    if answer is None:
        return warning(f"it did not say its version within {_TIMEOUT_S:g} s")
    found = find_number(answer.text)
    if answer.exit.status != 0 or found is None:
        said = answer.text.rpartition("\n")[2]
        return warning(f"it does not say a version, but {said!a:.80} ({answer.exit})")
    required = driver.check(_SHOWN_DIR, _set_up("", _SHOWN_DIR), env, answer.text)
    problems = [one.problem for one in required]
    version = [] if any(found in text for text in problems) else [found]
    keys = _describe_keys(driver.program.credential_variables, env)
    if not required:
        return ok("; ".join([*version, keys]))
    hints = dict.fromkeys(one.hint for one in required)
    return warning("; ".join([*version, *problems]), remedy=f"To do: {'; '.join(hints)}.")


def _describe_keys(names: Sequence[str], env: Mapping[str, str]) -> str:
    present = [name for name in names if env.get(name)]
    if present:
        return f"{', '.join(present)} set"
    return f"none of {', '.join(names)} is set" if names else "its keys are given with env="


def _set_up(binary: str, directory: AgentDir) -> AgentSetup:
    return AgentSetup(
        binary=binary,
        workspace=directory.workspace,
        home=directory.home,
        state=directory.state,
        runtime=directory.runtime,
        system_prompt="",
    )


def _build_environment(driver: Driver, setup: AgentSetup) -> dict[str, str]:
    turn = Turn(prompt="", session_id=None, new_id="")
    return agent_environment(
        driver.program,
        inherited=os.environ,
        home=setup.home,
        own=driver.invocation(setup, turn).env,
        given={},
        cookie=secrets.token_hex(16),
    )


@attrs.frozen
class _Candidate:
    """A program that agents can be.

    Attributes:
        driver: Its driver.
        command: Its name on PATH.
        package: The package of npm that it is installed with.
        usage: The arguments by which an agent is this program.
    """

    driver: Driver
    command: str
    package: str
    usage: str

    @property
    def check(self) -> Check:
        return Check(
            "Agents",
            self.command,
            partial(look_for_program, self.driver, self.command),
            f"It is the program of agents with {self.usage}; without it they do not start.",
            f"Install it: npm install -g {self.package}@latest, with Node 22 or newer.",
        )


def _find_candidates() -> Iterator[_Candidate]:
    """Yield the programs that have a driver of their own, then those that speak a protocol."""
    commands = set()
    for driver in DRIVERS.values():
        program = driver.program
        if program.command:
            commands.add(program.command)
            usage = f'agent="{program.driver}"'
            yield _Candidate(driver, program.command, program.package, usage)
    acp = DRIVERS["acp"]
    for command, known in KNOWN_PROGRAMS.items():
        if command not in commands:
            usage = f'agent="{acp.program.driver}", binary="{command}"'
            yield _Candidate(acp, command, known.package, usage)


AGENT_CHECKS: Final = tuple(candidate.check for candidate in _find_candidates())
