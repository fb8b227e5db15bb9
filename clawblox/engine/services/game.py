"""The root of the tree, ``game``: how scripts find services, and what they do at the end."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine import shapes
from clawblox.engine.errors import WorldHalted, to_text
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.model import DataModel
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.nearest import suggest
from clawblox.engine.slots import Slots
from clawblox.luau import RuntimeFault
from clawblox.luau.core.values import describe_key, is_function, key_value

SHAPE: Final = [shapes.whole]


class Game:
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
            RuntimeFault: It is no function.
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
        """Return what a snapshot holds of it."""
        return [slots.put(function) for function in self._at_close]

    def restore(self, document: list[int], slots: Slots) -> None:
        """Take over the functions of a snapshot.

        Raises:
            ValueError: One is missing.
        """
        self._at_close = [slots.take_function(number) for number in document]


def get_service(game: Instance, name: Any) -> Any:
    """``GetService(name)``: nil, and a warning, if there is no such service."""
    services = game.model.services
    found = services.get(name)
    if found is None:
        shown = describe_key(key_value(name))
        text = f"GetService: {shown} is not a service of {game.spec.name}{suggest(name, services)}"
        game.model.scheduler.warn_once(to_text(text))
    return found


def find_service(game: Instance, name: Any) -> Any:
    """``FindService(name)``: nil if there is no such service."""
    return game.model.services.get(name)


def _workspace(game: Instance) -> Instance:
    """``workspace``, the other name of ``Workspace``."""
    return game.model.workspace


def bind_to_close(game: Instance, function: Any) -> Any:
    """``BindToClose(function)``."""
    state: Game = game.extra
    state.bind_to_close(function)
    return ()


def add_game(classes: ClassTable) -> None:
    """Give ``game`` its members."""
    classes.add(
        "DataModel",
        methods={
            "GetService": get_service,
            "FindService": find_service,
            "BindToClose": bind_to_close,
        },
        getters={"workspace": _workspace},
    )
