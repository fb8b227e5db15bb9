"""Conversations of Codex (``codex-v1``).

``CODEX_HOME`` names its state directory. The layout is from version 0.169. A conversation consists
of the rollout files of its thread and of all threads that it started, and of the rollouts in their
history: rollouts before a revert, and rollouts of a thread from which one was forked. They can be
restored unchanged in any home. A compressed rollout is archived uncompressed, so that the secret
scan can read it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.programs import CODEX
from clawblox.agents.programs.program import ROLLOUT, rollout_id, thread_id
from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.collect.conversations import transcripts
from clawblox.checkpoint.collect.conversations.shape import (
    WITHOUT_CONVERSATIONS,
    ConversationFiles,
    ConversationFormat,
    list_conversation_files,
)
from clawblox.checkpoint.collect.conversations.transcripts import Record
from clawblox.checkpoint.model import Source, Transform
from clawblox.errors import CheckpointError
from clawblox.extras import install_command
from clawblox.foreign_values import parse_object
from clawblox.system import regular_files
from clawblox.zstd import find_zstandard

_SLICE: Final = 256
"""Bytes to decompress at a time; in memory they may expand 40,000 times."""


def _decompression(path: Path) -> Transform:
    """Return a transform that decompresses a file with a single frame.

    Args:
        path: Path of the file, for error messages.

    Raises:
        CheckpointError: This Python cannot decompress the file; also raised by the transform for a
            damaged file.
    """
    zstandard = find_zstandard()
    if zstandard is None:
        raise CheckpointError(
            "cannot scan a compressed conversation for secrets",
            path=path,
            hint=f"use Python 3.14, or {install_command('zstd')}",
        )

    def transform(chunks: Iterable[bytes]) -> Iterator[bytes]:
        frame = zstandard.open_frame()
        try:
            for chunk in chunks:
                for start in range(0, len(chunk), _SLICE):
                    yield frame.decompress(chunk[start : start + _SLICE])
        except (zstandard.error, EOFError) as error:
            raise CheckpointError(
                f"{path.name!a:.60} cannot be decompressed: {error}", path=path
            ) from None
        if not frame.eof:
            raise CheckpointError(
                f"{path.name!a:.60} cannot be decompressed, because its end is missing", path=path
            )

    return transform


def _read_compressed_head(root: Path, path: str, size: int) -> bytes:
    """Return at least the first ``size`` bytes of the content of a compressed file.

    Raises:
        OSError: The file does not exist or is not a regular file.
        CheckpointError: This Python cannot decompress the file, or the file is damaged.
    """
    transform = _decompression(root / path)
    head = b""
    with os.fdopen(regular_files.open_file(root, path), "rb") as file:
        for piece in transform(iter(lambda: file.read(_SLICE), b"")):
            head += piece
            if len(head) >= size:
                break
    return head


_COMPRESSED = ".zst"
_UUID_VERSION = 14
_MAX_FIRST_RECORD = 1 << 20
_ENDS_TURN = {
    "task_started": False,
    "turn_started": False,
    "user_message": False,
    "task_complete": True,
    "turn_complete": True,
    "turn_aborted": True,
}


_ACTIVE = "sessions"


class CodexFormat(ConversationFormat):
    """The rollouts of a thread and of all threads that it started, with their whole history."""

    name = "codex-v1"
    program = CODEX
    resume_words = ("codex", "resume")
    allowed = ROLLOUT

    def find_in(
        self, agent_dir: Path, state_dir: str, conversation_id: str
    ) -> ConversationFiles | None:
        """Return the rollouts of the recorded thread and its descendants; None if it has none.

        Raises:
            CheckpointError: A directory or a rollout cannot be read, or a rollout in the history of
                the newest is missing, so that Codex would not resume the conversation.
        """
        listed = _rollouts(
            list_conversation_files(agent_dir, state_dir, (_ACTIVE, "archived_sessions"))
        )
        rollouts = {name: f"{state_dir}/{path}" for name, path in listed.items()}
        threads = {name: str(thread_id(name)) for name in rollouts}
        own = [name for name, thread in threads.items() if thread == conversation_id]
        newest = max(own, default="")
        if not newest.startswith(f"{_ACTIVE}/"):
            return None

        @functools.cache
        def read_first(name: str) -> Record:
            return _first_record(agent_dir, rollouts[name])

        parents: dict[str, str | None] = {}
        for name, thread in threads.items():
            if not _is_older(thread, conversation_id):
                parents[thread] = _parent(read_first(name)) or parents.get(thread)
        family = _family(conversation_id, parents)
        members = [name for name, thread in threads.items() if thread in family]
        by_id = {str(rollout_id(name)): name for name in rollouts}
        found: set[str] = set()
        missing = _add_history(found, newest, by_id, read_first)
        if missing is not None:
            raise CheckpointError(
                f"the history of {newest!a:.120} refers to rollout {missing!a:.60}, which is "
                "missing",
                hint=WITHOUT_CONVERSATIONS,
            )
        for member in members:
            _add_history(found, member, by_id, read_first)
        files = {name: path for name, path in rollouts.items() if name in found}
        return ConversationFiles(state_dir=state_dir, transcript=rollouts[newest], files=files)

    def find_ids(self, agent_dir: Path, state_dir: str) -> Iterable[str]:
        """Return the threads that were not started by another thread.

        Raises:
            CheckpointError: A directory or a rollout cannot be read.
        """
        rollouts = _rollouts(list_conversation_files(agent_dir, state_dir, (_ACTIVE,)))
        parents = {
            str(thread_id(name)): _parent(_first_record(agent_dir, f"{state_dir}/{path}"))
            for name, path in rollouts.items()
        }
        return {thread for thread, parent in parents.items() if parent not in parents}

    def path_in_state(self, name: str, conversation_id: str, workspace: Path) -> str:
        """Return the name unchanged, because Codex finds a thread in any workspace."""
        return name

    def source(self, agent_dir: Path, name: str, path: str) -> Source:
        """Return a rollout; a compressed rollout is decompressed while it is read.

        Raises:
            CheckpointError: This Python cannot decompress the rollout.
        """
        source = super().source(agent_dir, name, path)
        if not path.endswith(_COMPRESSED):
            return source
        transform = transcripts.chain(_decompression(source.path), transcripts.whole_records)
        return attrs.evolve(source, whole_lines=False, transform=transform)

    def ends_turn(self, record: Record) -> bool | None:
        """Return True if an event ends a turn, False if it starts one, None for other records."""
        return _ENDS_TURN.get(str(_payload(record, "event_msg").get("type")))

    def _is_mid_turn(self, agent_dir: Path, transcript: str) -> bool:
        if not transcript.endswith(_COMPRESSED):
            return super()._is_mid_turn(agent_dir, transcript)
        if not _first_record(agent_dir, transcript):
            raise transcripts.empty_transcript_error(agent_dir / transcript)
        return False  # Codex compresses only rollouts that have been idle for a long time.


def _rollouts(paths: Iterable[str]) -> dict[str, str]:
    """Return the path of each rollout by its uncompressed name; an uncompressed copy wins."""
    newest_last = sorted(paths, reverse=True)
    rollouts = {path.removesuffix(_COMPRESSED): path for path in newest_last}
    return {name: path for name, path in sorted(rollouts.items()) if ROLLOUT.fullmatch(name)}


def _is_older(thread: str, conversation_id: str) -> bool:
    """Return whether a thread is older than another; ids of version 7 start with the time.

    An older thread cannot be a descendant, so it need not be read; it may be compressed by now.
    """
    return (
        thread[_UUID_VERSION] == conversation_id[_UUID_VERSION] == "7" and thread < conversation_id
    )


def _first_record(agent_dir: Path, path: str) -> Record:
    read_head = _read_compressed_head if path.endswith(_COMPRESSED) else tree.read_head
    try:
        head = read_head(agent_dir, path, _MAX_FIRST_RECORD)
    except FileNotFoundError:  # removed or compressed since the listing
        return {}
    except OSError as error:
        raise tree.unreadable_error(agent_dir / path, error) from None
    return parse_object(head.partition(b"\n")[0], max_members=10_000) or {}


def _parent(first: Record) -> str | None:
    """Return the parent of a thread, from its first record; None for a root."""
    meta = _payload(first, "session_meta")
    parent = meta.get("parent_thread_id")
    if not parent:
        parent = meta.get("source")
        for key in ("subagent", "thread_spawn", "parent_thread_id"):
            parent = parent.get(key) if isinstance(parent, dict) else None
    return parent if isinstance(parent, str) else None


def _add_history(
    found: set[str], name: str, names: Mapping[str, str], read_first: Callable[[str], Record]
) -> str | None:
    """Add a rollout and all rollouts in its history.

    Args:
        found: The rollouts so far, each with its history.
        name: The rollout.
        names: The names of all rollouts, by their ids.
        read_first: Returns the first record of a rollout.

    Returns:
        The id of a missing rollout; None if all exist.
    """
    while name not in found:
        found.add(name)
        base = _base(read_first(name))
        if base is None:
            break
        if base not in names:
            return base
        name = names[base]
    return None


def _base(first: Record) -> str | None:
    """Return the rollout that a rollout continues, from its first record, or None."""
    base = _payload(first, "session_meta").get("history_base")
    rollout = base.get("thread_id") if isinstance(base, dict) else None
    return rollout if isinstance(rollout, str) else None


def _payload(record: Record, kind: str) -> Record:
    """Return the payload of a record of this kind; empty for other records."""
    payload = record.get("payload")
    return payload if record.get("type") == kind and isinstance(payload, dict) else {}


def _family(thread: str, parents: Mapping[str, str | None]) -> set[str]:
    """Return a thread and all its descendants."""
    family = {thread}
    while children := {child for child, parent in parents.items() if parent in family} - family:
        family |= children
    return family
