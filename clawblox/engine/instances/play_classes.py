"""The classes with which players and scripts act on each other, as data, as in ``classes``."""

from __future__ import annotations

from typing import Final

from clawblox.engine.instances.spec import EventSpec, Property, class_row

_FUNCTIONS: Final = (
    class_row("BindableFunction", OnInvoke=Property("function")),
    class_row("RemoteFunction", OnServerInvoke=Property("function")),
)

_NEXT_TICK: Final = "in the tick after the prompt; never with true"

_PURCHASES: Final = (
    class_row(
        "MarketplaceService",
        "Instance",
        {
            "PromptPurchaseFinished": EventSpec(
                "player: Player, asset: number, isPurchased: boolean", _NEXT_TICK
            ),
            "PromptBundlePurchaseFinished": EventSpec(
                "player: Player, bundle: number, isPurchased: boolean", _NEXT_TICK
            ),
            "PromptGamePassPurchaseFinished": EventSpec(
                "player: Player, gamePass: number, isPurchased: boolean", _NEXT_TICK
            ),
            "PromptProductPurchaseFinished": EventSpec(
                "userId: number, product: number, isPurchased: boolean", _NEXT_TICK
            ),
        },
        creatable=False,
        is_late=True,
        ProcessReceipt=Property("function"),
    ),
    class_row("BadgeService", creatable=False, is_late=True),
)

_TEAM_COLOR: Final = Property("BrickColor", (1.0,))

_TEAMS: Final = (
    class_row("Teams", creatable=False, is_late=True),
    class_row(
        "Team",
        "Instance",
        {"PlayerAdded": EventSpec("player: Player"), "PlayerRemoved": EventSpec("player: Player")},
        TeamColor=_TEAM_COLOR,
        AutoAssignable=Property("boolean", True),
    ),
    class_row(
        "SpawnLocation",
        "Part",
        Enabled=Property("boolean", True),
        Neutral=Property("boolean", True),
        TeamColor=_TEAM_COLOR,
        Duration=Property("number", 10.0),
        AllowTeamChangeOnTouch=Property("boolean", False),
    ),
)

PLAY_ROWS: Final = (*_FUNCTIONS, *_PURCHASES, *_TEAMS)
"""These classes, a base before the classes that extend it."""
