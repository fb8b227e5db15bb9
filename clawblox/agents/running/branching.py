"""Makes the directory of a branch: a copy of an agent's files with a branched conversation.

Nothing in the directory of the original is opened for writing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Final

import anyio

from clawblox.agents.access.agent_access import MAX_RECORD_BYTES
from clawblox.agents.drivers.driver import Driver, Fork
from clawblox.agents.layout import AgentDir
from clawblox.agents.prompts import check_text
from clawblox.agents.running.bookkeeping import Bookkeeping
from clawblox.agents.running.conversation import (
    read_conversation_id,
    read_system_prompt,
    require_transcript,
)
from clawblox.agents.running.start_request import StartRequest
from clawblox.agents.status import read_status
from clawblox.agents.usage import Ledger
from clawblox.agents.values import MOVES, AgentState
from clawblox.concurrency.threads import Interruption, run_blocking, run_interruptible
from clawblox.errors import AgentError, ConfigError, UsageError
from clawblox.supervision.lifecycle import Lifecycle
from clawblox.system.copy_tree import copy_tree
from clawblox.system.files import make_private_dir, partial_name, publish_bytes
from clawblox.system.regular_files import read_file
from clawblox.system.trees import discard_tree
from clawblox.telemetry.events import Hub

_UUID_CHARS: Final = 36


def require_branching(
    driver: Driver, name: str, system_prompt: str | None, *, is_unborn: bool
) -> None:
    """Check that an agent's conversation can be branched.

    Args:
        driver: Its driver.
        name: Its full name.
        system_prompt: The system prompt of the branch; None keeps the original's system prompt.
        is_unborn: Whether the agent is itself a branch without a conversation of its own.

    Raises:
        ConfigError: The program cannot change the system prompt.
        UsageError: The driver cannot branch conversations, or there is no conversation yet.
    """
    program = driver.program.driver
    if not driver.can_branch:
        hint = "start another agent in a copy of its workspace"
        raise UsageError(f"the driver {program!r} cannot branch a conversation", hint=hint)
    if is_unborn:
        hint = "send it a message first, or fork the agent that it came from"
        raise UsageError(f"the branch {name!r} has no conversation of its own yet", hint=hint)
    if system_prompt is None:
        return
    check_text(system_prompt, "system_prompt")
    if driver.keeps_system_prompt:
        message = f"must be left out: {program} keeps the system prompt of a conversation"
        raise ConfigError(message, key="system_prompt")


def require_connection(order: StartRequest) -> None:
    """Check that a branch has the address under which its conversation knows the world. Blocks.

    Without a sandbox, the original's world may answer at that address and accept requests.

    Args:
        order: The first order of the branch.

    Raises:
        UsageError: The branch is not connected.
        AgentResumeError: The recorded address cannot be read.
    """
    access = order.hooks.access
    if access.granted is not None or order.options.sandbox:
        return
    if (address := access.read_recorded()) is not None:
        raise UsageError(
            f"the branch {order.options.name!r} knows its world as {address}, where the original's"
            " world may answer",
            hint="connect it to its own world first: world.connect(agent=branch)",
        )


async def make_branch(
    order: StartRequest,
    books: Bookkeeping | None,
    target: Path,
    system_prompt: str | None,
    require_between_turns: Callable[[], None],
    *,
    is_running: bool,
) -> Fork:
    """Copy an agent's workspace, home and conversation into the directory of a branch.

    Args:
        order: An order of the original.
        books: The original's bookkeeping; None if this process has not started the original.
        target: The directory of the branch, absolute.
        system_prompt: The system prompt of the branch; None keeps the original's system prompt.
        require_between_turns: Raises an error if the original is in a turn.
        is_running: Whether this process runs the original.

    Returns:
        The branch, for its first start.

    Raises:
        UsageError: The directory is in use or within the original, or the original is in a turn,
            run by another process, or needs the address that the branch would need.
        AgentResumeError: The conversation is not recorded, or cannot be continued exactly.
        AgentError: The usage of the original cannot be read, or a file cannot be copied.

    Cancellation: the copy is removed. Call this in a task of its own, so that asyncio's
    ``Task.cancel`` does not interrupt the removal.
    """
    await run_blocking(_require_target, order, target)
    if is_running:
        await run_blocking(_require_shared_address, order)
    if books is None:
        await run_blocking(_require_unowned, order)
        books = Bookkeeping(order, Lifecycle[AgentState](MOVES, "new"), Hub(), 0.0)
        await run_blocking(books.load)
        await books.catch_up()  # in memory only
    parent_id = books.conversation_id
    if parent_id is None:
        parent_id = await run_blocking(read_conversation_id, order)
    await run_blocking(require_transcript, order, parent_id)
    conversation_id = f"{parent_id[:-_UUID_CHARS]}{uuid.uuid4()}"
    if system_prompt is None:
        system_prompt = await run_blocking(read_system_prompt, order)
    ledger, turn = books.ledger.branch(parent_id, conversation_id), books.turn
    interruption = Interruption()
    copy = partial(_copy, order, target, ledger, system_prompt, interruption)
    try:
        copied = await run_interruptible(copy, interruption.set)
    except OSError as error:
        raise AgentError(f"it could not be copied: {error}") from error
    try:
        require_between_turns()  # a message may have started a turn in the meantime
        if books.turn != turn:
            raise UsageError(f"the agent {order.options.name!r} had a turn while it was copied")
        with anyio.CancelScope(shield=True):
            await run_blocking(copied.rename, target)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await run_blocking(discard_tree, copied)
        raise
    return Fork(parent_id, conversation_id, order.options.dir)


def _require_target(order: StartRequest, target: Path) -> None:
    origin = order.options.dir.resolve()
    if target.resolve().is_relative_to(origin):
        raise UsageError(f"dir: must be outside {origin}, the directory of the original")
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise UsageError(f"dir: must be a new or empty directory, not {target}")


def _require_shared_address(order: StartRequest) -> None:
    """Check that a branch can use the address in the conversation of a running agent."""
    address = order.hooks.access.read_recorded()
    if address is not None and not order.options.sandbox:
        raise UsageError(
            f"the agent {order.options.name!r} knows its world as {address}, and without a sandbox"
            " a branch can only have that address when the agent does not run",
            hint="stop it first, and run one branch at a time; or make it with sandbox=True, where"
            " any number run in parallel",
        )


def _require_unowned(order: StartRequest) -> None:
    status = read_status(order.options.dir)
    if status is not None and not status.is_over:
        raise UsageError(
            f"the agent {order.options.name!r} is run by process {status.orchestrator_pid}",
            hint="stop it there first, or fork it there",
        )


def _copy(
    order: StartRequest, target: Path, ledger: Ledger, prompt: str, interruption: Interruption
) -> Path:
    """Return a complete copy, under a temporary name in the same directory. Blocks."""
    origin = order.directory
    partial_dir = target.with_name(partial_name(target.name))
    lead = partial(_lead, str(origin.workspace), str(target / origin.workspace.name))
    make_private_dir(partial_dir)
    try:
        branch = AgentDir(partial_dir)
        for source in (origin.workspace, origin.home, origin.state):
            place = partial_dir / source.name
            copy_tree(source, place, lead=lead, missing_ok=True, check=interruption.check)
        make_private_dir(branch.runtime)
        publish_bytes(branch.system_prompt_file, prompt.encode())
        ledger.write(branch.usage_file)
        with suppress(FileNotFoundError):  # the agent was never connected
            record = read_file(origin.path, origin.access_file.name, max_bytes=MAX_RECORD_BYTES)
            publish_bytes(branch.access_file, record)
    except BaseException:
        discard_tree(partial_dir)
        raise
    return partial_dir


def _lead(origin: str, target: str, link: str, _path: PurePath) -> str:
    """Return the target of a copied link; redirect a link into the original to the branch."""
    return target + link[len(origin) :] if f"{link}/".startswith(f"{origin}/") else link
