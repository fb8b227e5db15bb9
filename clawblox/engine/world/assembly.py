"""Assembles the parts of a world, and runs the phases of a tick in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from typing import Any

from clawblox.engine.animations import Animations
from clawblox.engine.characters.character import add_humanoid
from clawblox.engine.characters.crowd import Characters
from clawblox.engine.characters.spawning import Spawning
from clawblox.engine.characters.tools import INPUTS as TOOL_INPUTS
from clawblox.engine.characters.tools import add_tools
from clawblox.engine.datastore.store import Store
from clawblox.engine.datastore.worker import Worker
from clawblox.engine.errors import SettingsError, WorldHalted
from clawblox.engine.gui import GUI_ROWS
from clawblox.engine.instances.classes import ROWS, SERVICES
from clawblox.engine.instances.containers import add_containers
from clawblox.engine.instances.data_classes import DATA_ROWS, REFUSED_ROWS
from clawblox.engine.instances.instance import DataModel
from clawblox.engine.instances.members import add_members
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.instances.tree_document import make_tree
from clawblox.engine.parts.parts import Parts
from clawblox.engine.saved_state import SavedState
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.scripts.script_globals import (
    SHARED_TABLES,
    make_instance_library,
    make_script_globals,
    make_task_globals,
)
from clawblox.engine.scripts.script_runner import ScriptRunner
from clawblox.engine.scripts.script_tree import read_scripts
from clawblox.engine.services.data_stores import DataStores
from clawblox.engine.services.every import Services, add_services, fire_heartbeat, fire_stepped
from clawblox.engine.services.players import Players
from clawblox.engine.settings import EngineSettings
from clawblox.engine.tweens import Tweens
from clawblox.engine.values.enums import find_enum_object
from clawblox.engine.values.libraries import LATE_NAMES, lend_values, make_default
from clawblox.engine.values.vector3 import VECTOR_TYPE
from clawblox.engine.world.console import Console, quote
from clawblox.engine.world.world_state import check_document, read_world
from clawblox.luau import VM, Host, HostObject, LuauSyntaxError


class _WorldHost(Host):
    """The engine's functions and objects for the VM; finds instances, signals and connections."""

    model: DataModel

    def find_object(self, ident: str) -> HostObject | None:
        enum_object = find_enum_object(ident)
        return self.model.find_object(ident) if enum_object is None else enum_object


class Assembly:
    """The parts of a world.

    Args:
        settings: The settings in the world's files.
        console: Output of the world.
        store: The database of data stores, or None.
        logical_restore: Whether to restore positions and velocities if the exact state of the
            physics cannot be restored.

    Raises:
        SettingsError: A script or another file of the script tree is invalid.

    Attributes:
        content_hash: A hash of the scripts and of the settings that affect the simulation.
        model: The instances.
        scheduler: The threads that wait.
        vm: The VM of the scripts; a restore replaces it.
    """

    def __init__(
        self,
        settings: EngineSettings,
        console: Console,
        store: Store | None = None,
        *,
        logical_restore: bool = False,
    ) -> None:
        self.settings = settings
        self.console = console
        self._files = read_scripts(settings.directory, settings.main, settings.tree)
        content = json.dumps([dict(settings.tables), self._files.sources()], sort_keys=True)
        self.content_hash = hashlib.sha256(content.encode()).hexdigest()
        self._host = _WorldHost()
        self._options: dict[str, Any] = {
            "steps": settings.steps_per_tick,
            "memory_bytes": settings.memory_bytes,
            "output": console.print,
            "vectors": VECTOR_TYPE,
            "late_names": LATE_NAMES,
        }
        self.vm = VM(**self._options)
        self.scheduler = Scheduler(self.vm, console.report, self._report)
        self.scheduler.halts_on_error = settings.halts_on_error
        self._equip_vm()
        libraries = {
            **lend_values(self._host),
            **make_task_globals(self._host, self.scheduler),
        }
        classes = ClassTable(
            (*ROWS, *GUI_ROWS, *DATA_ROWS, *REFUSED_ROWS), self._host, make_default
        )
        add_members(classes, self.scheduler)
        add_services(classes)
        add_humanoid(classes)
        self.model = self._host.model = DataModel(self._host, self.scheduler, classes)
        libraries["Instance"] = make_instance_library(self._host, self.model)
        self.scripts = ScriptRunner(self.model)
        self.scripts.use(self._files)
        libraries |= make_script_globals(self._host, self.scripts, console.warn)
        self.vm.globals.update(libraries)
        self.services = self._make_services(store, Spawning(self.model))
        groups = self.services.collision_groups
        self.parts = Parts(
            self.model,
            groups,
            solver_iterations=settings.solver_iterations,
            logical_restore=logical_restore,
        )
        groups.changed = self.parts.update_groups
        self.parts.space.walking.pushes = settings.player_object_physics
        self.characters = Characters(self.model, self.parts)
        self.animations = Animations(self.model)
        self.tweens = Tweens(self.model)
        self.systems: dict[str, SavedState] = {
            "parts": self.parts,
            "characters": self.characters,
            "animations": self.animations,
            "tweens": self.tweens,
            "services": self.services,
            "scripts": self.scripts,
        }

    def _report(self, failure: WorldHalted, left_out: int) -> None:
        self.console.fail(failure, left_out, self.sources())

    def sources(self) -> Iterator[tuple[str, str]]:
        """Iterate over the names and texts of all scripts, including those that do not compile."""
        yield from ((chunk.name, chunk.source) for chunk in self.vm.chunks)
        yield from self.scripts.sources()

    def check_scripts(self, changed: Collection[str]) -> None:
        """Compile the scripts and the changed modules, without running them.

        Raises:
            SettingsError: A script does not compile; the message quotes it.
        """
        files = (self._files.main, *self._files.tree)
        chosen = [file for file in files if file.may_run or file.path in changed]
        try:
            self.scripts.check(chosen)
        except LuauSyntaxError as error:
            lines = quote(str(error), ((f"={file.path}", file.source) for file in chosen))
            raise SettingsError("\n".join([str(error), *lines])) from error

    def begin(self) -> None:
        """Create the tree, with the services and the scripts, and run the main script.

        Raises:
            WorldHalted: A script does not compile, or the main script fails.
        """
        self.model.build(SERVICES)
        self.model.workspace.store("Gravity", self.settings.gravity)
        self.services.begin()
        game, services = self.model.game, self.model.services
        self.vm.globals.update({**services, "game": game, "workspace": services["Workspace"]})
        self.vm.sandbox(writable=SHARED_TABLES)
        self.scripts.begin(self._files)
        self.console.end_tick()

    def restore(self, state: Any) -> None:
        """Restore a snapshot, instead of calling `begin`.

        Raises:
            VMSnapshotError: The document is damaged, or has another version.
            ValueError: The document is damaged, or has another version.
        """
        check_document(self.systems, state)
        kept = make_tree(self.model, state["tree"])
        self.vm = self.scheduler.vm = VM.restore(
            state["vm"], host=self._host, fresh=self.vm.globals, **self._options
        )
        self._equip_vm()
        with self.vm.entered():
            read_world(self.model, self.vm, self.systems, state)
        if state["time"] != self.scheduler.time:
            raise ValueError(f"the snapshot's time, {state['time']}, is not that of its tick")
        del kept

    def _make_services(self, store: Store | None, spawning: Spawning) -> Services:
        players = Players(
            self.model,
            max_players=self.settings.max_players,
            afk_timeout_s=self.settings.afk_timeout_s,
            spawn=spawning.spawn,
            leave=lambda player: self.services.inputs.remove_player(player),
            log=self.console.error,
        )
        worker = None if store is None else Worker(store)
        data_stores = DataStores(self.model, worker, self.settings.game_id)
        services = Services(self.model, players, data_stores)
        add_tools(self.model)
        add_containers(self.model.classes)
        services.inputs.effects.update(TOOL_INPUTS)
        services.inputs.effects["Reset"] = lambda player, _: spawning.load_character(player)
        return services

    def _equip_vm(self) -> None:
        self.vm.clock = self.vm.wall_clock = lambda: self.scheduler.time
        self.vm.held = self._held

    def _held(self) -> Iterator[Any]:
        """Iterate over the values that the engine keeps for scripts, to count their memory."""
        yield self.model.game
        yield from self.scheduler.held()
        yield from self.scripts.modules.held()
        yield from self.tweens.held()
        yield from self.services.remote_events.held()
        yield from self.services.remote_functions.held()


def run_tick(world: Assembly) -> None:
    """Run a tick.

    Raises:
        WorldHalted: The error of a script halts the world.
    """
    model, scheduler, services = world.model, world.scheduler, world.services
    with scheduler.phase("Begin frame error"):
        services.players.begin_tick()
        world.scripts.begin_tick()
        world.animations.advance()
        world.tweens.advance()
        services.data_stores.deliver()
        services.remote_functions.expire()
        services.debris.collect()
        scheduler.resume_due()
        fire_stepped(model)
    world.characters.find_roots()
    world.parts.sync()
    with scheduler.phase("Failed to process agent inputs"):
        services.inputs.process()
        services.prompts.advance()
        services.speech.process()
    world.characters.move()
    world.parts.step()
    with scheduler.phase("Touch event"):
        world.parts.report_touches()
    with scheduler.phase("End frame error"):
        world.parts.write_back()
        world.parts.apply_welds()
        fire_heartbeat(model)
    services.remote_events.publish()
    services.data_stores.submit()
    scheduler.tick += 1
    world.console.end_tick()
