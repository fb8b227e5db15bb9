"""The root of the tree, ``game``: services, what scripts do at the end, and ``Debris``."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine import shapes
from clawblox.engine.errors import WorldHalted, suggest, to_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.spec import ClassTable, methods_in
from clawblox.engine.instances.tree_changes import destroy
from clawblox.engine.scheduler import ticks_in
from clawblox.engine.slots import Slots
from clawblox.luau import RuntimeFault
from clawblox.luau.core.values import describe_key, is_function, key_value

SHAPE: Final = [shapes.whole]


class ClosingCalls:
    """What scripts want to do when the world is closed in order.

    Args:
        model: The data model.
    """

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._at_close: list[Any] = []

    def bind_to_close(self, function: Any) -> None:
        """Call a function when the world is closed.

        Raises:
            RuntimeFault: The value is not a function.
        """
        if not is_function(function):
            raise RuntimeFault("invalid argument #1 to 'BindToClose' (function expected)")
        self._at_close.append(function)

    def close(self) -> list[WorldHalted]:
        """Call these functions in order, each up to its first wait; return their errors."""
        failures = []
        functions, self._at_close = self._at_close, []
        with self._model.scheduler.phase("BindToClose"):
            for function in functions:
                try:
                    self._model.scheduler.run(function)
                except WorldHalted as failure:
                    failures.append(failure)
        return failures

    def document(self, slots: Slots) -> list[int]:
        """Return its part of a snapshot."""
        return [slots.put(function) for function in self._at_close]

    def restore(self, document: list[int], slots: Slots) -> None:
        """Restore the functions of a snapshot.

        Raises:
            ValueError: A function is missing.
        """
        self._at_close = [slots.take_function(number) for number in document]


def get_service(game: Instance, name: Any) -> Any:
    """``GetService(name)``: nil, and a warning, if there is no such service."""
    services = game.model.services
    service = services.get(name)
    if service is None:
        shown = describe_key(key_value(name))
        text = f"GetService: {shown} is not a service of {game.spec.name}{suggest(name, services)}"
        game.model.scheduler.warn_once(to_text(text))
    return service


def find_service(game: Instance, name: Any) -> Any:
    """``FindService(name)``: nil if there is no such service."""
    return game.model.services.get(name)


def _workspace(game: Instance) -> Instance:
    """``workspace``, the other name of ``Workspace``."""
    return game.model.workspace


def bind_to_close(game: Instance, function: Any) -> Any:
    """``BindToClose(function)``."""
    state: ClosingCalls = game.extra
    state.bind_to_close(function)
    return ()


def add_game(classes: ClassTable) -> None:
    """Give ``game`` its members."""
    classes.add(
        "DataModel",
        methods=methods_in(globals(), "game"),
        getters={"workspace": _workspace},
    )


_DEFAULT_S: Final = 10.0


DEBRIS_SHAPE: Final = [(shapes.whole, shapes.whole)]


class DebrisQueue:
    """The instances that wait to be destroyed, in the order in which they were added.

    Args:
        model: The data model.
    """

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._due: dict[Instance, int] = {}

    def add(self, instance: Instance, seconds: float) -> None:
        """Destroy an instance after a time; a second call replaces the first."""
        self._due.pop(instance, None)
        self._due[instance] = self._model.scheduler.tick + ticks_in(seconds)

    def collect(self) -> None:
        """Destroy the instances that are due, at the start of a tick.

        Raises:
            WorldHalted: A handler fails.
        """
        tick = self._model.scheduler.tick
        for instance in [candidate for candidate, due in self._due.items() if due <= tick]:
            self._due.pop(instance, None)
            destroy(instance)

    def document(self, slots: Slots) -> list[list[int]]:
        """Return its part of a snapshot."""
        return [[slots.put(instance), due] for instance, due in self._due.items()]

    def restore(self, document: list[list[int]], slots: Slots) -> None:
        """Restore the instances of a snapshot.

        Raises:
            ValueError: The snapshot is damaged.
        """
        self._due = {slots.take_as(number, Instance): due for number, due in document}


def add_item(service: Instance, instance: Any, seconds: Any) -> Any:
    """``AddItem(instance, seconds)``."""
    if not isinstance(instance, Instance):
        raise RuntimeFault("invalid argument #1 to 'AddItem' (Instance expected)")
    time = seconds if seconds.__class__ is float else _DEFAULT_S
    queue: DebrisQueue = service.extra
    queue.add(instance, time)
    return ()


def add_debris(classes: ClassTable) -> None:
    """Give the service its members."""
    classes.add("Debris", methods={"AddItem": add_item})
