"""Agents as arguments: objects with a name and a directory, or directories by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

from clawblox.config.arguments import mismatch
from clawblox.errors import ConfigError


@runtime_checkable
class AgentLike(Protocol):
    """The parts of an agent that ``connect`` needs: a name and a directory."""

    @property
    def name(self) -> str:
        """Full name of the agent, including the run suffix."""

    @property
    def dir(self) -> str | os.PathLike[str]:
        """Directory of the agent."""


Agents: TypeAlias = Iterable[AgentLike] | Mapping[str, str | os.PathLike[str]]
"""``Agent`` or ``AsyncAgent`` objects, or directories by name."""


def agent_directories(agents: Agents | None) -> Mapping[str, str | os.PathLike[str]]:
    """Return the directories of agents by name; an empty mapping for None.

    Raises:
        ConfigError: The value is neither directories by name nor objects with a name and a
            directory, or two objects have the same name.
    """
    if agents is None or isinstance(agents, Mapping):
        return agents or {}
    directories: dict[str, str | os.PathLike[str]] = {}
    members: object = agents
    if isinstance(members, str) or not isinstance(members, Iterable):
        raise _no_agents(members)
    for agent in map(require_agent, members):
        if agent.name in directories:
            raise mismatch("agents", "agents of different names", agent.name)
        directories[agent.name] = agent.dir
    return directories


def require_agent(agent: object) -> AgentLike:
    """Return the object if it is an agent.

    Raises:
        ConfigError: The object has no name or no directory.
    """
    if not isinstance(agent, AgentLike):
        raise _no_agents(agent)
    return agent


def _no_agents(value: object) -> ConfigError:
    return mismatch("agents", "agents, or their directories by name", value)
