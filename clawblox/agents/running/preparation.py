"""Steps of a start before the program runs: files, environment, version and the driver's check.

The environment contains only allowed variables. The orchestrator's other variables are left out:
operator tokens, keys of other programs, variables of a Claude Code session that started the
orchestrator.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import attrs

from clawblox.agents.drivers.driver import (
    AgentSetup,
    Begin,
    Continue,
    Fork,
    Requirement,
    Turn,
)
from clawblox.agents.layout import AgentDir
from clawblox.agents.options import IN_WORKSPACE
from clawblox.agents.programs import PROGRAMS, Program
from clawblox.agents.running.conversation import read_system_prompt
from clawblox.agents.running.hooks import Enclosed
from clawblox.agents.running.start_request import StartRequest
from clawblox.concurrency.threads import Interruption, run_blocking, run_interruptible
from clawblox.errors import AgentSetupError, ConfigError
from clawblox.printable import quote_words
from clawblox.protocol import (
    AGENT_NAME_ENV,
    INSTANCE_ENV,
    LEASE_ENV,
    OPERATOR_TOKEN_ENV,
    SECRET_NAME,
    SPECTATOR_TOKEN_ENV,
    WORLD_URL_ENV,
    display_name,
)
from clawblox.results import ProcessExit
from clawblox.supervision.tree import Grace, ProcessTree
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.process import CannotExecute, memory_log, spawn
from clawblox.system.scratch import scratch_directory, temporary_directory

_VERSION_GRACE_S = 1.0
_MAX_VERSION_BYTES = 4096
_NUMBER = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""Maximum bytes of an argument on Linux, without the final NUL; see execve(2)."""

_INHERITED: Final = frozenset({"PATH", "LANG", "LANGUAGE", "TZ"})

_WITHHELD: Final = frozenset({OPERATOR_TOKEN_ENV, SPECTATOR_TOKEN_ENV, INSTANCE_ENV, LEASE_ENV})
"""Variables of the orchestrator that callers must not set."""


def find_binary(order: StartRequest) -> Path:
    """Return the program of an agent.

    Raises:
        AgentSetupError: The program is missing.
    """
    name = order.program
    if name.startswith(IN_WORKSPACE):
        return _find_in_workspace(order, name.removeprefix(IN_WORKSPACE))
    search = order.env.get("PATH") or order.inherited.get("PATH") or os.defpath
    binary = shutil.which(name, path=search)
    if binary is None:
        raise _no_program(order, name)
    path = Path(binary).absolute()
    if ".." in path.parts:  # a sandbox cannot recreate such a path
        path = Path(os.path.realpath(path.parent), path.name)
    return path


def _no_program(order: StartRequest, name: str) -> AgentSetupError:
    """Return the error for a program that cannot be executed."""
    if os.sep in name and os.path.isfile(name):  # noqa: PTH113 - never raises
        hint = f"make it executable: chmod +x {quote_words([name])}"
        return AgentSetupError(f"its program {name!r} is not executable", hint=hint)
    if os.sep in name:
        hint = "give the path of the program, or the name of one on PATH"
        return AgentSetupError(f"its program {name!r} does not exist", hint=hint)
    text = f"its program {name!r} is not on PATH, or cannot be executed"
    if order.options.command is not None:
        return AgentSetupError(text, hint=f"install it, or give its path: ./{name} is a file here")
    hint = "install it (clawblox doctor shows how), or give its path with binary="
    return AgentSetupError(text, hint=hint)


def _find_in_workspace(order: StartRequest, name: str) -> Path:
    path = order.directory.workspace / name
    if ".." in path.parts or shutil.which(str(path)) is None:
        raise AgentSetupError(
            f"its program ./{name} is not an executable file in its workspace",
            hint=f"put it there and make it executable: chmod +x {quote_words([name])}; of a plan, "
            "it can be a file next to the plan or in the template",
        )
    return path


def prepare(order: StartRequest) -> tuple[Path, AgentSetup]:
    """Create the directories and files of an agent; its workspace is not changed. Blocks.

    Returns:
        The program, and the agent's setup for its driver.

    Raises:
        AgentSetupError: The program is missing, or cannot run in the sandbox here.
        AgentResumeError: The system prompt of the conversation is not recorded.
        OSError: A directory or file cannot be created.
    """
    directory = order.directory
    prompt = read_system_prompt(order) if order.system_prompt is None else order.system_prompt
    binary = find_binary(order)
    _make_directories(directory)
    if order.system_prompt is not None:
        publish_bytes(directory.system_prompt_file, prompt.encode(), durable=False)
    order.hooks.enclosure.open(directory, binary)
    return binary, make_setup(order, binary, prompt)


def make_setup(order: StartRequest, binary: Path, prompt: str) -> AgentSetup:
    """Return the agent's setup for its driver. Touches no file.

    Args:
        order: The order of the start.
        binary: The agent's program.
        prompt: The agent's system prompt.
    """
    options, enclosure = order.options, order.hooks.enclosure
    setup = AgentSetup(
        directory=order.directory,
        binary=str(binary),
        system_prompt=prompt,
        model=options.model,
        permission_mode=options.permission_mode,
        is_bare=options.bare,
        native_sandbox=enclosure.native_settings,
        command=options.command,
    )
    return enclosure.show(setup)


def _make_directories(directory: AgentDir) -> None:
    logs = directory.log_file.parent
    for path in (directory.workspace, directory.runtime, logs, directory.state, directory.home):
        make_private_dir(path)


def require_arguments(order: StartRequest) -> None:
    """Check that a prompt passed as an argument is short enough for the operating system.

    Raises:
        ConfigError: The prompt is too long.
    """
    setup = make_setup(order, Path(order.program), "")
    turn = Turn(prompt=order.prompt, start=Begin(""))
    words = order.driver.invocation(setup, turn).argv
    if max(len(word.encode()) for word in words) > _MAX_ARGUMENT_BYTES:
        raise ConfigError(
            f"must be at most {_MAX_ARGUMENT_BYTES} bytes: this program takes it as an argument",
            key="prompt",
            hint="write it into a file of the workspace, and have the agent read that",
        )


async def check_setup(order: StartRequest) -> str | None:
    """Check that an agent's program is installed and can work, including in its sandbox.

    The agent's directory is not touched. The guard watches the processes.

    Returns:
        Version of the program; None if it is not known.

    Raises:
        AgentSetupError: A requirement is missing.

    Cancellation: ends the version command. Call this in a task of its own, so that asyncio's
    ``Task.cancel`` does not interrupt the cleanup.
    """
    binary = await run_blocking(find_binary, order)
    setup = make_setup(order, binary, order.system_prompt or "")
    tree = ProcessTree(secrets.token_hex(16))
    env = build_environment(order, setup, tree.cookie, {})
    await run_blocking(tree.watch)
    try:
        version = await read_version(order, binary, setup, tree)
    finally:
        with anyio.CancelScope(shield=True):
            await tree.end(Grace(_VERSION_GRACE_S))
            await run_blocking(tree.forget)
    await run_blocking(check_program, order, setup, env, version)
    await run_blocking(_try_enclosure, order, binary)
    return find_number(version)


def _try_enclosure(order: StartRequest, binary: Path) -> None:
    """Check in temporary directories that programs can be enclosed here. Blocks."""
    with temporary_directory("clawblox-check-") as scratch:
        directory = AgentDir(scratch)
        _make_directories(directory)
        order.hooks.enclosure.open(directory, binary)


def check_agent_env(env: Mapping[str, str], program: Program) -> None:
    """Check the variables that a caller passes for an agent; their syntax is already checked.

    Args:
        env: The variables.
        program: The agent's program.

    Raises:
        ConfigError: clawblox sets the variable itself, or agents must not get it.
    """
    for name in sorted(env):
        if name in _WITHHELD:
            raise ConfigError(
                "must be left out: an agent never gets this variable", key=f"env.{name}"
            )
        if name in ("HOME", program.state_variable):
            raise ConfigError(
                "must be left out: clawblox sets it, below the agent's directory",
                key=f"env.{name}",
                value=env[name],
                hint="dir= names the agent's directory",
            )


def agent_environment(
    program: Program,
    *,
    inherited: Mapping[str, str],
    home: Path,
    own: Mapping[str, str],
    given: Mapping[str, str],
    cookie: str,
) -> dict[str, str]:
    """Return the complete environment of an agent's program.

    Keys of other programs are left out even if the caller passes them, because one ``env=`` may
    serve agents of several programs. A program without a list of keys gets all variables.

    Args:
        program: The program.
        inherited: The environment of the orchestrator.
        home: ``HOME``, as the program sees it.
        own: Variables from its driver, as in its :class:`Invocation`.
        given: Variables from the caller, already checked by :func:`check_agent_env`.
        cookie: Marks the agent's processes.
    """
    keys = program.credential_variables
    foreign = {name for other in PROGRAMS.values() for name in other.credential_variables}
    withheld = {*_WITHHELD, *(foreign.difference(keys) if keys else ())}
    return {
        "PATH": os.defpath,
        "TERM": "dumb",
        **{
            name: value
            for name, value in inherited.items()
            if name in _INHERITED or name.startswith("LC_")
        },
        **{name: inherited[name] for name in keys if inherited.get(name)},
        **own,
        **{name: value for name, value in given.items() if name not in withheld},
        "HOME": str(home),
        INSTANCE_ENV: cookie,
    }


def build_environment(
    order: StartRequest, setup: AgentSetup, cookie: str, own: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a program.

    Args:
        order: The order of the start.
        setup: The agent.
        cookie: Marks its processes.
        own: Variables from the driver.
    """
    program = order.driver.program
    world = {} if program.reads_prompts else {AGENT_NAME_ENV: display_name(order.options.name)}
    if not program.reads_prompts and (url := order.hooks.access.base_url) is not None:
        world[WORLD_URL_ENV] = url
    return agent_environment(
        program,
        inherited=order.inherited,
        home=setup.home,
        own={**world, **own},
        given=order.env,
        cookie=cookie,
    )


@attrs.frozen
class VersionAnswer:
    """Answer of a version command.

    Attributes:
        exit: Exit of the command.
        text: Its standard output, or its standard error if the output is empty.
    """

    exit: ProcessExit
    text: str


def find_number(text: str) -> str | None:
    """Return the version number in a text, such as ``2.1.197``; None without a number."""
    match = _NUMBER.search(text)
    return match[0] if match else None


async def ask_version(
    argv: Sequence[str], *, env: Mapping[str, str], tree: ProcessTree, timeout: float
) -> VersionAnswer | None:
    """Run a version command. Processes that it leaves in the background end with the tree.

    Args:
        argv: The command that prints the version.
        env: Its whole environment.
        tree: The tree of its processes, whose cookie is in ``env``; the command is its only leader.
        timeout: Seconds after which the command is ended, with all its processes.

    Returns:
        The answer; None if the command did not end in time.

    Raises:
        CannotExecute: The command cannot be executed.
        OSError: No descriptor is left.

    Cancellation: ends the processes.
    """
    with memory_log("version") as output, memory_log("complaints") as errors:
        end = None
        start = partial(spawn, argv, cwd=Path("/"), env=env, output=output, errors=errors)
        tree.add(process := await run_blocking(start))
        try:
            with anyio.move_on_after(timeout):
                end = await process.wait()
        finally:
            if end is None:
                with anyio.CancelScope(shield=True):
                    await tree.end(Grace(_VERSION_GRACE_S))
            tree.release()
        printed = (os.pread(fd, _MAX_VERSION_BYTES, 0) for fd in (output, errors))
        texts = [text.decode(errors="replace").strip() for text in printed]
        return None if end is None else VersionAnswer(end, texts[0] or texts[1])


async def read_version(
    order: StartRequest,
    binary: Path,
    setup: AgentSetup,
    tree: ProcessTree,
    turn: Turn | None = None,
) -> str:
    """Return the output of the version command; '' if it does not end within 20 seconds.

    The command runs outside the sandbox, so it gets an empty home: the agent's home has files of
    the agent, and the path of a home inside a sandbox may belong to another user of this machine. A
    program that a sandboxed agent can write is not run.

    Args:
        order: The order of the start.
        binary: The program.
        setup: The agent.
        tree: The processes of the agent.
        turn: The turn for which the program is started; None if unknown.

    Raises:
        AgentSetupError: The program cannot be executed.
        OSError: No descriptor is left, or the temporary home cannot be created.

    Cancellation: ends the process.
    """
    argv = order.driver.version_argv(str(binary))
    is_writable = order.options.sandbox and binary.is_relative_to(order.directory.workspace)
    if not argv or is_writable:
        return ""
    try:
        async with scratch_directory("clawblox-version-") as home:
            setup = attrs.evolve(setup, home=home, state=home)
            own = {} if turn is None else order.driver.invocation(setup, turn).env
            env = build_environment(order, setup, tree.cookie, own)
            answer = await ask_version(argv, env=env, tree=tree, timeout=20.0)
    except CannotExecute as error:
        hint = "reinstall the program, or give the path of another one with binary="
        raise AgentSetupError(str(error), hint=hint) from error
    return "" if answer is None else answer.text


def check_program(
    order: StartRequest, setup: AgentSetup, env: Mapping[str, str], version: str
) -> list[Requirement]:
    """Let the driver check the program. Blocks.

    Args:
        order: The order of the start.
        setup: The agent.
        env: The environment of the program.
        version: The output of the version command.

    Returns:
        Requirements that may be missing.

    Raises:
        AgentSetupError: A requirement is missing.
    """
    requirements = order.driver.check(setup, env, version)
    if missing := [requirement for requirement in requirements if requirement.is_certain]:
        raise AgentSetupError(
            "; ".join(requirement.problem for requirement in missing),
            kind=next(filter(None, (requirement.kind for requirement in missing)), None),
            hint="; ".join(dict.fromkeys(requirement.hint for requirement in missing)),
        )
    return requirements


async def adopt(order: StartRequest, setup: AgentSetup, start: Continue | Fork) -> None:
    """Let the driver prepare a conversation of this or another agent for continuation.

    Args:
        order: The order of the start.
        setup: The agent.
        start: The conversation.

    Raises:
        OSError: A file cannot be written.

    Cancellation: the conversation may be moved in part; the next start moves the rest.
    """
    driver, interruption = order.driver, Interruption()

    def write() -> None:
        source_id = start.parent_id if isinstance(start, Fork) else start.conversation_id
        driver.adopt(setup, source_id, interruption)
        if isinstance(start, Fork):
            driver.branch(setup, start, interruption)

    await run_interruptible(write, interruption.set)


def write_script(order: StartRequest, enclosed: Enclosed, opening: bytes, cwd: Path) -> None:
    """Write the script that reruns a start by hand, without secrets. Blocks.

    Args:
        order: The order of the start.
        enclosed: The command of the start.
        opening: First bytes of its standard input.
        cwd: Its working directory.

    Raises:
        OSError: The script cannot be written.
    """
    name = " ".join(order.options.name.split())
    lines = ["#!/bin/sh", f"# Reruns the latest start of the agent {name}."]
    lines.append(f"cd {shlex.quote(str(cwd))} || exit 1")
    for name, value in enclosed.env.items():
        if name == INSTANCE_ENV:  # a program run by hand does not belong to an agent
            continue
        if SECRET_NAME.search(name) or value in order.secrets or not name.isidentifier():
            lines.append(f"# {' '.join(name.split())} is taken from your environment.")
        else:
            lines.append(f"{name}={shlex.quote(value)}; export {name}")
    command = shlex.join(enclosed.by_hand or enclosed.argv)
    if opening:
        lines.append(f"printf %s {shlex.quote(opening.decode(errors='replace'))} | {command}")
    else:
        lines.append(f"exec {command} </dev/null")
    text = "\n".join(lines) + "\n"
    publish_bytes(order.directory.command_file, text.encode(), mode=0o700, durable=False)
