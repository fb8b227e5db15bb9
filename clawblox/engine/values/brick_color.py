"""``BrickColor``: a colour from a fixed list, by number or name."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine.values.color3 import Color3, make_color3
from clawblox.engine.values.value import (
    Value,
    checked,
    expect_contents,
    number,
)
from clawblox.luau import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.machine import current
from clawblox.luau.lib.support import arguments as arg

COLORS: Final[tuple[tuple[int, int, str], ...]] = (
    (1, 0xF2F3F3, "White"), (2, 0xA1A5A2, "Grey"), (3, 0xF9E999, "Light yellow"),
    (5, 0xD7C59A, "Brick yellow"), (6, 0xC2DAB8, "Light green (Mint)"),
    (9, 0xE8BAC8, "Light reddish violet"), (11, 0x80BBDB, "Pastel Blue"),
    (12, 0xCB8442, "Light orange brown"), (18, 0xCC8E69, "Nougat"), (21, 0xC4281C, "Bright red"),
    (22, 0xC470A0, "Med. reddish violet"), (23, 0x0D69AC, "Bright blue"),
    (24, 0xF5CD30, "Bright yellow"), (25, 0x624732, "Earth orange"), (26, 0x1B2A35, "Black"),
    (27, 0x6D6E6C, "Dark grey"), (28, 0x287F47, "Dark green"), (29, 0xA1C48C, "Medium green"),
    (36, 0xF3CF9B, "Lig. Yellowich orange"), (37, 0x4B974B, "Bright green"),
    (38, 0xA05F35, "Dark orange"), (39, 0xC1CADE, "Light bluish violet"),
    (40, 0xECECEC, "Transparent"), (41, 0xCD544B, "Tr. Red"), (42, 0xC1DFF0, "Tr. Lg blue"),
    (43, 0x7BB6E8, "Tr. Blue"), (44, 0xF7F18D, "Tr. Yellow"), (45, 0xB4D2E4, "Light blue"),
    (47, 0xD9856C, "Tr. Flu. Reddish orange"), (48, 0x84B68D, "Tr. Green"),
    (49, 0xF8F184, "Tr. Flu. Green"), (50, 0xECE8DE, "Phosph. White"), (100, 0xEEC4B6, "Light red"),
    (101, 0xDA867A, "Medium red"), (102, 0x6E99CA, "Medium blue"), (103, 0xC7C1B7, "Light grey"),
    (104, 0x6B327C, "Bright violet"), (105, 0xE29B40, "Br. yellowish orange"),
    (106, 0xDA8541, "Bright orange"), (107, 0x008F9C, "Bright bluish green"),
    (108, 0x685C43, "Earth yellow"), (110, 0x435493, "Bright bluish violet"),
    (111, 0xBFB7B1, "Tr. Brown"), (112, 0x6874AC, "Medium bluish violet"),
    (113, 0xE5ADC8, "Tr. Medi. reddish violet"), (115, 0xC7D23C, "Med. yellowish green"),
    (116, 0x55A5AF, "Med. bluish green"), (118, 0xB7D7D5, "Light bluish green"),
    (119, 0xA4BD47, "Br. yellowish green"), (120, 0xD9E4A7, "Lig. yellowish green"),
    (121, 0xE7AC58, "Med. yellowish orange"), (123, 0xD36F4C, "Br. reddish orange"),
    (124, 0x923978, "Bright reddish violet"), (125, 0xEAB892, "Light orange"),
    (126, 0xA5A5CB, "Tr. Bright bluish violet"), (127, 0xDCBC81, "Gold"),
    (128, 0xAE7A59, "Dark nougat"), (131, 0x9CA3A8, "Silver"), (133, 0xD5733D, "Neon orange"),
    (134, 0xD8DD56, "Neon green"), (135, 0x74869D, "Sand blue"), (136, 0x877C90, "Sand violet"),
    (137, 0xE09864, "Medium orange"), (138, 0x958A73, "Sand yellow"), (140, 0x203A56, "Earth blue"),
    (141, 0x27462D, "Earth green"), (143, 0xCFE2F7, "Tr. Flu. Blue"),
    (145, 0x7988A1, "Sand blue metallic"), (146, 0x958EA3, "Sand violet metallic"),
    (147, 0x938767, "Sand yellow metallic"), (148, 0x575857, "Dark grey metallic"),
    (149, 0x161D32, "Black metallic"), (150, 0xABADAC, "Light grey metallic"),
    (151, 0x789082, "Sand green"), (153, 0x957977, "Sand red"), (154, 0x7B2E2F, "Dark red"),
    (157, 0xFFF67B, "Tr. Flu. Yellow"), (158, 0xE1A4C2, "Tr. Flu. Red"),
    (168, 0x756C62, "Gun metallic"), (176, 0x97695B, "Red flip/flop"),
    (178, 0xB48455, "Yellow flip/flop"), (179, 0x898788, "Silver flip/flop"),
    (180, 0xD7A94B, "Curry"), (190, 0xF9D62E, "Fire Yellow"),
    (191, 0xE8AB2D, "Flame yellowish orange"), (192, 0x694028, "Reddish brown"),
    (193, 0xCF6024, "Flame reddish orange"), (194, 0xA3A2A5, "Medium stone grey"),
    (195, 0x4667A4, "Royal blue"), (196, 0x23478B, "Dark Royal blue"),
    (198, 0x8E4285, "Bright reddish lilac"), (199, 0x635F62, "Dark stone grey"),
    (200, 0x828A5D, "Lemon metalic"), (208, 0xE5E4DF, "Light stone grey"),
    (209, 0xB08E44, "Dark Curry"), (210, 0x709578, "Faded green"), (211, 0x79B5B5, "Turquoise"),
    (212, 0x9FC3E9, "Light Royal blue"), (213, 0x6C81B7, "Medium Royal blue"),
    (216, 0x904C2A, "Rust"), (217, 0x7C5C46, "Brown"), (218, 0x96709F, "Reddish lilac"),
    (219, 0x6B629B, "Lilac"), (220, 0xA7A9CE, "Light lilac"), (221, 0xCD6298, "Bright purple"),
    (222, 0xE4ADC8, "Light purple"), (223, 0xDC9095, "Light pink"),
    (224, 0xF0D5A0, "Light brick yellow"), (225, 0xEBB87F, "Warm yellowish orange"),
    (226, 0xFDEA8D, "Cool yellow"), (232, 0x7DBBDD, "Dove blue"), (268, 0x342B75, "Medium lilac"),
    (301, 0x506D54, "Slime green"), (302, 0x5B5D69, "Smoky grey"), (303, 0x0010B0, "Dark blue"),
    (304, 0x2C651D, "Parsley green"), (305, 0x527CAE, "Steel blue"), (306, 0x335882, "Storm blue"),
    (307, 0x102ADC, "Lapis"), (308, 0x3D1585, "Dark indigo"), (309, 0x348E40, "Sea green"),
    (310, 0x5B9A4C, "Shamrock"), (311, 0x9FA1AC, "Fossil"), (312, 0x592259, "Mulberry"),
    (313, 0x1F801D, "Forest green"), (314, 0x9FADC0, "Cadet blue"),
    (315, 0x0989CF, "Electric blue"), (316, 0x7B007B, "Eggplant"), (317, 0x7C9C6B, "Moss"),
    (318, 0x8AAB85, "Artichoke"), (319, 0xB9C4B1, "Sage green"), (320, 0xCACBD1, "Ghost grey"),
    (321, 0xA75E9B, "Lilac"), (322, 0x7B2F7B, "Plum"), (323, 0x94BE81, "Olivine"),
    (324, 0xA8BD99, "Laurel green"), (325, 0xDFDFDE, "Quill grey"), (327, 0x970000, "Crimson"),
    (328, 0xB1E5A6, "Mint"), (329, 0x98C2DB, "Baby blue"), (330, 0xFF98DC, "Carnation pink"),
    (331, 0xFF5959, "Persimmon"), (332, 0x750000, "Maroon"), (333, 0xEFB838, "Gold"),
    (334, 0xF8D96D, "Daisy orange"), (335, 0xE7E7EC, "Pearl"), (336, 0xC7D4E4, "Fog"),
    (337, 0xFF9494, "Salmon"), (338, 0xBE6862, "Terra Cotta"), (339, 0x562424, "Cocoa"),
    (340, 0xF1E7C7, "Wheat"), (341, 0xFEF3BB, "Buttermilk"), (342, 0xE0B2D0, "Mauve"),
    (343, 0xD490BD, "Sunrise"), (344, 0x965555, "Tawny"), (345, 0x8F4C2A, "Rust"),
    (346, 0xD3BE96, "Cashmere"), (347, 0xE2DCBC, "Khaki"), (348, 0xEDEAEA, "Lily white"),
    (349, 0xE9DADA, "Seashell"), (350, 0x883E3E, "Burgundy"), (351, 0xBC9B5D, "Cork"),
    (352, 0xC7AC78, "Burlap"), (353, 0xCABFA3, "Beige"), (354, 0xBBB3B2, "Oyster"),
    (355, 0x6C584B, "Pine Cone"), (356, 0xA0844F, "Fawn brown"), (357, 0x958988, "Hurricane grey"),
    (358, 0xABA89E, "Cloudy grey"), (359, 0xAF9483, "Linen"), (360, 0x966766, "Copper"),
    (361, 0x564236, "Medium brown"), (362, 0x7E683F, "Bronze"), (363, 0x69665C, "Flint"),
    (364, 0x5A4C42, "Dark taupe"), (365, 0x6A3909, "Burnt Sienna"),
    (1001, 0xF8F8F8, "Institutional white"), (1002, 0xCDCDCD, "Mid gray"),
    (1003, 0x111111, "Really black"), (1004, 0xFF0000, "Really red"),
    (1005, 0xFFB000, "Deep orange"), (1006, 0xB480FF, "Alder"), (1007, 0xA34B4B, "Dusty Rose"),
    (1008, 0xC1BE42, "Olive"), (1009, 0xFFFF00, "New Yeller"), (1010, 0x0000FF, "Really blue"),
    (1011, 0x002060, "Navy blue"), (1012, 0x2154B9, "Deep blue"), (1013, 0x04AFEC, "Cyan"),
    (1014, 0xAA5500, "CGA brown"), (1015, 0xAA00AA, "Magenta"), (1016, 0xFF66CC, "Pink"),
    (1017, 0xFFAF00, "Deep orange"), (1018, 0x12EED4, "Teal"), (1019, 0x00FFFF, "Toothpaste"),
    (1020, 0x00FF00, "Lime green"), (1021, 0x3A7D15, "Camo"), (1022, 0x7F8E64, "Grime"),
    (1023, 0x8C5B9F, "Lavender"), (1024, 0xAFDDFF, "Pastel light blue"),
    (1025, 0xFFC9C9, "Pastel orange"), (1026, 0xB1A7FF, "Pastel violet"),
    (1027, 0x9FF3E9, "Pastel blue-green"), (1028, 0xCCFFCC, "Pastel green"),
    (1029, 0xFFFFCC, "Pastel yellow"), (1030, 0xFFCC99, "Pastel brown"),
    (1031, 0x6225D1, "Royal purple"), (1032, 0xFF00BF, "Hot pink"),
)  # fmt: skip

PALETTE: Final = (
    141, 301, 107, 26, 1012, 303, 1011, 304, 28, 1018, 302, 305, 306, 307, 308, 1021, 309, 310,
    1019, 135, 102, 23, 1010, 312, 313, 37, 1022, 1020, 1027, 311, 315, 1023, 1031, 316, 151, 317,
    318, 319, 1024, 314, 1013, 1006, 321, 322, 104, 1008, 119, 323, 324, 325, 320, 11, 1026, 1016,
    1032, 1015, 327, 1005, 1009, 29, 328, 1028, 208, 45, 329, 330, 331, 1004, 21, 332, 333, 24, 334,
    226, 1029, 335, 336, 342, 343, 338, 1007, 339, 133, 106, 340, 341, 1001, 1, 9, 1025, 337, 344,
    345, 1014, 105, 346, 347, 348, 349, 1030, 125, 101, 350, 192, 351, 352, 353, 354, 1002, 5, 18,
    217, 355, 356, 153, 357, 358, 359, 360, 38, 361, 362, 199, 194, 363, 364, 365, 1003,
)  # fmt: skip
"""The numbers of the colours in the order of `BrickColor.palette`, from 0."""


_UNKNOWN: Final = 194  # Medium stone grey, for unknown numbers and names
_STEPS: Final = 40  # comparing a colour with all others
_ALL_BITS: Final = 255
_COLORS: Final = {number: (bits >> 16, bits >> 8 & 255, bits & 255) for number, bits, _ in COLORS}
_NAMES: Final = {number: name for number, _, name in COLORS}
_NUMBERS: Final = {
    name: number for number, _, name in reversed(COLORS)
}  # the first for equal names


@attrs.define(eq=False, repr=False)
class BrickColor(Value):
    """A colour from the list.

    Args:
        number: Its number in the list.
    """

    number: float

    type_name = "BrickColor"
    getters: ClassVar[dict[str, Callable[[BrickColor], Any]]] = {
        "Number": lambda color: color.number,
        "Name": lambda color: _NAMES[int(color.number)],
        "Color": lambda color: brick_color3(color),
        "r": lambda color: brick_color3(color).r,
        "g": lambda color: brick_color3(color).g,
        "b": lambda color: brick_color3(color).b,
    }

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, float)
        if values[0] not in _COLORS:
            raise ValueError(f"there is no BrickColor {values[0]}")
        (self.number,) = values

    def text(self) -> str:
        """Return the name."""
        return _NAMES[int(self.number)]


def brick_color3(color: BrickColor) -> Color3:
    """Return a colour from the list as a Color3."""
    return make_color3(*(part / _ALL_BITS for part in _COLORS[int(color.number)]))


def nearest_brick_color(color: Color3) -> BrickColor:
    """Return the nearest colour in the list; ties go to the lowest number.

    Raises:
        LuaError: The scripts have used up the steps of this tick.
    """
    charge_work(_STEPS)
    r, g, b = (round(part * _ALL_BITS) for part in color.contents())
    return BrickColor(_nearest(r, g, b))


@lru_cache(4096)
def _nearest(*color: int) -> float:
    def distance(number: int) -> float:
        return sum((a - b) ** 2 for a, b in zip(color, _COLORS[number], strict=True))

    return float(min(_COLORS, key=distance))


def _new(*args: Any) -> BrickColor:
    first = args[0] if args else None
    if isinstance(first, Color3):
        return nearest_brick_color(first)
    if first.__class__ is str:
        return BrickColor(float(_NUMBERS.get(first, _UNKNOWN)))
    if len(args) > 1:
        return nearest_brick_color(make_color3(*(arg.number(args, at, "new") for at in range(3))))
    value = arg.number(args, 0, "new")
    return BrickColor(value if value in _COLORS else float(_UNKNOWN))


BrickColor.constructors["new"] = _new


@checked(BrickColor.constructors, "palette", number)
def _palette(index: float) -> BrickColor:
    if not 0.0 <= index < len(PALETTE):
        last = len(PALETTE) - 1
        raise RuntimeFault(f"invalid argument #1 to 'palette' (must be from 0 to {last})")
    return BrickColor(float(PALETTE[math.floor(index)]))


def _random(*_: Any) -> BrickColor:
    return BrickColor(float(COLORS[current.vm.random.between(0, len(COLORS) - 1)][0]))


BrickColor.constructors["random"] = _random


def _named(name: str) -> Callable[..., BrickColor]:
    return lambda *_: BrickColor(float(_NUMBERS[name]))


for _function, _name in (
    ("White", "White"),
    ("Gray", "Medium stone grey"),
    ("DarkGray", "Dark stone grey"),
    ("Black", "Black"),
    ("Red", "Bright red"),
    ("Yellow", "Bright yellow"),
    ("Green", "Dark green"),
    ("Blue", "Bright blue"),
):
    BrickColor.constructors[_function] = _named(_name)
