"""Finds and runs the modules that scripts ``require``: each once, even if it waits while loading.

Modules are named by path, such as ``./x``, ``../x`` and ``@self/x``, and by aliases of ``.luaurc``
files. A module runs in its own thread. Threads that require it in the meantime wait until it has
returned. If it fails, they get its error, and the next ``require`` runs it again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.errors import SettingsError, to_luau_text
from clawblox.engine.instances.instance import Instance
from clawblox.engine.saved_state import Layouts, SavedState, entries, object_slot, record
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.scripts.script_files import ALIASES_NAME, WorldScripts, join_path, split_name
from clawblox.engine.slots import Slots
from clawblox.foreign_values import parse_json
from clawblox.luau import Coroutine, LuaError, RuntimeFault, fail_call
from clawblox.luau.core.values import describe_key

_MAX_BYTES: Final = 1 << 16
_TEXT: Final = r'("(?:[^"\\]|\\.)*")'
_COMMENT: Final = re.compile(_TEXT + r"|//[^\n]*")
_TRAILING_COMMA: Final = re.compile(_TEXT + r"|,(\s*[\]}])")
_LONGEST: Final = 1000
_STEPS_PER_NAME: Final = 10
_FORM: Final = "require expects a ModuleScript, or a path that begins with './', '../' or '@'"


class RequirePaths:
    """Finds the modules of a world by paths.

    Args:
        scripts: The files of the world.

    Raises:
        SettingsError: A ``.luaurc`` is invalid, or leads out of the world.
    """

    def __init__(self, scripts: WorldScripts) -> None:
        self._aliases: dict[str, dict[str, str]] = {}  # targets by name, by the file's directory
        for path, text in scripts.others:
            at = PurePosixPath(path)
            if at.name == ALIASES_NAME:
                self._aliases[at.parent.as_posix()] = dict(_read_file(path, text))
        self._places = dict(scripts.places)
        for file in scripts.tree:
            at = PurePosixPath(file.path)
            name, _ = split_name(at.name, "")
            self._places.setdefault((at.parent / name).as_posix(), file.place)

    def find(self, path: str, script: Instance, file: str) -> Instance:
        """Return the ModuleScript at a path.

        Args:
            path: The path, a Luau string.
            script: The script that requires it.
            file: The path of its file below the directory of the world; empty if it has none.

        Raises:
            LuaError: There is no such module, or the steps of this tick are used up.
        """
        first, *names = path[:_LONGEST].split("/")
        script.model.scheduler.charge(_STEPS_PER_NAME * len(names))
        at: Instance | None = self._find_start(first, script, file)
        for name in names:
            if at is not None and name not in ("", "."):
                at = at.parent if name == ".." else at.find_child(name)
        if at is None or not at.is_a("ModuleScript"):
            raise RuntimeFault(f"require: there is no ModuleScript at {describe_key(path)}")
        return at

    def _find_start(self, first: str, script: Instance, file: str) -> Instance | None:
        if first == ".":
            return script.parent
        if first == "..":
            return None if script.parent is None else script.parent.parent
        if first == "@self":
            return script
        if first == "@game":
            return script.model.game
        if first[:1] != "@":
            raise RuntimeFault(_FORM)
        return self._find_alias(first[1:].lower(), script, file)

    def _find_alias(self, name: str, script: Instance, file: str) -> Instance | None:
        for directory in PurePosixPath(file).parents if file else (PurePosixPath(),):
            target = self._aliases.get(directory.as_posix(), {}).get(name)
            if target is not None:
                return self._find_place(name, target, script)
        raise RuntimeFault(f"require: no {ALIASES_NAME} has the alias {describe_key(name)}")

    def _find_place(self, name: str, target: str, script: Instance) -> Instance | None:
        place = self._places.get(target)
        if place is None:
            leads = f"{describe_key(name)} leads to {describe_key(target)}"
            raise RuntimeFault(f"require: the alias {leads}, which is not in the script tree")
        at: Instance | None = script.model.game
        for name in place:
            at = None if at is None else at.find_child(name)
        return at


def _as_json(text: str) -> str:
    """Return a ``.luaurc`` as JSON, without the comments and trailing commas that Luau allows."""
    plain = _COMMENT.sub(lambda match: match[1] or "", text[: _MAX_BYTES + 1])
    return _TRAILING_COMMA.sub(lambda match: match[1] or match[2], plain)


def _read_file(path: str, text: str) -> Iterable[tuple[str, str]]:
    try:
        document = parse_json(_as_json(text).encode("latin-1"), max_bytes=_MAX_BYTES)
    except ValueError as error:
        raise SettingsError(f"{path}: not JSON: {error}") from error
    aliases = document.get("aliases", {}) if isinstance(document, dict) else None
    if not isinstance(aliases, dict):
        raise SettingsError(f"{path}: aliases must be an object, not {aliases!r}")
    for name, target in aliases.items():
        joined = join_path(PurePosixPath(path).parent, target) if isinstance(target, str) else None
        if joined is None:
            raise SettingsError(
                f"{path}: aliases.{name} must be a path within the world, not {target!r}"
            )
        yield to_luau_text(name).lower(), joined


@attrs.define(eq=False)
class _Load:
    """A module that has started but not returned.

    Attributes:
        thread: Its thread.
        requirers: The threads that wait for its value, in the order in which they started to wait.
        needs: The number of the module that its own thread is waiting for; 0 for none.
    """

    thread: Coroutine
    requirers: list[Coroutine] = attrs.field(factory=list)
    needs: int = 0


class Modules(SavedState):
    """The modules of a world.

    Args:
        scheduler: The threads that wait.
        load: Compiles a module and returns the thread that will run it; raises LuaError.
        results: Receives the values of modules that have returned, by instance number.
    """

    layouts: ClassVar[Layouts] = {
        "_loads": entries(
            shapes.whole,
            record(_Load, object_slot(Coroutine), [object_slot(Coroutine)], shapes.whole),
        )
    }

    def __init__(
        self,
        scheduler: Scheduler,
        load: Callable[[Instance], Coroutine],
        results: dict[int, Any],
    ) -> None:
        self._scheduler = scheduler
        self._load = load
        self._results = results
        self._loads: dict[int, _Load] = {}
        self._starting: dict[int, None] = {}  # modules before their first wait
        self._ready: deque[tuple[Coroutine, bool, Any]] = deque()
        self._is_resuming = False

    def require(self, module: Any) -> Any:
        """Return the value of a ModuleScript.

        Raises:
            Yield: The module waits; the running thread gets the value later.
            LuaError: The argument is not a ModuleScript; or the module requires itself, fails, or
                waits while the running thread cannot.
        """
        if not isinstance(module, Instance) or not module.is_a("ModuleScript"):
            raise RuntimeFault("require expects a ModuleScript")
        number = module.number
        if number not in self._results:
            if number not in self._loads:
                self._start(module)
            elif self._waits_for_running_thread(number):
                raise RuntimeFault("cyclic module dependency detected")
            if number not in self._results:
                self._wait_for(number)
        return self._results[number]

    def _start(self, module: Instance) -> None:
        """Run a module up to its first wait."""
        number, thread = module.number, self._load(module)
        self._loads[number] = _Load(thread)
        self._starting[number] = None
        self._note_need(self._scheduler.vm.running, number)
        thread.ended = partial(self._finish, number)
        try:
            self._scheduler.vm.resume(thread)
        finally:
            del self._starting[number]
            self._note_need(self._scheduler.vm.running, 0)

    def _wait_for(self, number: int) -> None:
        """Suspend the running thread until a module has returned."""
        thread, suspension = self._scheduler.park()
        self._loads[number].requirers.append(thread)
        self._note_need(thread, number)
        raise suspension

    def _note_need(self, thread: Coroutine | None, number: int) -> None:
        for load in self._loads.values():
            if load.thread is thread:
                load.needs = number

    def _waits_for_running_thread(self, number: int) -> bool:
        """Return whether a module, directly or indirectly, waits for the running thread."""
        while load := self._loads.get(number):
            if load.thread is self._scheduler.vm.running:
                return True
            number = load.needs
        return False

    def _finish(self, number: int, ok: bool, values: tuple[Any, ...]) -> None:
        """Give the value of a module, or its error, to the threads that wait for it."""
        load = self._loads.pop(number)
        value = values[0] if values else None
        if ok:
            self._results[number] = value
        requirers = [thread for thread in load.requirers if thread.status == "suspended"]
        self._ready += [(thread, ok, value) for thread in requirers]
        if not (ok or requirers or number in self._starting):
            self._scheduler.fail(load.thread.error or LuaError(value))
        self._resume_ready()

    def _resume_ready(self) -> None:
        """Resume the ready threads one after the other, including those that become ready."""
        if self._is_resuming:
            return
        self._is_resuming = True
        try:
            while self._ready:
                thread, ok, value = self._ready.popleft()
                self._note_need(thread, 0)
                if thread.status != "suspended":
                    continue
                if not ok:
                    fail_call(thread, LuaError(value))
                self._scheduler.resume(thread, (value,))
        finally:
            self._is_resuming = False

    def held(self) -> Iterator[Coroutine]:
        """Iterate over the threads that are kept alive, to count their memory."""
        for load in self._loads.values():
            yield load.thread
            yield from load.requirers

    def restore(self, document: Any, slots: Slots) -> None:
        """Restore the modules that are loading.

        Raises:
            ValueError: The snapshot is damaged.
        """
        super().restore(document, slots)
        for number, load in self._loads.items():
            load.thread.ended = partial(self._finish, number)
            for thread in load.requirers:
                self._scheduler.restore_parked(thread)
