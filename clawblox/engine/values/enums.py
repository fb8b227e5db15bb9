"""``Enum``: its enums and items, unique objects that snapshots refer to by name.

The enums used by the engine are listed here. All others of the public API are in
``public_enums.txt``, which is read when a script first needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from clawblox.engine.errors import suggest
from clawblox.engine.values.value import Check, Functions, as_list, checked, instance_check
from clawblox.luau import HostObject, HostType, LuaTable, RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.values import describe_key, key_value
from clawblox.luau.lib.support import arguments as arg

ENUMS: dict[str, dict[str, int]] = {
    "ActuatorRelativeTo": {"Attachment0": 0, "Attachment1": 1, "World": 2},
    "AnimationPriority": {
        "Idle": 0, "Movement": 1, "Action": 2, "Action2": 3, "Action3": 4, "Action4": 5,
        "Core": 1000,
    },
    "Axis": {"X": 0, "Y": 1, "Z": 2},
    "CameraType": {
        "Fixed": 0, "Attach": 1, "Watch": 2, "Track": 3, "Follow": 4, "Custom": 5,
        "Scriptable": 6, "Orbital": 7,
    },
    "EasingDirection": {"In": 0, "Out": 1, "InOut": 2},
    "EasingStyle": {
        "Linear": 0, "Sine": 1, "Back": 2, "Quad": 3, "Quart": 4, "Quint": 5, "Bounce": 6,
        "Elastic": 7, "Exponential": 8, "Circular": 9, "Cubic": 10,
    },
    "FluidForces": {"Default": 0, "Experimental": 1},
    "Font": {
        "Legacy": 0, "Arial": 1, "ArialBold": 2, "SourceSans": 3, "SourceSansBold": 4,
        "SourceSansLight": 5, "SourceSansItalic": 6, "Bodoni": 7, "Garamond": 8, "Cartoon": 9,
        "Code": 10, "Highway": 11, "SciFi": 12, "Arcade": 13, "Fantasy": 14, "Antique": 15,
        "SourceSansSemibold": 16, "Gotham": 17, "GothamMedium": 18, "GothamBold": 19,
        "GothamBlack": 20, "AmaticSC": 21, "Bangers": 22, "Creepster": 23, "DenkOne": 24,
        "Fondamento": 25, "FredokaOne": 26, "GrenzeGotisch": 27, "IndieFlower": 28,
        "JosefinSans": 29, "Jura": 30, "Kalam": 31, "LuckiestGuy": 32, "Merriweather": 33,
        "Michroma": 34, "Nunito": 35, "Oswald": 36, "PatrickHand": 37, "PermanentMarker": 38,
        "Roboto": 39, "RobotoCondensed": 40, "RobotoMono": 41, "Sarpanch": 42,
        "SpecialElite": 43, "TitilliumWeb": 44, "Ubuntu": 45,
        "BuilderSans": 46, "BuilderSansMedium": 47, "BuilderSansBold": 48,
        "BuilderSansExtraBold": 49, "Arimo": 50, "ArimoBold": 51, "Unknown": 100,
    },
    "HumanoidStateType": {
        "FallingDown": 0, "Ragdoll": 1, "GettingUp": 2, "Jumping": 3, "Swimming": 4,
        "Freefall": 5, "Flying": 6, "Landed": 7, "Running": 8, "RunningNoPhysics": 10,
        "StrafingNoPhysics": 11, "Climbing": 12, "Seated": 13, "PlatformStanding": 14,
        "Dead": 15, "Physics": 16, "None": 18,
    },
    "Material": {
        "Plastic": 256, "SmoothPlastic": 272, "Neon": 288, "Wood": 512, "WoodPlanks": 528,
        "Marble": 784, "Basalt": 788, "Slate": 800, "CrackedLava": 804, "Concrete": 816,
        "Limestone": 820, "Cobblestone": 832, "Pavement": 836, "Brick": 848, "Pebble": 864,
        "Granite": 880, "Rock": 896, "Sandstone": 912, "Metal": 1040, "DiamondPlate": 1056,
        "Foil": 1072, "CorrodedMetal": 1088, "Grass": 1280, "LeafyGrass": 1284, "Sand": 1296,
        "Fabric": 1312, "Snow": 1328, "Mud": 1344, "Ground": 1360, "Asphalt": 1376,
        "Salt": 1392, "Ice": 1536, "Glacier": 1552, "Glass": 1568, "ForceField": 1584,
        "Air": 1792, "Water": 2048, "Cardboard": 2304, "Carpet": 2305, "CeramicTiles": 2306,
        "ClayRoofTiles": 2307, "RoofShingles": 2308, "Leather": 2309, "Plaster": 2310,
        "Rubber": 2311,
    },
    "NormalId": {"Right": 0, "Top": 1, "Back": 2, "Left": 3, "Bottom": 4, "Front": 5},
    "OrientationAlignmentMode": {"OneAttachment": 0, "TwoAttachment": 1},
    "PartType": {"Ball": 0, "Block": 1, "Cylinder": 2, "Wedge": 3, "Ring": 4},
    "PlaybackState": {
        "Begin": 0, "Delayed": 1, "Playing": 2, "Paused": 3, "Completed": 4, "Cancelled": 5,
    },
    "PositionAlignmentMode": {"OneAttachment": 0, "TwoAttachment": 1},
    "RaycastFilterType": {"Exclude": 0, "Include": 1},
    "RollOffMode": {"Inverse": 0, "Linear": 1, "LinearSquare": 2, "InverseTapered": 3},
    "RotationOrder": {"XYZ": 0, "XZY": 1, "YZX": 2, "YXZ": 3, "ZXY": 4, "ZYX": 5},
    "TextXAlignment": {"Left": 0, "Right": 1, "Center": 2},
    "TextYAlignment": {"Top": 0, "Center": 1, "Bottom": 2},
}  # fmt: skip

ALIASES: dict[str, dict[str, str]] = {
    "Axis": {
        "Left": "X", "Right": "X", "Bottom": "Y", "Top": "Y", "Back": "Z", "Front": "Z",
    },
    "Font": {
        "GothamSemibold": "GothamMedium", "Montserrat": "Gotham",
        "MontserratMedium": "GothamMedium", "MontserratBold": "GothamBold",
        "MontserratBlack": "GothamBlack",
    },
    "Material": {"Aluminum": "Foil"},
    "RaycastFilterType": {"Blacklist": "Exclude", "Whitelist": "Include"},
}  # fmt: skip
"""Older names of items, by enum."""


@cache
def read_public_enums() -> dict[str, str]:
    """Return the rows of ``public_enums.txt`` by the name of the enum."""
    lines = Path(__file__).with_name("public_enums.txt").read_text().splitlines()
    rows = (line.partition(" ") for line in lines if not line.startswith("#"))
    return {name: row for name, _, row in rows}


def _parse_row(row: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return the numbers of the items in a row, and the older names of items."""
    entries = [entry.split("=") for entry in row.split()]
    numbers = {name: int(value) for name, value in entries if value.lstrip("-").isdecimal()}
    return numbers, {name: value for name, value in entries if name not in numbers}


ITEM_TYPE = HostType("EnumItem")
ENUM_TYPE = HostType("Enum")
ENUMS_TYPE = HostType("Enums")
ITEM_METHODS: Functions = {}
ENUM_METHODS: Functions = {}
ENUMS_METHODS: Functions = {}


class _Named(HostObject):
    """An object identified by its full name in snapshots and messages.

    Attributes:
        methods: Its methods by name.
    """

    __slots__ = ()

    methods: ClassVar[Functions] = {}

    def __str__(self) -> str:
        return self.ident

    def refusal(self, key: Any) -> str:
        """Return the error text for a missing member."""
        likely = suggest(key, self.names())
        return f"{describe_key(key_value(key))} is not a valid member of {self.ident}{likely}"

    def names(self) -> Iterable[str]:
        """Return the names of its members."""
        return self.methods

    def __getitem__(self, key: Any) -> Any:
        method = self.methods.get(key)
        if method is None:
            raise RuntimeFault(self.refusal(key))
        return method

    def __setitem__(self, key: Any, value: Any) -> None:
        raise RuntimeFault(f"{self.ident} cannot be changed")

    def find_method(self, name: str) -> Any:
        """Return a method by name, or None."""
        return self.methods.get(name)


class EnumItem(_Named):
    """An item of an enum.

    Attributes:
        enum: The enum.
        name: Its name.
    """

    __slots__ = ("enum", "name")

    methods = ITEM_METHODS

    def __init__(self, enum: Enum, name: str) -> None:
        super().__init__(ITEM_TYPE, f"{enum.ident}.{name}")
        self.enum = enum
        self.name = name

    @property
    def number(self) -> int:
        """Its value."""
        return self.enum.numbers[self.name]

    def __getitem__(self, key: Any) -> Any:
        if key == "Name":
            return self.name
        if key == "Value":
            return float(self.number)
        if key == "EnumType":
            return self.enum
        return super().__getitem__(key)

    def names(self) -> Iterable[str]:
        """Return the names of its members."""
        return ("Name", "Value", "EnumType", *self.methods)


class Enum(_Named):
    """An enum; its items are created, or read from ``public_enums.txt``, on first access.

    Attributes:
        name: Its name.
    """

    __slots__ = ("_made", "_numbers", "_older", "name")

    methods = ENUM_METHODS

    def __init__(self, name: str) -> None:
        super().__init__(ENUM_TYPE, f"Enum.{name}")
        self.name = name
        self._numbers = ENUMS.get(name, {})
        self._older = ALIASES.get(name, {})
        self._made: dict[str, EnumItem] = {}

    @property
    def numbers(self) -> Mapping[str, int]:
        """The numbers of its items by name."""
        if not self._numbers:
            self._numbers, self._older = _parse_row(read_public_enums()[self.name])
        return self._numbers

    @property
    def items(self) -> dict[str, EnumItem]:
        """Its items by name."""
        return {name: self.item(name) for name in self.numbers}

    def item(self, name: str) -> EnumItem:
        """Return the item with an existing name."""
        item = self._made.get(name)
        if item is None:
            item = self._made[name] = EnumItem(self, name)
        return item

    def find(self, name: Any) -> EnumItem | None:
        """Return an item by its current or older name, or None."""
        item = self._made.get(name)
        if item is not None:
            return item
        present = name if name in self.numbers else self._older.get(name)
        return None if present is None else self.item(present)

    def look_up(self, value: Any) -> EnumItem | None:
        """Return an item, given as itself or by name or number, or None."""
        if isinstance(value, EnumItem):
            return value if value.enum is self else None
        if value.__class__ is str:
            return self.find(value)
        if value.__class__ is not float:
            return None
        numbers = self.numbers
        return next((self.item(name) for name in numbers if numbers[name] == value), None)

    def __getitem__(self, key: Any) -> Any:
        return self.find(key) or super().__getitem__(key)

    def names(self) -> Iterable[str]:
        """Return the names of its items and methods."""
        return (*self.numbers, *self.methods)


class Enums(_Named):
    """The global ``Enum``; its enums are created on first access."""

    __slots__ = ("_made",)

    methods = ENUMS_METHODS

    def __init__(self) -> None:
        super().__init__(ENUMS_TYPE, "Enum")
        self._made: dict[str, Enum] = {}

    def enum(self, name: str) -> Enum:
        """Return the enum with an existing name."""
        enum = self._made.get(name)
        if enum is None:
            enum = self._made[name] = Enum(name)
        return enum

    def find(self, name: Any) -> Enum | None:
        """Return an enum, or None."""
        enum = self._made.get(name)
        if enum is None and (name in ENUMS or name in read_public_enums()):
            enum = self.enum(name)
        return enum

    def every(self) -> list[Enum]:
        """Return all enums, sorted by name."""
        return [self.enum(name) for name in sorted((*ENUMS, *read_public_enums()))]

    def __getitem__(self, key: Any) -> Any:
        return self.find(key) or super().__getitem__(key)

    def names(self) -> Iterable[str]:
        """Return the names of its enums and methods."""
        return (*ENUMS, *read_public_enums(), *self.methods)


ENUM = Enums()


def enum_item(enum: str, name: str) -> EnumItem:
    """Return an existing item, without reading ``public_enums.txt``."""
    return ENUM.enum(enum).item(name)


def find_enum_object(ident: str) -> HostObject | None:
    """Return ``Enum``, an enum or an item by the id in a snapshot, or None."""
    root, *path = ident.split(".")
    if root != "Enum" or len(path) > 2:
        return None
    if not path:
        return ENUM
    enum = ENUM.find(path[0])
    if enum is None or len(path) == 1:
        return enum
    return enum.item(path[1]) if path[1] in enum.numbers else None


def enum_check(enum: str) -> Check:
    """Return a check for the items of an enum."""

    def check(args: tuple[Any, ...], at: int, name: str) -> EnumItem:
        value = args[at] if at < len(args) else None
        if not isinstance(value, EnumItem) or value.enum.name != enum:
            arg.wrong_type(args, at, name, f"Enum.{enum}")
        return value

    return check


_enum = instance_check(Enum, "Enum")


@checked(ITEM_METHODS, "IsA", instance_check(EnumItem, "EnumItem"), arg.string)
def _is_a(item: EnumItem, name: str) -> bool:
    return item.enum.name == name


@checked(ENUM_METHODS, "GetEnumItems", _enum)
def _enum_items(enum: Enum) -> LuaTable:
    charge_work(len(enum.numbers))
    return as_list(enum.items.values())


@checked(ENUM_METHODS, "FromName", _enum, arg.string)
def _from_name(enum: Enum, name: str) -> EnumItem | None:
    return enum.find(name)


@checked(ENUM_METHODS, "FromValue", _enum, arg.number)
def _from_value(enum: Enum, number: float) -> EnumItem | None:
    return enum.look_up(number)


@checked(ENUMS_METHODS, "GetEnums", instance_check(Enums, "Enums"))
def _get_enums(enums: Enums) -> LuaTable:
    every = enums.every()
    charge_work(len(every))
    return as_list(every)


for _type in (ITEM_TYPE, ENUM_TYPE, ENUMS_TYPE):
    checked(_type.meta, "__tostring", instance_check(_Named, _type.name))(str)
