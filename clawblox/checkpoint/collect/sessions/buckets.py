"""Session formats of programs that keep a directory of sessions for each working directory.

The name of that directory, the bucket, depends on the absolute path of the workspace. It is no
part of the names in an archive, so that a conversation is found again wherever it is restored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from clawblox.checkpoint.collect.sessions.shape import (
    Found,
    SessionFormat,
    list_session_files,
)
from clawblox.errors import CheckpointError

__all__ = ["BucketFormat", "Homes"]

Homes = tuple[tuple[str, str], ...]
"""Prefixes of names in the archive, each with what stands for it in the state directory."""


class BucketFormat(SessionFormat):
    """One table of prefixes, read in both directions."""

    transcript: ClassVar[str]
    """The archive name of the file that makes a session one."""

    searched: ClassVar[tuple[str, ...]]
    """The directories of the state directory that hold files of sessions."""

    @abstractmethod
    def bucket(self, workspace: Path) -> str:
        """Return the name of the bucket of a working directory."""

    @abstractmethod
    def homes(self, session_id: str, bucket: str) -> Homes:
        """Return the table for one session."""

    def where(self, name: str, session_id: str, workspace: Path) -> str:
        """Return the place of an allowed file in the bucket of ``workspace``."""
        return _place(name, self.homes(session_id, self.bucket(workspace)))

    def find_in(self, agent_dir: Path, state_dir: str, session_id: str) -> Found | None:
        """Return the allowed ones of the files in the session's bucket."""
        paths = list_session_files(agent_dir, state_dir, self.searched)
        bucket = self._bucket_of(session_id, paths, agent_dir)
        if bucket is None:
            return None
        there = {
            prefix + path.removeprefix(home): f"{state_dir}/{path}"
            for prefix, home in self.homes(session_id, bucket)
            for path in sorted(paths)
            if path.startswith(home)
        }
        files = {name: path for name, path in there.items() if self.allowed.fullmatch(name)}
        return Found(
            state_dir=state_dir,
            transcript=files[self.transcript],
            files=files,
            excluded=tuple(name for name in there if name not in files),
        )

    def _bucket_of(self, session_id: str, paths: Iterable[str], agent_dir: Path) -> str | None:
        """Return the workspace's bucket; or the only one, for its path may have been another."""
        own = self.bucket(agent_dir / "workspace")
        holding = {
            bucket
            for bucket in {path.split("/")[1] for path in paths}
            if _place(self.transcript, self.homes(session_id, bucket)) in paths
        }
        if own not in holding and len(holding) > 1:
            raise CheckpointError(
                f"{len(holding)} transcripts for {session_id}, and none is of this workspace",
                path=agent_dir,
            )
        return own if own in holding else next(iter(holding), None)


def _place(name: str, homes: Homes) -> str:
    return next(
        home + name.removeprefix(prefix) for prefix, home in homes if name.startswith(prefix)
    )
