"""Methods of services that do nothing, because what they are for is absent from worlds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.spec import ClassTable

_METHODS: Final[Mapping[str, str]] = {
    "AnalyticsService": (
        "LogCustomEvent LogEconomyEvent LogFunnelStepEvent LogOnboardingFunnelStepEvent "
        "LogProgressionCompleteEvent LogProgressionEvent LogProgressionFailEvent "
        "LogProgressionStartEvent"
    ),
    "ContentProvider": "PreloadAsync",
    "StarterGui": "SetCore SetCoreGuiEnabled",
}


def do_nothing(service: Instance, *values: Any) -> Any:
    """Return no results."""
    return ()


def add_idle_methods(classes: ClassTable) -> None:
    """Give the services these methods."""
    for name, methods in _METHODS.items():
        classes.add(name, methods=dict.fromkeys(methods.split(), do_nothing))
