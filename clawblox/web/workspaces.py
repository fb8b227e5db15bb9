"""The workspaces of agents in archives, as files to look at and to compare; nothing is unpacked.

An archive may come from a stranger. ``checkpoint.archive`` checks its names and headers, no link is
followed, and every read has a limit. A list needs the first bytes of each file only, so digests are
those that the archive records: ``clawblox ckpt verify`` compares them with the content.

A git repository of a workspace is in the archive as its plain files: the work tree can be shown,
and the files below a git directory are objects and packs, of the kind ``git``. Files that a load
writes anew, such as a repository's ``config``, are in no archive.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

import attrs

from clawblox.checkpoint.archive.layout import STORED
from clawblox.checkpoint.archive.reader import Archive, Member, read_member
from clawblox.checkpoint.archive.registry import ARCHIVE_FORMAT
from clawblox.checkpoint.collect import policy
from clawblox.checkpoint.model import Limits
from clawblox.checkpoint.names import split_name
from clawblox.errors import CheckpointLimitError
from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.layout import agent_index, archive_path, chain_dir
from clawblox.experiment.record import ExperimentRecord
from clawblox.experiment.tables.chain_files import moved_attempts
from clawblox.rundir.manifest import Manifest
from clawblox.rundir.manifest_entries import is_placed, objects_in, read_text
from clawblox.rundir.paths import make_stamp
from clawblox.web.files import MAX_WINDOW_BYTES, Window, cut_window, opened_below
from clawblox.web.text_diff import TextDiff, diff_texts

Kind: TypeAlias = Literal["text", "binary", "git", "link"]
_T = TypeVar("_T")

ARCHIVE_LIMITS: Final = Limits(
    entries=50_000, metadata_bytes=32 << 20, directory_bytes=16 << 20, metadata_values=500_000
)
_CACHE_BYTES: Final = 64 << 20
_ENTRY_BYTES: Final = 1000
"""Memory that a file takes in the cache beside its name, in bytes."""
_HEAD_BYTES: Final = 8000
"""Bytes in which a file with a NUL is binary, as for git."""
_MAX_SKIPPED: Final = 64 << 20
"""Bytes of a file that can be shown: those before a window have to be decompressed."""
_MAX_COMPARED: Final = 1 << 20


@attrs.frozen(kw_only=True)
class ArchivedFile:
    """A file of a workspace.

    Attributes:
        path: Its path in the workspace.
        kind: Whether it is a text, binary, a part of a git directory, or a symbolic link.
        size: Its size in bytes; 0 for a link.
        mode: 0o700 if its owner may execute it, else 0o600.
        sha256: Its digest as the archive records it; None if it records none, and for a link.
        crc: Its CRC-32; 0 for a link.
        target: Where a link leads; empty for other files.
    """

    path: str
    kind: Kind
    size: int = 0
    mode: int = 0o600
    sha256: str | None = None
    crc: int = 0
    target: str = ""


@attrs.frozen(kw_only=True)
class Workspace:
    """The workspace of an agent in an archive.

    Attributes:
        agent: Name of the agent.
        files: Its files by their paths, sorted.
        excluded: Why files were left out of the archive, by their paths.
        members: Its files that are no links, as members of the archive.
    """

    agent: str
    files: Mapping[str, ArchivedFile]
    excluded: Mapping[str, str]
    members: Mapping[str, Member] = attrs.field(repr=False)

    @property
    def size(self) -> int:
        """Size of all its files in bytes."""
        return sum(file.size for file in self.files.values())


class Workspaces:
    """Reads workspaces from archives, and remembers their lists; thread-safe. Blocks.

    Args:
        root: The directory that archives must be in; see :func:`opened_below`.
        max_bytes: Approximate memory for the lists, in bytes.
    """

    def __init__(self, root: Path, *, max_bytes: int = _CACHE_BYTES) -> None:
        self._root = root
        self._room = max_bytes
        self._lists: OrderedDict[tuple[object, ...], dict[str, Workspace]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, archive: Path) -> dict[str, Workspace]:
        """Return the workspaces in an archive by the names of their agents.

        Args:
            archive: The archive.

        Raises:
            OSError: It is not below the root, or cannot be opened.
            CheckpointError: It is not sound, or too large to be shown.
        """
        with opened_below(self._root, archive) as fd:
            return self._list(fd, archive)

    def read_window(
        self, archive: Path, agent: str, path: str, start: int = 0, max_bytes: int = 64 << 10
    ) -> Window:
        """Return the window of a file that begins at an offset, as :func:`read_from` does.

        Args:
            archive: The archive.
            agent: The agent.
            path: Path of the file in its workspace.
            start: The offset, below 64 MiB.
            max_bytes: Maximum size of the window, at most 256 KiB.

        Raises:
            LookupError: There is no such agent, or no such file, or it is a link.
            OSError: As in :meth:`read`.
            CheckpointError: As in :meth:`read`; or the file is damaged, or the offset too large.
        """
        with opened_below(self._root, archive) as fd:
            member = self._list(fd, archive)[agent].members[path]
            size = member.entry.size
            start = min(max(start, 0), size)
            if start > _MAX_SKIPPED:
                message = f"only the first {_MAX_SKIPPED} bytes of a file can be shown"
                raise CheckpointLimitError(message, path=archive, entry=member.entry.name)
            end = min(start + min(max(max_bytes, 8), MAX_WINDOW_BYTES), size)
            first = max(start - 1, 0)
            data = _read_range(fd, archive, member, first, end)
            return cut_window(data[start - first :], data[: start - first], start, size)

    def read_text_diff(
        self, before: tuple[Path, str], after: tuple[Path, str], path: str
    ) -> TextDiff:
        """Return the lines in which a file differs between two workspaces.

        Args:
            before: An archive and its agent; a workspace without the file has no lines.
            after: The other archive and its agent.
            path: Path of the file in both workspaces.

        Raises:
            LookupError: There is no such agent.
            OSError: As in :meth:`read`.
            CheckpointError: As in :meth:`read`, or the file is damaged.
        """
        texts = []
        for archive, agent in (before, after):
            with opened_below(self._root, archive) as fd:
                workspace = self._list(fd, archive)[agent]
                file, member = workspace.files.get(path), workspace.members.get(path)
                if file is not None and file.kind != "text":
                    return TextDiff(reason=f"The file is {_KINDS[file.kind]}.")
                if member is not None and member.entry.size > _MAX_COMPARED:
                    return TextDiff(reason=f"The file is larger than {_MAX_COMPARED} bytes.")
                texts.append(b"".join(read_member(fd, archive, member) if member else ()))
        return diff_texts(*texts)

    def _list(self, fd: int, path: Path) -> dict[str, Workspace]:
        status = os.fstat(fd)
        key = (status.st_dev, *make_stamp(status))
        with self._lock:
            if (known := self._lists.get(key)) is not None:
                self._lists.move_to_end(key)
                return known
        listed = _list_workspaces(Archive(fd, path, ARCHIVE_LIMITS))
        with self._lock:
            self._lists[key] = listed
            while len(self._lists) > 1 and sum(map(_weigh, self._lists.values())) > self._room:
                self._lists.popitem(last=False)
        return listed


_KINDS: Final = {"binary": "binary", "git": "a part of a git repository", "link": "a link"}


def _weigh(listed: Mapping[str, Workspace]) -> int:
    return sum(
        _ENTRY_BYTES + 4 * len(path)
        for workspace in listed.values()
        for path in (*workspace.files, *workspace.excluded)
    )


def _list_workspaces(archive: Archive) -> dict[str, Workspace]:
    metadata = archive.metadata
    members = _by_agent((entry.name, archive.member(entry)) for entry in archive.entries)
    links = _by_agent((link["path"], link["target"]) for link in metadata.get("symlinks", ()))
    excluded = _by_agent((each["path"], each["reason"]) for each in metadata.get("excluded", ()))
    workspaces = {}
    for agent in sorted({*metadata.get("agents", ()), *members, *links}):
        own, targets = members.get(agent, {}), links.get(agent, {})
        git = policy.find_git_directories(own, policy.find_repositories([*own, *targets]))
        inside = tuple(f"{directory}/" for directory in git)
        files = [
            ArchivedFile(
                path=path,
                kind="git" if path.startswith(inside) else _find_kind(archive.fd, member),
                size=member.entry.size,
                mode=member.entry.mode,
                sha256=member.sha256,
                crc=member.entry.crc,
            )
            for path, member in own.items()
        ]
        files += [ArchivedFile(path=p, kind="link", target=targets[p]) for p in targets]
        workspaces[agent] = Workspace(
            agent=agent,
            files={file.path: file for file in sorted(files, key=lambda file: file.path)},
            excluded=excluded.get(agent, {}),
            members=own,
        )
    return workspaces


def _by_agent(named: Iterable[tuple[str, _T]]) -> dict[str, dict[str, _T]]:
    """Return values by the agent and the path in its workspace, from full names."""
    found: dict[str, dict[str, _T]] = {}
    for name, value in named:
        split = split_name(name)
        if split is not None and split[1] == "workspace":
            found.setdefault(split[0], {})[split[2]] = value
    return found


def _find_kind(fd: int, member: Member) -> Kind:
    entry = member.entry
    head = os.pread(fd, min(entry.compressed_size, _HEAD_BYTES), member.start)
    if entry.method != STORED:
        try:
            head = zlib.decompressobj(-zlib.MAX_WBITS).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return "binary"
    return "binary" if b"\0" in head else "text"


def _read_range(fd: int, path: Path, member: Member, start: int, end: int) -> bytes:
    pieces, place = [], 0
    for chunk in read_member(fd, path, member):
        pieces.append(chunk[max(start - place, 0) : max(end - place, 0)])
        place += len(chunk)
        if place >= end and end < member.entry.size:  # at the end, its digest is checked
            break
    return b"".join(pieces)


@attrs.frozen
class FileChange:
    """A file that differs between two workspaces.

    Attributes:
        before: The file in the first one; None if it was added.
        after: The file in the second one; None if it was removed.
    """

    before: ArchivedFile | None
    after: ArchivedFile | None


def find_changes(before: Workspace, after: Workspace) -> list[FileChange]:
    """Return the files that were added, removed or changed, sorted by path.

    Args:
        before: A workspace, such as that of the save before, the generation before, or the parent.
        after: The workspace whose changes are described.
    """
    pairs = (
        FileChange(before.files.get(path), after.files.get(path))
        for path in sorted(before.files.keys() | after.files.keys())
    )
    return [pair for pair in pairs if not _is_same(pair.before, pair.after)]


def _is_same(before: ArchivedFile | None, after: ArchivedFile | None) -> bool:
    if before and after and None in (before.sha256, after.sha256):  # one archive has no digests
        before, after = (attrs.evolve(file, sha256=None) for file in (before, after))
    return before == after


# -- which archives --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Save:
    """An archive that a manifest or a journal lists; its file may be gone.

    Attributes:
        path: The archive.
        sha256: Its digest; None if it is not recorded.
        created_at: UTC time at which it was made; None if it is not recorded.
        chain: The chain that made it; empty outside of an experiment.
        generation: The generation that made it; 0 outside of an experiment.
        parent: The archive from which it comes: of the save before, the generation before, or the
            chain that it was forked from; None for the first one.
    """

    path: Path
    sha256: str | None = None
    created_at: str | None = None
    chain: str = ""
    generation: int = 0
    parent: Path | None = None


def pair_agents(before: Collection[str], after: Iterable[str]) -> dict[str, str | None]:
    """Return which agent of an archive has handed its workspace to each agent of another.

    In an experiment the name of an agent contains its attempt, so it differs between generations,
    and the place in the world at its end counts.

    Args:
        before: The agents of the parent.
        after: The agents of the other archive.

    Returns:
        The agents of the parent, or None, by the names of the others.
    """
    places = {agent_index(name): name for name in before}
    if len(places) < len(before):  # they have names of their own
        places = {}
    return {name: name if name in before else places.get(agent_index(name)) for name in after}


def list_saves(manifest: Manifest) -> list[Save]:
    """Return the archives of a run, oldest first."""
    saves: list[Save] = []
    for entry in objects_in(manifest.checkpoints):
        if entry.get("format") == ARCHIVE_FORMAT and is_placed(entry, "path"):
            save = Save(
                path=manifest.resolve(entry["path"]),
                sha256=read_text(entry, "sha256"),
                created_at=read_text(entry, "created_at"),
                parent=saves[-1].path if saves else None,
            )
            saves.append(save)
    return saves


def list_generations(record: ExperimentRecord) -> list[Save]:
    """Return the last archive of each generation of an experiment, chain by chain."""
    moved = moved_attempts(record.lines)

    def find_path(ref: CheckpointRef) -> Path:
        directory = chain_dir(record.directory, ref.chain, record.plan.layout)
        return archive_path(directory, moved.get(ref.attempt, ref.attempt), ref.file)

    saves = []
    for chain in record.state.chains.values():
        parent = None if chain.branch is None else find_path(chain.branch.source)
        for generation in chain.generations.values():
            latest = generation.latest_checkpoint
            if latest is None:
                continue
            save = Save(
                path=find_path(latest.ref),
                sha256=latest.ref.sha256,
                created_at=latest.at,
                chain=chain.name,
                generation=generation.number,
                parent=parent,
            )
            saves.append(save)
            parent = save.path
    return saves
