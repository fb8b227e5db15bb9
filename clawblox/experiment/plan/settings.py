"""Sets several fields of a plan by their paths, and reports all faults together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from clawblox.config.toml_words import in_toml
from clawblox.errors import ConfigError
from clawblox.experiment.plan.dotted import set_value
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.plan.plan_file import join_faults

_FIELDS: Final = tuple(
    field.name
    for field in attrs.fields(Plan)
    if field.name not in ("name", "layout", "sweep", "conditions")
)


def apply_settings(plan: Plan, settings: Mapping[str, Any]) -> Plan:
    """Return a plan with other values for some fields.

    Args:
        plan: The plan.
        settings: The values by dotted path, such as ``limits.worlds`` or ``agents.*.model``.

    Raises:
        ConfigError: Paths are unknown, or values are invalid; the key is the whole path, or another
            field of the plan that the value does not fit.
    """
    faults: list[ConfigError] = []
    for path, value in settings.items():
        try:
            plan = set_value(plan, path, value, _FIELDS)
        except ConfigError as error:
            key = error.key or path
            is_other = key.partition(".")[0] not in path.split(".")
            faults.append(in_toml(error, value).but(key=key if is_other else path))
    if faults:
        raise join_faults(faults)
    return plan
