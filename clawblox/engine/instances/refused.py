"""Classes of Roblox that worlds do not have on purpose, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clawblox.engine.instances.spec import ClassSpec

_REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "scripts run one after the other; use a Model": ("Actor",),
    "joints do not move; use Weld, WeldConstraint, AlignPosition or AlignOrientation": (
        "BallSocketConstraint",
        "CylindricalConstraint",
        "HingeConstraint",
        "PrismaticConstraint",
        "RodConstraint",
        "RopeConstraint",
        "SpringConstraint",
        "TorsionSpringConstraint",
        "UniversalConstraint",
    ),
    "use the collision groups of PhysicsService": ("NoCollisionConstraint",),
    "use AlignPosition, AlignOrientation, VectorForce, BodyVelocity or BodyAngularVelocity": (
        "AngularVelocity",
        "BodyGyro",
        "BodyPosition",
        "BodyThrust",
        "LineForce",
        "LinearVelocity",
        "RocketPropulsion",
        "Torque",
    ),
    "a world is a single place": ("TeleportService",),
    "worlds load nothing from Roblox": ("AssetService", "GroupService", "InsertService"),
    "agents have no keyboard, mouse or screen; use AgentInputService": (
        "ContextActionService",
        "GuiService",
        "HapticService",
        "UserInputService",
        "VRService",
    ),
    "paths are up to scripts; use Workspace:Raycast": ("PathfindingService",),
    "text is neither filtered nor translated": (
        "LocalizationService",
        "PolicyService",
        "TextService",
    ),
    "agents chat by POST /chat; use Player.Chatted": ("Chat", "TextChatService"),
}

REFUSED_ROWS: Final = tuple(
    ClassSpec(name, creatable=False, refusal=reason)
    for reason, names in _REASONS.items()
    for name in names
)
