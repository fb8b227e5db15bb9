"""Restoring a whole VM from the document that `snapshot` made."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from clawblox.luau import iteration
from clawblox.luau.chunk import FORMAT, CheckedFunction, Chunk, Prototype, environment_cell
from clawblox.luau.coroutines import Coroutine, WrapFunction
from clawblox.luau.errors import LuaError, SnapshotError
from clawblox.luau.iteration import Cursor, FunctionLoop, LoopIterator, SequenceLoop, TableLoop
from clawblox.luau.lib.registry import BUILTINS
from clawblox.luau.lib.string import MatchIterator
from clawblox.luau.snapshot import CLASS_LETTERS, NAME, Json, digest
from clawblox.luau.suspension import Frame, ProtectedFrame, ScriptFrame
from clawblox.luau.values import (
    Buffer,
    LuaTable,
    MetaTable,
    Userdata,
    Vector,
    flag,
    own_class_of_users,
    raw_set,
)

if TYPE_CHECKING:
    from clawblox.luau.host import Host
    from clawblox.luau.vm import VM

_STATUSES = ("suspended", "dead")
_TABLE_OR_NIL = (LuaTable, type(None))
_DAMAGES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    LuaError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading a document raises that no VM wrote."""
_CLASSES = {letter: cls for cls, letter in CLASS_LETTERS.items()}


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
            SnapshotError: The document is of another format or version, or damaged; a source has
                changed, or the host lacks what the document names.
        """
        _check_format(self._document)
        try:
            self._load()
        except _DAMAGES as error:
            raise SnapshotError(f"the document is damaged: {error}") from error

    def _load(self) -> None:
        document, vm = self._document, self._vm
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
        vm.globals = self._one_of(roots["globals"], LuaTable)
        vm.string_library = self._one_of(roots["string"], LuaTable)
        vm.string_metatable = self._one_of(roots["string metatable"], LuaTable)
        vm.main_environment = self._one_of(roots["environment"], LuaTable)
        vm.main_coroutine = self._one_of(roots["main"], (Coroutine, type(None)))
        vm.roots = {name: self.value(saved) for name, saved in roots["kept"].items()}
        vm.serials_given = int(document["next serial"])
        vm.random.state = int(document["random"])
        vm.has_weak_tables = "steps since collection" in document
        vm.steps_since_collection = int(document.get("steps since collection", 0))
        vm.allocated = int(document.get("allocated", 0))

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
        serial = int(serial)
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
            if saved.__class__ is str and not saved.isascii():
                saved.encode("latin-1")  # refuses characters that are no bytes
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

    def _one_of(self, saved: Json, kinds: type | tuple[type, ...]) -> Any:
        value = self.value(saved)
        if not isinstance(value, kinds):
            raise TypeError(f"a {type(value).__name__} is where it cannot be")
        return value

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
            return TableLoop(self._one_of(parts[0], LuaTable), list(map(self.key, parts[1])))
        if kind == "sequence":
            return SequenceLoop(self._one_of(parts[0], LuaTable), float(parts[1]))
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
        if kind == "checked":
            return CheckedFunction(None)  # type: ignore[arg-type]
        if kind == "coroutine":
            return Coroutine(None, None)
        if kind == "wrap":
            return WrapFunction(None)  # type: ignore[arg-type]
        if kind == "gmatch":
            return MatchIterator("", "", int(saved[3]))
        if kind == "string":
            return self._one_of(saved[1], str)
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
        elif kind == "checked":
            found.function = self._one_of(saved[1], FunctionType)
            found.function.__dict__["checked"] = found
        elif kind == "wrap":
            found.coroutine = self._one_of(saved[1], Coroutine)
        elif kind == "userdata":
            found.meta = self._one_of(saved[1], _TABLE_OR_NIL)
        elif kind == "gmatch":
            found.text, found.pattern = (self._one_of(text, str) for text in saved[1:3])

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
            table._meta = self._one_of(meta, LuaTable if letter in "mo" else _TABLE_OR_NIL)
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
        if status not in _STATUSES:
            raise ValueError(f"no saved coroutine is {status}")
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
        values = [self.value(value) for _, value in zip(continuation.names, saved[4], strict=True)]
        return ScriptFrame(continuation, values, CellType(self.value(saved[5])))


def _check_format(document: Json) -> None:
    if not isinstance(document, dict) or document.get("format") != NAME:
        raise SnapshotError("this is no snapshot of a Luau VM")
    version = document.get("version")
    if version != FORMAT:
        raise SnapshotError(f"the snapshot is of version {version}; this program reads {FORMAT}")
