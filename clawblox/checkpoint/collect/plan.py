"""Plans the files of all agents for an archive: their workspaces and their conversations.

``workspace`` lists workspaces and ``conversations`` collects conversations. Everything else in the
agents' directories is only listed. The writer reads the files. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import attrs

from clawblox.checkpoint import names
from clawblox.checkpoint.collect import policy, tree
from clawblox.checkpoint.collect.conversations import (
    FORMATS,
    ConversationFormat,
    find_format,
)
from clawblox.checkpoint.collect.workspace import list_workspace
from clawblox.checkpoint.model import AgentState, Repository, Source, WorkspaceLink
from clawblox.errors import CheckpointError
from clawblox.results import Excluded
from clawblox.system.regular_files import open_directory
from clawblox.system.trees import DirectoryEntry, TreeWalk

LOOK_S: Final = 0.1
"""Seconds between two checks for a moment in which all agents are between turns."""
WORKSPACE: Final = "workspace"
NOT_ALLOWED: Final = "its name is not allowed in an archive"
_NOT_IN_FORMAT: Final = "not a part of a conversation that is archived"
_WORKSPACE_ONLY: Final = "only workspaces are archived"
_MAX_LISTED: Final = 10_000
"""Maximum number of listed entries outside the workspace of an agent, because their names take
room in an archive; entries of its program are listed first."""

_STATE_DIRS: Final = frozenset(path for known in FORMATS.values() for path in known.state_dirs)


@attrs.define(kw_only=True)
class ArchivePlan:
    """The planned contents of an archive.

    Attributes:
        sources: The files.
        agents: Metadata of each agent, by name.
        excluded: Entries left out on purpose.
        links: Symbolic links of the workspaces.
        directories: Directories without another entry of the plan.
        repositories: Settings of git repositories in the workspaces.
        unarchivable: Names of entries to archive that an archive cannot contain; they may have any
            bytes.
        unreadable: Names of entries to archive that this process is not permitted to read.
    """

    sources: list[Source] = attrs.field(factory=list)
    agents: dict[str, AgentState] = attrs.field(factory=dict)
    excluded: list[Excluded] = attrs.field(factory=list)
    links: list[WorkspaceLink] = attrs.field(factory=list)
    directories: list[str] = attrs.field(factory=list)
    repositories: list[Repository] = attrs.field(factory=list)
    unarchivable: list[str] = attrs.field(factory=list)
    unreadable: list[str] = attrs.field(factory=list)


def plan(
    agents: Mapping[str, Path],
    *,
    backend: str | None,
    workspace_only: bool,
    keep: Collection[policy.FoldedPath] = (),
) -> ArchivePlan:
    """Read the agents' directories and plan the contents of an archive.

    Args:
        agents: Agent directories by name; the names must be valid in an archive.
        backend: The driver of all agents. None detects each agent's driver by the conversation id
            recorded in its directory, or by its only conversation; an agent without either has no
            session tier.
        workspace_only: Whether to leave out the session tiers.
        keep: As for ``policy.workspace_exclusion``.

    Raises:
        ConfigError: ``backend`` is not a known driver.
        CheckpointError: A directory cannot be read, or an agent has no conversation even though
            ``backend`` is given or a conversation id is recorded.
    """
    contents = ArchivePlan()
    for name, directory in agents.items():
        chosen = _WORKSPACE_ONLY if workspace_only else _choose_format(directory, backend)
        _add_workspace(contents, name, directory, keep)
        contents.agents[name] = AgentState()
        if isinstance(chosen, str):
            _list_beside(contents, name, directory, (), chosen)
            continue
        state, sources = chosen.collect(directory)
        contents.agents[name] = state
        _add_sources(contents, name, directory, sources)
        _list_beside(contents, name, directory, sources, _NOT_IN_FORMAT)
    return contents


def is_idle(agents: Mapping[str, Path], backend: str | None) -> bool:
    """Return whether no agent is in the middle of a turn.

    An agent whose conversation cannot be read counts as idle.

    Args:
        agents: Agent directories by name.
        backend: As in :func:`plan`.

    Raises:
        ConfigError: ``backend`` is not a known driver.
    """
    for directory in agents.values():
        with contextlib.suppress(CheckpointError):
            chosen = _choose_format(directory, backend)
            if not isinstance(chosen, str) and chosen.is_mid_turn(directory):
                return False
    return True


def looks(is_idle: Callable[[], bool], wait_s: float) -> Iterator[float]:
    """Wait for a moment in which no agent is in the middle of a turn. Blocks.

    Args:
        is_idle: Returns whether no agent is in the middle of a turn.
        wait_s: Maximum wait in seconds; 0 does not check.

    Yields:
        Seconds to sleep before the next check.
    """
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and not is_idle():
        yield LOOK_S


def _choose_format(agent_dir: Path, backend: str | None) -> ConversationFormat | str:
    """Return the format of an agent's conversation, or the reason why none is archived."""
    if backend is not None:
        return find_format(backend)
    recorded = [
        known for known in FORMATS.values() if tree.is_file(agent_dir, known.program.id_file)
    ]
    if len(recorded) > 1:
        raise CheckpointError(
            f"{agent_dir.name}: conversation ids of several drivers are recorded",
            path=agent_dir,
            hint="choose one with backend=",
        )
    return recorded[0] if recorded else _find_only_format(agent_dir)


def _find_only_format(agent_dir: Path) -> ConversationFormat | str:
    """Return the format of an agent's only conversation, or the reason why none is archived."""
    try:
        found = [known for known in FORMATS.values() for _ in known.list_ids(agent_dir)]
    except CheckpointError as error:
        return f"no conversation id is recorded, and {error.message}"
    if len(found) == 1:
        return found[0]
    return f"no conversation id is recorded, and there are {len(found) or 'no'} conversations"


def _add_sources(
    contents: ArchivePlan, agent: str, agent_dir: Path, sources: Iterable[Source]
) -> None:
    prefix = f"agents/{agent}/session/"
    contents.sources += [
        attrs.evolve(
            source,
            name=prefix + source.name,
            listed_as=f"agents/{agent}/{source.path.relative_to(agent_dir)}",
        )
        for source in sources
    ]


def _list_beside(
    contents: ArchivePlan, agent: str, agent_dir: Path, archived: Iterable[Source], reason: str
) -> None:
    """List all unarchived entries outside the workspace as excluded.

    Args:
        contents: The plan to add to.
        agent: Name of the agent.
        agent_dir: Its directory.
        archived: The files of its session tier.
        reason: Reason for omitting the rest of the program's state directories.
    """
    paths = {str(source.path.relative_to(agent_dir)) for source in archived}
    listed = list_beside(agent_dir, WORKSPACE, paths)
    listed.sort(key=lambda path: not _is_state(path))
    for path in listed[:_MAX_LISTED]:
        why = reason if _is_state(path) else "not in the workspace"
        if why == _NOT_IN_FORMAT and not names.is_name(f"agents/{agent}/session/{path}"):
            why = NOT_ALLOWED
        contents.excluded.append(Excluded(path=f"agents/{agent}/{path}", reason=why))
    if len(listed) > _MAX_LISTED:
        why = f"{len(listed) - _MAX_LISTED} further entries are not listed"
        contents.excluded.append(Excluded(path=f"agents/{agent}", reason=why))


def _is_state(path: str) -> bool:
    return any(f"{path}/".startswith(f"{directory}/") for directory in _STATE_DIRS)


def _add_workspace(
    contents: ArchivePlan, name: str, agent_dir: Path, keep: Collection[policy.FoldedPath]
) -> None:
    prefix = f"agents/{name}/{WORKSPACE}/"
    try:
        listing = list_workspace(
            agent_dir, WORKSPACE, keep=keep, is_name=lambda path: names.is_path(prefix + path)
        )
    except OSError as error:
        raise CheckpointError(
            f"the workspace of {name} cannot be read: {error.strerror}", path=agent_dir / WORKSPACE
        ) from None
    numbers = itertools.count()
    contents.sources += [
        Source(
            name=prefix + path,
            path=agent_dir / WORKSPACE / path,
            open=tree.file_opener(agent_dir, f"{WORKSPACE}/{path}"),
            keeps_mode=True,
            neutral_name=None
            if names.names_itself(prefix + path)
            else names.neutral_name(name, next(numbers)),
        )
        for path in listing.files
    ]
    contents.excluded += [
        Excluded(path=prefix + path, reason=why) for path, why in listing.excluded
    ]
    contents.links += [
        WorkspaceLink(path=prefix + path, target=target) for path, target in listing.links
    ]
    contents.directories += [prefix + path for path in listing.directories]
    contents.repositories += [_with_prefix(prefix, each) for each in listing.git.settings]
    contents.unarchivable += [prefix + path for path in listing.unarchivable]
    contents.unreadable += [prefix + path for path in listing.unreadable]


def _with_prefix(prefix: str, repository: Repository) -> Repository:
    git_file = repository.git_file
    return attrs.evolve(
        repository,
        path=prefix + repository.path,
        git_file=None if git_file is None else prefix + git_file,
    )


def list_beside(agent_dir: Path, workspace: str, archived: Collection[str]) -> list[str]:
    """Return the paths of the unarchived entries outside the workspace.

    A directory without archived files is a single entry, and is not read.

    Args:
        agent_dir: The agent directory; its path is trusted.
        workspace: Name of the workspace in it.
        archived: The archived files, relative to the agent directory.

    Returns:
        The paths relative to the agent directory, as on disk.

    Raises:
        CheckpointError: The agent directory cannot be read.
    """
    kept = {workspace, *archived}
    parents = {str(parent) for path in archived for parent in PurePosixPath(path).parents}
    listed: list[str] = []
    try:
        with TreeWalk(open_directory(agent_dir)) as walk:
            for entry in walk:
                path = walk.path_to(entry.name)
                if path in kept or (path in parents and _entered(walk, entry)):
                    continue
                listed.append(path)
    except OSError as error:
        raise tree.unreadable_error(agent_dir, error) from None
    return listed


def _entered(walk: TreeWalk, entry: DirectoryEntry) -> bool:
    """Return whether the entry is a directory, which the walk visits next."""
    with contextlib.suppress(OSError):
        walk.enter(entry.name)
        return True
    return False
