"""A small world of scripts, parts and characters, without services."""

from clawblox.engine.animations import Animations
from clawblox.engine.characters.character import add_humanoid
from clawblox.engine.characters.crowd import Characters
from clawblox.engine.characters.spawning import Spawning
from clawblox.engine.instances.classes import ROWS, SERVICES
from clawblox.engine.instances.instance import DataModel
from clawblox.engine.instances.members import add_members
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.instances.tree_changes import set_parent
from clawblox.engine.instances.tree_document import make_tree
from clawblox.engine.parts.parts import Parts
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.scripts.script_globals import make_instance_library, make_task_globals
from clawblox.engine.services.physics_groups import CollisionGroups
from clawblox.engine.values.enums import find_enum_object
from clawblox.engine.values.libraries import lend_values, make_default
from clawblox.engine.values.vector3 import VECTOR_TYPE
from clawblox.engine.world.world_state import read_world, write_world
from clawblox.luau import VM, Host

FLOOR = """
local floor = Instance.new("Part")
floor.Name, floor.Anchored, floor.Size = "Floor", true, Vector3.new(400, 1, 400)
floor.Position, floor.Parent = Vector3.new(0, -0.5, 0), workspace
"""
TOOLS = """
heard = {}
local function shown(value)
    if typeof(value) == "EnumItem" then return value.Name end
    if type(value) == "number" then return string.format("%.2f", value) end
    return tostring(value)
end
function hear(object, event, label)
    object[event]:Connect(function(...)
        local texts = {label or event}
        for _, value in {...} do table.insert(texts, shown(value)) end
        table.insert(heard, table.concat(texts, " "))
    end)
end
function take() local got = heard; heard = {}; return table.concat(got, ", ") end
"""


class SmallWorld:
    """Parts, characters and scripts; `tick` runs the phases of a tick that concern them."""

    def __init__(self, *, floor=True, state=None):
        world = self

        class WorldHost(Host):
            def find_object(self, ident):
                return find_enum_object(ident) or world.model.find_object(ident)

        host = WorldHost()
        self.warnings = []
        self.vm = VM(vectors=VECTOR_TYPE)
        self.scheduler = Scheduler(self.vm, self.warnings.append)
        self.scheduler.halts_on_error = True  # so that errors reach the test
        libraries = {**lend_values(host), **make_task_globals(host, self.scheduler)}
        classes = ClassTable(ROWS, host, make_default)
        add_members(classes, self.scheduler)
        add_humanoid(classes)
        self.model = DataModel(host, self.scheduler, classes)
        self.spawning = Spawning(self.model)
        libraries["Instance"] = make_instance_library(host, self.model)
        self.vm.globals.update(libraries)
        self.parts = Parts(self.model, CollisionGroups(self.model))
        self.characters = Characters(self.model, self.parts)
        self.animations = Animations(self.model)
        self.systems = {
            "parts": self.parts,
            "characters": self.characters,
            "animations": self.animations,
        }
        if state is not None:
            kept = make_tree(self.model, state["tree"])
            self.vm = self.scheduler.vm = VM.restore(state["vm"], host=host, vectors=VECTOR_TYPE)
            with self.vm.entered():
                read_world(self.model, self.vm, self.systems, state)
            self.environment = self.vm.roots["environment"]
            del kept
            return
        self.model.build(SERVICES)
        self.vm.globals.update(self.model.services)
        self.vm.globals.update({"game": self.model.game, "workspace": self.model.workspace})
        self.vm.sandbox()
        self.environment = self.vm.roots["environment"] = self.vm.new_environment()
        self.run(TOOLS)
        if floor:
            self.run(FLOOR)

    def run(self, source):
        """Run a chunk in its own thread; return the value of the global ``answer``."""
        with self.vm.entered():
            self.scheduler.run(self.vm.load(source, "=test", self.environment))
        return self.environment.get("answer")

    def ask(self, expression):
        return self.run(f"answer = {expression}")

    def join(self, name):
        player = self.model.make("Player", name=name)
        with self.vm.entered():
            set_parent(player, self.model.services["Players"])
            self.spawning.spawn(player)
        self.run(f"{name} = game.Players:FindFirstChild('{name}')")
        return player

    def tick(self, ticks=1, inputs=None):
        """Run ticks; `inputs` is a chunk that runs in the phase of inputs."""
        for _ in range(ticks):
            with self.vm.entered():
                self.animations.advance()
                self.scheduler.resume_due()
                self.characters.find_roots()
                self.parts.sync()
            if inputs is not None:
                self.run(inputs)
            with self.vm.entered():
                self.characters.move()
                self.parts.step()
                self.parts.report_touches()
                self.parts.write_back()
                self.parts.apply_welds()
            self.scheduler.tick += 1

    def document(self):
        return write_world(self.model, self.vm, self.systems)
