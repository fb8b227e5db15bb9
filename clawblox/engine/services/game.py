"""The root of the tree, ``game``: services, ``BindToClose``, and ``Debris``."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

from clawblox.engine import shapes
from clawblox.engine.errors import WorldHalted, suggest, to_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.instances.tree_changes import destroy
from clawblox.engine.saved_state import FUNCTION, Layouts, SavedState, entries, object_slot
from clawblox.engine.scheduler import ticks_in
from clawblox.luau import RuntimeFault
from clawblox.luau.core.values import describe_key, is_function, key_value


def _late_service(name: str, game: Instance) -> Instance | None:
    return game.model.service(name)


class ClosingCalls(SavedState):
    """The functions that scripts bind to an orderly close of the world.

    Args:
        model: The data model; the members of ``game`` are added to it.
    """

    layouts: ClassVar[Layouts] = {"_at_close": [FUNCTION]}

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._at_close: list[Any] = []
        self._late = [row.name for row in model.classes.rows() if row.is_late]
        getters = {"workspace": lambda game: game.model.workspace}
        getters |= {name: partial(_late_service, name) for name in self._late}
        model.classes.add("DataModel", methods=bind_methods(self, "game"), getters=getters)

    def bind_to_close(self, game: Instance, function: Any) -> Any:
        """``BindToClose(function)``: call a function when the world closes in order."""
        if not is_function(function):
            raise RuntimeFault("invalid argument #1 to 'BindToClose' (function expected)")
        self._at_close.append(function)
        return ()

    def is_loaded(self, game: Instance) -> Any:
        """``IsLoaded()``: return true, since scripts start after loading."""
        return True

    def get_service(self, game: Instance, name: Any) -> Any:
        """``GetService(name)``: return nil, with a warning, if there is no such service."""
        service = self._model.service(name)
        if service is None:
            names = (*self._model.services, *self._late)
            spec = self._model.classes.find(name)
            if spec is not None and spec.refusal:
                text = f"GetService: {name} is not supported: {spec.refusal}"
            else:
                shown, likely = describe_key(key_value(name)), suggest(name, names)
                text = f"GetService: {shown} is not a service of {game.spec.name}{likely}"
            self._model.scheduler.warn_once(to_text(text))
        return service

    def find_service(self, game: Instance, name: Any) -> Any:
        """``FindService(name)``: return nil if there is no such service."""
        return self._model.service(name)

    def close(self) -> list[WorldHalted]:
        """Call the functions in order, each up to its first wait.

        Returns:
            The errors that would halt the world.
        """
        failures = []
        functions, self._at_close = self._at_close, []
        with self._model.scheduler.phase("BindToClose"):
            for function in functions:
                try:
                    self._model.scheduler.run(function)
                except WorldHalted as failure:
                    failures.append(failure)
        return failures


_DEFAULT_S: Final = 10.0


class DebrisQueue(SavedState):
    """The instances that wait to be destroyed, in the order in which they were added.

    Args:
        model: The data model; the methods of ``Debris`` are added to it.
    """

    layouts: ClassVar[Layouts] = {"_due": entries(object_slot(Instance), shapes.whole)}

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._due: dict[Instance, int] = {}
        model.classes.add("Debris", methods=bind_methods(self, "service"))

    def add_item(self, service: Instance, instance: Any, seconds: Any) -> Any:
        """``AddItem(instance, seconds)``: a second call replaces the first."""
        if not isinstance(instance, Instance):
            raise RuntimeFault("invalid argument #1 to 'AddItem' (Instance expected)")
        time = seconds if seconds.__class__ is float else _DEFAULT_S
        self._due.pop(instance, None)
        self._due[instance] = self._model.scheduler.tick + ticks_in(time)
        return ()

    def collect(self) -> None:
        """Destroy the instances that are due, at the start of a tick.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        tick = self._model.scheduler.tick
        for instance in [candidate for candidate, due in self._due.items() if due <= tick]:
            self._due.pop(instance, None)
            destroy(instance)
