"""The conversation of an agent: its record, and the proof on disk that a program is in it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.drivers.driver import Fork
from clawblox.agents.running.start_request import StartRequest
from clawblox.errors import AgentResumeError
from clawblox.system.regular_files import open_file, read_file

_MAX_ID_BYTES: Final = 4096
_MAX_PROMPT_BYTES: Final = 16 << 20


@attrs.frozen(kw_only=True)
class Expected:
    """The conversation that a process should be in, and how to prove it.

    Attributes:
        id: Its id; None for a new conversation whose id the program chooses.
        is_resumed: Whether an existing conversation is continued.
        before: Extent of each conversation before the process ran; None if only the program's
            output can prove which conversation it is in.
        id_pattern: Pattern of the program's conversation ids.
    """

    id: str | None
    is_resumed: bool
    before: Mapping[str, int] | None
    id_pattern: re.Pattern[str]


def read_conversation_id(order: StartRequest) -> str:
    """Return the recorded conversation id.

    Raises:
        AgentResumeError: No id is recorded, or the text is not a conversation id of the program.
    """
    path = order.directory.path / order.driver.program.id_file
    text = _read_recorded(path, _MAX_ID_BYTES, "conversation").strip()
    if not order.driver.program.id_pattern.fullmatch(text):
        agent = order.options.agent
        raise _refusal(f"{path.name}: must be a conversation id of {agent}, not {text!r}")
    return text


def find_branch(order: StartRequest, branch: Fork) -> str | None:
    """Return the id of the new conversation of a branch; None before it exists."""
    transcripts = order.driver.transcripts(order.directory) or {}
    return branch.conversation_id if branch.conversation_id in transcripts else None


def read_system_prompt(order: StartRequest) -> str:
    """Return the recorded system prompt.

    Raises:
        AgentResumeError: No system prompt is recorded.
    """
    return _read_recorded(order.directory.system_prompt_file, _MAX_PROMPT_BYTES, "system prompt")


def _read_recorded(path: Path, max_bytes: int, name: str) -> str:
    try:
        return read_file(path.parent, path.name, max_bytes=max_bytes).decode()
    except (OSError, ValueError) as error:
        raise _refusal(f"its {name} is not recorded: {path} is missing") from error


def require_transcript(order: StartRequest, conversation_id: str) -> None:
    """Check that a conversation can be continued where it ended.

    Raises:
        AgentResumeError: Its transcript is missing, empty, or ends within a line.
    """
    transcripts = order.driver.transcripts(order.directory)
    if transcripts is None:
        return
    path = transcripts.get(conversation_id)
    if path is None:
        state = order.directory.state
        raise _refusal(f"conversation {conversation_id} has no transcript below {state}")
    problem = _find_fault(order.directory.state, path)
    if problem is not None:
        raise _refusal(f"the transcript of conversation {conversation_id} {problem}: {path}")


def _find_fault(state: Path, path: Path) -> str | None:
    try:
        with os.fdopen(open_file(state, str(path.relative_to(state))), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            if not size:
                return "is empty"
            file.seek(size - 1)
            is_torn = path.suffix == ".jsonl" and file.read(1) != b"\n"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "ends in the middle of a line" if is_torn else None


def find_proof(order: StartRequest, expected: Expected) -> str | None:
    """Return the conversation that a program is in, if files on disk prove it.

    Args:
        order: The order of the start.
        expected: The expected conversation.

    Returns:
        The expected conversation if its transcript has grown; otherwise the only conversation that
        is new or, on a resume, has grown; None if no conversation or several have.

    Raises:
        OSError: A file of the program cannot be read.
    """
    before, now = expected.before, order.driver.progress(order.directory)
    if before is None or now is None:
        return None
    grown = [name for name, extent in now.items() if extent > before.get(name, 0)]
    if expected.id in grown:
        return expected.id
    if not expected.is_resumed:
        grown = [name for name in grown if name not in before]
    return grown[0] if len(grown) == 1 else None


def _refusal(message: str) -> AgentResumeError:
    hint = "load the agent's directory from an archive, or start a new conversation"
    return AgentResumeError(message, kind="resume", hint=hint)
