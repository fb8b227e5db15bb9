"""The global ``Instance``: how scripts make instances."""

from __future__ import annotations

from typing import Any

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.members import text_argument
from clawblox.engine.instances.model import DataModel
from clawblox.engine.nearest import suggest
from clawblox.luau import Host, LuaTable, RuntimeFault
from clawblox.luau.core.values import describe_key


def make_instance_library(host: Host, model: DataModel) -> LuaTable:
    """Register ``Instance.new`` with a host; return the library."""

    @host.raw("Instance.new")
    def new(class_name: Any = None, parent: Any = None, *_: Any) -> Any:
        name = text_argument(class_name, 1, "new")
        spec = model.classes.find(name)
        if spec is None or not spec.creatable:
            likely = suggest(name, (each.name for each in model.classes if each.creatable))
            raise RuntimeFault(f"Unknown class {describe_key(name)}{likely}")
        if parent is not None and not isinstance(parent, Instance):
            raise RuntimeFault("invalid argument #2 to 'new' (Instance expected)")
        made = model.make(name)
        if parent is not None:
            model.set_parent(made, parent)
        return made

    return LuaTable({"new": new})
