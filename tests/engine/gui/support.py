"""A data model with the classes of the GUI."""

from __future__ import annotations

from typing import Any

from clawblox.engine.gui import GUI_ROWS
from clawblox.engine.instances.classes import ROWS
from clawblox.engine.instances.instance import DataModel
from clawblox.engine.instances.members import add_members
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.values.libraries import lend_values, make_default
from clawblox.engine.values.vector3 import VECTOR_TYPE
from clawblox.luau import VM
from tests.engine.values.support import EnumHost


class GuiWorld:
    """A data model, and a VM whose global ``gui`` is a PlayerGui."""

    def __init__(self) -> None:
        host = EnumHost()
        self.vm = VM(vectors=VECTOR_TYPE)
        self.vm.globals.update(lend_values(host))
        classes = ClassTable((*ROWS, *GUI_ROWS), host, make_default)
        scheduler = Scheduler(self.vm, print)
        add_members(classes, scheduler)
        self.model = DataModel(host, scheduler, classes)
        self.gui = self.add("PlayerGui", None)
        self.vm.globals["gui"] = self.gui

    def add(self, class_name: str, parent: Any, name: str | None = None) -> Any:
        made = self.model.make(class_name, name=name)
        made.link(parent)
        return made

    def run(self, source: str, **names: Any) -> Any:
        self.vm.globals.update(names)
        results = self.vm.call(self.vm.load(source, "=t"))
        return results[0] if len(results) == 1 else results

    def error(self, statement: str, **names: Any) -> Any:
        source = f"local _, e = pcall(function() {statement} end) return e"
        return self.run(source, **names).removeprefix("t:1: ")
