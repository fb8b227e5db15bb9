"""Plans the files of all agents for an archive: their workspaces and their conversations.

``tree`` lists workspaces, ``policy`` leaves names out, ``sessions`` collects conversations, and
the writer reads the files. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import attrs

from clawblox.checkpoint import names
from clawblox.checkpoint.collect import policy, tree
from clawblox.checkpoint.collect.sessions import FORMATS, SessionFormat, find_format
from clawblox.checkpoint.model import AgentState, Link, Source
from clawblox.errors import CheckpointError
from clawblox.results import Excluded

WORKSPACE: Final = "workspace"
_NOT_IN_FORMAT: Final = "not a part of a session that is archived"

_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class Plan:
    """The planned contents of an archive.

    Attributes:
        sources: The files.
        agents: Metadata of each agent, by name.
        excluded: Entries left out on purpose.
        links: Symbolic links of the workspaces.
        directories: Directories without another entry of the plan.
        unarchivable: Names of entries to archive that an archive cannot contain; any bytes.
        unreadable: Names of entries to archive that this process may not read.
    """

    sources: tuple[Source, ...] = ()
    agents: Mapping[str, AgentState] = attrs.field(factory=dict)
    excluded: tuple[Excluded, ...] = ()
    links: tuple[Link, ...] = ()
    directories: tuple[str, ...] = ()
    unarchivable: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


def plan(
    agents: Mapping[str, Path],
    *,
    backend: str | None,
    workspace_only: bool,
    keep: Collection[policy.FoldedPath] = (),
) -> Plan:
    """Read the agents' directories and plan the contents of an archive.

    Args:
        agents: Agent directories by name; the names must be valid in an archive.
        backend: The driver of all agents. None detects each agent's driver by the session id that
            its directory records; an agent without a recorded id has no session tier.
        workspace_only: Whether to leave out the session tiers.
        keep: As for ``policy.workspace_exclusion``.

    Raises:
        ConfigError: ``backend`` is not a known driver.
        CheckpointError: A directory cannot be read, or an agent has no conversation although
            ``backend`` is given or its session id is recorded.
    """
    parts = [
        _agent_plan(
            name, directory, None if workspace_only else _choose_format(directory, backend), keep
        )
        for name, directory in agents.items()
    ]
    return Plan(
        sources=_concatenate(part.sources for part in parts),
        agents={name: state for part in parts for name, state in part.agents.items()},
        excluded=_concatenate(part.excluded for part in parts),
        links=_concatenate(part.links for part in parts),
        directories=_concatenate(part.directories for part in parts),
        unarchivable=_concatenate(part.unarchivable for part in parts),
        unreadable=_concatenate(part.unreadable for part in parts),
    )


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
            session_format = _choose_format(directory, backend)
            if session_format is not None and session_format.is_mid_turn(directory):
                return False
    return True


def _choose_format(agent_dir: Path, backend: str | None) -> SessionFormat | None:
    if backend is not None:
        return find_format(backend)
    recorded = [
        known for known in FORMATS.values() if tree.is_file(agent_dir, known.program.id_file)
    ]
    if len(recorded) > 1:
        raise CheckpointError(
            f"{agent_dir.name}: session ids of several drivers are recorded",
            path=agent_dir,
            hint="choose one with backend=",
        )
    return recorded[0] if recorded else None


def _agent_plan(
    name: str,
    agent_dir: Path,
    session_format: SessionFormat | None,
    keep: Collection[policy.FoldedPath],
) -> Plan:
    workspace = _workspace_plan(name, agent_dir, keep)
    if session_format is None:
        return attrs.evolve(workspace, agents={name: AgentState()})
    session = session_format.collect(agent_dir)
    state = AgentState(
        backend=session_format.backend,
        session_format=session_format.name,
        session_id=session.id,
        state_dir=session.state_dir,
        mid_turn=session.mid_turn,
    )
    prefix = f"agents/{name}/session/"
    members = (attrs.evolve(source, name=prefix + source.name) for source in session.sources)
    left_out = (Excluded(path=prefix + path, reason=_NOT_IN_FORMAT) for path in session.excluded)
    return attrs.evolve(
        workspace,
        agents={name: state},
        sources=(*workspace.sources, *members),
        excluded=(*workspace.excluded, *left_out),
    )


def _workspace_plan(name: str, agent_dir: Path, keep: Collection[policy.FoldedPath]) -> Plan:
    prefix = f"agents/{name}/{WORKSPACE}/"
    judge = functools.partial(policy.workspace_exclusion, keep=keep)
    try:
        listing = tree.walk(
            agent_dir,
            WORKSPACE,
            lambda path, is_directory: judge(path, directory=is_directory),
            lambda path: names.is_name(prefix + path),
        )
    except OSError as error:
        raise CheckpointError(
            f"the workspace of {name} cannot be read: {error.strerror}", path=agent_dir / WORKSPACE
        ) from None
    listing = _without_repository_settings(listing, keep)
    return Plan(
        sources=tuple(
            Source(
                name=prefix + path,
                path=agent_dir / WORKSPACE / path,
                open=tree.file_opener(agent_dir, f"{WORKSPACE}/{path}"),
            )
            for path in listing.files
        ),
        excluded=tuple(Excluded(path=prefix + path, reason=why) for path, why in listing.excluded),
        links=tuple(Link(path=prefix + path, target=target) for path, target in listing.links),
        directories=tuple(prefix + path for path in listing.directories),
        unarchivable=tuple(prefix + path for path in listing.unarchivable),
        unreadable=tuple(prefix + path for path in listing.unreadable),
    )


def _without_repository_settings(
    listing: tree.Tree, keep: Collection[policy.FoldedPath]
) -> tree.Tree:
    """Leave out what git would run in directories that are repositories without a ``.git``."""
    repositories = policy.find_repositories((*listing.files, *(path for path, _ in listing.links)))
    if not repositories:
        return listing
    judge = functools.partial(policy.workspace_exclusion, repositories=repositories, keep=keep)
    files = {path: judge(path) for path in listing.files}
    links = {path: judge(path) for path, _ in listing.links}
    directories = {path: judge(path, directory=True) for path in listing.directories}
    verdicts = files | links | directories
    return attrs.evolve(
        listing,
        files=tuple(path for path in listing.files if not files[path]),
        links=tuple(link for link in listing.links if not links[link[0]]),
        directories=tuple(path for path in listing.directories if not directories[path]),
        excluded=(*listing.excluded, *((path, why) for path, why in verdicts.items() if why)),
    )


def _concatenate(parts: Iterable[tuple[_T, ...]]) -> tuple[_T, ...]:
    return tuple(itertools.chain.from_iterable(parts))
