"""Session formats of programs that keep a directory of sessions for each working directory.

The name of that directory, the bucket, depends on the absolute path of the workspace. Names in an
archive do not contain it, so a conversation can be restored at any path.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from clawblox.checkpoint.collect.sessions.shape import (
    SessionFiles,
    SessionFormat,
    UnrecordedSession,
    list_session_files,
)
from clawblox.errors import CheckpointError

PathTable = tuple[tuple[str, str], ...]
"""Pairs of prefixes: of a name in the archive, and of its path in the state directory."""


class BucketFormat(SessionFormat):
    """A session format that maps names to paths, and back, by one table of prefixes."""

    transcript: ClassVar[str]
    """Archive name of the main transcript; a session without it does not exist."""

    searched: ClassVar[tuple[str, ...]]
    """Directories below the state directory that hold files of sessions."""

    @abstractmethod
    def bucket(self, workspace: Path) -> str:
        """Return the name of the bucket for a working directory."""

    @abstractmethod
    def path_table(self, session_id: str, bucket: str) -> PathTable:
        """Return the table for one session."""

    def path_in_state(self, name: str, session_id: str, workspace: Path) -> str:
        """Return the path of an allowed file in the bucket of ``workspace``."""
        return _to_path(name, self.path_table(session_id, self.bucket(workspace)))

    def find_in(self, agent_dir: Path, state_dir: str, session_id: str) -> SessionFiles | None:
        """Return the session's files in its bucket; None if no bucket holds its transcript.

        Raises:
            CheckpointError: A directory cannot be read, or several other buckets hold the
                session.
        """
        paths = list_session_files(agent_dir, state_dir, self.searched)
        bucket = self._find_bucket(session_id, paths, agent_dir)
        if bucket is None:
            return None
        listed = {
            prefix + path.removeprefix(place): f"{state_dir}/{path}"
            for prefix, place in self.path_table(session_id, bucket)
            for path in sorted(paths)
            if path.startswith(place)
        }
        files = {name: path for name, path in listed.items() if self.allowed.fullmatch(name)}
        return SessionFiles(
            state_dir=state_dir,
            transcript=files[self.transcript],
            files=files,
            excluded=tuple(name for name in listed if name not in files),
        )

    def find_unrecorded(self, paths: Iterable[str]) -> UnrecordedSession | str:
        """Return the one conversation whose transcript is in a bucket; see the base class."""
        listed = tuple(paths)
        found = [
            (session_id, path.split("/")[1])
            for path in listed
            for session_id in self._ids_in(path)
            if self._is_transcript(path, session_id)
        ]
        if len(found) != 1:
            which = f"{len(found)} transcripts" if found else "no transcript with a valid id"
            return f"the archive has {which}, and does not record which is its conversation"
        session_id, bucket = found[0]
        table = self.path_table(session_id, bucket)
        names = {
            path: prefix + path.removeprefix(place)
            for path in listed
            for prefix, place in table
            if path.startswith(place)
        }
        return UnrecordedSession(id=session_id, names=names)

    def _ids_in(self, path: str) -> set[str]:
        """Return what may be ids of sessions in a path."""
        parts = (part.removesuffix(".jsonl") for part in path.split("/")[2:])
        return {part for part in parts if self.program.id_pattern.fullmatch(part)}

    def _is_transcript(self, path: str, session_id: str) -> bool:
        bucket = path.split("/")[1]
        return path == _to_path(self.transcript, self.path_table(session_id, bucket))

    def _find_bucket(self, session_id: str, paths: Iterable[str], agent_dir: Path) -> str | None:
        """Return the workspace's bucket, else the only one: the workspace may have been moved."""
        own = self.bucket(agent_dir / "workspace")
        holding = {
            bucket
            for bucket in {path.split("/")[1] for path in paths}
            if _to_path(self.transcript, self.path_table(session_id, bucket)) in paths
        }
        if own not in holding and len(holding) > 1:
            raise CheckpointError(
                f"{len(holding)} transcripts for {session_id}, but none for this workspace",
                path=agent_dir,
            )
        return own if own in holding else next(iter(holding), None)


def _to_path(name: str, table: PathTable) -> str:
    return next(
        place + name.removeprefix(prefix) for prefix, place in table if name.startswith(prefix)
    )
