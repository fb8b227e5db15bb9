"""The classes of the data model, as data; the classes of the GUI are in ``gui``.

A row lists the properties of a class with type, default and effect, its events, and whether
``Instance.new`` can create it. The modules that own methods and computed values add those.
Defaults are plain data: ``(4.0, 1.0, 2.0)`` for a Vector3, ``"Plastic"`` for an ``Enum.Material``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from clawblox.engine.instances.looks import with_looks
from clawblox.engine.instances.play_classes import PLAY_ROWS
from clawblox.engine.instances.spec import NEVER, ClassSpec, EventSpec, Property, class_row
from clawblox.engine.settings import USUAL_GRAVITY
from clawblox.world_keys import MOST_GRAVITY

_NOT_NEGATIVE: Final = (0.0, math.inf)
_SHARE: Final = (0.0, 1.0)
_ANGLES: Final = (-1e6, 1e6)
_ZERO: Final = (0.0, 0.0, 0.0)


def _number(default: float = 0.0, limits: tuple[float, float] | None = None) -> Property:
    return Property("number", default, limits=limits)


def _boolean(default: bool, effect: str | None = None) -> Property:
    return Property("boolean", default, effect=effect)


def _string(default: str = "", effect: str | None = None) -> Property:
    return Property("string", default, effect=effect)


def _vector(default: tuple[float, float, float] = _ZERO, effect: str | None = None) -> Property:
    return Property("Vector3", default, effect=effect)


def _value_class(name: str, kind: str, default: object) -> ClassSpec:
    return class_row(name, "ValueBase", first_name="Value", Value=Property(kind, default))


def _service(
    name: str,
    events: Mapping[str, EventSpec] | None = None,
    *,
    is_late: bool = False,
    **properties: Any,
) -> ClassSpec:
    return class_row(name, "Instance", events, creatable=False, is_late=is_late, **properties)


_JOINT: Final = Property("BasePart", effect="joint")
_JOINED: Final[dict[str, Any]] = {"Part0": _JOINT, "Part1": _JOINT}
_ATTACHMENT: Final = Property("Attachment")
_MOST_FORCE: Final = Property("Vector3", (4000.0, 4000.0, 4000.0), may_be_infinite=True)
_ATTACHED: Final[dict[str, Any]] = {"Attachment0": _ATTACHMENT, "Attachment1": _ATTACHMENT}

_TREE: Final = (
    class_row(
        "Instance",
        None,
        {
            "ChildAdded": EventSpec("child: Instance"),
            "ChildRemoved": EventSpec("child: Instance"),
            "DescendantAdded": EventSpec("descendant: Instance"),
            "DescendantRemoving": EventSpec("descendant: Instance", "before it leaves"),
            "AncestryChanged": EventSpec(
                "child: Instance, parent: Instance?",
                "when it or one of its ancestors gets another parent",
            ),
            "Destroying": EventSpec(when="before it and its descendants are destroyed"),
            "AttributeChanged": EventSpec(
                "name: string", "with every SetAttribute, even for an equal value"
            ),
            "Changed": EventSpec(
                "property: string", "with the new value as argument for value objects"
            ),
        },
        creatable=False,
        Name=Property("string"),
        ClassName=Property("string", read_only=True),
        Parent=Property("Instance"),
        Archivable=_boolean(True),
    ),
    class_row(
        "DataModel",
        "Instance",
        {"Loaded": EventSpec(when=NEVER)},
        creatable=False,
        PlaceId=Property("number", 0.0, read_only=True),
        PlaceVersion=Property("number", 0.0, read_only=True),
        GameId=Property("number", 0.0, read_only=True),
        CreatorId=Property("number", 0.0, read_only=True),
        CreatorType=Property("Enum.CreatorType", "User", read_only=True),
        JobId=Property("string", read_only=True),
        PrivateServerId=Property("string", "", read_only=True),
        PrivateServerOwnerId=Property("number", 0.0, read_only=True),
    ),
    class_row("Folder"),
    class_row("Configuration"),
    class_row("PVInstance", creatable=False),
    class_row("Model", "PVInstance", PrimaryPart=Property("BasePart")),
    class_row(
        "Workspace",
        "Model",
        creatable=False,
        Gravity=_number(USUAL_GRAVITY, limits=(-MOST_GRAVITY, MOST_GRAVITY)),
        FallenPartsDestroyHeight=_number(-500.0),
        CurrentCamera=Property("Camera"),
        Terrain=Property("Terrain", read_only=True),
        DistributedGameTime=Property("number", 0.0, read_only=True),
    ),
    class_row(
        "Camera",
        "PVInstance",
        CFrame=Property("CFrame", ()),
    ),
    class_row("BaseScript", creatable=False, Source=_string(effect="source")),
    class_row(
        "Script",
        "BaseScript",
        Disabled=_boolean(False, "disabled"),
        Enabled=_boolean(True, "disabled"),
    ),
    class_row("LocalScript", "BaseScript", is_data=True, Disabled=_boolean(False)),
    class_row("ModuleScript", Source=_string(effect="source")),
)

_PARTS: Final = (
    class_row(
        "BasePart",
        "PVInstance",
        {"Touched": EventSpec("other: BasePart"), "TouchEnded": EventSpec("other: BasePart")},
        creatable=False,
        Position=_vector(effect="pose"),
        CFrame=Property("CFrame"),
        Orientation=Property("Vector3"),
        Rotation=Property("Vector3"),
        Size=_vector((4.0, 1.0, 2.0), "shape"),
        Anchored=_boolean(False, "anchored"),
        CanCollide=_boolean(True, "collide"),
        CanQuery=_boolean(True),
        CanTouch=_boolean(True),
        CollisionGroup=_string("Default", "collide"),
        Massless=_boolean(False, "mass"),
        CustomPhysicalProperties=Property("PhysicalProperties", effect="mass"),
        Velocity=Property("Vector3"),
        AssemblyLinearVelocity=Property("Vector3"),
        AssemblyAngularVelocity=Property("Vector3"),
        RotVelocity=Property("Vector3"),
        Mass=Property("number", read_only=True),
        AssemblyMass=Property("number", read_only=True),
        Material=Property("Enum.Material", "Plastic"),
        Color=Property("Color3", (0.6, 0.6, 0.6)),
        BrickColor=Property("BrickColor"),
        Transparency=_number(0.0, limits=_SHARE),
    ),
    class_row("Part", "BasePart", Shape=Property("Enum.PartType", "Block", effect="shape")),
    class_row(
        "WedgePart",
        "BasePart",
        first_name="Wedge",
        Shape=Property("Enum.PartType", "Wedge", read_only=True),
    ),
    class_row("Terrain", "BasePart", creatable=False),
    class_row(
        "Attachment",
        Position=_vector(),
        CFrame=Property("CFrame", ()),
        Orientation=Property("Vector3"),
    ),
    class_row("Constraint", creatable=False, Enabled=_boolean(True, "joint")),
    class_row(
        "Weld",
        "Constraint",
        **_JOINED,
        C0=Property("CFrame", (), effect="joint"),
        C1=Property("CFrame", (), effect="joint"),
    ),
    class_row(
        "Motor6D",
        "Constraint",
        **_JOINED,
        C0=Property("CFrame", (), effect="joint"),
        C1=Property("CFrame", (), effect="joint"),
        Transform=Property("CFrame", (), effect="joint"),
        CurrentAngle=Property("number", 0.0, effect="joint", limits=_ANGLES),
        DesiredAngle=_number(0.0, limits=_ANGLES),
        MaxVelocity=_number(0.0, limits=(0.0, 1e6)),
    ),
    class_row("WeldConstraint", "Constraint", **_JOINED),
    class_row("BodyMover", creatable=False),
    class_row(
        "BodyVelocity",
        "BodyMover",
        Velocity=_vector(),
        MaxForce=_MOST_FORCE,
        P=_number(1250.0),
    ),
    class_row("BodyForce", "BodyMover", Force=_vector()),
    class_row(
        "BodyAngularVelocity",
        "BodyMover",
        AngularVelocity=_vector(),
        MaxTorque=_MOST_FORCE,
        P=_number(1250.0),
    ),
    class_row(
        "VectorForce",
        "Constraint",
        Force=_vector(),
        **_ATTACHED,
        RelativeTo=Property("any"),
        ApplyAtCenterOfMass=_boolean(False),
    ),
    class_row(
        "AlignPosition",
        "Constraint",
        Position=_vector(),
        **_ATTACHED,
        MaxForce=_number(math.inf),
        MaxVelocity=_number(math.inf),
        Responsiveness=_number(10.0),
        RigidityEnabled=_boolean(False),
        Mode=Property("any"),
    ),
    class_row(
        "AlignOrientation",
        "Constraint",
        CFrame=Property("CFrame", ()),
        **_ATTACHED,
        MaxTorque=_number(math.inf),
        MaxAngularVelocity=_number(math.inf),
        Responsiveness=_number(10.0),
        RigidityEnabled=_boolean(False),
        Mode=Property("any"),
    ),
)

_ANIMATED: Final = {"AnimationPlayed": EventSpec("track: AnimationTrack", "with Play")}

_CHARACTERS: Final = (
    class_row(
        "Player",
        "Instance",
        {
            "CharacterAdded": EventSpec(
                "character: Model",
                "after LoadCharacter or Reset has replaced the character; not for the first "
                "character, which exists when Players.PlayerAdded fires",
            ),
            "CharacterAppearanceLoaded": EventSpec("character: Model", "after CharacterAdded"),
            "CharacterRemoving": EventSpec("character: Model", "before LoadCharacter replaces it"),
            "Chatted": EventSpec(
                "message: string", "in the tick after a chat message, after inputs"
            ),
        },
        creatable=False,
        UserId=Property("number", 0.0, read_only=True),
        AccountAge=Property("number", 0.0, read_only=True),
        DisplayName=_string(),
        Character=Property("Model"),
        PlayerGui=Property("PlayerGui", read_only=True),
        RespawnLocation=Property("SpawnLocation"),
        Team=Property("any"),
        TeamColor=Property("BrickColor", (1.0,)),
        Neutral=_boolean(True),
    ),
    class_row(
        "Humanoid",
        "Instance",
        {
            "Died": EventSpec(when="when Health falls to 0"),
            "HealthChanged": EventSpec("health: number"),
            "Running": EventSpec("speed: number", "when the speed changes, in studs/s"),
            "MoveToFinished": EventSpec(
                "reached: boolean", "with false after 8 seconds and for CancelMoveTo"
            ),
            "StateChanged": EventSpec("old: Enum.HumanoidStateType, new: Enum.HumanoidStateType"),
            **_ANIMATED,
        },
        Health=_number(100.0),
        MaxHealth=_number(100.0, limits=_NOT_NEGATIVE),
        WalkSpeed=_number(16.0, limits=_NOT_NEGATIVE),
        JumpPower=_number(50.0, limits=_NOT_NEGATIVE),
        JumpHeight=_number(7.2, limits=_NOT_NEGATIVE),
        Jump=_boolean(False),
        AutoRotate=_boolean(True),
        HipHeight=_number(2.0),
        MoveDirection=Property("Vector3", _ZERO, read_only=True),
        DisplayName=_string(),
        RootPart=Property("BasePart", read_only=True),
    ),
    class_row("Animation", AnimationId=_string()),
    class_row("Animator", "Instance", _ANIMATED),
    class_row("AnimationController", "Instance", _ANIMATED),
    class_row(
        "AnimationTrack",
        "Instance",
        {
            "Stopped": EventSpec(when="at its end or with Stop"),
            "Ended": EventSpec(when="after the fade-out"),
            "DidLoop": EventSpec(when="when a looped track starts again"),
        },
        creatable=False,
        Animation=Property("Animation", read_only=True),
        Length=Property("number", 0.0, read_only=True),
        Priority=Property("any", 0.0),
        Looped=_boolean(False),
        Speed=_number(1.0, limits=(-1e6, 1e6)),
        TimePosition=_number(0.0, limits=(0.0, 1e6)),
        IsPlaying=Property("boolean", False, read_only=True),
        WeightCurrent=Property("number", 0.0, read_only=True),
        WeightTarget=Property("number", 0.0, read_only=True),
    ),
)

_OBJECTS: Final = (
    class_row(
        "BaseRemoteEvent",
        "Instance",
        {
            "OnServerEvent": EventSpec("player: Player, payload: any", "with an input RemoteEvent"),
            "OnClientEvent": EventSpec("payload: any", NEVER),
        },
        creatable=False,
    ),
    class_row("RemoteEvent", "BaseRemoteEvent"),
    class_row("UnreliableRemoteEvent", "BaseRemoteEvent"),
    class_row("BindableEvent", "Instance", {"Event": EventSpec("...: any", "with Fire")}),
    class_row(
        "Sound",
        "Instance",
        {
            "Played": EventSpec("id: string"),
            "Paused": EventSpec("id: string"),
            "Stopped": EventSpec("id: string"),
        },
        SoundId=_string(),
        Volume=_number(0.5, limits=(0.0, 10.0)),
        PlaybackSpeed=_number(1.0, limits=_NOT_NEGATIVE),
        Looped=_boolean(False),
        Playing=_boolean(False),
        TimePosition=Property("number", limits=_NOT_NEGATIVE),
        IsPlaying=Property("boolean", read_only=True),
        IsPaused=Property("boolean", read_only=True),
        TimeLength=Property("number", read_only=True),
        RollOffMaxDistance=_number(10000.0),
        RollOffMinDistance=_number(10.0),
    ),
    class_row(
        "TweenBase",
        "Instance",
        {
            "Completed": EventSpec(
                "state: Enum.PlaybackState", "at its end and when it is cancelled"
            )
        },
        creatable=False,
        PlaybackState=Property("Enum.PlaybackState", "Begin", read_only=True),
    ),
    class_row(
        "Tween",
        "TweenBase",
        creatable=False,
        Instance=Property("Instance", read_only=True),
        TweenInfo=Property("TweenInfo", read_only=True),
    ),
    class_row("GlobalDataStore", creatable=False),
    class_row("DataStore", "GlobalDataStore", creatable=False),
    class_row("OrderedDataStore", "GlobalDataStore", creatable=False),
    class_row("MemoryStoreSortedMap", creatable=False),
    class_row("MemoryStoreHashMap", creatable=False),
    class_row(
        "MemoryStoreQueue",
        creatable=False,
        InvisibilityTimeout=Property("number", 30.0, read_only=True),
    ),
    class_row("DataStoreOptions"),
    class_row("DataStoreSetOptions"),
    class_row("ValueBase", creatable=False),
    _value_class("IntValue", "number", 0.0),
    _value_class("NumberValue", "number", 0.0),
    _value_class("BoolValue", "boolean", False),
    _value_class("StringValue", "string", ""),
    _value_class("ObjectValue", "Instance", None),
    _value_class("CFrameValue", "CFrame", ()),
    _value_class("Vector3Value", "Vector3", _ZERO),
    _value_class("Color3Value", "Color3", (0.0, 0.0, 0.0)),
)

_SERVICES: Final = (
    _service(
        "Players",
        {
            "PlayerAdded": EventSpec("player: Player", "after the player's character was created"),
            "PlayerRemoving": EventSpec(
                "player: Player", "before the player's objects are removed"
            ),
        },
        LocalPlayer=Property("Player", read_only=True),
        MaxPlayers=Property("number", 8.0, read_only=True),
        NumPlayers=Property("number", read_only=True),
        PreferredPlayers=Property("number", read_only=True),
        CharacterAutoLoads=_boolean(True),
    ),
    *map(_service, ("ReplicatedStorage", "ServerScriptService", "ServerStorage")),
    _service(
        "RunService",
        {
            "Heartbeat": EventSpec("dt: number", "in each tick, after physics"),
            "PostSimulation": EventSpec("dt: number", "in each tick, before Heartbeat"),
            "PreSimulation": EventSpec("dt: number", "in each tick, after Stepped"),
            "Stepped": EventSpec(
                "time: number, dt: number", "in each tick, before inputs and physics"
            ),
        },
    ),
    _service(
        "AgentInputService", {"InputReceived": EventSpec("player: Player, type: string, data: any")}
    ),
    *map(_service, ("PhysicsService", "RemoteEventService")),
    _service("HttpService", HttpEnabled=Property("boolean", False, read_only=True)),
    _service("DataStoreService"),
    _service("Debris"),
    _service(
        "CollectionService",
        {
            "TagAdded": EventSpec("tag: string", "with the first instance that gets it"),
            "TagRemoved": EventSpec("tag: string", "with the last instance that loses it"),
        },
    ),
    _service("TweenService"),
)

_LATE_SERVICES: Final = tuple(
    _service(name, is_late=True)
    for name in (
        "StarterGui",
        "StarterPack",
        "StarterPlayer",
        "MemoryStoreService",
        "MessagingService",
    )
)

_STARTER_SCRIPTS: Final = (
    class_row("StarterPlayerScripts", creatable=False),
    class_row("StarterCharacterScripts", "StarterPlayerScripts", creatable=False),
)

SERVICES: Final = ("Workspace", *(row.name for row in _SERVICES))
"""The services that every world has from the start, in the order of ``game``'s children."""

ROWS: Final = with_looks(
    (
        *_TREE,
        *_PARTS,
        *_CHARACTERS,
        *_OBJECTS,
        *PLAY_ROWS,
        *_SERVICES,
        *_LATE_SERVICES,
        *_STARTER_SCRIPTS,
    )
)
"""The classes, each after its base."""
