"""The classes without effect. They come after all others.

Most are data, like the members in `looks`; the others are omitted from worlds on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from clawblox.engine.instances.looks import (
    BLACK,
    FRAME,
    INSTANCE,
    PART,
    POINT,
    VECTOR,
    WHITE,
    item,
    number_range,
    rgb,
    shown,
)
from clawblox.engine.instances.spec import NEVER, ClassSpec, EventSpec, Property, class_row, data

_row = partial(class_row, is_data=True)


def _numbers(value: float) -> Property:
    return data("NumberSequence", (value,))


_WHITE_ALWAYS: Final = data("ColorSequence", (1.0, 1.0, 1.0))
_ONES: Final = data("Vector3", (1.0, 1.0, 1.0))
_NO_LENGTH: Final = data("UDim", (0.0, 0.0))
_ATTACHMENT: Final = data("Attachment")

# fmt: off
_EFFECT: Final[dict[str, Any]] = {"Enabled": True, "LocalTransparencyModifier": 0.0}
_STRIP: Final[dict[str, Any]] = {
    **_EFFECT, "Attachment0": _ATTACHMENT, "Attachment1": _ATTACHMENT, "Brightness": 1.0,
    "Color": _WHITE_ALWAYS, "FaceCamera": False, "LightEmission": 0.0, "LightInfluence": 0.0,
    "Texture": "", "TextureLength": 1.0, "TextureMode": item("TextureMode", "Stretch"),
    "Transparency": _numbers(0.5),
}
_SKY: Final = "rbxasset://textures/sky/sky512_"
_SCROLL: Final = "rbxasset://textures/ui/Scroll/scroll-"
_ADORNED: Final = rgb(13, 105, 172)

_SCENE_ROWS: Final = (
    _row(
        "Lighting", creatable=False, is_late=True, Ambient=BLACK, Brightness=1.0,
        ClockTime=Property("number", 14.0, limits=(-1e9, 1e9), is_data=True),
        ColorShift_Bottom=BLACK, ColorShift_Top=BLACK, EnvironmentDiffuseScale=0.0,
        EnvironmentSpecularScale=0.0, ExposureCompensation=0.0, FogColor=rgb(192, 192, 192),
        FogEnd=100000.0, FogStart=0.0, GeographicLatitude=41.7333, GlobalShadows=True,
        OutdoorAmbient=rgb(127, 127, 127), ShadowSoftness=0.2, TimeOfDay=data("string"),
    ),
    _row(
        "SoundService", creatable=False, is_late=True, AmbientReverb=item("ReverbType", "NoReverb"),
        DistanceFactor=3.33, DopplerScale=1.0, RespectFilteringEnabled=False, RolloffScale=1.0,
    ),
    *(
        _row(name, creatable=False, is_late=True)
        for name in (
            "ReplicatedFirst", "TestService", "AnalyticsService", "ContentProvider",
            "SocialService", "Stats",
        )
    ),
    _row(
        "LogService", "Instance",
        {"MessageOut": EventSpec("message: string, type: Enum.MessageType", NEVER)},
        creatable=False, is_late=True,
    ),
    _row(
        "ScriptContext", "Instance",
        {"Error": EventSpec("message: string, trace: string, script: Instance", NEVER)},
        creatable=False, is_late=True,
    ),
    _row("SoundGroup", Volume=0.5),
    _row(
        "Sky", CelestialBodiesShown=True, MoonAngularSize=11.0,
        MoonTextureId="rbxasset://sky/moon.jpg", SkyboxBk=f"{_SKY}bk.tex", SkyboxDn=f"{_SKY}dn.tex",
        SkyboxFt=f"{_SKY}ft.tex", SkyboxLf=f"{_SKY}lf.tex", SkyboxOrientation=VECTOR,
        SkyboxRt=f"{_SKY}rt.tex", SkyboxUp=f"{_SKY}up.tex", StarCount=3000.0, SunAngularSize=21.0,
        SunTextureId="rbxasset://sky/sun.jpg",
    ),
    _row(
        "Atmosphere", Color=rgb(199, 170, 107), Decay=rgb(92, 60, 13), Density=0.395, Glare=0.0,
        Haze=0.0, Offset=0.0,
    ),
    _row("Clouds", Color=WHITE, Cover=0.5, Density=0.7, Enabled=True),
    _row("PostEffect", creatable=False, Enabled=True),
    _row("BloomEffect", "PostEffect", first_name="Bloom", Intensity=0.4, Size=24.0, Threshold=0.95),
    _row("BlurEffect", "PostEffect", first_name="Blur", Size=24.0),
    _row(
        "ColorCorrectionEffect", "PostEffect", first_name="ColorCorrection", Brightness=0.0,
        Contrast=0.0, Saturation=0.0, TintColor=WHITE,
    ),
    _row(
        "DepthOfFieldEffect", "PostEffect", first_name="DepthOfField", FarIntensity=0.75,
        FocusDistance=0.05, InFocusRadius=10.0, NearIntensity=0.75,
    ),
    _row("SunRaysEffect", "PostEffect", first_name="SunRays", Intensity=0.25, Spread=1.0),
    _row("Light", creatable=False, Brightness=1.0, Color=WHITE, Enabled=True, Shadows=False),
    _row("PointLight", "Light", Range=8.0),
    _row("SpotLight", "Light", Angle=90.0, Face=item("NormalId", "Front"), Range=16.0),
    _row("SurfaceLight", "Light", Angle=90.0, Face=item("NormalId", "Front"), Range=16.0),
)

_PART_ROWS: Final = (
    _row(
        "ParticleEmitter", **_EFFECT, Acceleration=VECTOR, Brightness=1.0, Color=_WHITE_ALWAYS,
        Drag=0.0, EmissionDirection=item("NormalId", "Top"), FlipbookFramerate=number_range(1.0),
        FlipbookLayout=item("ParticleFlipbookLayout", "None"),
        FlipbookMode=item("ParticleFlipbookMode", "Loop"), FlipbookStartRandom=False,
        Lifetime=number_range(5.0, 10.0), LightEmission=0.0, LightInfluence=0.0, LockedToPart=False,
        Orientation=item("ParticleOrientation", "FacingCamera"), Rate=20.0,
        RotSpeed=number_range(0.0), Rotation=number_range(0.0),
        Shape=item("ParticleEmitterShape", "Box"),
        ShapeInOut=item("ParticleEmitterShapeInOut", "Outward"), ShapePartial=1.0,
        ShapeStyle=item("ParticleEmitterShapeStyle", "Volume"), Size=_numbers(1.0),
        Speed=number_range(5.0), SpreadAngle=POINT, Squash=_numbers(0.0),
        Texture="rbxasset://textures/particles/sparkles_main.dds", TimeScale=1.0,
        Transparency=_numbers(0.0), VelocityInheritance=0.0, VelocitySpread=0.0,
        WindAffectsDrag=False, ZOffset=0.0,
    ),
    _row(
        "Beam", **_STRIP, CurveSize0=0.0, CurveSize1=0.0, Segments=10.0, TextureSpeed=1.0,
        Width0=1.0, Width1=1.0, ZOffset=0.0,
    ),
    _row("Trail", **_STRIP, Lifetime=2.0, MaxLength=0.0, MinLength=0.1, WidthScale=_numbers(1.0)),
    _row(
        "Fire", **_EFFECT, Color=rgb(236, 139, 70), Heat=9.0, SecondaryColor=rgb(139, 80, 55),
        Size=5.0, TimeScale=1.0,
    ),
    _row("Smoke", **_EFFECT, Color=WHITE, Opacity=0.5, RiseVelocity=1.0, Size=1.0, TimeScale=1.0),
    _row("Sparkles", **_EFFECT, SparkleColor=rgb(144, 25, 255), TimeScale=1.0),
    _row("ForceField", Visible=True),
    _row(
        "Explosion", "Instance", {"Hit": EventSpec("part: BasePart, distance: number", NEVER)},
        BlastPressure=500000.0, BlastRadius=4.0, DestroyJointRadiusPercent=1.0,
        ExplosionType=item("ExplosionType", "Craters"), Position=VECTOR, TimeScale=1.0,
        Visible=True,
    ),
    _row("FaceInstance", creatable=False, Face=item("NormalId", "Front")),
    _row(
        "Decal", "FaceInstance", Color3=WHITE, LocalTransparencyModifier=0.0, Texture="",
        Transparency=0.0, ZIndex=1.0,
    ),
    _row(
        "Texture", "Decal", OffsetStudsU=0.0, OffsetStudsV=0.0, StudsPerTileU=2.0,
        StudsPerTileV=2.0,
    ),
    _row(
        "SurfaceAppearance", AlphaMode=item("AlphaMode", "Overlay"), Color=WHITE, ColorMap="",
        MetalnessMap="", NormalMap="", RoughnessMap="",
    ),
    _row("DataModelMesh", creatable=False, Offset=VECTOR, Scale=_ONES, VertexColor=_ONES),
    _row("BlockMesh", "DataModelMesh", first_name="Mesh"),
    _row("CylinderMesh", "DataModelMesh", first_name="Mesh"),
    _row("FileMesh", "DataModelMesh", first_name="Mesh", MeshId="", TextureId=""),
    _row("SpecialMesh", "FileMesh", first_name="Mesh", MeshType=item("MeshType", "Head")),
    _row(
        "Highlight", Adornee=INSTANCE, DepthMode=item("HighlightDepthMode", "AlwaysOnTop"),
        Enabled=True, FillColor=rgb(255, 0, 0), FillTransparency=0.5, OutlineColor=WHITE,
        OutlineTransparency=0.0,
    ),
    _row(
        "MeshPart", "BasePart", is_data=False,
        CollisionFidelity=item("CollisionFidelity", "Default"),
        RenderFidelity=item("RenderFidelity", "Automatic"), DoubleSided=False, MeshId="",
        TextureID="",
    ),
    _row(
        "TrussPart", "BasePart", is_data=False, first_name="Truss",
        Style=item("Style", "AlternatingSupports"),
    ),
    class_row("CornerWedgePart", "BasePart", first_name="CornerWedge"),
    _row("Seat", "Part", Disabled=False, Occupant=shown("Humanoid", None)),
    _row(
        "VehicleSeat", "BasePart", Disabled=False, HeadsUpDisplay=True, MaxSpeed=25.0,
        Occupant=shown("Humanoid", None), Steer=0.0, SteerFloat=0.0, Throttle=0.0,
        ThrottleFloat=0.0, Torque=10.0, TurnSpeed=1.0,
    ),
    _row("WorldModel", "Model"),
)

_BODY_COLOR: Final = data("BrickColor", (194.0,))

_FIGURE_ROWS: Final = (
    _row("Clothing", creatable=False, Color3=WHITE),
    _row("Shirt", "Clothing", first_name="Clothing", ShirtTemplate=""),
    _row("Pants", "Clothing", first_name="Clothing", PantsTemplate=""),
    _row("ShirtGraphic", first_name="Shirt Graphic", Color3=WHITE, Graphic=""),
    _row(
        "BodyColors", first_name="Body Colors", HeadColor=_BODY_COLOR, LeftArmColor=_BODY_COLOR,
        LeftLegColor=_BODY_COLOR, RightArmColor=_BODY_COLOR, RightLegColor=_BODY_COLOR,
        TorsoColor=_BODY_COLOR,
    ),
    _row(
        "HumanoidDescription", BackAccessory="", BodyTypeScale=0.3, ClimbAnimation=0.0,
        DepthScale=1.0, Face=0.0, FaceAccessory="", FallAnimation=0.0, FrontAccessory="",
        GraphicTShirt=0.0, HairAccessory="", HatAccessory="", Head=0.0, HeadColor=BLACK,
        HeadScale=1.0, HeightScale=1.0, IdleAnimation=0.0, JumpAnimation=0.0, LeftArm=0.0,
        LeftArmColor=BLACK, LeftLeg=0.0, LeftLegColor=BLACK, MoodAnimation=0.0, NeckAccessory="",
        Pants=0.0, ProportionScale=1.0, RightArm=0.0, RightArmColor=BLACK, RightLeg=0.0,
        RightLegColor=BLACK, RunAnimation=0.0, Shirt=0.0, ShouldersAccessory="", SwimAnimation=0.0,
        Torso=0.0, TorsoColor=BLACK, WaistAccessory="", WalkAnimation=0.0, WidthScale=1.0,
    ),
    _row("Accoutrement", creatable=False, AttachmentPoint=FRAME, AttachmentPos=VECTOR),
    _row("Accessory", "Accoutrement", AccessoryType=item("AccessoryType", "Unknown")),
    _row("Hat", "Accoutrement"),
    class_row(
        "BrickColorValue", "ValueBase", first_name="Value", Value=Property("BrickColor", (194.0,)),
    ),
    class_row(
        "RayValue", "ValueBase", first_name="Value",
        Value=Property("Ray", ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))),
    ),
)

_GUI_ROWS: Final = (
    _row(
        "SurfaceGui", "LayerCollector", Active=True, Adornee=PART, AlwaysOnTop=False,
        Brightness=1.0, CanvasSize=data("Vector2", (800.0, 600.0)), ClipsDescendants=False,
        Face=item("NormalId", "Front"), LightInfluence=0.0, MaxDistance=1000.0, PixelsPerStud=50.0,
        SizingMode=item("SurfaceGuiSizingMode", "FixedSize"), ToolPunchThroughDistance=0.0,
        ZOffset=0.0,
    ),
    _row(
        "ScrollingFrame", "GuiObject", AbsoluteCanvasSize=shown("Vector2", (0.0, 0.0)),
        AbsoluteWindowSize=shown("Vector2", (0.0, 0.0)),
        AutomaticCanvasSize=item("AutomaticSize", "None"), BottomImage=f"{_SCROLL}bottom.png",
        CanvasPosition=POINT, CanvasSize=data("UDim2", (0.0, 0.0, 2.0, 0.0)), ClipsDescendants=True,
        ElasticBehavior=item("ElasticBehavior", "WhenScrollable"),
        HorizontalScrollBarInset=item("ScrollBarInset", "None"), MidImage=f"{_SCROLL}middle.png",
        ScrollBarImageColor3=WHITE, ScrollBarImageTransparency=0.0, ScrollBarThickness=12.0,
        ScrollingDirection=item("ScrollingDirection", "XY"), ScrollingEnabled=True,
        TopImage=f"{_SCROLL}top.png", VerticalScrollBarInset=item("ScrollBarInset", "None"),
        VerticalScrollBarPosition=item("VerticalScrollBarPosition", "Right"),
    ),
    _row(
        "ViewportFrame", "GuiObject", Ambient=rgb(200, 200, 200), CurrentCamera=data("Camera"),
        ImageColor3=WHITE, ImageTransparency=0.0, LightColor=rgb(140, 140, 140),
        LightDirection=data("Vector3", (-1.0, -1.0, -1.0)),
    ),
    _row("CanvasGroup", "GuiObject", GroupColor3=WHITE, GroupTransparency=0.0),
    _row(
        "VideoFrame", "GuiObject", Looped=False, Playing=False, TimePosition=0.0, Video="",
        Volume=1.0,
    ),
    _row("UILayout", "UIComponent", creatable=False),
    _row(
        "UIGridStyleLayout", "UILayout", creatable=False,
        AbsoluteContentSize=shown("Vector2", (0.0, 0.0)),
        FillDirection=item("FillDirection", "Horizontal"),
        HorizontalAlignment=item("HorizontalAlignment", "Left"),
        SortOrder=item("SortOrder", "Name"), VerticalAlignment=item("VerticalAlignment", "Top"),
    ),
    _row(
        "UIListLayout", "UIGridStyleLayout", FillDirection=item("FillDirection", "Vertical"),
        HorizontalFlex=item("UIFlexAlignment", "None"),
        ItemLineAlignment=item("ItemLineAlignment", "Automatic"), Padding=_NO_LENGTH,
        VerticalFlex=item("UIFlexAlignment", "None"), Wraps=False,
    ),
    _row(
        "UIGridLayout", "UIGridStyleLayout", CellPadding=data("UDim2", (0.0, 5.0, 0.0, 5.0)),
        CellSize=data("UDim2", (0.0, 100.0, 0.0, 100.0)), FillDirectionMaxCells=0.0,
        StartCorner=item("StartCorner", "TopLeft"),
    ),
    _row(
        "UITableLayout", "UIGridStyleLayout", FillEmptySpaceColumns=False, FillEmptySpaceRows=False,
        MajorAxis=item("TableMajorAxis", "RowMajor"), Padding=data("UDim2", (0.0, 0.0, 0.0, 0.0)),
    ),
    _row(
        "UIPageLayout", "UIGridStyleLayout", Animated=True, Circular=False,
        CurrentPage=shown("GuiObject", None), EasingDirection=item("EasingDirection", "Out"),
        EasingStyle=item("EasingStyle", "Back"), GamepadInputEnabled=True, Padding=_NO_LENGTH,
        ScrollWheelInputEnabled=True, TouchInputEnabled=True, TweenTime=1.0,
    ),
    _row("UIConstraint", "UIComponent", creatable=False),
    _row(
        "UIAspectRatioConstraint", "UIConstraint", AspectRatio=1.0,
        AspectType=item("AspectType", "FitWithinMaxSize"),
        DominantAxis=item("DominantAxis", "Width"),
    ),
    _row(
        "UISizeConstraint", "UIConstraint", MaxSize=data("Vector2", (math.inf, math.inf)),
        MinSize=POINT,
    ),
    _row("UITextSizeConstraint", "UIConstraint", MaxTextSize=100.0, MinTextSize=1.0),
    _row(
        "UIFlexItem", "UIComponent", FlexMode=item("UIFlexMode", "None"), GrowRatio=0.0,
        ItemLineAlignment=item("ItemLineAlignment", "Automatic"), ShrinkRatio=0.0,
    ),
    _row(
        "UIGradient", "UIComponent", Color=_WHITE_ALWAYS, Enabled=True, Offset=POINT, Rotation=0.0,
        Transparency=_numbers(0.0),
    ),
    _row(
        "UIPadding", "UIComponent", PaddingBottom=_NO_LENGTH, PaddingLeft=_NO_LENGTH,
        PaddingRight=_NO_LENGTH, PaddingTop=_NO_LENGTH,
    ),
    _row("UIScale", "UIComponent", Scale=1.0),
    _row(
        "UIStroke", "UIComponent", ApplyStrokeMode=item("ApplyStrokeMode", "Contextual"),
        Color=BLACK, Enabled=True, LineJoinMode=item("LineJoinMode", "Round"), Thickness=1.0,
        Transparency=0.0,
    ),
    _row("GuiBase3d", creatable=False, Color3=_ADORNED, Transparency=0.0, Visible=True),
    _row("PVAdornment", "GuiBase3d", creatable=False, Adornee=INSTANCE),
    _row(
        "SelectionBox", "PVAdornment", LineThickness=0.15, SurfaceColor3=_ADORNED,
        SurfaceTransparency=1.0,
    ),
    _row("SelectionSphere", "PVAdornment", SurfaceColor3=_ADORNED, SurfaceTransparency=1.0),
    _row(
        "HandleAdornment", "PVAdornment", creatable=False, AlwaysOnTop=False, CFrame=FRAME,
        SizeRelativeOffset=VECTOR, ZIndex=-1.0,
    ),
    _row("BoxHandleAdornment", "HandleAdornment", Size=_ONES),
    _row("SphereHandleAdornment", "HandleAdornment", Radius=1.0),
    _row("Message", Text=""),
    _row("Hint", "Message"),
)

# fmt: on
DATA_ROWS: Final = (*_SCENE_ROWS, *_PART_ROWS, *_FIGURE_ROWS, *_GUI_ROWS)
"""The classes of this module, each after its base."""


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
    "worlds cannot load from Roblox": ("AssetService", "GroupService", "InsertService"),
    "agents have no keyboard, mouse or screen; use AgentInputService": (
        "ContextActionService",
        "GuiService",
        "HapticService",
        "UserInputService",
        "VRService",
    ),
    "scripts must find paths themselves; use Workspace:Raycast": ("PathfindingService",),
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
