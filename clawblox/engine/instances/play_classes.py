"""The classes with which players and scripts act on each other, as data, as in ``classes``."""

from __future__ import annotations

from typing import Final

from clawblox.engine.instances.spec import Property, class_row

_FUNCTIONS: Final = (
    class_row("BindableFunction", OnInvoke=Property("function")),
    class_row("RemoteFunction", OnServerInvoke=Property("function")),
)

PLAY_ROWS: Final = (*_FUNCTIONS,)
"""These classes, a base before the classes that extend it."""
