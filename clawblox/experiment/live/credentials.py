"""The values of the agents' variables, and names for the accounts that they use.

An account is a program, the address of its API, and a credential. Its name contains a number
instead of the credential; the numbers are valid in this process only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from clawblox.agents.drivers import find_driver
from clawblox.checkpoint.secrets.patterns.known import known_values
from clawblox.errors import ConfigError
from clawblox.experiment.plan.parts import AgentSpec
from clawblox.protocol import SECRET_NAME

_ADDRESS_SUFFIX: Final = "_BASE_URL"


class Credentials:
    """The variables of the agents of an experiment, whose values stay in memory.

    Args:
        values: Values of the variables that plans name, and of logins of programs.
        inherited: The environment of this process, which programs inherit.
    """

    def __init__(
        self, values: Mapping[str, str], *, inherited: Mapping[str, str] | None = None
    ) -> None:
        self._values = dict(values)
        self._inherited = dict(os.environ if inherited is None else inherited)
        self._known: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(sorted(self._values))})"

    def env(self, spec: AgentSpec) -> dict[str, str]:
        """Return the variables of an agent: its own, and the login of its program.

        Raises:
            ConfigError: A variable has no value.
        """
        if missing := self.missing(spec):
            raise ConfigError(
                "must have values in the environment of the process that runs the experiment",
                key=f"agents.{spec.name}.env",
                value=", ".join(missing),
                hint=f"export {' '.join(f'{name}=…' for name in missing)}, then run it again",
            )
        return self.given(spec)

    def missing(self, spec: AgentSpec) -> list[str]:
        """Return the variables of an agent that have no values."""
        return [name for name in spec.env if name not in self._values]

    def given(self, spec: AgentSpec) -> dict[str, str]:
        """Return the variables of an agent that have values, as :meth:`env` does."""
        names = (*spec.env, *self._logins(spec))
        return {name: self._values[name] for name in names if name in self._values}

    def secrets(self, spec: AgentSpec) -> list[str]:
        """Return the secret values among the variables of an agent, except short ones."""
        return list(known_values(self.env(spec), ()).values())

    def _logins(self, spec: AgentSpec) -> list[str]:
        """Return the login variables of the agent's program that it does not inherit."""
        own = find_driver(spec.driver).program.credential_variables
        return [
            name
            for name in own
            if self._values.get(name) and self._values[name] != self._inherited.get(name)
        ]

    def account(self, spec: AgentSpec) -> str:
        """Return the name of the account that an agent uses."""
        own = find_driver(spec.driver).program.credential_variables
        inherited = {name: self._inherited[name] for name in own if self._inherited.get(name)}
        env = {**inherited, **self.given(spec)}
        return " ".join((spec.driver, *_describe_address(env), *self._describe_secrets(env)))

    def _describe_secrets(self, env: Mapping[str, str]) -> Iterator[str]:
        for name, value in sorted(env.items()):
            if SECRET_NAME.search(name):
                known = self._known.setdefault(name, [])
                if value not in known:
                    known.append(value)
                number = known.index(value) + 1
                yield name if number == 1 else f"{name}#{number}"


def _describe_address(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in sorted(env.items()):
        if name.endswith(_ADDRESS_SUFFIX):
            try:
                host = urlsplit(value).hostname or "?"
            except ValueError:
                host = "?"
            yield f"at {host}"
