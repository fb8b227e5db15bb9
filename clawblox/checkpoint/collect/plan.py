"""What of all agents goes into an archive: their workspaces, and with them their conversations.

It joins what ``policy`` lets travel, what ``tree`` finds and what ``sessions`` collects. Reading
the files, and writing them, is the writer's. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import attrs

from clawblox.checkpoint import names
from clawblox.checkpoint.collect import policy, tree
from clawblox.checkpoint.collect.sessions import FORMATS, SessionFormat, format_of_backend
from clawblox.checkpoint.model import AgentState, Excluded, Link, Source
from clawblox.errors import CheckpointError

__all__ = ["Plan", "is_idle", "plan"]

WORKSPACE: Final = "workspace"
_NO_PART: Final = "no part of a session that travels"

_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class Plan:
    """What is to go into an archive.

    Attributes:
        sources: The files.
        agents: What is to be said of each agent.
        excluded: What stays out on purpose.
        links: Symbolic links of the workspaces.
        directories: Directories that no file makes necessary.
        unarchivable: Names of what should be in it, and cannot; raw, of any bytes.
        unreadable: Names of what should be in it, and may not be looked at.
    """

    sources: tuple[Source, ...] = ()
    agents: Mapping[str, AgentState] = attrs.field(factory=dict)
    excluded: tuple[Excluded, ...] = ()
    links: tuple[Link, ...] = ()
    directories: tuple[str, ...] = ()
    unarchivable: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


def plan(agents: Mapping[str, Path], *, backend: str | None, workspace_only: bool) -> Plan:
    """Look at the agents' directories and say what is to go into an archive.

    Args:
        agents: Agent directories by name, which can stand in an archive.
        backend: The driver of all agents. None takes each agent's from the session id that its
            directory records; one without has no session tier.
        workspace_only: Leave out the session tiers.

    Raises:
        ConfigError: There is no such driver.
        CheckpointError: A directory cannot be read, or an agent of ``backend`` has no
            conversation.
    """
    parts = [
        _agent_plan(name, directory, None if workspace_only else _format_of(directory, backend))
        for name, directory in agents.items()
    ]
    return Plan(
        sources=_joined(part.sources for part in parts),
        agents={name: state for part in parts for name, state in part.agents.items()},
        excluded=_joined(part.excluded for part in parts),
        links=_joined(part.links for part in parts),
        directories=_joined(part.directories for part in parts),
        unarchivable=_joined(part.unarchivable for part in parts),
        unreadable=_joined(part.unreadable for part in parts),
    )


def is_idle(agents: Mapping[str, Path], backend: str | None) -> bool:
    """Say whether no agent is in the middle of a turn; one without a conversation is not.

    Args:
        agents: Agent directories by name.
        backend: As in :func:`plan`.
    """
    for directory in agents.values():
        with contextlib.suppress(CheckpointError):
            form = _format_of(directory, backend)
            if form is not None and form.is_mid_turn(directory):
                return False
    return True


def _format_of(agent_dir: Path, backend: str | None) -> SessionFormat | None:
    if backend is not None:
        return format_of_backend(backend)
    recorded = [form for form in FORMATS.values() if tree.is_file(agent_dir, form.id_file)]
    if len(recorded) > 1:
        raise CheckpointError(
            "sessions of several drivers are recorded",
            path=agent_dir,
            hint="say which one with backend=",
        )
    return recorded[0] if recorded else None


def _agent_plan(name: str, agent_dir: Path, form: SessionFormat | None) -> Plan:
    workspace = _workspace_plan(name, agent_dir)
    if form is None:
        return attrs.evolve(workspace, agents={name: AgentState()})
    session = form.collect(agent_dir)
    state = AgentState(
        backend=form.backend,
        session_format=form.name,
        session_id=session.id,
        state_dir=session.state_dir,
        mid_turn=session.mid_turn,
    )
    prefix = f"agents/{name}/session/"
    members = (attrs.evolve(each, name=prefix + each.name) for each in session.sources)
    left_out = (Excluded(path=prefix + path, reason=_NO_PART) for path in session.excluded)
    return attrs.evolve(
        workspace,
        agents={name: state},
        sources=(*workspace.sources, *members),
        excluded=(*workspace.excluded, *left_out),
    )


def _workspace_plan(name: str, agent_dir: Path) -> Plan:
    prefix = f"agents/{name}/{WORKSPACE}/"
    try:
        found = tree.walk(agent_dir, WORKSPACE, _judge, lambda path: names.is_name(prefix + path))
    except OSError as error:
        raise CheckpointError(
            f"the workspace of {name} cannot be read: {error.strerror}", path=agent_dir / WORKSPACE
        ) from None
    found = _without_repository_settings(found)
    return Plan(
        sources=tuple(
            Source(
                name=prefix + path,
                path=agent_dir / WORKSPACE / path,
                open=tree.opener(agent_dir, f"{WORKSPACE}/{path}"),
            )
            for path in found.files
        ),
        excluded=tuple(Excluded(path=prefix + path, reason=why) for path, why in found.excluded),
        links=tuple(Link(path=prefix + path, target=target) for path, target in found.links),
        directories=tuple(prefix + path for path in found.directories),
        unarchivable=tuple(prefix + path for path in found.unarchivable),
        unreadable=tuple(prefix + path for path in found.unreadable),
    )


def _without_repository_settings(found: tree.Tree) -> tree.Tree:
    """Leave out what git would run in directories that turn out to be repositories."""
    repositories = policy.find_repositories((*found.files, *(path for path, _ in found.links)))
    if not repositories:
        return found
    judge = functools.partial(policy.workspace_exclusion, repositories=repositories)
    files = {path: judge(path) for path in found.files}
    links = {path: judge(path) for path, _ in found.links}
    directories = {path: judge(path, directory=True) for path in found.directories}
    verdicts = files | links | directories
    return attrs.evolve(
        found,
        files=tuple(path for path in found.files if not files[path]),
        links=tuple(link for link in found.links if not links[link[0]]),
        directories=tuple(path for path in found.directories if not directories[path]),
        excluded=(*found.excluded, *((path, why) for path, why in verdicts.items() if why)),
    )


def _judge(path: str, is_directory: bool) -> str | None:
    return policy.workspace_exclusion(path, directory=is_directory)


def _joined(parts: Iterable[tuple[_T, ...]]) -> tuple[_T, ...]:
    return tuple(itertools.chain.from_iterable(parts))
