"""Fills a new VM from the document that `snapshot` wrote, and checks every part."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from clawblox.luau.core.errors import LuaError, VMSnapshotError
from clawblox.luau.core.iteration import Cursor
from clawblox.luau.core.limits import SIZES, STEPS_PER_COLLECTION
from clawblox.luau.core.machine import Coroutine
from clawblox.luau.core.values import (
    Buffer,
    FrozenTable,
    LuaTable,
    MetaTable,
    SlowTable,
    Userdata,
    own_user_class,
    raw_set,
)
from clawblox.luau.lib.string import MatchIterator
from clawblox.luau.runtime.chunk import (
    FORMAT,
    CheckedFunction,
    Chunk,
    environment_cell,
    find_prototype,
    is_direct,
    upvalue_cells,
)
from clawblox.luau.runtime.coroutines import WrapFunction
from clawblox.luau.runtime.host import Host, to_python
from clawblox.luau.runtime.limited import LimitedMachine
from clawblox.luau.runtime.raw import HostValue
from clawblox.luau.runtime.suspension import ScriptFrame
from clawblox.luau.state.read_frames import FrameReader
from clawblox.luau.state.read_values import HIDDEN, items, position, required, text, whole
from clawblox.luau.state.snapshot import CLASS_LETTERS, NAME, Json, digest

_STATUSES = ("suspended", "dead")
_TABLE_OR_NIL = (LuaTable, type(None))
_CLASSES = {letter: cls for cls, letter in CLASS_LETTERS.items()}
_DAMAGES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    LuaError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The errors that reading a damaged document may raise."""


class Loader(FrameReader):
    """Reads a document into a new VM.

    Since objects may refer to each other in cycles, all are created empty first and then filled.
    """

    def __init__(
        self,
        vm: LimitedMachine,
        document: Json,
        host: Host | None,
        sources: Mapping[str, str] | None,
    ) -> None:
        super().__init__(host, vm.vectors)
        self._vm = vm
        self._document = document
        self._sources = sources
        self._reading: int | None = None  # the number of an object, for errors
        self._with_meta: list[LuaTable] = []
        self._users: list[LuaTable] = []  # tables whose class was created for their metatable

    def load(self) -> None:
        """Fill the VM.

        Raises:
            VMSnapshotError: The document has another format or version, or is damaged; a source has
                changed; or the host lacks a function or object.
        """
        document = self._document
        if not isinstance(document, dict) or document.get("format") != NAME:
            raise VMSnapshotError("the document is not a snapshot of a Luau VM")
        version = document.get("version")
        if version != FORMAT:
            raise VMSnapshotError(
                f"the snapshot has version {version}; this program reads {FORMAT}"
            )
        try:
            self._load()
        except _DAMAGES as error:
            place = "" if self._reading is None else f" at object {self._reading}"
            raise VMSnapshotError(f"the document is damaged{place}: {error}") from error

    def _load(self) -> None:
        document = self._document
        self.chunks = [self._chunk(*entry) for entry in items(document["chunks"])]
        self._read_objects(items(document["objects"]))
        self._give_classes()
        for group in items(document["shared globals"]):
            self._share_globals(items(group))
        for number, serial in items(document["serials"]):
            self.object(number)._serial = whole(serial)
        self._read_machine()

    def _read_objects(self, objects: list[Json]) -> None:
        for self._reading, saved in enumerate(objects):
            self.objects.append(self._make(saved))
        # Scripts never see boxes and direct functions.
        self.values = [
            HIDDEN if item.__class__ is list or is_direct(item) else item for item in self.objects
        ]
        for self._reading, saved in enumerate(objects):
            _OBJECTS[saved[0]][1](self, self.objects[self._reading], *saved[1:])
        self._reading = None
        self.check_boxes()

    def _read_machine(self) -> None:
        document, vm = self._document, self._vm
        roots = document["roots"]
        vm.globals = self._table(roots["globals"])
        vm.string_library = self._table(roots["string"])
        vm.string_metatable = self._table(roots["string metatable"])
        vm.main_environment = self._table(roots["environment"])
        vm.main_coroutine = self.value_of_type(
            roots["main"], (Coroutine, type(None)), "coroutine or nil"
        )
        vm.roots = {text(name): self.value(saved) for name, saved in roots["kept"].items()}
        vm.serials_given = whole(document["next serial"])
        vm.random.state = whole(int(text(document["random"])), 2**64 - 1)
        vm.has_weak_tables = "steps since collection" in document
        vm.steps_since_collection = whole(
            document.get("steps since collection", 0), STEPS_PER_COLLECTION
        )
        vm.allocated = whole(document.get("allocated", 0))
        is_frozen = isinstance(vm.globals, FrozenTable)
        vm.is_sandboxed = is_frozen and document.get("sandbox") is not False
        vm.has_older_sizes = vm.allocated > 0 and document.get("sizes") != SIZES

    def _table(self, saved: Json) -> LuaTable:
        table: LuaTable = self.value_of_type(saved, LuaTable, "table")
        return table

    def _chunk(self, name: str, fingerprint: str, source: str) -> Chunk:
        if digest(source) != fingerprint:
            raise VMSnapshotError(f"the source of {name!r} in the document is damaged")
        shown = to_python(text(name))
        if self._sources is not None and shown in self._sources:
            current = self._sources[shown].encode().decode("latin-1")
            if digest(current) != fingerprint:
                raise VMSnapshotError(f"the source of {shown!r} has changed since the snapshot")
        return self._vm.compile(source, name)

    def _give_classes(self) -> None:
        """Set the classes of tables with metatables, after reading all chains of metatables."""
        for table in self._with_meta:
            if not isinstance(table._meta, SlowTable):
                raise TypeError("a metatable does not have the class of metatables")
        for table in self._users:
            assert table._meta is not None
            table.__class__ = own_user_class(table._meta)
        for number, letter in items(self._document.get("classes", [])):
            self._give_class(self.object(number), letter)

    def _give_class(self, meta: Any, letter: str) -> None:
        """Restore the class of a metatable whose users no longer exist."""
        if not isinstance(meta, SlowTable):
            raise TypeError("the users of a value that is not a metatable have a class")
        if letter == "o":
            own_user_class(meta)
        elif letter == "m" and not hasattr(meta, "_own_class"):
            meta._own_class = MetaTable
        else:
            raise ValueError(f"the users of a metatable have the class {letter!r}")

    def _share_globals(self, group: list[Json]) -> None:
        frames: list[ScriptFrame] = []
        functions: list[Any] = []
        for member in group:
            if member.__class__ is int:
                functions.append(self.object(member))
                continue
            coroutine, at = member
            item = self.object(coroutine).frames[whole(at)]
            if not isinstance(item, ScriptFrame):
                raise TypeError("a frame without globals shares them")
            frames.append(item)
        owners = [find_prototype(function) for function in functions]
        owners += [frame.continuation.prototype for frame in frames]
        if len(functions) > 1 or None in owners or len(set(owners)) != 1:
            raise ValueError("different functions share their globals")
        cell = environment_cell(functions[0]) if functions else frames[0].environment
        if cell is None:
            raise ValueError("a function without globals shares them")
        for frame in frames:
            frame.environment = cell

    # Objects: created empty

    def _make(self, saved: Json) -> Any:
        if saved[0] not in _OBJECTS:
            raise VMSnapshotError(f"the document has an object of unknown kind {saved[0]!r}")
        return _OBJECTS[saved[0]][0](self, saved)

    def _make_function(self, saved: Json) -> FunctionType:
        prototype = self.prototype(saved[1], saved[2])
        make = prototype.chunk.namespace[f"M{prototype.index}"]
        function: FunctionType = make(*[None] * len(prototype.upvalues))
        return function

    def _make_buffer(self, saved: Json) -> Buffer:
        return Buffer(bytearray(base64.b64decode(text(saved[1]), validate=True)))

    def _make_value(self, saved: Json) -> HostValue:
        name = text(saved[1])
        value_type = self._host.value_types.get(name)
        return required(value_type, f"the host has no type of values {name!r}").empty()

    # Objects: filled

    def _fill_table(
        self,
        table: LuaTable,
        letter: str,
        meta: Json,
        values: list[Json],
        pairs: list[Json],
        extra: Json = None,
    ) -> None:
        value = self.value
        table.update(
            zip(map(float, range(1, len(values) + 1)), map(value, items(values)), strict=True)
        )
        items(pairs)
        for key, item in zip(pairs[::2], pairs[1::2], strict=True):
            if key.__class__ is not str or not key.isascii():
                key = self.key(key)
            raw_set(table, key, value(item))
        if None in values or None in pairs:
            raise ValueError("a table holds nil")
        if extra is not None:
            self._fill_extra(table, extra)
        if letter:
            self._fill_class(table, letter, meta)
        elif meta is not None:
            raise ValueError("a table has a metatable that its class does not allow")

    def _fill_class(self, table: LuaTable, letter: str, meta: Json) -> None:
        # Before the class, since a collection in another thread expects it in tables of the class.
        table._meta = (
            self._table(meta)
            if letter in "mo"
            else self.value_of_type(meta, _TABLE_OR_NIL, "table or nil")
        )
        table.__class__ = _CLASSES.get(letter, MetaTable)
        if table._meta is not None:
            self._with_meta.append(table)
        if letter == "o":
            self._users.append(table)
        elif letter == "m" and not hasattr(table._meta, "_own_class"):
            assert table._meta is not None
            table._meta._own_class = MetaTable
        elif letter not in _CLASSES:
            raise ValueError(f"unknown class of table {letter!r}")

    def _fill_extra(self, table: LuaTable, extra: dict[str, Json]) -> None:
        if "border" in extra:
            table._hint = position(self.value(extra["border"]))
        if "next" in extra:
            at, *keys = extra["next"]
            cursor = table._cursor = Cursor(list(map(self.key, keys)))
            cursor.position = whole(at, len(keys))

    def _fill_box(self, box: list[Any], saved: Json) -> None:
        box[0] = self.value(saved)

    def _fill_function(self, function: FunctionType, _: Json, __: Json, saved: Json) -> None:
        prototype = find_prototype(function)
        assert prototype is not None
        cells = upvalue_cells(function, prototype)
        for (name, cell), upvalue in zip(cells.items(), items(saved), strict=True):
            cell.cell_contents = (
                self._table(upvalue) if name == "E" else self.held(prototype, name, upvalue)
            )

    def _fill_checked(self, checked: CheckedFunction, saved: Json) -> None:
        function = self.referenced(saved)
        if not is_direct(function) or "checked" in function.__dict__:
            raise ValueError("a function is checked twice, or needs no check")
        checked.function = function
        function.__dict__["checked"] = checked

    def _fill_coroutine(
        self,
        coroutine: Coroutine,
        status: str,
        function: Json,
        environment: Json,
        frames: list[Json],
        error: Json,
    ) -> None:
        is_dead = status == "dead"
        if status not in _STATUSES or (is_dead and (function or frames)) or (function and frames):
            raise ValueError(f"a coroutine with status {status!r} cannot have these parts")
        coroutine.status = status
        coroutine.function = self.value(function)
        coroutine.environment = self._table(environment)
        coroutine.frames = self.frames(frames)
        if error is not None:
            value, trace, *raiser = error
            coroutine.error = LuaError(self.value(value))
            coroutine.error.traceback = text(trace)
            if raiser:
                (coroutine.error.raiser,) = map(text, raiser)

    def _fill_wrap(self, function: WrapFunction, saved: Json) -> None:
        function.coroutine = self.value_of_type(saved, Coroutine, "coroutine")

    def _fill_matches(
        self, matches: MatchIterator, subject: Json, pattern: Json, position: Json
    ) -> None:
        matches.text = self.value_of_type(subject, str, "string")
        matches.pattern = self.value_of_type(pattern, str, "string")
        matches.position = whole(position, len(matches.text) + 1)

    def _fill_userdata(self, userdata: Userdata, saved: Json) -> None:
        userdata.meta = self.value_of_type(saved, _TABLE_OR_NIL, "table or nil")

    def _fill_value(self, value: HostValue, name: Json, saved: Json) -> None:
        values = list(map(self.value, items(saved)))
        try:
            value.fill(*values)
        except Exception as error:
            raise VMSnapshotError(f"the host refuses the contents of a {name}: {error}") from error

    def _keep(self, *_: Json) -> None:
        """Do nothing, since the object is already complete."""


_OBJECTS: dict[str, tuple[Callable[[Loader, Json], Any], Callable[..., None]]] = {
    "table": (lambda _, __: LuaTable(), Loader._fill_table),
    "box": (lambda _, __: [None], Loader._fill_box),
    "function": (Loader._make_function, Loader._fill_function),
    "checked": (lambda _, __: CheckedFunction(None), Loader._fill_checked),  # type: ignore[arg-type]
    "coroutine": (lambda _, __: Coroutine(None, None), Loader._fill_coroutine),
    "wrap": (lambda _, __: WrapFunction(None), Loader._fill_wrap),  # type: ignore[arg-type]
    "gmatch": (lambda _, __: MatchIterator("", ""), Loader._fill_matches),
    "string": (lambda _, saved: text(saved[1]), Loader._keep),
    "userdata": (lambda _, __: Userdata(None), Loader._fill_userdata),
    "value": (Loader._make_value, Loader._fill_value),
    "buffer": (Loader._make_buffer, Loader._keep),
}
"""The functions that create an empty object and fill it, by kind."""
