"""Builds the environment of an agent's program from a list of allowed variables. Pure.

All other variables of the orchestrator stay out: operator tokens, keys of other programs, variables
of a Claude Code session in which the orchestrator itself was started.
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

_WITHHELD: Final = frozenset(
    {
        protocol.OPERATOR_TOKEN_ENV,
        protocol.SPECTATOR_TOKEN_ENV,
        protocol.INSTANCE_ENV,
        protocol.LEASE_ENV,
    }
)
"""Variables that callers must not set either."""


def check_agent_env(env: Mapping[str, str], program: Program) -> None:
    """Check the variables that a caller passes for an agent; their syntax is already checked.

    Args:
        env: The variables.
        program: The agent's program.

    Raises:
        ConfigError: clawblox sets the variable itself, or no agent may get it.
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

    A key of another program is left out even if the caller passes it, because one ``env=`` may
    serve agents of several programs. A program without a list of keys gets all variables passed.

    Args:
        program: The program.
        inherited: The environment of the orchestrator.
        home: The program's ``HOME``, as it sees it.
        own: Variables from its driver, as in its :class:`Invocation`.
        given: Variables from the caller, already checked by :func:`check_agent_env`.
        cookie: Marks the agent's processes.
    """
    keys = program.credential_variables
    foreign = {name for other in PROGRAMS.values() for name in other.credential_variables}
    withheld = {*_WITHHELD, *(foreign.difference(keys) if keys else ())}
    return {
        "PATH": os.defpath,
        "TERM": "dumb",
        **{
            name: value
            for name, value in inherited.items()
            if name in _INHERITED or name.startswith("LC_")
        },
        **{name: inherited[name] for name in keys if inherited.get(name)},
        **own,
        **{name: value for name, value in given.items() if name not in withheld},
        "HOME": str(home),
        protocol.INSTANCE_ENV: cookie,
    }
