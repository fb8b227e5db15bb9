"""Builds the environment of an agent's program: a list of what it may know, and nothing else. Pure.

What the orchestrator's environment holds besides stays out: operator tokens, keys of other
programs, variables of a session of Claude Code that the orchestrator itself was started in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clawblox import protocol
from clawblox.agents.programs import PROGRAMS, Program
from clawblox.errors import ConfigError

_INHERITED: Final = frozenset({"PATH", "LANG", "LANGUAGE", "TZ"})
_INHERITED_PREFIX: Final = "LC_"

_WITHHELD: Final = frozenset(
    {
        protocol.OPERATOR_TOKEN_ENV,
        protocol.SPECTATOR_TOKEN_ENV,
        protocol.INSTANCE_ENV,
        protocol.LEASE_ENV,
    }
)
"""Variables that the caller must not set either."""


def check_agent_env(env: Mapping[str, str], program: Program) -> None:
    """Check variables that a caller gives an agent, which must be usable as variables already.

    Args:
        env: The variables.
        program: The agent's program.

    Raises:
        ConfigError: A variable is one that clawblox sets, or one that no agent gets.
    """
    for name in sorted(env):
        if name in _WITHHELD:
            raise ConfigError(
                "must be left out: an agent never gets this variable", key=f"env.{name}"
            )
        if name in ("HOME", program.state_variable):
            raise ConfigError(
                "must be left out: clawblox sets it, below the agent's directory",
                key=f"env.{name}",
                value=env[name],
                hint="dir= names the agent's directory",
            )


def agent_environment(
    program: Program,
    *,
    inherited: Mapping[str, str],
    home: Path,
    own: Mapping[str, str],
    given: Mapping[str, str],
    cookie: str,
) -> dict[str, str]:
    """Return the complete environment of an agent's program.

    A key of another program is left out also where the caller gives it: one ``env=`` may serve
    agents of several programs. A program whose keys are not known gets all that it is given.

    Args:
        program: The program.
        inherited: The environment of the orchestrator.
        home: The program's ``HOME``, as it sees it.
        own: Variables from its driver, as its :class:`Invocation` has them.
        given: Variables from the caller, which :func:`check_agent_env` has passed.
        cookie: Marks the processes of the agent.
    """
    keys = program.credential_variables
    foreign = {name for other in PROGRAMS.values() for name in other.credential_variables}
    withheld = {*_WITHHELD, *(foreign.difference(keys) if keys else ())}
    return {
        "PATH": os.defpath,
        "TERM": "dumb",
        **{name: value for name, value in inherited.items() if _is_inherited(name)},
        **{name: inherited[name] for name in keys if inherited.get(name)},
        **own,
        **{name: value for name, value in given.items() if name not in withheld},
        "HOME": str(home),
        protocol.INSTANCE_ENV: cookie,
    }


def _is_inherited(name: str) -> bool:
    return name in _INHERITED or name.startswith(_INHERITED_PREFIX)
