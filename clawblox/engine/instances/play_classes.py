"""The classes for interaction between players and scripts, as data like in ``classes``."""

from __future__ import annotations

import math
from typing import Final

from clawblox.engine.instances.looks import POINT, item
from clawblox.engine.instances.spec import NEVER, EventSpec, Property, class_row

_FUNCTIONS: Final = (
    class_row("BindableFunction", OnInvoke=Property("function")),
    class_row("RemoteFunction", OnServerInvoke=Property("function")),
)

_NEXT_TICK: Final = "in the tick after the prompt; always with false"

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
            "PromptSubscriptionPurchaseFinished": EventSpec(
                "player: Player, subscription: string, isPurchased: boolean", _NEXT_TICK
            ),
            "PromptPremiumPurchaseFinished": EventSpec(when="in the tick after the prompt"),
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
        Duration=10.0,
        AllowTeamChangeOnTouch=False,
    ),
)

_TOOLS: Final = (
    class_row("Backpack", creatable=False),
    class_row("StarterGear", creatable=False),
    class_row("BackpackItem", "Model", creatable=False, TextureId=""),
    class_row(
        "Tool",
        "BackpackItem",
        {
            "Equipped": EventSpec(when="when a character holds it"),
            "Unequipped": EventSpec(when="when the character stops holding it"),
            "Activated": EventSpec(when="with Activate, and with an input ActivateTool"),
            "Deactivated": EventSpec(when="with Deactivate, and with an input DeactivateTool"),
        },
        Enabled=Property("boolean", True),
        Grip=Property("CFrame", ()),
        CanBeDropped=True,
        ManualActivationOnly=False,
        RequiresHandle=True,
        ToolTip="",
    ),
)

_NEAR: Final = (0.0, 1e6)
_PLAYER: Final = "player: Player"
_PROMPTED: Final = "prompt: ProximityPrompt, player: Player"

_PROMPTS: Final = (
    class_row(
        "ClickDetector",
        "Instance",
        {
            "MouseClick": EventSpec(_PLAYER, "with an input Click"),
            "RightMouseClick": EventSpec(_PLAYER, NEVER),
            "MouseHoverEnter": EventSpec(_PLAYER, NEVER),
            "MouseHoverLeave": EventSpec(_PLAYER, NEVER),
        },
        CursorIcon="",
        MaxActivationDistance=Property("number", 32.0, limits=_NEAR),
    ),
    class_row(
        "ProximityPrompt",
        "Instance",
        {
            "Triggered": EventSpec(_PLAYER, "with an input Prompt, after HoldDuration"),
            "TriggerEnded": EventSpec(_PLAYER, "right after Triggered"),
            "PromptButtonHoldBegan": EventSpec(_PLAYER, "if it has a HoldDuration"),
            "PromptButtonHoldEnded": EventSpec(
                _PLAYER, "when the hold ends, before Triggered if that fires"
            ),
        },
        ActionText=Property("string", "Interact"),
        Enabled=Property("boolean", True),
        HoldDuration=Property("number", 0.0, limits=(0.0, math.inf)),
        MaxActivationDistance=Property("number", 10.0, limits=_NEAR),
        ObjectText=Property("string", ""),
        ClickablePrompt=True,
        Exclusivity=item("ProximityPromptExclusivity", "OnePerButton"),
        GamepadKeyCode=item("KeyCode", "ButtonX"),
        KeyboardKeyCode=item("KeyCode", "E"),
        RequiresLineOfSight=True,
        Style=item("ProximityPromptStyle", "Default"),
        UIOffset=POINT,
    ),
    class_row(
        "ProximityPromptService",
        "Instance",
        {
            "PromptTriggered": EventSpec(_PROMPTED),
            "PromptTriggerEnded": EventSpec(_PROMPTED),
            "PromptButtonHoldBegan": EventSpec(_PROMPTED),
            "PromptButtonHoldEnded": EventSpec(_PROMPTED),
        },
        creatable=False,
        is_late=True,
    ),
)

PLAY_ROWS: Final = (*_FUNCTIONS, *_PURCHASES, *_TEAMS, *_TOOLS, *_PROMPTS)
"""The classes of this module, each after its base."""
