"""Saving and restoring a whole VM as a JSON-able document.

A document refers to objects by their number, which is the order in which they are found from the
roots: a restored VM saved again gives the same document. `docs/luau.md` says how it reads.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from clawblox.luau import iteration
from clawblox.luau.chunk import FORMAT, Chunk, Prototype, environment_cell, prototype_of
from clawblox.luau.coroutines import Coroutine, WrapFunction
from clawblox.luau.errors import LuaError, SnapshotError
from clawblox.luau.host import HostFunction, HostObject
from clawblox.luau.iteration import Cursor, FunctionLoop, LoopIterator, SequenceLoop, TableLoop
from clawblox.luau.lib.registry import BUILTINS
from clawblox.luau.lib.string import MatchIterator
from clawblox.luau.suspension import Frame, ProtectedFrame, ScriptFrame
from clawblox.luau.values import (
    Buffer,
    Flag,
    FrozenTable,
    LuaTable,
    MetaTable,
    SlowTable,
    Userdata,
    Vector,
    flag,
    own_class_of_users,
    raw_set,
)

if TYPE_CHECKING:
    from clawblox.luau.host import Host
    from clawblox.luau.vm import VM

NAME = "clawblox.luau"
_CLASS_LETTERS: dict[type, str] = {LuaTable: "", MetaTable: "m", SlowTable: "s", FrozenTable: "f"}
_CLASSES = {letter: cls for cls, letter in _CLASS_LETTERS.items()}

Json = Any


def digest(source: str) -> str:
    """Return the fingerprint by which a document knows a source."""
    return hashlib.sha256(source.encode("latin-1")).hexdigest()


class Saver:
    """Writes one document."""

    def __init__(self, vm: VM) -> None:
        self._vm = vm
        self._numbers: dict[int, int] = {}
        self._found: list[Any] = []
        self._chunks: dict[int, int] = {}
        self._sources: list[Json] = []

    def save(self) -> Json:
        """Return the document."""
        vm = self._vm
        roots = {
            "globals": self.value(vm.globals),
            "string": self.value(vm.string_library),
            "string metatable": self.value(vm.string_metatable),
            "environment": self.value(vm.main_environment),
            "main": self.value(vm.main_coroutine),
            "kept": {name: self.value(vm.roots[name]) for name in sorted(vm.roots)},
        }
        objects = [self._object(found) for found in self._found]  # which grows meanwhile
        return {
            "format": NAME,
            "version": FORMAT,
            "chunks": self._sources,
            "objects": objects,
            "roots": roots,
            "shared globals": self._shared_globals(),
            "serials": self._serials(),
            "next serial": vm.serials_given,
            "random": str(vm.random.state),
        }

    def _shared_globals(self) -> list[Json]:
        """Return the groups of functions and suspended calls whose globals change together."""
        users: dict[int, list[Json]] = {}
        for number, found in enumerate(self._found):
            if isinstance(found, FunctionType):
                cell = environment_cell(found)
                if cell is not None:
                    users.setdefault(id(cell), []).append(number)
            elif found.__class__ is Coroutine:
                for position, frame in enumerate(found.frames):
                    if isinstance(frame, ScriptFrame):
                        users.setdefault(id(frame.environment), []).append([number, position])
        return [group for group in users.values() if len(group) > 1]

    def _serials(self) -> list[Json]:
        serials = []
        for number, found in enumerate(self._found):
            if isinstance(found, FunctionType):
                serial = found.__dict__.get("serial")
            else:
                serial = getattr(found, "_serial", None)
            if serial is not None:
                serials.append([number, serial])
        return serials

    def value(self, value: Any) -> Json:
        """Return a value as it stands in the document."""
        kind = value.__class__
        if value is None or kind is bool or kind is str:
            return value
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
        name = BUILTINS.name_of(value) if kind is FunctionType else None
        if name is not None:
            return ["b", name]
        if isinstance(value, HostObject):
            return ["o", value.host_type.name, value.ident]
        return self._inner_value(value)

    def _inner_value(self, value: Any) -> Json:
        """Return what only frames hold, or a reference to an object."""
        if value.__class__ is int:
            return ["i", value]
        if value.__class__ is tuple:
            return ["t", *map(self.value, value)]
        if value is iteration.CALL:
            return ["c"]
        if isinstance(value, LoopIterator):
            return self._loop(value)
        number = self._numbers[id(value)] = len(self._found)
        self._found.append(value)
        return ["r", number]

    def _loop(self, loop: LoopIterator) -> Json:
        if isinstance(loop, TableLoop):
            return ["l", "table", self.value(loop.state), list(map(self.value, loop.rest()))]
        if isinstance(loop, SequenceLoop):
            return ["l", "sequence", self.value(loop.state), loop.control]
        parts = (loop.function, loop.state, loop.control)
        return ["l", "function", *map(self.value, parts)]

    def _object(self, found: Any) -> Json:
        if isinstance(found, LuaTable):
            return self._table(found)
        if found.__class__ is list:
            return ["box", self.value(found[0])]
        if isinstance(found, FunctionType):
            return self._function(found)
        if found.__class__ is Coroutine:
            return self._coroutine(found)
        if found.__class__ is WrapFunction:
            return ["wrap", self.value(found.coroutine)]
        if found.__class__ is MatchIterator:
            return ["gmatch", found.text, found.pattern, found.position]
        if found.__class__ is Userdata:
            return ["userdata", self.value(found.meta)]
        if found.__class__ is Buffer:
            return ["buffer", base64.b64encode(found.data).decode("ascii")]
        raise SnapshotError(f"a {type(found).__name__} cannot be saved")

    def _table(self, table: LuaTable) -> Json:
        keys = list(table)
        size = _sequence_size(keys)
        value = self.value
        values = list(map(value, table.values()))
        pairs: list[Json] = []
        for key, item in zip(keys[size:], values[size:], strict=True):
            pairs.append(value(key))
            pairs.append(item)
        saved = ["table", _letter(table), value(table.meta), values[:size], pairs]
        extra = self._table_extra(table)
        return [*saved, extra] if extra else saved

    def _table_extra(self, table: LuaTable) -> Json:
        extra = {}
        hint = getattr(table, "_hint", None)
        if hint is not None:
            extra["border"] = hint
        cursor: Cursor | None = getattr(table, "_cursor", None)
        if cursor is not None:
            extra["next"] = [cursor.position, *map(self.value, cursor.keys)]
        return extra

    def _chunk(self, chunk: Chunk) -> int:
        number = self._chunks.get(id(chunk))
        if number is None:
            number = self._chunks[id(chunk)] = len(self._sources)
            self._sources.append([chunk.name, digest(chunk.source), chunk.source])
        return number

    def _function(self, function: FunctionType) -> Json:
        prototype = prototype_of(function)
        if prototype is None:
            raise SnapshotError(
                f"the function {function.__qualname__} is not registered with the host"
            )
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        upvalues = [
            self.value(cells[name].cell_contents) for name in prototype.upvalues if name in cells
        ]
        return ["function", self._chunk(prototype.chunk), prototype.index, upvalues]

    def _coroutine(self, coroutine: Coroutine) -> Json:
        if coroutine.status in ("running", "normal"):
            raise SnapshotError("a VM cannot be saved while a coroutine runs")
        error = coroutine.error
        return [
            "coroutine",
            coroutine.status,
            self.value(coroutine.function),
            self.value(coroutine.environment),
            [self._frame(frame) for frame in coroutine.frames],
            None if error is None else [self.value(error.value), error.traceback],
        ]

    def _frame(self, frame: Frame) -> Json:
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


def _letter(table: LuaTable) -> str:
    """Return what a document calls a table's class."""
    return _CLASS_LETTERS.get(table.__class__, "o")


def _sequence_size(keys: list[Any]) -> int:
    """Return how many keys are 1, 2, 3, … from the start."""
    size = 0
    for size, key in enumerate(keys):
        if key != size + 1 or key.__class__ is not float:
            return size
    return size + 1 if keys else 0


class Loader:
    """Reads one document into a new VM."""

    def __init__(
        self, vm: VM, document: Json, host: Host | None, sources: Mapping[str, str] | None
    ) -> None:
        self._vm = vm
        self._document = document
        self._host = host
        self._sources = sources
        self._chunks: list[Chunk] = []
        self._objects: list[Any] = []
        self._users: list[LuaTable] = []  # tables whose class is made for their metatable

    def load(self) -> None:
        """Fill the VM.

        Raises:
            SnapshotError: The document is of another format or version, a source has changed, or
                the host lacks what the document names.
        """
        document, vm = self._document, self._vm
        _check_format(document)
        self._chunks = [self._chunk(*entry) for entry in document["chunks"]]
        self._objects = [self._shell(saved) for saved in document["objects"]]
        for found, saved in zip(self._objects, document["objects"], strict=True):
            self._fill(found, saved)
        for table in self._users:
            assert table._meta is not None
            table.__class__ = own_class_of_users(table._meta)
        for group in document["shared globals"]:
            self._share_globals(group)
        for number, serial in document["serials"]:
            self._set_serial(self._objects[number], serial)
        roots = document["roots"]
        vm.globals = self.value(roots["globals"])
        vm.string_library = self.value(roots["string"])
        vm.string_metatable = self.value(roots["string metatable"])
        vm.main_environment = self.value(roots["environment"])
        vm.main_coroutine = self.value(roots["main"])
        vm.roots = {name: self.value(saved) for name, saved in roots["kept"].items()}
        vm.serials_given = document["next serial"]
        vm.random.state = int(document["random"])

    def _share_globals(self, group: list[Json]) -> None:
        frames = [
            self._objects[member[0]].frames[member[1]]
            for member in group
            if member.__class__ is list
        ]
        functions = [self._objects[member] for member in group if member.__class__ is int]
        cell = environment_cell(functions[0]) if functions else frames[0].environment
        for frame in frames:
            frame.environment = cell

    def _set_serial(self, found: Any, serial: int) -> None:
        if isinstance(found, FunctionType):
            found.__dict__["serial"] = serial
        else:
            found._serial = serial

    def _chunk(self, name: str, fingerprint: str, source: str) -> Chunk:
        if digest(source) != fingerprint:
            raise SnapshotError(f"the source of {name!r} in the document is damaged")
        if self._sources is not None and name in self._sources:
            current = self._sources[name].encode().decode("latin-1")
            if digest(current) != fingerprint:
                raise SnapshotError(f"the source of {name!r} has changed since the snapshot")
        return self._vm.compile(source, name)

    def value(self, saved: Json) -> Any:
        """Return the value that stands in the document."""
        if saved.__class__ is not list:
            return float(saved) if saved.__class__ is int else saved
        kind = saved[0]
        if kind == "r":
            return self._objects[saved[1]]
        if kind == "b":
            return self._builtin(saved[1])
        if kind == "n":
            return float(saved[1])
        if kind == "v":
            return Vector(*map(self.value, saved[1:]))
        if kind == "h":
            return self._host_function(saved[1])
        if kind == "o":
            return self._host_object(saved[1], saved[2])
        if kind == "i":
            return saved[1]
        if kind == "t":
            return tuple(map(self.value, saved[1:]))
        if kind == "c":
            return iteration.CALL
        if kind == "l":
            return self._loop(*saved[1:])
        raise SnapshotError(f"the document has a value of unknown kind {kind!r}")

    def key(self, saved: Json) -> Any:
        """Return a table key."""
        return flag(saved) if saved.__class__ is bool else self.value(saved)

    def _builtin(self, name: str) -> Any:
        function = BUILTINS.find(name)
        if function is None:
            raise SnapshotError(f"the document uses an unknown built-in function {name!r}")
        return function

    def _host_function(self, name: str) -> Any:
        function = None if self._host is None else self._host.functions.get(name)
        if function is None:
            raise SnapshotError(f"the host has no function {name!r}")
        return function

    def _host_object(self, kind: str, ident: str) -> Any:
        found = None if self._host is None else self._host.find_object(ident)
        if found is None:
            raise SnapshotError(f"the host has no {kind} with the id {ident!r}")
        return found

    def _loop(self, kind: str, *parts: Json) -> LoopIterator:
        if kind == "table":
            return TableLoop(self.value(parts[0]), list(map(self.key, parts[1])))
        if kind == "sequence":
            return SequenceLoop(self.value(parts[0]), float(parts[1]))
        return FunctionLoop(*map(self.value, parts))

    def _prototype(self, chunk: int, index: int) -> Prototype:
        return self._chunks[chunk].prototypes[index]

    def _shell(self, saved: Json) -> Any:
        kind = saved[0]
        if kind == "table":
            return LuaTable()
        if kind == "box":
            return [None]
        if kind == "function":
            prototype = self._prototype(saved[1], saved[2])
            make = prototype.chunk.namespace[f"M{prototype.index}"]
            return make(*[None] * len(prototype.upvalues))
        if kind == "coroutine":
            return Coroutine(None, None)
        if kind == "wrap":
            return WrapFunction(None)  # type: ignore[arg-type]
        if kind == "gmatch":
            return MatchIterator(*saved[1:])
        if kind == "userdata":
            return Userdata(None)
        if kind == "buffer":
            return Buffer(bytearray(base64.b64decode(saved[1])))
        raise SnapshotError(f"the document has an object of unknown kind {kind!r}")

    def _fill(self, found: Any, saved: Json) -> None:
        kind = saved[0]
        if kind == "table":
            self._fill_table(found, *saved[1:])
        elif kind == "box":
            found[0] = self.value(saved[1])
        elif kind == "function":
            self._fill_function(found, saved)
        elif kind == "coroutine":
            self._fill_coroutine(found, *saved[1:])
        elif kind == "wrap":
            found.coroutine = self.value(saved[1])
        elif kind == "userdata":
            found.meta = self.value(saved[1])

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
        table.update(zip(map(float, range(1, len(values) + 1)), map(value, values), strict=True))
        for key, item in zip(pairs[::2], pairs[1::2], strict=True):
            raw_set(table, self.key(key), value(item))
        if extra:
            if "border" in extra:
                table._hint = float(extra["border"])
            if "next" in extra:
                position, *keys = extra["next"]
                cursor = table._cursor = Cursor(list(map(self.key, keys)))
                cursor.position = position
        if letter:
            table._meta = value(meta)
            if letter == "o":
                self._users.append(table)
                return
            table.__class__ = _CLASSES[letter]
            if letter == "m" and not hasattr(table._meta, "_own_class"):
                table._meta._own_class = MetaTable

    def _fill_function(self, function: FunctionType, saved: Json) -> None:
        prototype = self._prototype(saved[1], saved[2])
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        names = [name for name in prototype.upvalues if name in cells]
        for name, upvalue in zip(names, saved[3], strict=True):
            cells[name].cell_contents = self.value(upvalue)

    def _fill_coroutine(
        self,
        coroutine: Coroutine,
        status: str,
        function: Json,
        environment: Json,
        frames: list[Json],
        error: Json,
    ) -> None:
        coroutine.status = status
        coroutine.function = self.value(function)
        coroutine.environment = self.value(environment)
        coroutine.frames = [self._frame(frame) for frame in frames]
        if error is not None:
            coroutine.error = LuaError(self.value(error[0]))
            coroutine.error.traceback = error[1]

    def _frame(self, saved: Json) -> Frame:
        if saved[0] == "pcall":
            return ProtectedFrame(None)
        if saved[0] == "xpcall":
            return ProtectedFrame(self.value(saved[1]))
        continuation = self._prototype(saved[1], saved[2]).continuation(saved[3])
        values = list(map(self.value, saved[4]))
        return ScriptFrame(continuation, values, CellType(self.value(saved[5])))


def _check_format(document: Json) -> None:
    if not isinstance(document, dict) or document.get("format") != NAME:
        raise SnapshotError("this is no snapshot of a Luau VM")
    version = document.get("version")
    if version != FORMAT:
        raise SnapshotError(f"the snapshot is of version {version}; this program reads {FORMAT}")
