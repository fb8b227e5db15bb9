"""Conversations of programs that keep them in a directory per workspace, such as Kimi Code.

The name of that directory, the bucket, depends on the absolute path of the workspace. Names in an
archive do not contain the bucket, so a conversation can be restored at any path.

The layout of Kimi Code is from version 2.1; ``KIMI_CODE_HOME`` names the state directory. Kimi
refuses a conversation of another working directory, and reuses the permissions recorded in it. An
archive therefore contains placeholders for the absolute paths in ``state.json`` and for the
workspace id in the transcripts; a restore replaces them. Permissions are never archived. The rest
of a Kimi transcript is unchanged: it refers to images by digest and to commands by id, independent
of the path, and other paths are only in the text of messages.
"""

from __future__ import annotations

import functools
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Final

from clawblox.agents.programs import KIMI
from clawblox.agents.programs.kimi import (
    AGENT_NAME,
    BLOB_NAME,
    MAIN_TRANSCRIPT,
    MEDIA_NAME,
    PLAN_NAME,
    STATE_FILE,
    TASK_NAME,
    BlobDigest,
    bind_record,
    bind_state,
    work_dir_key,
)
from clawblox.agents.programs.program import UUID
from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.collect.conversations import transcripts
from clawblox.checkpoint.collect.conversations.shape import (
    ConversationFiles,
    ConversationFormat,
    UnrecordedConversation,
    list_conversation_files,
)
from clawblox.checkpoint.collect.conversations.transcripts import Record
from clawblox.checkpoint.model import RejectedContent, Transform
from clawblox.errors import CheckpointError, CheckpointFormatError

PathTable = tuple[tuple[str, str], ...]
"""Pairs of prefixes: of names in the archive, and of their paths in the state directory."""


class BucketFormat(ConversationFormat):
    """A conversation format that maps names to paths and back with a table of prefixes."""

    transcript: ClassVar[str]
    """Archive name of the main transcript, which every conversation has."""

    searched: ClassVar[tuple[str, ...]]
    """Directories in the state directory that contain files of conversations."""

    @abstractmethod
    def bucket(self, workspace: Path) -> str:
        """Return the name of the bucket for a working directory."""

    @abstractmethod
    def path_table(self, conversation_id: str, bucket: str) -> PathTable:
        """Return the table for a conversation."""

    def path_in_state(self, name: str, conversation_id: str, workspace: Path) -> str:
        """Return the path of an allowed file in the bucket of ``workspace``."""
        return _to_path(name, self.path_table(conversation_id, self.bucket(workspace)))

    def find_in(
        self, agent_dir: Path, state_dir: str, conversation_id: str
    ) -> ConversationFiles | None:
        """Return the conversation's files in its bucket; None if no bucket has the transcript.

        Raises:
            CheckpointError: A directory cannot be read, or the transcript is in several other
                buckets.
        """
        unreadable: list[str] = []
        paths = list_conversation_files(agent_dir, state_dir, self.searched, unreadable)
        bucket = self._find_bucket(conversation_id, paths, agent_dir)
        table = () if bucket is None else self.path_table(conversation_id, bucket)
        places = [f"{state_dir}/{place}" for _, place in table]
        for path in unreadable:
            # Without a transcript, the conversation may be in any directory.
            if not places or any(_is_related(path, place) for place in places):
                raise tree.forbidden_error(agent_dir / path)
        if not table:
            return None
        listed = {
            prefix + path.removeprefix(place): f"{state_dir}/{path}"
            for prefix, place in table
            for path in sorted(paths)
            if path.startswith(place)
        }
        files = {name: path for name, path in listed.items() if self.allows(name)}
        return ConversationFiles(
            state_dir=state_dir, transcript=files[self.transcript], files=files
        )

    def find_ids(self, agent_dir: Path, state_dir: str) -> Iterable[str]:
        """Return the ids of the conversations whose transcript is in a bucket."""
        paths = list_conversation_files(agent_dir, state_dir, self.searched)
        return {conversation_id for conversation_id, _ in self._candidates(paths)}

    def has_own_layout(self, paths: Iterable[str]) -> bool:
        """Return whether the files are named as this package names them; see the base class.

        The transcript decides, because other names, such as names of plans, are the same in both
        layouts.
        """
        listed = frozenset(paths)
        if self.transcript in listed:
            return True
        return super().has_own_layout(listed) and not self._candidates(listed)

    def find_unrecorded(self, paths: Iterable[str]) -> UnrecordedConversation | str:
        """Return the only conversation whose transcript is in a bucket; see the base class."""
        listed = tuple(paths)
        candidates = self._candidates(listed)
        if len(candidates) != 1:
            which = (
                f"{len(candidates)} transcripts" if candidates else "no transcript with a valid id"
            )
            return f"the archive has {which}, and does not record the id of the conversation"
        conversation_id, bucket = candidates[0]
        table = self.path_table(conversation_id, bucket)
        names = {
            path: prefix + path.removeprefix(place)
            for path in listed
            for prefix, place in table
            if path.startswith(place)
        }
        return UnrecordedConversation(id=conversation_id, names=names)

    def _candidates(self, paths: Iterable[str]) -> list[tuple[str, str]]:
        """Return id and bucket of each transcript."""
        return [
            (conversation_id, path.split("/")[1])
            for path in paths
            for conversation_id in {part.removesuffix(".jsonl") for part in path.split("/")[2:]}
            if self.program.id_pattern.fullmatch(conversation_id)
            and self._is_transcript(path, conversation_id)
        ]

    def _is_transcript(self, path: str, conversation_id: str) -> bool:
        bucket = path.split("/")[1]
        return path == _to_path(self.transcript, self.path_table(conversation_id, bucket))

    def _find_bucket(
        self, conversation_id: str, paths: Iterable[str], agent_dir: Path
    ) -> str | None:
        """Return the workspace's bucket, or the only other bucket with the transcript."""
        own = self.bucket(agent_dir / "workspace")
        holding = {
            bucket
            for bucket in {path.split("/")[1] for path in paths}
            if _to_path(self.transcript, self.path_table(conversation_id, bucket)) in paths
        }
        if own not in holding and len(holding) > 1:
            raise CheckpointError(
                f"{len(holding)} transcripts for {conversation_id}, but none for this workspace",
                path=agent_dir,
            )
        return own if own in holding else next(iter(holding), None)


def _is_related(path: str, place: str) -> bool:
    """Return whether a directory contains a place of the path table, or is below one."""
    return place.startswith(f"{path}/") or f"{path}/".startswith(place)


def _to_path(name: str, table: PathTable) -> str:
    return next(
        place + name.removeprefix(prefix) for prefix, place in table if name.startswith(prefix)
    )


_WORKSPACE: Final = "${workspace}"
_HOME: Final = "${home}"
_ENDS_TURN: Final = {
    "turn.prompt": False,
    "turn.steer": False,
    "turn.ended": True,
    "turn.cancel": True,
}


class KimiFormat(BucketFormat):
    """The state of a conversation, and its agents' transcripts, plans, images and long outputs.

    The record of a command may contain a process id, which Kimi only shows: on a resume, it marks
    every unfinished command as lost. Older versions keep the commands next to the agents.
    """

    name = "kimi-code-v1"
    program = KIMI
    resume_words = ("kimi", "-r")
    allowed = re.compile(
        r"state\.json"
        rf"|agents/{AGENT_NAME}/(?:wire\.jsonl|plans/{PLAN_NAME}\.md|blobs/{BLOB_NAME}"
        rf"|tool-results/[A-Za-z0-9._-]{{1,80}}-{UUID}\.txt)"
        rf"|(?:agents/{AGENT_NAME}/)?tasks/{TASK_NAME}(?:\.json|/output\.log)"
        rf"|media/(?:{MEDIA_NAME}(?:\.[A-Za-z0-9]{{1,16}})?|meta/{MEDIA_NAME}\.json)"
        r"|media-originals/[0-9a-f]{32}\.[a-z]{3,4}"
    )
    transcript = MAIN_TRANSCRIPT
    searched = ("sessions",)

    def bucket(self, workspace: Path) -> str:
        """Return the name of the directory with the conversations of a workspace."""
        return work_dir_key(workspace)

    def path_table(self, conversation_id: str, bucket: str) -> PathTable:
        """Return the table with the conversation's directory, which contains all its files."""
        return (("", f"sessions/{bucket}/{conversation_id}/"),)

    def save_transform(self, name: str) -> Transform | None:
        """Return the transform that inserts placeholders and drops permissions, or checks a blob.

        Raises:
            CheckpointFormatError: ``state.json`` is not a JSON object, or a record is too large;
                raised by the transform itself.
            RejectedContent: The content of a blob does not match its name; raised by the transform
                itself.
        """
        if name == STATE_FILE:
            rewrite = functools.partial(_bind_document, cwd=_WORKSPACE, home=_HOME)
            return transcripts.document_transform(rewrite)
        return _transform_part(name, _WORKSPACE)

    def load_transform(
        self, name: str, conversation_id: str, workspace: Path, state_dir: str
    ) -> Transform | None:
        """Return the transform that inserts paths and workspace id, or checks a blob.

        The transform drops permissions, and references to files outside the conversation.

        Raises:
            CheckpointFormatError: As in :meth:`save_transform`.
            RejectedContent: As in :meth:`save_transform`.
        """
        if name == STATE_FILE:
            directory = self.path_in_state("", conversation_id, workspace)
            rewrite = functools.partial(
                _bind_document,
                cwd=os.path.realpath(workspace),
                home=os.path.realpath(workspace.parent / state_dir / directory),
            )
            return transcripts.document_transform(rewrite)
        return _transform_part(name, work_dir_key(workspace))

    def ends_turn(self, record: Record) -> bool | None:
        """Return True if a record ends a turn, False if it starts one, None for other records."""
        return _ENDS_TURN.get(str(record.get("type")))


def _bind_document(document: bytes, *, cwd: str, home: str) -> bytes:
    try:
        return bind_state(document, cwd=cwd, home=home)
    except ValueError as error:
        raise CheckpointFormatError(str(error), entry=STATE_FILE) from None


def _transform_part(name: str, workspace_id: str) -> Transform | None:
    """Return the transform of a file whose content does not depend on a path."""
    directory, _, file = name.rpartition("/")
    if directory.endswith("/blobs"):
        return functools.partial(_check_blob, file)
    if name.endswith(".jsonl"):
        return transcripts.line_transform(functools.partial(bind_record, workspace_id))
    return None


def _check_blob(name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of a blob unchanged.

    Raises:
        RejectedContent: The content does not match the name; raised at the end.
    """
    digest = BlobDigest()
    for chunk in chunks:
        digest.update(chunk)
        yield chunk
    if name not in digest.names():
        raise RejectedContent("its content does not match its name")
