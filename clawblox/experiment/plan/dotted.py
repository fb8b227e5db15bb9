"""Reads and sets the fields of a plan by dotted paths, such as ``agents.*.model``. Pure.

A step is the key of a field. After ``agents`` comes the name of an agent, its position from 0, or
``*`` for all agents; after ``world.env`` comes the name of a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import attrs

from clawblox.config.toml_words import in_toml
from clawblox.errors import ConfigError
from clawblox.experiment.plan.parts import AgentSpec
from clawblox.experiment.plan.plan_file import join_faults
from clawblox.experiment.plan.values import (
    PART,
    FrozenMapping,
    UnknownKeyError,
    chain_fields,
    fields_by_key,
)
from clawblox.spelling import suggest_nearest

_Plan = TypeVar("_Plan", bound=attrs.AttrsInstance)

_WHOLE: Final = ("world", "agents")
"""Fields that may only be set in parts."""
_ALL: Final = "*"
_NEVER_SET: Final = ("name", "layout", "sweep", "conditions")


def apply_settings(plan: _Plan, settings: Mapping[str, Any]) -> _Plan:
    """Return a plan with new values for some fields, or raise all faults together.

    Args:
        plan: The plan.
        settings: The values by dotted path, such as ``limits.worlds`` or ``agents.*.model``.

    Raises:
        ConfigError: Paths are unknown, or values are invalid; the key is the whole path, or a field
            of the plan that conflicts with the value.
    """
    fields = [name for name in attrs.fields_dict(type(plan)) if name not in _NEVER_SET]
    faults: list[ConfigError] = []
    for path, value in settings.items():
        try:
            plan = set_value(plan, path, value, fields)
        except ConfigError as error:
            key = error.key or path
            is_other = key.partition(".")[0] not in path.split(".")
            faults.append(in_toml(error, value).but(key=key if is_other else path))
    if faults:
        raise join_faults(faults)
    return plan


def set_value(
    plan: Any,  # noqa: ANN401 - a plan, as in sweep
    path: str,
    value: object,
    fields: Sequence[str] = (),
) -> Any:  # noqa: ANN401
    """Return the plan with a new value at ``path``.

    Args:
        plan: The plan.
        path: The path.
        value: The value, or its plain form.
        fields: The fields of the plan that may be set; by default the fields allowed in conditions.

    Raises:
        ConfigError: There is no such path, or the value is invalid there.
    """
    first, *rest = path.split(".")
    unknown = partial(_unknown_path, plan, path, fields)
    settable = fields or chain_fields(type(plan))
    if first not in settable or (first in _WHOLE and not rest):
        raise unknown()
    if first == "agents":
        agents = list(plan.agents)
        for index in _positions(agents, path):
            agents[index] = _set_below(agents[index], rest[1:], value, unknown)
        return attrs.evolve(plan, agents=agents)
    return _set_below(plan, path.split("."), value, unknown)


def read_value(plan: Any, path: str) -> Any:  # noqa: ANN401 - any value
    """Return the value at a path of the plan; for several agents, the value of the first."""
    first, *steps = path.split(".")
    part: Any = getattr(plan, first)
    if first == "agents":
        part, steps = part[_positions(part, path)[0]], steps[1:]
    while steps:
        if isinstance(part, Mapping):
            return part[".".join(steps)]
        part = getattr(part, fields_by_key(type(part))[steps.pop(0)].name)
    return part


def _positions(agents: Sequence[AgentSpec], path: str) -> list[int]:
    who = path.split(".")[1]
    if who == _ALL:
        return list(range(len(agents)))
    names = [str(agent.name) for agent in agents]
    if who in names:
        return [names.index(who)]
    if who.isdecimal() and int(who) < len(agents):
        return [int(who)]
    hint = suggest_nearest(who, names) or f"the agents are {', '.join(names)}"
    raise ConfigError(f"no agent is called {who!r}", key=path, hint=hint)


def _set_below(
    part: Any,  # noqa: ANN401 - the plan, or one of its parts
    steps: Sequence[str],
    value: object,
    unknown: Callable[[], ConfigError],
) -> Any:  # noqa: ANN401
    fields = fields_by_key(type(part)) if attrs.has(type(part)) else {}
    field = fields.get(steps[0]) if steps else None
    if field is None or (isinstance(part, AgentSpec) and field.name == "name"):
        raise unknown()
    rest = steps[1:]
    if rest:
        current = getattr(part, field.name)
        if current is None and PART in field.metadata:
            current = field.metadata[PART]()
        if isinstance(current, FrozenMapping):  # its keys, such as models, may have dots
            value = {**current, ".".join(rest): value}
        else:
            value = _set_below(current, rest, value, unknown)
    changes: dict[str, Any] = {str(field.alias): value}
    return attrs.evolve(part, **changes)


# -- misspelled paths -----------------------------------------------------------------------------


def _unknown_path(plan: Any, path: str, fields: Sequence[str]) -> UnknownKeyError:  # noqa: ANN401
    settable = fields or chain_fields(type(plan))
    known = [*_known_paths(plan, settable), *_agent_paths(path)]
    suggestion = suggest_nearest(path, known)
    others = [field for field in settable if field not in _WHOLE]
    hint = f"fields of the agents and the world may be set, and {', '.join(others)}"
    first = path.partition(".")[0]
    is_common = not fields and first not in settable and first in fields_by_key(type(plan))
    why = f": {first} is the same in all conditions" if is_common else ""
    problem = f"unknown path; {suggestion}" if suggestion else f"no such path{why}"
    return UnknownKeyError(problem, key=path, hint=None if suggestion else hint)


def _agent_paths(path: str) -> Iterator[str]:
    """Yield the paths of agents, with the same selection of agents as ``path``."""
    first, *rest = path.split(".")
    who = rest[0] if first == "agents" and len(rest) > 1 else _ALL
    names = [name for name in fields_by_key(AgentSpec) if name != "name"]
    yield from (f"agents.{who}.{name}" for name in names)


def _known_paths(part: Any, names: Sequence[str]) -> Iterator[str]:  # noqa: ANN401
    for name in names:
        value = getattr(part, name)
        if name not in _WHOLE:
            yield name
        if attrs.has(type(value)):
            yield from (f"{name}.{key}" for key in fields_by_key(type(value)))
