"""Writes ``engine-classes.md``: what each class of a Luau world has, from the engine's own table.

python -m docs.engine_classes
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from clawblox.engine.instances.spec import ClassSpec, ClassTable, Property
from clawblox.engine.settings import read_settings
from clawblox.engine.world.assembly import Assembly
from clawblox.engine.world.console import Console
from clawblox.luau.core.operators import to_text

__all__ = ["PAGE", "render_page"]

PAGE: Final = Path(__file__).parent / "engine-classes.md"
_HEAD: Final = """\
# Classes of a Luau world

Generated from the table that the engine itself works with, by `python -m docs.engine_classes`.
[engine.md](engine.md) explains what the classes are for.

A class has everything of the class that it extends. Properties show their type and their default;
*read* means that scripts may not assign it. `Instance.new` makes every class except those marked
*not creatable*.
"""


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
    with world.vm.entered():  # defaults are shown as scripts would print them
        return _HEAD + "".join(_render_class(spec, classes) for spec in specs)


def _render_class(spec: ClassSpec, classes: ClassTable) -> str:
    base = None if spec.base is None else classes.find(spec.base)
    notes = [] if base is None else [f"extends [{base.name}](#{base.name.lower()})"]
    notes += [] if spec.creatable else ["not creatable"]
    lines = [f"\n## {spec.name}\n"]
    if notes:
        text = ", ".join(notes)
        lines.append(f"{text[0].upper()}{text[1:]}.\n")
    lines += _render_properties(spec, base)
    lines += _render_names(
        "Methods", [n for n in spec.methods if base is None or n not in base.methods]
    )
    lines += _render_names(
        "Events", [n for n in spec.events if base is None or n not in base.events]
    )
    return "\n".join(lines).rstrip("\n") + "\n"


def _render_properties(spec: ClassSpec, base: ClassSpec | None) -> Iterator[str]:
    known = {} if base is None else base.properties
    own = {name: rule for name, rule in spec.properties.items() if known.get(name) != rule}
    if not own:
        return
    yield "| property | type | default |"
    yield "|---|---|---|"
    for name, rule in own.items():
        yield f"| `{name}` | {_show_type(rule)} | {_show_default(spec, name)} |"
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


def _render_names(title: str, names: list[str]) -> Iterator[str]:
    if names:
        yield f"{title}: {', '.join(f'`{name}`' for name in sorted(names))}.\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render_page())


if __name__ == "__main__":
    main()
