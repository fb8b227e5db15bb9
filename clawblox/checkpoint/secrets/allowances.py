"""Reads the operator's file of allowed findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.model import Allowance
from clawblox.errors import ConfigError

_KEYS: Final = tuple(field.name for field in attrs.fields(Allowance))


def read_allowances(path: Path) -> tuple[Allowance, ...]:
    """Read a file of allowed findings.

    The file is a JSON list of objects with ``path``, ``rule`` and ``fingerprint`` of a finding, and
    a ``reason``; all of them are strings that are not empty.

    Raises:
        ConfigError: The file cannot be read, or does not have this form.
    """
    try:
        entries = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"the allowances cannot be read: {error.strerror}", path=path) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the allowances must be JSON: {error}", path=path) from None
    if not isinstance(entries, list):
        raise ConfigError("the allowances must be a JSON list", path=path)
    return tuple(_allowance(entry, index, path) for index, entry in enumerate(entries))


def _allowance(entry: object, index: int, path: Path) -> Allowance:
    if not isinstance(entry, dict):
        raise ConfigError(f"[{index}] must be a JSON object", path=path, key=f"[{index}]")
    for key in _KEYS:
        value = entry.get(key)
        if not isinstance(value, str) or not value.strip():
            name = f"[{index}].{key}"
            raise ConfigError(f"{name} must be a non-empty string", path=path, key=name)
    if unknown := sorted(entry.keys() - _KEYS):
        name = f"[{index}].{unknown[0]}"
        raise ConfigError(f"{name} is not a key of an allowance", path=path, key=name)
    return Allowance(**entry)
