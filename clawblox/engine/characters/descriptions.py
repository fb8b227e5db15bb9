"""``HumanoidDescription``: what a figure wears is kept for scripts, while nothing is drawn."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.instances.instance import ACCESSORIES, DESCRIPTION, Instance
from clawblox.engine.instances.members import wrong_argument
from clawblox.engine.instances.spec import ClassTable, methods_in
from clawblox.engine.instances.tree_changes import clone
from clawblox.engine.values.value import as_list
from clawblox.luau import LuaTable

_CLASS: Final = "HumanoidDescription"


def set_accessories(description: Instance, accessories: Any, include_rigid: Any) -> Any:
    """``SetAccessories(accessories, includeRigid)``: a copy of the list is kept."""
    rows: list[Any] = _rows(accessories) if isinstance(accessories, LuaTable) else [None]
    if not all(isinstance(row, LuaTable) for row in rows):
        raise wrong_argument(accessories, 1, "SetAccessories", "array of tables")
    description.props[ACCESSORIES] = _copy(description, rows)
    return ()


def get_accessories(description: Instance, include_rigid: Any) -> Any:
    """``GetAccessories(includeRigid)``: a copy of the list that was set last."""
    return _copy(description, _rows(description.props.get(ACCESSORIES, LuaTable())))


def _rows(table: LuaTable) -> list[Any]:
    return [table.get(float(at)) for at in range(1, len(table) + 1)]


def _copy(description: Instance, rows: list[LuaTable]) -> LuaTable:
    description.model.scheduler.charge(sum(len(row) + 1 for row in rows))
    return as_list([LuaTable(row) for row in rows])


def apply_description(humanoid: Instance, description: Any) -> Any:
    """``ApplyDescription(description)``: it is kept, and nothing is drawn."""
    if not isinstance(description, Instance) or not description.is_a(_CLASS):
        raise wrong_argument(description, 1, "ApplyDescription", _CLASS)
    humanoid.props[DESCRIPTION] = clone(description)
    return ()


def get_applied_description(humanoid: Instance) -> Any:
    """``GetAppliedDescription()``: a copy of the one that was applied last, or a default one."""
    kept = humanoid.props.get(DESCRIPTION)
    return humanoid.model.make(_CLASS) if kept is None else clone(kept)


def add_descriptions(classes: ClassTable) -> None:
    """Give descriptions and Humanoids these methods."""
    classes.add(_CLASS, methods=methods_in(globals(), "description"))
    methods = methods_in(globals(), "humanoid")
    classes.add("Humanoid", methods={**methods, "ApplyDescriptionAsync": apply_description})
