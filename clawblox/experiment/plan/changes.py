"""The differences between two plans of an experiment, and the changes that a resume may make. Pure.

Chains are compared by name, with the values of their conditions, so an unused value is
not a change. A file with the same name in another directory is an allowed change, because
directories move; for prompts and templates, which are copied, it is not a change at all.
``experiment.inputs`` compares the contents. The path of the score function is compared as a whole,
because it is the function's place of import.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.config.arguments import check_known
from clawblox.errors import PlanChangedError
from clawblox.experiment.plan.naming import original_name
from clawblox.experiment.plan.parts import USUAL_SAVING_S, AgentSpec
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.plan.plan_file import map_paths
from clawblox.experiment.plan.programs import map_program
from clawblox.experiment.plan.values import PART, RESUME, chain_fields, fields_by_key, to_plain
from clawblox.results import PlanChange, PlanChangeKind

PROMPTS: Final = "prompts"
TEMPLATES: Final = "templates"
WORLD: Final = "world"

_PLACES: Final = ("name", "layout", "run_prefix")
"""Fields that name the files of the experiment; they are fixed even before the plan is used."""
_FILES: Final = {"agents.*.template": TEMPLATES, "agents.*.system_prompt": PROMPTS}
"""Fields with the path of a file, and the kind of input that its content belongs to."""
ACCEPTABLE: Final = (
    *(
        key
        for part in (Plan, AgentSpec)
        for key, field in fields_by_key(part).items()
        if field.metadata.get(RESUME) == "amendment"
    ),
    *(WORLD, PROMPTS, TEMPLATES),
)
"""Names of the amendments that may be accepted."""


def compare(old: Plan, new: Plan) -> tuple[PlanChange, ...]:
    """Return the changes from the recorded plan of an experiment to a new one.

    Args:
        old: The recorded plan.
        new: The plan for the resume.
    """
    changes: list[PlanChange] = []
    for change in (*_compare_plans(old, new), *_compare_chains(old, new)):
        if change not in changes:
            changes.append(change)
    return tuple(changes)


def require_acceptable(
    changes: Collection[PlanChange], accept: Collection[str] = (), *, has_worked: bool = True
) -> None:
    """Check that an experiment can be resumed with these changes.

    Args:
        changes: All changes.
        accept: Names of the accepted amendments, of :data:`ACCEPTABLE`.
        has_worked: Whether the old plan has had effects; before that, almost all fields may be
            corrected.

    Raises:
        PlanChangedError: An amendment is not accepted, or a change is never possible.
        ConfigError: ``accept`` has an unknown name.
    """
    for name in accept:
        check_known(name, "accept", names=ACCEPTABLE)
    refused = [
        change
        for change in changes
        if change.kind == "never" or (change.kind == "amendment" and change.accept_as not in accept)
    ]
    if not has_worked:
        refused = [change for change in refused if change.field in _PLACES]
    if refused:
        count = f"{len(refused)} field{'' if len(refused) == 1 else 's'}"
        raise PlanChangedError(
            f"the plan differs in {count} from the plan of the experiment", changes=refused
        )


def _compare_plans(old: Plan, new: Plan) -> Iterator[PlanChange]:
    before, after = _select(old, of_chains=False), _select(new, of_chains=False)
    for field, previous, value in _differences("", before, after):
        is_longer = field == "generations" and value > previous
        yield PlanChange(field, previous, value, "free" if is_longer else _find_kind(field))


def _compare_chains(old: Plan, new: Plan) -> Iterator[PlanChange]:
    chains = {chain.name: chain for chain in new.chains()}
    compared: set[tuple[int, int]] = set()
    gone: list[str] = []
    for before in old.chains():
        after = chains.get(before.name)
        if after is None:
            gone.append(before.name)
        elif (pair := (id(before.plan), id(after.plan))) not in compared:
            compared.add(pair)
            yield from _compare_conditions(before.plan, after.plan)
    if gone:
        yield PlanChange("chains", gone, None, "never")


def _compare_conditions(old: Plan, new: Plan) -> Iterator[PlanChange]:
    old_names, new_names = ([agent.name for agent in plan.agents] for plan in (old, new))
    if old_names != new_names:
        yield PlanChange("agents", old_names, new_names, "never")
        return
    before, after = _select(old, of_chains=True), _select(new, of_chains=True)
    for tables in (before, after):
        tables["agents"] = dict(zip(old_names, tables["agents"], strict=True))
    if old.save is not None and new.save is not None:
        before["save"]["before"], after["save"]["before"] = _save_times(old, new)
    for field, previous, value in _differences("", before, after):
        yield from _judge(field, previous, value)


def _save_times(old: Plan, new: Plan) -> tuple[float | None, float | None]:
    """Return ``save.before`` of two plans; an explicit default equals None."""
    assert old.save is not None
    assert new.save is not None
    times = old.save.before, new.save.before
    match times:
        case (None, time) if time == old.saving_s:
            return time, time
        case (time, None) if time in (USUAL_SAVING_S, new.saving_s):
            return time, time  # earlier versions wrote the default, whatever the duration
    return times


def _judge(field: str, old: Any, new: Any) -> Iterator[PlanChange]:  # noqa: ANN401 - plain values
    content = _FILES.get(_generalise(field))
    if content is None:
        kind = "free" if _has_moved(field, old, new) else _find_kind(field)
        yield PlanChange(field, old, new, kind)
    elif old is None or new is None:
        yield PlanChange(content, old, new, "amendment")


def _has_moved(field: str, old: Any, new: Any) -> bool:  # noqa: ANN401 - plain values
    """Return whether only the directory of the world or of a program differs."""
    if field == "world.dir":
        return Path(old).name == Path(new).name
    if not _generalise(field).startswith("agents.*.command"):
        return False
    old, new = (map_program(command, lambda path: Path(path).name) for command in (old, new))
    return bool(old == new)


def _select(plan: Plan, *, of_chains: bool) -> dict[str, Any]:
    def name_copies(field: str, path: str) -> str:
        return original_name(Path(path).name) if field in ("template", "system_prompt") else path

    tables = map_paths(to_plain(plan), name_copies)
    tables["score"] = plan.score
    names = chain_fields(Plan)
    return {field: value for field, value in tables.items() if (field in names) is of_chains}


def _differences(parent: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401
    """Yield the dotted names of different values, with both values; None for a missing value."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            field = f"{parent}.{key}" if parent else key
            yield from _differences(field, old.get(key), new.get(key))
    elif old != new:
        yield parent, old, new


def _find_kind(field: str) -> PlanChangeKind:
    kind: type[attrs.AttrsInstance] = Plan
    for step in _generalise(field).split("."):
        if (found := fields_by_key(kind).get(step)) is not None:
            if RESUME in found.metadata:
                return found.metadata[RESUME]  # type: ignore[no-any-return]
            kind = found.metadata.get(PART, kind)
    return "never"


def _generalise(field: str) -> str:
    """Return the path of a field with the agent replaced by ``*``."""
    first, *rest = field.split(".")
    return ".".join(("agents", "*", *rest[1:])) if first == "agents" and rest else field
