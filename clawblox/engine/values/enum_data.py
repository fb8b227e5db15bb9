"""The enums: names and numbers as in Roblox, except where the public engine has its own numbers.

That engine gives Granite and Metal the numbers that Roblox gives Cobblestone and CorrodedMetal;
these two have the numbers that became free.
"""

from __future__ import annotations

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

ALIASES = {"RaycastFilterType": {"Blacklist": "Exclude", "Whitelist": "Include"}}
"""Older names of items, by enum."""
