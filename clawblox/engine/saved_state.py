"""The state of a part of a world, declared once by layouts that check, save and restore it.

A layout describes the JSON of a value like a shape of `shapes`, with lists and tuples around
shapes. A value that differs from its JSON has a `Stored` in place of the shape.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import attrs

from clawblox.engine import shapes
from clawblox.engine.shapes import Omittable
from clawblox.engine.slots import Slots

Layout: TypeAlias = Any
Layouts: TypeAlias = Mapping[str, Layout]
Json = Any


@attrs.frozen
class Stored:
    """The layout of a value that differs from its JSON.

    Attributes:
        shape: The shape of the JSON.
        write: Returns the JSON of a value.
        read: Returns the value from its JSON; raises ValueError for a damaged snapshot.
    """

    shape: shapes.Shape
    write: Callable[[Slots, Any], Json]
    read: Callable[[Slots, Json], Any]


VALUE: Final = Stored(shapes.whole, Slots.put, Slots.take)
"""A Luau value, in a slot."""
FUNCTION: Final = Stored(shapes.whole, Slots.put, Slots.take_function)
"""A function of a script, in a slot."""


def object_slot(kind: type[Any]) -> Stored:
    """Return the layout of an object of a class, in a slot."""
    return Stored(shapes.whole, Slots.put, lambda slots, number: slots.take_as(number, kind))


def optional(layout: Layout) -> Stored:
    """Return the layout of a value that may be None."""
    return Stored(
        shapes.optional(derive_shape(layout)),
        lambda slots, value: None if value is None else to_json(layout, value, slots),
        lambda slots, saved: None if saved is None else from_json(layout, saved, slots),
    )


def record(cls: type[Any], *layouts: Layout) -> Stored:
    """Return the layout of an object of an attrs class: a list of its attributes."""
    names = [attribute.name for attribute in attrs.fields(cls)]
    return Stored(
        derive_shape(layouts),
        lambda slots, value: to_json(layouts, [getattr(value, name) for name in names], slots),
        lambda slots, saved: cls(*from_json(layouts, saved, slots)),
    )


def keys(layout: Layout) -> Stored:
    """Return the layout of a dictionary without values: a list of its keys."""
    return Stored(
        [derive_shape(layout)],
        lambda slots, table: to_json([layout], table, slots),
        lambda slots, saved: dict.fromkeys(from_json([layout], saved, slots)),
    )


def entries(key: Layout, *values: Layout) -> Stored:
    """Return the layout of a dictionary: a list of its keys, each with its value or values."""
    row = (key, *values)

    def write(slots: Slots, table: dict[Any, Any]) -> Json:
        rows = table.items() if len(values) == 1 else ((at, *rest) for at, rest in table.items())
        return to_json([row], rows, slots)

    def read(slots: Slots, saved: Json) -> dict[Any, Any]:
        rows = from_json([row], saved, slots)
        return {at: rest[0] if len(values) == 1 else tuple(rest) for at, *rest in rows}

    return Stored([derive_shape(row)], write, read)


def derive_shape(layout: Layout) -> shapes.Shape:
    """Return the shape of the JSON of a layout."""
    if isinstance(layout, list | tuple):
        return type(layout)(map(derive_shape, layout))
    return getattr(layout, "shape", layout)


def to_json(layout: Layout, value: Any, slots: Slots) -> Json:
    """Return the JSON of a value."""
    kind = type(layout)
    if kind is Stored:
        return layout.write(slots, value)
    if kind is list:
        (part,) = layout
        return list(value) if callable(part) else [to_json(part, item, slots) for item in value]
    if kind is tuple:
        pairs = zip(layout, value, strict=True)
        return [to_json(part, member, slots) for part, member in pairs]
    return value.document(slots) if isinstance(value, SavedState) else value


def from_json(layout: Layout, saved: Json, slots: Slots) -> Any:
    """Return the value from JSON that has the shape of its layout.

    Raises:
        ValueError: The snapshot is damaged.
    """
    kind = type(layout)
    if kind is Stored:
        return layout.read(slots, saved)
    if kind is list:
        return [from_json(layout[0], member, slots) for member in saved]
    if kind is tuple:
        pairs = zip(layout, saved, strict=True)
        return tuple([from_json(part, member, slots) for part, member in pairs])
    return saved


def _is_empty(document: Json) -> bool:
    """Return whether a document is empty or contains only empty entries."""
    if isinstance(document, dict):
        return all(map(_is_empty, document.values()))
    return not document


class SavedState:
    """A part of a world with state in snapshots.

    Attributes:
        layouts: The layouts of its attributes by name; the class of another `SavedState` stands for
            its layout. The document has the same names without a leading underscore. For a single
            attribute, the document is the JSON of that attribute.
        late: The layouts of attributes that were added to version 1 of the format. The document
            contains them only while they are used, to keep older documents readable and the
            documents of other worlds unchanged.
        shape: The shape of the document.
    """

    layouts: ClassVar[Layouts] = {}
    late: ClassVar[Layouts] = {}
    shape: ClassVar[shapes.Shape]

    def __init_subclass__(cls) -> None:
        """Derive the shape, unless the class has its own."""
        super().__init_subclass__()
        if "shape" not in vars(cls):
            parts = {name: derive_shape(layout) for name, layout in cls.layouts.items()}
            late = {name: Omittable(derive_shape(layout)) for name, layout in cls.late.items()}
            cls.shape = cls._named(parts | late)

    @classmethod
    def _named(cls, parts: dict[str, Any]) -> Any:
        if len(parts) == 1:
            (only,) = parts.values()
            return only
        return {name.lstrip("_"): part for name, part in parts.items()}

    def document(self, slots: Slots) -> Json:
        """Return the state for a snapshot."""
        late = self._write(self.late, slots)
        used = {name: member for name, member in late.items() if not _is_empty(member)}
        return self._named(self._write(self.layouts, slots) | used)

    def _write(self, layouts: Layouts, slots: Slots) -> dict[str, Json]:
        return {name: to_json(at, getattr(self, name), slots) for name, at in layouts.items()}

    def restore(self, document: Json, slots: Slots) -> None:
        """Restore the result of `document`.

        Raises:
            ValueError: The snapshot is damaged.
        """
        layouts = {**self.layouts, **self.late}
        for name, layout in layouts.items():
            if name in self.late and name.lstrip("_") not in document:
                continue
            saved = document if len(layouts) == 1 else document[name.lstrip("_")]
            kept = getattr(self, name)
            if isinstance(kept, SavedState):
                kept.restore(saved, slots)
            elif isinstance(kept, dict):  # it may be shared
                kept.clear()
                kept.update(from_json(layout, saved, slots))
            elif isinstance(kept, deque):  # its length is limited
                kept.extend(from_json(layout, saved, slots))
            else:
                setattr(self, name, from_json(layout, saved, slots))
