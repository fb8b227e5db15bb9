"""Members that are data: stored, saved and copied, without effect.

Scripts for Roblox set looks and sounds; here such values can only be read back. Types and defaults
are those of Roblox's public API.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from clawblox.engine.instances.kinds import ENUM_NAME
from clawblox.engine.instances.spec import (
    NEVER,
    ClassSpec,
    EventSpec,
    Property,
    data,
    members,
)


def item(enum: str, name: str) -> Property:
    """Return a data member that is an item of an enum."""
    return data(f"Enum.{enum}", name)


def rgb(*parts: int) -> Property:
    """Return a data member that is a colour, with parts from 0 to 255."""
    return data("Color3", tuple(part / 255 for part in parts))


def number_range(low: float, high: float | None = None) -> Property:
    """Return a data member that is a range, or a single number if `high` is None."""
    return data("NumberRange", (low, low if high is None else high))


def shown(kind: str, default: Any) -> Property:
    """Return a member that only Roblox clients compute."""
    return Property(kind, default, is_data=True, read_only=True)


_SHARE: Final = (0.0, 1.0)
WHITE: Final = rgb(255, 255, 255)
BLACK: Final = rgb(0, 0, 0)
VECTOR: Final = data("Vector3", (0.0, 0.0, 0.0))
POINT: Final = data("Vector2", (0.0, 0.0))
FRAME: Final = data("CFrame", ())
_SMOOTH: Final = item("SurfaceType", "Smooth")
INSTANCE: Final = data("Instance")
PART: Final = data("BasePart")
_GUI_OBJECT: Final = data("GuiObject")

# fmt: off
_TEXT: Final = members(
    TextStrokeColor3=BLACK,
    TextStrokeTransparency=Property("number", 1.0, limits=_SHARE, is_data=True), TextScaled=False,
    TextWrapped=False, RichText=False, Font=data(f"{ENUM_NAME}Enum.Font", "SourceSans"),
    FontFace=data("Font", ()), FontSize=item("FontSize", "Size14"), LineHeight=1.0,
    MaxVisibleGraphemes=-1.0, OpenTypeFeatures="", TextDirection=item("TextDirection", "Auto"),
    TextTruncate=item("TextTruncate", "None"), TextBounds=shown("Vector2", (0.0, 0.0)),
    TextFits=shown("boolean", True),
)
_IMAGE: Final = members(
    ImageRectOffset=POINT, ImageRectSize=POINT, ResampleMode=item("ResamplerMode", "Default"),
    ScaleType=item("ScaleType", "Stretch"), SliceCenter=data("Rect", (0.0, 0.0, 0.0, 0.0)),
    SliceScale=1.0, TileSize=data("UDim2", (1.0, 0.0, 1.0, 0.0)), IsLoaded=shown("boolean", False),
)

_LOOKS: Final[Mapping[str, Mapping[str, Property]]] = {
    "Workspace": members(
        AirDensity=0.0012, FluidForces=item("FluidForces", "Default"), AllowThirdPartySales=False,
        GlobalWind=VECTOR, StreamingEnabled=False,
    ),
    "Model": members(
        LevelOfDetail=item("ModelLevelOfDetail", "Automatic"),
        ModelStreamingMode=item("ModelStreamingMode", "Default"),
    ),
    "BaseScript": members(RunContext=item("RunContext", "Legacy")),
    "LocalScript": members(Enabled=True),
    "Camera": members(
        CameraSubject=INSTANCE, CameraType=data("any"), FieldOfView=70.0,
        FieldOfViewMode=item("FieldOfViewMode", "Vertical"), Focus=FRAME, HeadLocked=True,
        HeadScale=1.0, ViewportSize=shown("Vector2", (1.0, 1.0)),
    ),
    "BasePart": members(
        Reflectance=Property("number", 0.0, limits=_SHARE, is_data=True), CastShadow=True,
        Locked=False, MaterialVariant="", LocalTransparencyModifier=0.0, TopSurface=_SMOOTH,
        BottomSurface=_SMOOTH, FrontSurface=_SMOOTH, BackSurface=_SMOOTH, LeftSurface=_SMOOTH,
        RightSurface=_SMOOTH, AudioCanCollide=True, EnableFluidForces=True, Elasticity=0.5,
        Friction=0.3, RootPriority=0.0,
    ),
    "Part": members(FormFactor=item("FormFactor", "Custom")),
    "Terrain": members(
        Decoration=False, WaterColor=rgb(12, 84, 92), WaterReflectance=1.0, WaterTransparency=0.3,
        WaterWaveSize=0.15, WaterWaveSpeed=10.0,
    ),
    "Attachment": members(Visible=False),
    "Constraint": members(Color=data("BrickColor", (23.0,)), Visible=False),
    "Player": members(
        AutoJumpEnabled=True, CameraMaxZoomDistance=128.0, CameraMinZoomDistance=0.5,
        CameraMode=item("CameraMode", "Classic"), CanLoadCharacterAppearance=True,
        CharacterAppearanceId=0.0, DevCameraOcclusionMode=item("DevCameraOcclusionMode", "Zoom"),
        DevComputerCameraMode=item("DevComputerCameraMovementMode", "UserChoice"),
        DevComputerMovementMode=item("DevComputerMovementMode", "UserChoice"),
        DevEnableMouseLock=True,
        DevTouchCameraMode=item("DevTouchCameraMovementMode", "UserChoice"),
        DevTouchMovementMode=item("DevTouchMovementMode", "UserChoice"),
        FollowUserId=shown("number", 0.0), HasVerifiedBadge=False, HealthDisplayDistance=100.0,
        LocaleId=shown("string", "en-us"), MembershipType=shown("Enum.MembershipType", "None"),
        NameDisplayDistance=100.0, ReplicationFocus=PART,
    ),
    "Players": members(RespawnTime=5.0),
    "StarterGui": members(
        ScreenOrientation=item("ScreenOrientation", "LandscapeSensor"), ShowDevelopmentGui=True,
    ),
    "StarterPlayer": members(
        AutoJumpEnabled=True, CameraMaxZoomDistance=128.0, CameraMinZoomDistance=0.5,
        CameraMode=item("CameraMode", "Classic"), CharacterJumpHeight=7.2, CharacterJumpPower=50.0,
        CharacterMaxSlopeAngle=89.0, CharacterUseJumpPower=True, CharacterWalkSpeed=16.0,
        DevCameraOcclusionMode=item("DevCameraOcclusionMode", "Zoom"), EnableMouseLockOption=True,
        HealthDisplayDistance=100.0, LoadCharacterAppearance=True, NameDisplayDistance=100.0,
        UserEmotesEnabled=True,
    ),
    "Humanoid": members(
        AutoJumpEnabled=True, AutomaticScalingEnabled=True, BreakJointsOnDeath=True,
        CameraOffset=VECTOR, DisplayDistanceType=item("HumanoidDisplayDistanceType", "Viewer"),
        EvaluateStateMachine=True, HealthDisplayDistance=100.0,
        HealthDisplayType=item("HumanoidHealthDisplayType", "DisplayWhenDamaged"),
        MaxSlopeAngle=89.0, NameDisplayDistance=100.0, PlatformStand=False, Sit=False,
        NameOcclusion=item("NameOcclusion", "OccludeAll"), RequiresNeck=True,
        RigType=item("HumanoidRigType", "R6"), UseJumpPower=True,
    ),
    "Sound": members(
        EmitterSize=10.0, IsLoaded=shown("boolean", False), LoopRegion=number_range(0.0, 60000.0),
        MaxDistance=10000.0, MinDistance=10.0, Pitch=1.0, PlayOnRemove=False,
        PlaybackLoudness=shown("number", 0.0), PlaybackRegion=number_range(0.0, 60000.0),
        PlaybackRegionsEnabled=False, RollOffMode=item("RollOffMode", "Inverse"),
        SoundGroup=data("SoundGroup"),
    ),
    "GuiBase2d": members(
        AbsolutePosition=shown("Vector2", (0.0, 0.0)), AbsoluteRotation=shown("number", 0.0),
        AbsoluteSize=shown("Vector2", (0.0, 0.0)), AutoLocalize=True, SelectionGroup=False,
    ),
    "LayerCollector": members(ResetOnSpawn=True, ZIndexBehavior=item("ZIndexBehavior", "Global")),
    "ScreenGui": members(
        ClipToDeviceSafeArea=True, IgnoreGuiInset=False,
        SafeAreaCompatibility=item("SafeAreaCompatibility", "FullscreenExtension"),
        ScreenInsets=item("ScreenInsets", "CoreUISafeInsets"),
    ),
    "BillboardGui": members(
        Active=False, Adornee=INSTANCE, Brightness=1.0, ClipsDescendants=False,
        DistanceLowerLimit=0.0, MaxDistance=math.inf, DistanceStep=0.0, DistanceUpperLimit=-1.0,
        ExtentsOffset=VECTOR, ExtentsOffsetWorldSpace=VECTOR, LightInfluence=0.0,
        PlayerToHideFrom=data("Player"), SizeOffset=POINT, StudsOffsetWorldSpace=VECTOR,
    ),
    "GuiObject": members(
        Active=False, AutomaticSize=item("AutomaticSize", "None"),
        BorderMode=item("BorderMode", "Outline"), ClipsDescendants=False, Draggable=False,
        Interactable=True,
        LayoutOrder=Property("number", 0.0, limits=(-(2.0**31), 2.0**31 - 1.0), is_data=True),
        NextSelectionDown=_GUI_OBJECT, NextSelectionLeft=_GUI_OBJECT,
        NextSelectionRight=_GUI_OBJECT, NextSelectionUp=_GUI_OBJECT, Selectable=False,
        SelectionImageObject=_GUI_OBJECT, SelectionOrder=0.0,
        SizeConstraint=item("SizeConstraint", "RelativeXY"),
    ),
    "UICorner": members(CornerRadius=data("UDim", (0.0, 8.0))),
    "Frame": members(Style=item("FrameStyle", "Custom")),
    "GuiButton": members(
        AutoButtonColor=True, Modal=False, Selected=False, Style=item("ButtonStyle", "Custom"),
    ),
    "TextLabel": _TEXT,
    "TextButton": _TEXT,
    "TextBox": members(
        **_TEXT, ClearTextOnFocus=True, CursorPosition=-1.0, MultiLine=False,
        PlaceholderColor3=rgb(178, 178, 178), PlaceholderText="", SelectionStart=-1.0,
        ShowNativeInput=True, TextEditable=True,
    ),
    "ImageLabel": _IMAGE,
    "ImageButton": members(**_IMAGE, HoverImage="", PressedImage=""),
}
"""The data members of classes that also have behaviour."""


# fmt: on
_SILENT: Final[Mapping[str, str]] = {
    "GuiButton": "Activated MouseButton1Down MouseButton1Up MouseButton2Click MouseButton2Down",
    "GuiObject": "InputBegan InputChanged InputEnded MouseEnter MouseLeave MouseMoved",
    "Humanoid": (
        "Climbing FallingDown FreeFalling GettingUp Jumping PlatformStanding Ragdoll Seated "
        "Swimming Touched"
    ),
    "Player": "Idled OnTeleport",
    "Players": "PlayerMembershipChanged UserSubscriptionStatusChanged",
    "Sound": "DidLoop Ended Loaded Resumed",
    "TextBox": "Focused FocusLost",
}
"""The events of classes that never fire."""


def with_looks(rows: Iterable[ClassSpec]) -> tuple[ClassSpec, ...]:
    """Return rows of the class table with their data members and silent events added."""
    return tuple(map(_with_looks, rows))


def _with_looks(row: ClassSpec) -> ClassSpec:
    silent = dict.fromkeys(_SILENT.get(row.name, "").split(), EventSpec(when=NEVER))
    return attrs.evolve(
        row,
        properties={**row.properties, **_LOOKS.get(row.name, {})},
        events={**silent, **row.events},
    )
