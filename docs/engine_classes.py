"""Writes ``engine-classes.md``: what each class of a Luau world has, from the engine's own table.

python -m docs.engine_classes
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from clawblox.engine.instances.spec import ClassSpec, ClassTable, Property
from clawblox.engine.settings import read_settings
from clawblox.engine.values.enums import ENUMS, read_public_enums
from clawblox.engine.values.libraries import LIBRARIES, VALUE_TYPES
from clawblox.engine.values.query_params import QueryParams
from clawblox.engine.values.value import Function
from clawblox.engine.values.vector3 import METHODS, VECTOR_TYPE
from clawblox.engine.world.assembly import Assembly
from clawblox.engine.world.console import Console
from clawblox.luau.core.operators import to_text
from docs.public_enums import read_source

__all__ = ["PAGE", "render_page"]

PAGE: Final = Path(__file__).parent / "engine-classes.md"
_HEAD: Final = """\
# Classes of a Luau world

Generated from the table that the engine itself works with, by `python -m docs.engine_classes`.
[engine.md](engine.md) explains what the classes are for.

A class has one of three ranks. One that *behaves* acts as it does in Roblox, as far as it is listed
here. One that is *data* is kept, saved and copied, and scripts read what they have written; nothing
acts on it. So are the properties marked *data* in classes that behave. Worlds do not have the
[refused](#refused-classes) classes on purpose, and the error says why.

A class has everything of the class that it extends. Properties show their type and their default;
*read* means that scripts may not assign it. `Instance.new` makes every class except those marked
*not creatable*. Methods are shown with their arguments, events with those of their handlers and
when they fire. Below the classes are the [value types](#value-types) and the [enums](#enums).
"""
_VARIADIC: Final[dict[str, tuple[str, ...]]] = {
    "Vector3.new": ("x, y, z",),
    "CFrame.new": (
        "",
        "position",
        "position, target",
        "x, y, z",
        "x, y, z, qx, qy, qz, qw",
        "x, y, z, r00, r01, r02, r10, r11, r12, r20, r21, r22",
    ),
    "BrickColor.new": ("number", "name", "color3", "r, g, b"),
    "UDim2.new": ("xScale, xOffset, yScale, yOffset", "x, y"),
    "PhysicalProperties.new": (
        "material",
        "density, friction, elasticity, frictionWeight, elasticityWeight",
    ),
    "Rect.new": ("left, top, right, bottom", "corner, corner"),
    "NumberSequence.new": ("number", "first, last", "keypoints"),
    "ColorSequence.new": ("color", "first, last", "keypoints"),
    "TweenInfo.new": ("time, easingStyle, easingDirection, repeatCount, reverses, delayTime",),
}
"""Arguments of functions that check the types themselves."""
_OPERATORS: Final = {
    "__add": "+", "__sub": "-", "__mul": "*", "__div": "/", "__idiv": "//", "__mod": "%",
    "__unm": "-a",
}  # fmt: skip
_SIGNATURE: Final = re.compile(r"``(?:\w+[:.])?((\w+)\([^`]*\))``")
_VARIADIC_FLAG: Final = 0x04


def build_world() -> Assembly:
    """Return the parts of an empty world, with all classes and their methods."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "world.toml").write_text('name = "classes"\n')
        Path(directory, "main.lua").write_text("")
        return Assembly(read_settings(Path(directory)), Console())


def render_page() -> str:
    """Return the text of the page."""
    world = build_world()
    classes = world.model.classes
    specs = sorted(classes, key=lambda spec: str(spec.name))
    refused = [spec for spec in specs if spec.refusal]
    with world.vm.entered():  # defaults are shown as scripts would print them
        parts = [_render_class(spec, classes) for spec in specs if not spec.refusal]
    rest = (*_render_refused(refused), *_render_types(), *_render_enums())
    return _HEAD + "".join(parts) + "\n" + "\n".join(rest)


def _render_class(spec: ClassSpec, classes: ClassTable) -> str:
    base = None if spec.base is None else classes.find(spec.base)
    notes = ["Data" if spec.is_data else "Behaves"]
    notes += [] if base is None else [f"extends [{base.name}](#{base.name.lower()})"]
    notes += [] if spec.creatable else ["not creatable"]
    notes += [f"named `{spec.first_name}` at first"] if spec.first_name else []
    lines = [f"\n## {spec.name}\n", f"{', '.join(notes)}.\n"]
    lines += _render_properties(spec, base)
    known_methods = {} if base is None else base.methods
    methods = {name: each for name, each in spec.methods.items() if name not in known_methods}
    rows = [_describe_method(name, methods[name]) for name in sorted(methods)]
    lines += _render_table("method", rows)
    known_events = {} if base is None else base.events
    events = {name: each for name, each in spec.events.items() if name not in known_events}
    rows = [(f"{name}({events[name].parameters})", events[name].when) for name in sorted(events)]
    lines += _render_table("event", rows)
    return "\n".join(lines).rstrip("\n") + "\n"


def _describe_method(name: str, method: Function) -> tuple[str, str]:
    """Return how a method is called, and the rest of its docstring."""
    function = inspect.unwrap(method)
    text = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    signatures = {found[2]: found for found in _SIGNATURE.finditer(text)}
    shown = signatures[name][1] if name in signatures else f"{name}({_arguments(function, 1)})"
    if not signatures:
        return shown, ""
    rest = text[max(found.end() for found in signatures.values()) :].strip(" :;,.")
    return shown, rest.replace("``", "`").replace("|", "\\|")


def _arguments(function: Function, skipped: int) -> str:
    """Return the names of a function's arguments, without the first ones."""
    code = function.__code__
    skipped += inspect.ismethod(function)
    names = list(code.co_varnames[skipped : code.co_argcount])
    if code.co_flags & _VARIADIC_FLAG:
        rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        names += [] if rest == "_" else ["..."]
    return ", ".join(names)


def _render_table(title: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield f"| {title} | |"
        yield "|---|---|"
        yield from (f"| `{shown}` | {text} |" for shown, text in rows)
        yield ""


def _render_properties(spec: ClassSpec, base: ClassSpec | None) -> Iterator[str]:
    known = {} if base is None else base.properties
    own = {name: rule for name, rule in spec.properties.items() if known.get(name) != rule}
    if not own:
        return
    yield "| property | type | default |"
    yield "|---|---|---|"
    for name, rule in own.items():
        mark = ", *data*" if rule.is_data and not spec.is_data else ""
        yield f"| `{name}` | {_show_type(rule)}{mark} | {_show_default(spec, name)} |"
    yield ""


def _show_type(rule: Property) -> str:
    limits = "" if rule.limits is None else f", {_bounds(*rule.limits)}"
    return f"{rule.kind}{limits}{', read' if rule.read_only else ''}"


def _bounds(low: float, high: float) -> str:
    return f"{low:g} and more" if high == float("inf") else f"{low:g} to {high:g}"


def _show_default(spec: ClassSpec, name: str) -> str:
    value: Any = spec.defaults.get(name)
    if value is None:
        return ""
    return f"`{to_text(value)}`" if value != "" else '`""`'


def _render_refused(specs: list[ClassSpec]) -> Iterator[str]:
    """Return the lines about the classes that worlds do not have on purpose."""
    yield "## Refused classes\n"
    yield from _render_table("class", [(str(spec.name), str(spec.refusal)) for spec in specs])


def _render_types() -> Iterator[str]:
    """Return the lines about the types of values."""
    yield "## Value types\n"
    yield "Only `RaycastParams`, `OverlapParams` and the stream of a `Random` can change.\n"
    types = {each.type_name: each for each in VALUE_TYPES}
    for name in sorted({*LIBRARIES, *types}):
        functions, constants = LIBRARIES.get(name, ({}, {}))
        yield f"### {name}\n"
        made = (_calls(f"{name}.{each}", function) for each, function in functions.items())
        yield from _render_list("Made by", [f"`{call}`" for calls in made for call in calls])
        yield from _render_list("Constants", [f"`{name}.{each}`" for each in constants])
        members, methods, meta = _members(name, types)
        yield from _render_list("Members", [f"`{each}`" for each in members])
        calls = (f"`{each}({_arguments(inspect.unwrap(methods[each]), 1)})`" for each in methods)
        yield from _render_list("Methods", list(calls))
        signs = [f"`{sign}`" for event, sign in _OPERATORS.items() if event in meta]
        yield from _render_list("Operators", signs)


def _calls(name: str, function: Function) -> list[str]:
    listed = _VARIADIC.get(name)
    if listed is None:
        arguments = _arguments(inspect.unwrap(function), 0)
        assert "..." not in arguments, f"{name}: add its arguments to _VARIADIC"
        listed = (arguments,)
    return [f"{name}({arguments})" for arguments in listed]


def _members(
    name: str, types: dict[str, type[Any]]
) -> tuple[Iterable[str], dict[str, Any], Iterable[str]]:
    """Return the members, methods and operators of a type of values."""
    if name == VECTOR_TYPE.name:
        return [*"XYZ", "Magnitude", "Unit"], METHODS, [*_OPERATORS]
    found = types[name]
    if issubclass(found, QueryParams):
        return found().members, found.methods, ()
    return found.getters, found.methods, found.meta


def _render_list(title: str, entries: list[str]) -> Iterator[str]:
    if entries:
        yield f"{title}: {', '.join(entries)}.\n"


def _render_enums() -> Iterator[str]:
    """Return the lines about the enums."""
    yield "## Enums\n"
    for enum, items in sorted(ENUMS.items()):
        shown = ", ".join(f"`{name}` {number}" for name, number in items.items())
        yield f"`Enum.{enum}`: {shown}.\n"
    names = ", ".join(f"`{name}`" for name in read_public_enums())
    yield f"The others have the items of Roblox's public API, read from {read_source()}: {names}.\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render_page())


if __name__ == "__main__":
    main()
