"""Writes the whole state of a VM as a JSON-able document for `restore`.

A document numbers objects in the order in which they are found from the roots, so a restored VM
gives the same document again. `docs/luau.md` describes the format.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

from clawblox.luau.core import iteration
from clawblox.luau.core.errors import VMSnapshotError
from clawblox.luau.core.iteration import Cursor, FunctionLoop, LoopIterator, SequenceLoop, TableLoop
from clawblox.luau.core.limits import SHORT_TEXT, SIZES
from clawblox.luau.core.machine import Coroutine, SuspendedFrame
from clawblox.luau.core.values import (
    Buffer,
    Flag,
    FrozenTable,
    LuaTable,
    MetaTable,
    SlowTable,
    Userdata,
    Vector,
    has_own_class,
)
from clawblox.luau.lib.string import MatchIterator
from clawblox.luau.lib.support.registry import BUILTINS
from clawblox.luau.runtime.chunk import (
    FORMAT,
    CheckedFunction,
    Chunk,
    environment_cell,
    find_prototype,
    upvalue_cells,
)
from clawblox.luau.runtime.coroutines import WrapFunction
from clawblox.luau.runtime.host import HostFunction, HostObject
from clawblox.luau.runtime.limited import LimitedMachine
from clawblox.luau.runtime.raw import HostValue, raw_name
from clawblox.luau.runtime.suspension import ProtectedFrame, ScriptFrame

NAME = "clawblox.luau"
CLASS_LETTERS: dict[type, str] = {LuaTable: "", MetaTable: "m", SlowTable: "s", FrozenTable: "f"}
"""Letters of table classes in a document; `o` is a class created for a metatable."""

Json = Any

_NO_CONTENTS = (int, tuple, list, dict, bytes)
_TRACES = ("_serial", "_cursor", "_own_class")
"""Attributes that the use of a table or value sets."""


class Saver:
    """Writes a document.

    Args:
        vm: The VM.

    Attributes:
        lent: The host's objects in the document, each once.
    """

    def __init__(self, vm: LimitedMachine) -> None:
        self.lent: dict[int, HostObject] = {}
        self._vm = vm
        self._numbers: dict[int, int] = {}
        self._entries: list[Any] = []
        self._objects: list[Json] = []
        self._texts: dict[str, int] = {}
        self._chunks: dict[int, int] = {}
        self._sources: list[Json] = []

    def write_document(self) -> Json:
        """Return the document.

        Raises:
            VMSnapshotError: A coroutine is running, or a value that the host has not registered is
                reachable.
        """
        vm = self._vm
        roots = {
            "globals": self.value(vm.globals),
            "string": self.value(vm.string_library),
            "string metatable": self.value(vm.string_metatable),
            "environment": self.value(vm.main_environment),
            "main": self.value(vm.main_coroutine),
            "kept": {name: self.value(vm.roots[name]) for name in sorted(vm.roots)},
        }
        self._write_objects()
        self._link_late()
        document = {
            "format": NAME,
            "version": FORMAT,
            "chunks": self._sources,
            "objects": self._objects,
            "roots": roots,
            "shared globals": self._shared_globals(),
            "serials": self._serials(),
            "next serial": vm.serials_given,
            "random": str(vm.random.state),
        }
        if classes := self._classes():
            document["classes"] = classes
        if isinstance(vm.globals, FrozenTable) and not vm.is_sandboxed:
            document["sandbox"] = False
        if vm.has_weak_tables:
            document["steps since collection"] = vm.steps_since_collection
        if vm.allocated:
            document["allocated"] = vm.allocated
            if not vm.has_older_sizes and not vm.inherited:
                document["sizes"] = SIZES
        return document

    def _write_objects(self) -> None:
        while len(self._objects) < len(self._entries):  # the list grows during the loop
            self._objects.append(self._object(self._entries[len(self._objects)]))

    def _link_late(self) -> None:
        """Add the late libraries and values that scripts hold or have used."""
        for table, names in self._vm.late.items():
            for key, value in names.items():
                if self._is_touched(value):
                    self._objects[self._numbers[table]][4] += (key, self.value(value))
                    self._write_objects()

    def _is_touched(self, value: Any) -> bool:
        parts = (value, *value.values()) if isinstance(value, LuaTable) else (value,)
        return any(
            id(part) in self._numbers or any(hasattr(part, trace) for trace in _TRACES)
            for part in parts
        )

    def _shared_globals(self) -> list[Json]:
        """Return the groups of functions and suspended calls with shared globals."""
        users: dict[int, list[Json]] = {}
        for number, entry in enumerate(self._entries):
            if isinstance(entry, FunctionType):
                cell = environment_cell(entry)
                if cell is not None:
                    users.setdefault(id(cell), []).append(number)
            elif entry.__class__ is Coroutine:
                for position, frame in enumerate(entry.frames):
                    if isinstance(frame, ScriptFrame):
                        users.setdefault(id(frame.environment), []).append([number, position])
        return [group for group in users.values() if len(group) > 1]

    def _classes(self) -> list[Json]:
        """Return the metatables whose users' class cannot be derived from the users found.

        Former users matter, because the second use of a metatable costs steps.
        """
        tables = [entry for entry in self._entries if isinstance(entry, LuaTable)]
        used = {id(table.meta) for table in tables if _letter(table) == "m"}
        shared = {id(table.meta) for table in tables if _letter(table) == "o"}
        classes = []
        for number, entry in enumerate(self._entries):
            if not isinstance(entry, SlowTable) or not hasattr(entry, "_own_class"):
                continue
            is_shared = has_own_class(entry)
            if id(entry) not in (shared if is_shared else used):
                classes.append([number, "o" if is_shared else "m"])
        return classes

    def _serials(self) -> list[Json]:
        serials = [getattr(entry, "_serial", None) for entry in self._entries]
        return [[number, serial] for number, serial in enumerate(serials) if serial is not None]

    def value(self, value: Any) -> Json:
        """Return the form of a value in the document."""
        kind = value.__class__
        if value is None or kind is bool:
            return value
        if kind is str:
            return value if len(value) <= SHORT_TEXT else self._long_text(value)
        if kind is float:
            return value if math.isfinite(value) else ["n", repr(value)]
        number = self._numbers.get(id(value))
        if number is not None:
            return ["r", number]
        if kind is Flag:
            return value.value
        if kind is Vector:
            return ["v", *(self.value(part) for part in (value.x, value.y, value.z))]
        if kind is HostFunction:
            return ["h", value.name]
        if kind is FunctionType:
            name = BUILTINS.find_name(value)
            if name is not None:
                return ["b", name]
            name = raw_name(value)
            if name is not None:
                return ["h", name]
        if isinstance(value, HostObject):
            self.lent[id(value)] = value
            return ["o", value.host_type.name, value.ident]
        return self._inner_value(value)

    def _inner_value(self, value: Any) -> Json:
        """Return the form of a value that occurs only in frames, or a reference to an object."""
        if value.__class__ is int:
            return ["i", value]
        if value.__class__ is tuple:
            return ["t", *map(self.value, value)]
        if value is iteration.CALL:
            return ["c"]
        if isinstance(value, LoopIterator):
            return self._loop(value)
        number = self._numbers[id(value)] = len(self._entries)
        self._entries.append(value)
        return ["r", number]

    def _long_text(self, text: str) -> Json:
        """Return a reference to a string; the document contains the string once."""
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._entries)
            self._entries.append(text)
        return ["r", number]

    def _loop(self, loop: LoopIterator) -> Json:
        if isinstance(loop, TableLoop):
            return ["l", "table", self.value(loop.state), list(map(self.value, loop.rest()))]
        if isinstance(loop, SequenceLoop):
            return ["l", "sequence", self.value(loop.state), loop.control]
        assert isinstance(loop, FunctionLoop)
        parts = (loop.function, loop.state, loop.control)
        return ["l", "function", *map(self.value, parts)]

    def _object(self, entry: Any) -> Json:
        if isinstance(entry, LuaTable):
            return self._table(entry)
        if isinstance(entry, FunctionType):
            return self._function(entry)
        if isinstance(entry, HostValue):
            return self._host_value(entry)
        save = _SAVERS.get(entry.__class__)
        if save is None:
            raise VMSnapshotError(f"{type(entry).__name__}: a value of this type cannot be saved")
        return save(self, entry)

    def _host_value(self, entry: HostValue) -> Json:
        contents = entry.contents()
        for part in contents:
            if part.__class__ in _NO_CONTENTS:
                raise VMSnapshotError(
                    f"{entry.type_name}: its contents have a Python {type(part).__name__}, "
                    "which is not a Luau value"
                )
        return ["value", entry.type_name, list(map(self.value, contents))]

    def _table(self, table: LuaTable) -> Json:
        entries = self._vm.early_entries(table) if id(table) in self._vm.late else table
        keys = list(entries)
        size = _sequence_size(keys)
        value = self.value
        values = list(map(value, entries.values()))
        pairs: list[Json] = []
        for key, item in zip(keys[size:], values[size:], strict=True):
            pairs += (value(key), item)
        saved = ["table", _letter(table), value(table.meta), values[:size], pairs]
        extra: dict[str, Json] = {}
        if hint := getattr(table, "_hint", 0.0):
            extra["border"] = hint
        cursor: Cursor | None = getattr(table, "_cursor", None)
        if cursor is not None:
            extra["next"] = [cursor.position, *map(self.value, cursor.keys)]
        return [*saved, extra] if extra else saved

    def _chunk(self, chunk: Chunk) -> int:
        number = self._chunks.get(id(chunk))
        if number is None:
            number = self._chunks[id(chunk)] = len(self._sources)
            self._sources.append([chunk.name, digest(chunk.source), chunk.source])
        return number

    def _function(self, function: FunctionType) -> Json:
        prototype = find_prototype(function)
        if prototype is None:
            raise VMSnapshotError(
                f"{function.__qualname__}: this Python function is not registered with the host"
            )
        cells = upvalue_cells(function, prototype)
        upvalues = [self.value(cell.cell_contents) for cell in cells.values()]
        return ["function", self._chunk(prototype.chunk), prototype.index, upvalues]

    def _coroutine(self, coroutine: Coroutine) -> Json:
        if coroutine.status in ("running", "normal"):
            raise VMSnapshotError("a VM cannot be saved while a coroutine runs")
        error = coroutine.error
        raiser = [error.raiser] if error is not None and error.raiser else []
        return [
            "coroutine",
            coroutine.status,
            self.value(coroutine.function),
            self.value(coroutine.environment),
            [self._frame(frame) for frame in coroutine.frames],
            None if error is None else [self.value(error.value), error.traceback, *raiser],
        ]

    def _frame(self, frame: SuspendedFrame) -> Json:
        if isinstance(frame, ProtectedFrame):
            return ["pcall"] if frame.handler is None else ["xpcall", self.value(frame.handler)]
        assert isinstance(frame, ScriptFrame)
        continuation = frame.continuation
        prototype = continuation.prototype
        return [
            "call",
            self._chunk(prototype.chunk),
            prototype.index,
            continuation.site.ordinal,
            list(map(self.value, frame.values)),
            self.value(frame.environment.cell_contents),
        ]


_SAVERS: dict[type, Callable[[Saver, Any], Json]] = {
    str: lambda _, text: ["string", text],
    list: lambda saver, box: ["box", saver.value(box[0])],
    Coroutine: Saver._coroutine,
    CheckedFunction: lambda saver, checked: ["checked", saver.value(checked.function)],
    WrapFunction: lambda saver, wrap: ["wrap", saver.value(wrap.coroutine)],
    MatchIterator: lambda saver, matches: [
        "gmatch", saver.value(matches.text), saver.value(matches.pattern), matches.position,
    ],
    Userdata: lambda saver, userdata: ["userdata", saver.value(userdata.meta)],
    Buffer: lambda _, buffer: ["buffer", base64.b64encode(buffer.data).decode("ascii")],
}  # fmt: skip


def digest(source: str) -> str:
    """Return the fingerprint of a source for documents."""
    return hashlib.sha256(source.encode("latin-1")).hexdigest()


def _letter(table: LuaTable) -> str:
    """Return the letter of a table's class."""
    return CLASS_LETTERS.get(table.__class__, "o")


def _sequence_size(keys: list[Any]) -> int:
    """Return the number of leading keys that are 1, 2, 3, and so on."""
    size = 0
    for size, key in enumerate(keys):
        if key != size + 1 or key.__class__ is not float:
            return size
    return size + 1 if keys else 0
