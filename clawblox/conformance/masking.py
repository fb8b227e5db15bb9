"""Masks the secrets of instances in the results of checks. Pure.

A world may answer with a secret, and an excerpt of the answer may start or end inside the secret.
Pieces of secrets are therefore masked too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from clawblox.conformance.report import CheckResult, Report
from clawblox.protocol import LEASE_ENV, SECRET_ENV

SESSION: Final = "SESSION"
"""Name of the variable for sessions in commands of a report."""

_PIECE_CHARS: Final = 6
"""Minimum length of the masked pieces of a secret.

A random match in other text has a probability below one in a billion.
"""
_LEAST_SESSION_CHARS: Final = 16
"""Minimum length of masked sessions; shorter sessions could be words or numbers."""
_SESSION_PIECE_CHARS: Final = 12


def find_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an instance that contain secrets, by name."""
    return {name: env[name] for name in (*SECRET_ENV, LEASE_ENV) if env.get(name)}


class SecretMask:
    """The secrets of all instances of a check, each with the variable that replaces it.

    Attributes:
        variables: The variables with secrets in the environments of the instances, by value.
    """

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self._pieces: dict[int, dict[str, str]] = {}

    def add(self, variable: str, secret: str) -> None:
        """Mask a secret from now on.

        Args:
            variable: Name of the shell variable that replaces the secret.
            secret: The secret; sessions that are too short are ignored.
        """
        is_session = variable == SESSION
        if is_session and len(secret) < _LEAST_SESSION_CHARS:
            return
        size = min(_SESSION_PIECE_CHARS if is_session else _PIECE_CHARS, len(secret))
        pieces = self._pieces.setdefault(size, {})
        for start in range(len(secret) - size + 1):
            pieces.setdefault(secret[start : start + size], variable)

    def add_all(self, secrets: Mapping[str, str]) -> None:
        """Mask the secrets of an instance, by their variables."""
        for variable, secret in secrets.items():
            self.variables[secret] = variable
            self.add(variable, secret)

    def mask(self, text: str) -> str:
        """Replace secrets and their pieces in a text with the variables."""
        for size, variables in self._pieces.items():
            text = _mask(text, size, variables)
        return text

    def mask_bytes(self, body: bytes) -> bytes:
        """Replace secrets in a body with the variables."""
        return self.mask(body.decode(errors="surrogateescape")).encode(errors="surrogateescape")

    def mask_value(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Mask all texts in a JSON value."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self.mask_value(key): self.mask_value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.mask_value(item) for item in value]
        return value

    def mask_result(self, result: CheckResult) -> CheckResult:
        """Mask all texts in the result of a check that may come from a world."""
        return attrs.evolve(
            result,
            evidence=self.mask(result.evidence),
            request=self.mask_value(result.request),
            path=self.mask_value(result.path),
            expected=self.mask_value(result.expected),
            got=self.mask_value(result.got),
        )

    def mask_verdict(self, report: Report) -> Report:
        """Mask the secrets in a report, except in its results."""
        verdict = attrs.evolve(report.verdict, sentence=self.mask(report.verdict.sentence))
        return attrs.evolve(report, verdict=verdict, obstacle=self.mask(report.obstacle))


def _mask(text: str, size: int, variables: Mapping[str, str]) -> str:
    parts: list[str] = []
    copied = place = 0
    while place <= len(text) - size:
        variable = variables.get(text[place : place + size])
        if variable is None:
            place += 1
            continue
        parts += [text[copied:place], f"${variable}"]
        while text[place : place + size] in variables:
            place += 1
        copied = place = place + size - 1
    return "".join([*parts, text[copied:]])
