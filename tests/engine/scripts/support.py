"""A world without physics that runs script trees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clawblox.engine.errors import WorldHalted
from clawblox.engine.instances.classes import ROWS, SERVICES
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import add_members
from clawblox.engine.instances.spec import ClassSpec, ClassTable
from clawblox.engine.instances.tree_document import fill_tree, make_tree, tree_document
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.scripts.script_globals import (
    SHARED_TABLES,
    make_instance_library,
    make_script_globals,
    make_task_globals,
)
from clawblox.engine.scripts.script_runner import ScriptRunner
from clawblox.engine.scripts.script_tree import read_scripts
from clawblox.engine.slots import Slots
from clawblox.engine.values.enums import find_enum_object
from clawblox.engine.values.libraries import lend_values, make_default
from clawblox.engine.values.vector3 import VECTOR_TYPE
from clawblox.luau import VM, Host, HostObject


class ModelHost(Host):
    model: DataModel

    def find_object(self, ident: str) -> HostObject | None:
        return find_enum_object(ident) or self.model.find_object(ident)


class ScriptWorld:
    """A world made of files in a directory.

    Attributes:
        lines: The printed lines.
        warnings: The warnings.
    """

    def __init__(self, **options: Any) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.host = ModelHost()
        self.options = {"vectors": VECTOR_TYPE, "output": self.lines.append, **options}
        self.vm = VM(**self.options)
        self.scheduler = Scheduler(self.vm, self.warnings.append)
        classes = ClassTable(
            (*ROWS, ClassSpec("PlayerGui", creatable=False)), self.host, make_default
        )
        add_members(classes, self.scheduler)
        self.model = self.host.model = DataModel(self.host, self.scheduler, classes)
        self.runner = ScriptRunner(self.model)
        self.globals = {
            **lend_values(self.host),
            **make_task_globals(self.host, self.scheduler),
            **make_script_globals(self.host, self.runner, self.scheduler.warn),
            "Instance": make_instance_library(self.host, self.model),
        }

    def begin(self, directory: Path) -> ScriptWorld:
        self.model.build(SERVICES)
        self.vm.globals.update({**self.globals, **self.model.services, "game": self.model.game})
        self.vm.sandbox(writable=SHARED_TABLES)
        files = read_scripts(directory, "main.lua", "scripts")
        self.runner.use(files)
        self.runner.begin(files)
        return self

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            with self.vm.entered(), self.scheduler.phase("Begin frame error"):
                self.runner.begin_tick()
                self.scheduler.resume_due()
            self.scheduler.tick += 1

    def halted(self, directory: Path, ticks: int = 1) -> str:
        """Return the reason of its halt, during loading or within some ticks."""
        try:
            self.begin(directory).tick(ticks)
        except WorldHalted as halted:
            return str(halted)
        raise AssertionError("it goes on")

    def again(self) -> ScriptWorld:
        """Return a world restored from a snapshot of this world."""
        slots = Slots()
        saved: dict[str, Any] = {
            "scripts": self.runner.document(slots),
            "scheduler": self.scheduler.document(slots),
        }
        slots.store(self.vm)
        lent: list[Any] = []
        saved["vm"] = self.vm.snapshot(lent=lent)
        detached = [each for each in lent if isinstance(each, Instance)]
        saved["tree"] = tree_document(self.model, detached, slots)
        Slots.clear(self.vm)
        saved = json.loads(json.dumps(saved))

        world = ScriptWorld()
        kept = make_tree(world.model, saved["tree"])
        world.vm = world.scheduler.vm = VM.restore(saved["vm"], host=world.host, **world.options)
        slots = Slots.load(world.vm)
        fill_tree(world.model, saved["tree"], slots)
        world.scheduler.restore(saved["scheduler"], slots)
        world.runner.restore(saved["scripts"], slots)
        Slots.clear(world.vm)
        del kept
        return world


def write_world(directory: Path, main: str = "", **files: str) -> Path:
    """Write a world; keywords are paths below ``scripts/`` with ``__`` for a slash."""
    (directory / "main.lua").write_text(main, encoding="utf-8")
    for name, text in files.items():
        path = directory / "scripts" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory
