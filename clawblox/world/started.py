"""The facts of a started instance, bound to what can act on the instance."""

from __future__ import annotations

from typing import Final, Generic, Self, TypeVar

import attrs

from clawblox.errors import UsageError
from clawblox.results import StartedWorld

_Owner = TypeVar("_Owner")
_FACTS: Final = tuple(field.name for field in attrs.fields(StartedWorld))


class BoundWorld(StartedWorld, Generic[_Owner]):
    """The facts of an instance, and a reference that its verbs use.

    The reference is no field: two values with the same facts are equal, and a copy or a pickle has
    the facts alone.
    """

    _owner: _Owner | None = None

    @classmethod
    def bind(cls, facts: StartedWorld, owner: _Owner) -> Self:
        """Return these facts with verbs.

        Args:
            facts: The facts.
            owner: The object that the verbs call.
        """
        bound = cls(**{name: getattr(facts, name) for name in _FACTS})
        object.__setattr__(bound, "_owner", owner)
        return bound

    def _ready(self) -> _Owner:
        if self._owner is None:
            raise UsageError(
                f"instance {self.name!r} cannot be used through a copy of its facts",
                hint=f"call the open world with instance={self.name!r}",
            )
        return self._owner
