"""Starts the scripts of a world, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

from clawblox.engine import shapes
from clawblox.engine.errors import to_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.tree_changes import set_parent
from clawblox.engine.saved_state import VALUE, Layouts, SavedState, entries, keys, object_slot
from clawblox.engine.scripts.modules import Modules, RequirePaths
from clawblox.engine.scripts.script_files import ROOTS, Place, ScriptFile, WorldScripts
from clawblox.luau import Coroutine, LuaError, RuntimeFault
from clawblox.luau.runtime.diagnose import calling_environment

_START_STEPS: Final = 100  # starting a script
_LOOK_STEPS: Final = 2  # checking whether a script should start


class ScriptRunner(SavedState):
    """Runs the scripts of a world.

    Args:
        model: The instances.

    Attributes:
        modules: Answers ``require``.
    """

    layouts: ClassVar[Layouts] = {
        "_waiting": keys(object_slot(Instance)),
        "_ran": keys(shapes.whole),
        "_results": entries(shapes.whole, VALUE),
        "_paths": entries(shapes.whole, shapes.text),
    }
    late: ClassVar[Layouts] = {"modules": Modules}

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._waiting: dict[Instance, None] = {}  # scripts with source that have not run
        self._ran: dict[int, None] = {}
        self._results: dict[int, Any] = {}  # of modules
        self._paths: dict[int, str] = {}  # of the files behind instances
        self.modules = Modules(model.scheduler, self._load, self._results)
        self._require_paths = RequirePaths(WorldScripts.empty())
        model.effects["source"] = self._source_changed
        model.effects["disabled"] = self._disabled_changed
        model.copied.append(self._copied)
        model.destroying.append(self._forget)

    def use(self, scripts: WorldScripts) -> None:
        """Let ``require`` find modules by paths.

        Args:
            scripts: The files of the world.

        Raises:
            SettingsError: A ``.luaurc`` is invalid.
        """
        self._require_paths = RequirePaths(scripts)

    def require(self, module: Any) -> Any:
        """Return the value of a module.

        Args:
            module: A ModuleScript, or its path relative to the running script.

        Raises:
            Yield: The module waits; the running thread gets its value later.
            LuaError: There is no such module; or the module requires itself, fails, or waits while
                the running thread cannot.
        """
        if module.__class__ is str:
            script = calling_environment().get("script")
            if not isinstance(script, Instance):
                raise RuntimeFault("require: a path needs the global 'script' of the script")
            module = self._require_paths.find(module, script, self._paths.get(script.number, ""))
        return self.modules.require(module)

    # A new world

    def begin(self, scripts: WorldScripts) -> None:
        """Create the instances of the script tree and run the main script, up to its first wait.

        Args:
            scripts: The files.

        Raises:
            WorldHalted: A script does not compile, or the main script fails.
        """
        made: dict[Place, Instance] = {}
        for file in scripts.tree:
            script = self._add(file, self._folder(file.folders, made))
            if file.is_folder:
                made[file.place] = script
            if file.class_name == "Script":
                self._waiting[script] = None
        try:
            self.check(file for file in scripts.tree if file.may_run)
        except LuaError as error:
            raise self._model.scheduler.halt(error) from error
        main = self._add(scripts.main, self._model.services["ServerScriptService"])
        self._run(main)

    def check(self, files: Iterable[ScriptFile]) -> None:
        """Compile scripts without running them.

        Raises:
            LuauSyntaxError: A script does not compile.
        """
        for file in files:
            self._model.scheduler.vm.compile(file.source, f"={file.path}")

    def sources(self) -> Iterator[tuple[str, str]]:
        """Iterate over the names and texts of all scripts, including those that have not run."""
        for instance in self._model.instances():
            if instance.spec.name in ("Script", "ModuleScript"):
                yield f"={self._chunk_name(instance)}", instance.read("Source")

    def _chunk_name(self, script: Instance) -> str:
        return self._paths.get(script.number) or to_text(_full_name(script))

    def _folder(self, place: Place, made: dict[Place, Instance]) -> Instance:
        """Return the instance at a place of the tree; create it and its ancestors if missing."""
        if place not in made:
            *above, name = place
            if above:
                parent = self._folder(tuple(above), made)
                made[place] = self._model.make("Folder")
                made[place].name = name
                set_parent(made[place], parent)
            else:
                service = self._model.service(name)
                assert service is not None  # checked by the reader of the tree
                made[place] = service
        return made[place]

    def _add(self, file: ScriptFile, parent: Instance) -> Instance:
        script = self._model.make(file.class_name)
        script.name = file.name
        script.store("Source", file.source)
        self._paths[script.number] = file.path
        set_parent(script, parent)
        return script

    # Each tick

    def begin_tick(self) -> None:
        """Run the new scripts below Workspace, ServerScriptService or a Backpack.

        They run in the order of the tree.

        Raises:
            WorldHalted: A script fails, and the error halts the world.
        """
        if not self._waiting:
            return
        self._model.scheduler.charge(len(self._waiting) * _LOOK_STEPS)
        roots = self._roots()
        if not any(_is_ready(script, roots) for script in self._waiting):
            return
        below = (instance for root in roots for instance in root.descendants())
        waiting = [instance for instance in below if instance in self._waiting]
        for script in [script for script in waiting if _is_ready(script, roots)]:
            if script in self._waiting and _is_ready(script, self._roots()):
                self._run(script)

    def _roots(self) -> list[Instance]:
        services = self._model.services
        roots = [services[name] for name in ROOTS]
        for player in services["Players"].children:
            roots += [child for child in player.children if child.spec.name == "Backpack"]
        return roots

    def _run(self, script: Instance) -> None:
        scheduler = self._model.scheduler
        scheduler.charge(_START_STEPS)
        self._waiting.pop(script, None)
        self._ran[script.number] = None
        try:
            thread = self._load(script)
        except LuaError as error:
            scheduler.fail_start(error)
        else:
            scheduler.start(thread)

    def _load(self, script: Instance) -> Coroutine:
        """Compile a script; return the thread that will run it, with its own globals.

        Raises:
            LuaError: The script is not valid Luau.
        """
        vm = self._model.scheduler.vm
        environment = vm.new_environment()
        environment["script"] = script
        name = self._chunk_name(script)
        with vm.entered():
            function = vm.load_charged(script.read("Source"), f"={name}", environment)
        thread = vm.coroutine(function)
        thread.environment = environment
        return thread

    # Changes

    def _source_changed(self, script: Instance, _: str) -> None:
        if script.spec.name == "Script" and script.number not in self._ran:
            self._waiting[script] = None
        self._paths.pop(script.number, None)

    def _disabled_changed(self, script: Instance, name: str) -> None:
        other = "Enabled" if name == "Disabled" else "Disabled"
        script.change(other, not script.read(name))

    def _copied(self, original: Instance, copy: Instance) -> None:
        path = self._paths.get(original.number)
        if path is not None:
            self._paths[copy.number] = path
        if copy.spec.name == "Script" and copy.read("Source"):
            self._waiting[copy] = None

    def _forget(self, script: Instance) -> None:
        self._waiting.pop(script, None)
        for kept in (self._ran, self._paths):
            kept.pop(script.number, None)


def _is_ready(script: Instance, roots: list[Instance]) -> bool:
    return script.read("Enabled") and any(map(script.is_below, roots))


def _full_name(instance: Instance) -> str:
    """Return the names from below the root down to an instance, joined by dots."""
    above = (ancestor.name for ancestor in instance.ancestors() if ancestor.parent is not None)
    return ".".join(reversed([instance.name, *above]))
