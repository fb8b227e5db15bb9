"""Reading the operator's file of findings that are let through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.model import Allowance
from clawblox.errors import ConfigError

__all__ = ["read_allowances"]

_KEYS: Final = tuple(field.name for field in attrs.fields(Allowance))


def read_allowances(path: Path) -> tuple[Allowance, ...]:
    """Return the entries of a file of allowances.

    It is a JSON list of objects with ``path``, ``rule`` and ``fingerprint``, as a finding says
    them, and ``reason``, all of them texts that are not empty.

    Raises:
        ConfigError: It cannot be read, or is anything else.
    """
    try:
        entries = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=path) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is no JSON: {error}", path=path) from None
    if not isinstance(entries, list):
        raise ConfigError("must be a list of allowances", path=path)
    return tuple(_allowance(entry, index, path) for index, entry in enumerate(entries))


def _allowance(entry: object, index: int, path: Path) -> Allowance:
    if not isinstance(entry, dict):
        raise ConfigError("an allowance must be an object", path=path, key=f"[{index}]")
    for key in _KEYS:
        value = entry.get(key)
        if not isinstance(value, str) or not value.strip():
            raise ConfigError("must be a text that is not empty", path=path, key=f"[{index}].{key}")
    if unknown := sorted(entry.keys() - _KEYS):
        raise ConfigError("is unknown", path=path, key=f"[{index}].{unknown[0]}")
    return Allowance(**entry)
