"""The conditions of a plan: a grid over swept values, and named conditions. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from clawblox.config.arguments import mismatch
from clawblox.errors import ConfigError
from clawblox.experiment.plan.dotted import read_value, set_value
from clawblox.experiment.plan.naming import (
    chain_name,
    choose_labels,
    choose_words,
    label_keys,
    label_value,
)
from clawblox.experiment.plan.parts import Condition
from clawblox.experiment.plan.values import FrozenMapping, below, freeze, to_plain

MAX_CHAINS: Final = 10_000


@attrs.frozen
class Variant:
    """One condition of a plan.

    Attributes:
        base: Prefix of the names of its chains; ``""`` if the plan has a single condition.
        condition: Its values by dotted path, in plain form.
        labels: Its values by short keys, for tables.
        plan: The plan with these values.
    """

    base: str
    condition: Mapping[str, Any]
    labels: Mapping[str, str | int | float | bool]
    plan: Any


def normalise_sweep(plan: Any, sweep: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ANN401
    """Return swept values in plain form, each checked as a value of its field.

    Args:
        plan: The plan without conditions.
        sweep: The lists of values by dotted path.

    Raises:
        ConfigError: A path is unknown, or a value is invalid or listed twice.
    """
    normal: dict[str, list[Any]] = {}
    for path, values in sweep.items():
        key = f"sweep.{path}"
        if not isinstance(values, tuple) or not values:
            raise mismatch(key, "a list of at least one value", values)
        normal[path] = [_normalise(plan, path, value, key) for value in values]
        for index, value in enumerate(normal[path]):
            if value in normal[path][:index]:
                raise ConfigError(
                    "must be different values; this value appears twice", key=key, value=value
                )
    if math.prod(map(len, normal.values())) > MAX_CHAINS:
        raise ConfigError(f"must be at most {MAX_CHAINS} combinations", key="sweep")
    return FrozenMapping(normal)


def normalise_conditions(plan: Any, conditions: Sequence[Condition]) -> tuple[Condition, ...]:  # noqa: ANN401
    """Return the conditions with their values in plain form, each checked as for a sweep.

    Raises:
        ConfigError: A path is unknown, a value is invalid, or two conditions have the same name.
    """
    normal: list[Condition] = []
    for index, condition in enumerate(conditions):
        if condition.name in [other.name for other in normal]:
            expected = "a name that no other condition has"
            raise mismatch(f"conditions.{index}.name", expected, condition.name)
        values = {
            path: _normalise(plan, path, value, f"conditions.{index}.set.{path}")
            for path, value in condition.set.items()
        }
        normal.append(attrs.evolve(condition, set=values))
    return tuple(normal)


def _normalise(plan: Any, path: str, value: object, key: str) -> Any:  # noqa: ANN401
    parent = key.removesuffix(path).rstrip(".")
    try:
        return freeze(to_plain(read_value(set_value(plan, path, value), path)))
    except ConfigError as error:
        if error.key == path:
            raise below(error, parent) from None
        is_whole = not error.key or f".{path}".endswith(f".{error.key}")
        message = error.message if is_whole else f"{error.key}: {error.message}"
        raise ConfigError(message, key=key, value=value, hint=error.hint) from None


def expand(
    plan: Any,  # noqa: ANN401 - a plan without conditions
    sweep: Mapping[str, Sequence[Any]],
    conditions: Sequence[Condition],
) -> list[Variant]:
    """Return the conditions of a plan: the combinations of the sweep, then the named conditions.

    Args:
        plan: The plan without conditions.
        sweep: The normalised lists of values.
        conditions: The normalised conditions.

    Raises:
        ConfigError: Values are invalid in combination, or two conditions would have the same name.
    """
    paths = dict.fromkeys([*sweep, *(path for one in conditions for path in one.set)])
    keys = label_keys([*paths], plan.naming)
    variants = [] if conditions and not sweep else list(_expand_sweep(plan, sweep, keys))
    _require_different_names(variants, plan.naming)
    bases = {variant.base for variant in variants}
    for index, condition in enumerate(conditions):
        if condition.name in bases:
            raise ConfigError(
                "must differ from the names of swept conditions",
                key=f"conditions.{index}.name",
                value=condition.name,
                hint="choose another name, or move the swept value into a condition",
            )
        varied = _vary(plan, condition.name, condition.set)
        labels = {
            keys[path]: label_value(path, read_value(varied.plan, path), plan.naming)
            for path in condition.set
        }
        variants.append(attrs.evolve(varied, labels=labels))
    return variants


def _require_different_names(variants: Sequence[Variant], naming: int) -> None:
    """Check that no two combinations have the same name, for example because digests collide."""
    names: set[str] = set()
    for variant in variants:
        name = chain_name(variant.base, "", naming)
        if name in names:
            raise ConfigError(
                f"two combinations have the same name, {name}",
                key="sweep",
                hint="move one of them into [[conditions]]",
            )
        names.add(name)


def _expand_sweep(
    plan: Any,  # noqa: ANN401
    sweep: Mapping[str, Sequence[Any]],
    keys: Mapping[str, str],
) -> Iterator[Variant]:
    words: dict[str, list[str]] = {}
    labels: dict[str, list[str | int | float | bool]] = {}
    for path, values in sweep.items():
        typed = [read_value(set_value(plan, path, to_plain(value)), path) for value in values]
        words[path] = choose_words(path, typed, plan.naming)
        labels[path] = choose_labels(path, typed, words[path], plan.naming)
    for positions in itertools.product(*(range(len(values)) for values in sweep.values())):
        chosen = dict(zip(sweep, positions, strict=True))
        base = "-".join(words[path][position] for path, position in chosen.items())
        condition = {path: sweep[path][position] for path, position in chosen.items()}
        chosen_labels = {keys[path]: labels[path][position] for path, position in chosen.items()}
        yield attrs.evolve(_vary(plan, base, condition), labels=chosen_labels)


def _vary(plan: Any, base: str, condition: Mapping[str, Any]) -> Variant:  # noqa: ANN401
    varied = plan
    for path, value in condition.items():
        varied = set_value(varied, path, to_plain(value))
    return Variant(base, FrozenMapping(condition), {}, varied)
