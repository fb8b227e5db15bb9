"""The contents of saves: the world's document and the agents' workspaces, read without unpacking.

A save may be untrusted. It is opened below one directory only, ``checkpoint.archive`` checks names
and headers, links are not followed, and the size of every read is limited. Digests are taken from
the archive; ``clawblox ckpt verify`` compares them with the content. The files below a ``.git`` are
left out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from clawblox.checkpoint.archive.reader import Archive, ArchiveMember, read_member
from clawblox.checkpoint.model import Limits
from clawblox.checkpoint.names import SNAPSHOT_NAME, split_name
from clawblox.differences import common_length
from clawblox.errors import CheckpointError
from clawblox.errors.checkpoint import os_errors_as
from clawblox.experiment.layout import agent_index
from clawblox.foreign_values import clean_value, parse_document
from clawblox.system.amounts import format_bytes
from clawblox.web.files import decode, opened_below

ARCHIVE_LIMITS: Final = Limits(
    entries=50_000, metadata_bytes=32 << 20, directory_bytes=16 << 20, metadata_values=500_000
)
MAX_FILE_BYTES: Final = 1 << 20
"""Maximum number of bytes to read from a file of a workspace."""
_MAX_WORLD_BYTES: Final = 8 << 20
_MAX_WORLD_VALUES: Final = 200_000
_ZIP: Final = b"PK\x03\x04"
_MAX_COMPARED_LINES: Final = 1000
"""Maximum number of lines to compare, since hostile texts take quadratic time."""
_MAX_LINE: Final = 2000
_CONTEXT: Final = 3


@attrs.frozen
class ArchivedFile:
    """A file of a workspace in an open archive.

    Attributes:
        archive: The archive.
        member: The file in the archive; None for a symbolic link.
        target: The target of a link; empty for other files.
    """

    archive: Archive = attrs.field(eq=False, repr=False)
    member: ArchiveMember | None
    target: str = ""

    @property
    def size(self) -> int:
        """Size in bytes; 0 for a link."""
        return self.member.entry.size if self.member else 0

    @property
    def sha256(self) -> str | None:
        """Digest; None if the archive records none, and for a link."""
        return self.member.sha256 if self.member else None

    def is_same(self, other: ArchivedFile) -> bool:
        """Return whether a file of another archive is equal; without digests, compare checksums."""
        own, others = (
            (one.target, one.member and (one.size, one.member.entry.mode, one.member.entry.crc))
            for one in (self, other)
        )
        digests = {self.sha256, other.sha256}
        return own == others and (len(digests) == 1 or None in digests)

    def read(self) -> bytes:
        """Return the content, at most the first MiB, or the target of a link. Blocks.

        Raises:
            CheckpointError: The file is damaged, or cannot be read.
        """
        data = self.target.encode()
        if self.member is not None:
            for chunk in read_member(self.archive.fd, self.archive.path, self.member):
                data += chunk
                if len(data) > MAX_FILE_BYTES:
                    break
        return data[:MAX_FILE_BYTES]


Workspace: TypeAlias = Mapping[str, ArchivedFile]
"""The files of an agent's workspace by their paths, sorted."""


@contextlib.contextmanager
def opened_save(root: Path, path: Path) -> Iterator[int]:
    """Open a save for reading while the block runs, and yield its descriptor.

    Args:
        root: The directory that must contain the save; see :func:`opened_below`.
        path: The file.

    Raises:
        CheckpointError: The file is outside the root, or cannot be read.
    """
    with os_errors_as("it cannot be read", path), opened_below(root, path) as fd:
        yield fd


@contextlib.contextmanager
def opened_workspaces(root: Path, path: Path) -> Iterator[Mapping[str, Workspace]]:
    """Yield the workspaces in an archive, by the names of their agents, while the block runs.

    Args:
        root: As for :func:`opened_save`.
        path: The archive.

    Raises:
        CheckpointError: The archive cannot be opened, is damaged, or is too large to be shown.
    """
    with opened_save(root, path) as fd:
        archive = Archive(fd, path, ARCHIVE_LIMITS)
        files = {one.name: ArchivedFile(archive, archive.member(one)) for one in archive.entries}
        for one in archive.metadata.get("symlinks", ()):
            files[one["path"]] = ArchivedFile(archive, None, one["target"])
        agents = sorted(archive.metadata.get("agents", ()))
        workspaces: dict[str, dict[str, ArchivedFile]] = {agent: {} for agent in agents}
        for name in sorted(files):
            agent, tier, place = split_name(name) or ("", "", "")
            if tier == "workspace" and "/.git/" not in f"/{place}":
                workspaces.setdefault(agent, {})[place] = files[name]
        yield workspaces


def read_world(root: Path, path: Path) -> Any:  # noqa: ANN401 - JSON
    """Return the world document of a snapshot or an archive. Blocks.

    Args:
        root: As for :func:`opened_save`.
        path: The file.

    Raises:
        CheckpointError: The file cannot be opened, or is damaged; or the document is missing, not
            JSON, or too large to be shown.
    """
    with opened_save(root, path) as fd:
        size, chunks = os.fstat(fd).st_size, iter((os.pread(fd, _MAX_WORLD_BYTES, 0),))
        if os.pread(fd, len(_ZIP), 0) == _ZIP:
            archive = Archive(fd, path, ARCHIVE_LIMITS)
            found = [entry for entry in archive.entries if entry.name == SNAPSHOT_NAME]
            size, chunks = (found[0].size, archive.stream(found[0])) if found else (0, iter(()))
        if not 0 < size <= _MAX_WORLD_BYTES:
            most = format_bytes(_MAX_WORLD_BYTES)
            raise CheckpointError(f"it has no world document of at most {most}", path=path)
        data = b"".join(chunks)
    try:
        return clean_value(parse_document(data, max_members=_MAX_WORLD_VALUES))
    except ValueError as error:
        raise CheckpointError(f"no JSON document of a world: {error}", path=path) from error


# -- differences ----------------------------------------------------------------------------------


@attrs.frozen
class FileChange:
    """A file that differs between two workspaces.

    Attributes:
        path: Its path in both.
        before: The file in the first one; None if it was added.
        after: The file in the second one; None if it was removed.
    """

    path: str
    before: ArchivedFile | None
    after: ArchivedFile | None

    @property
    def kind(self) -> str:
        """The kind of change, in a word."""
        return "added" if not self.before else "changed" if self.after else "removed"


def find_changes(before: Workspace, after: Workspace) -> list[FileChange]:
    """Return the files that were added, removed or changed, sorted by path."""
    paths = sorted(before.keys() | after.keys())
    files = [FileChange(path, before.get(path), after.get(path)) for path in paths]
    return [f for f in files if not (f.before and f.after and f.before.is_same(f.after))]


def pair_agents(before: Collection[str], after: Iterable[str]) -> dict[str, str | None]:
    """Match each agent of an archive with the agent of another archive that it descends from.

    In an experiment the name of an agent contains its attempt and differs between generations, so
    the index at the end of the name is used.

    Args:
        before: The agents of the parent.
        after: The agents of the other archive.

    Returns:
        The name of the parent's agent, or None, by the name of each other agent.
    """
    places = {agent_index(name): name for name in before}
    if len(places) < len(before):  # the names do not end with unique indices
        places = {}
    return {name: name if name in before else places.get(agent_index(name)) for name in after}


def diff_texts(before: bytes, after: bytes) -> list[str]:
    """Return the lines in which two texts differ, with three lines of context.

    The first character of a line is ``-`` for a line of the first text, ``+`` for a line of the
    second, a space for a common line, and ``@`` for a note, such as why texts are not compared. A
    newline at the end of a text counts as an empty last line.

    Args:
        before: The first text.
        after: The second text.
    """
    if b"\0" in before + after or max(len(before), len(after)) == MAX_FILE_BYTES:
        return ["@ It is not text, or it is too large to be compared."]
    ours, theirs = before.split(b"\n"), after.split(b"\n")
    skipped = max(common_length(ours, theirs) - _CONTEXT, 0)
    ours, theirs = ours[skipped:], theirs[skipped:]
    tail = max(common_length(ours[::-1], theirs[::-1]) - _CONTEXT, 0)
    ours, theirs = ours[: len(ours) - tail], theirs[: len(theirs) - tail]
    if max(len(ours), len(theirs)) > _MAX_COMPARED_LINES:
        return [f"@ More than {_MAX_COMPARED_LINES} lines would have to be compared."]
    lines: list[tuple[str, bytes]] = []
    for group in SequenceMatcher(None, ours, theirs).get_grouped_opcodes(_CONTEXT):
        lines.append(("@", f"line {skipped + group[0][3] + 1}".encode()))
        for kind, first, last, start, end in group:
            sign = " " if kind == "equal" else "-"
            lines += [(sign, line) for line in ours[first:last]]
            lines += [("+", line) for line in theirs[start:end] if kind != "equal"]
    return [f"{sign} {decode(line[:_MAX_LINE])}" for sign, line in lines]
