"""A data model with parts and a VM, ticked without characters, players or services."""

import json

from clawblox.engine.instances.classes import ROWS, SERVICES
from clawblox.engine.instances.instance import DataModel
from clawblox.engine.instances.members import add_members
from clawblox.engine.instances.spec import ClassSpec, ClassTable
from clawblox.engine.instances.tree_document import fill_tree, make_tree, tree_document
from clawblox.engine.parts.parts import Parts
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.scripts.script_globals import make_instance_library
from clawblox.engine.services.physics_groups import CollisionGroups
from clawblox.engine.slots import Slots
from clawblox.engine.values.enums import find_enum_object
from clawblox.engine.values.libraries import lend_values, make_default
from clawblox.engine.values.vector3 import VECTOR_TYPE
from clawblox.engine.world.world_state import find_instances
from clawblox.luau import VM, Host


class BenchHost(Host):
    def find_object(self, ident):
        return find_enum_object(ident) or self.model.find_object(ident)


class Bench:
    def __init__(self, document=None, **options):
        self.warnings = []
        self.host = BenchHost()
        self.vm = VM(vectors=VECTOR_TYPE)
        self.scheduler = Scheduler(self.vm, self.warnings.append)
        self.scheduler.halts_on_error = True  # so that errors reach the test
        libraries = lend_values(self.host)
        classes = ClassTable(
            (*ROWS, ClassSpec("PlayerGui", creatable=False)), self.host, make_default
        )
        add_members(classes, self.scheduler)
        self.model = self.host.model = DataModel(self.host, self.scheduler, classes)
        self.groups = CollisionGroups(self.model)
        self.parts = Parts(self.model, self.groups, **options)
        self.groups.changed = self.parts.update_groups
        if document is None:
            self.model.build(SERVICES)
        else:
            kept = make_tree(self.model, document["tree"])
            saved = VM.restore(document["slots"], host=self.host, vectors=VECTOR_TYPE)
            slots = Slots.load(saved)
            fill_tree(self.model, document["tree"], slots)
            self.parts.restore(document["parts"], slots)
            self.scheduler.tick = document["tick"]
            del kept
        libraries["Instance"] = make_instance_library(self.host, self.model)
        services = {"workspace": self.model.workspace, "game": self.model.game}
        self.vm.globals.update({**libraries, **services})

    def run(self, source):
        """Run Luau; return its results."""
        with self.vm.entered():
            function = self.vm.load(source)
            results = []
            self.vm.globals["report"] = self.host.raw(f"report{id(results)}")(
                lambda *values: results.append(values) or ()
            )
            self.scheduler.run(function)
        return results[0] if results else None

    def tick(self, count=1):
        for _ in range(count):
            with self.vm.entered():
                self.parts.sync()
                self.parts.step()
                self.parts.report_touches()
                self.parts.write_back()
                self.parts.apply_welds()
            self.scheduler.tick += 1

    def document(self):
        slots = Slots()
        document = {
            "tick": self.scheduler.tick,
            "tree": tree_document(self.model, find_instances(self.model, ()), slots),
            "parts": self.parts.document(slots),
        }
        holder = VM(vectors=VECTOR_TYPE)  # of the values in the slots alone
        slots.store(holder)
        document["slots"] = holder.snapshot()
        return json.loads(json.dumps(document))
