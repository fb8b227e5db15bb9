"""Conversations of Codex (``codex-v1``).

Its state directory is what ``CODEX_HOME`` names; the layout is that of 0.169. A conversation is
one file, its rollout, and one more for each thread that it started; all of them can be put into
any home as they are. A rollout that was compressed meanwhile is stored plain, because nobody
could search it for secrets otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.collect.sessions import compressed, transcripts
from clawblox.checkpoint.collect.sessions.shape import (
    UUID,
    Found,
    SessionFormat,
    list_session_files,
)
from clawblox.checkpoint.collect.sessions.transcripts import Record
from clawblox.checkpoint.model import Source, Transform

__all__ = ["CodexFormat"]

_ROLLOUT = re.compile(
    rf"(?P<plain>sessions/\d{{4}}/\d\d/\d\d/rollout-[0-9T-]+-(?P<id>{UUID})\.jsonl)(\.zst)?"
)
_COMPRESSED = ".zst"
_UUID_LENGTH = 36
_UUID_VERSION = 14
_MAX_FIRST_RECORD = 4 << 20
_ENDS = {
    "task_started": False,
    "turn_started": False,
    "user_message": False,
    "task_complete": True,
    "turn_complete": True,
    "turn_aborted": True,
}


class CodexFormat(SessionFormat):
    """The rollouts of a thread and of the threads that it led to."""

    name = "codex-v1"
    backend = "codex"
    own_dir = ".codex"
    id_pattern = re.compile(UUID)
    allowed = re.compile(rf"sessions/\d{{4}}/\d\d/\d\d/rollout-[0-9T-]+-{UUID}\.jsonl")

    def find_in(self, agent_dir: Path, state_dir: str, session_id: str) -> Found | None:
        """Return the rollouts of the recorded thread and its descendants."""
        listed = _rollouts(list_session_files(agent_dir, state_dir, ("sessions",)))
        rollouts = {name: f"{state_dir}/{path}" for name, path in listed.items()}
        own = [name for name in rollouts if _thread(name) == session_id]
        if not own:
            return None
        parents = {
            _thread(name): _parent(_first_record(agent_dir, path))
            for name, path in rollouts.items()
            if not _is_older(_thread(name), session_id)
        }
        family = _family(session_id, parents)
        files = {name: path for name, path in rollouts.items() if _thread(name) in family}
        return Found(state_dir=state_dir, transcript=rollouts[max(own)], files=files)

    def where(self, name: str, session_id: str, workspace: Path) -> str:
        """Return the name itself: Codex finds a thread wherever it was begun."""
        return name

    def source(self, agent_dir: Path, name: str, path: str) -> Source:
        """Return a rollout, decompressed when it is not plain."""
        source = super().source(agent_dir, name, path)
        if not path.endswith(_COMPRESSED):
            return source
        return attrs.evolve(source, transform=_plain(source.path))

    def ends_turn(self, record: Record) -> bool | None:
        """Say whether a turn was begun or ended by an event; other records do not tell."""
        payload = record.get("payload")
        if record.get("type") != "event_msg" or not isinstance(payload, dict):
            return None
        return _ENDS.get(str(payload.get("type")))

    def _is_mid_turn(self, agent_dir: Path, transcript: str) -> bool:
        if not transcript.endswith(_COMPRESSED):
            return super()._is_mid_turn(agent_dir, transcript)
        if not _first_record(agent_dir, transcript):
            raise transcripts.no_record(agent_dir / transcript)
        return False  # Only what has not been touched for long is compressed.


def _plain(path: Path) -> Transform:
    decompress, cut = compressed.decompressing(path), transcripts.rewriting_lines(_only_complete)
    return lambda chunks: cut(decompress(chunks))


def _only_complete(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else b""


def _rollouts(paths: Iterable[str]) -> dict[str, str]:
    """Return where each rollout is, by its plain name; a plain one is newer than its double."""
    found = {}
    for path in sorted(paths, reverse=True):
        match = _ROLLOUT.fullmatch(path)
        if match:
            found[match["plain"]] = path
    return dict(sorted(found.items()))


def _thread(name: str) -> str:
    return name.removesuffix(".jsonl")[-_UUID_LENGTH:]


def _is_older(thread: str, session_id: str) -> bool:
    """Say whether a thread was begun before another; ids of version 7 begin with their time.

    One that was is no descendant, and need not be read: it may be compressed by now.
    """
    return thread[_UUID_VERSION] == session_id[_UUID_VERSION] == "7" and thread < session_id


def _first_record(agent_dir: Path, path: str) -> Record:
    read_head = compressed.read_head if path.endswith(_COMPRESSED) else tree.read_head
    try:
        head = read_head(agent_dir, path, _MAX_FIRST_RECORD)
    except FileNotFoundError:  # it was removed, or compressed just now
        return {}
    except OSError as error:
        raise transcripts.unreadable(agent_dir / path, error) from None
    line, newline, _ = head.partition(b"\n")
    return (transcripts.record_of(line) if newline else None) or {}


def _parent(meta: Record) -> str | None:
    """Return the thread that a thread was started by, from its first record."""
    payload = meta.get("payload")
    if meta.get("type") != "session_meta" or not isinstance(payload, dict):
        return None
    parent = payload.get("parent_thread_id") or _spawning_thread(payload.get("source"))
    return parent if isinstance(parent, str) else None


def _spawning_thread(source: object) -> object:
    for key in ("subagent", "thread_spawn", "parent_thread_id"):
        source = source.get(key) if isinstance(source, dict) else None
    return source


def _family(thread: str, parents: Mapping[str, str | None]) -> set[str]:
    """Return a thread with all that descend from it."""
    family = {thread}
    while more := {each for each, parent in parents.items() if parent in family} - family:
        family |= more
    return family
