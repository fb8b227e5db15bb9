"""Restoring a whole VM from the document that `snapshot` made."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from clawblox.luau.compiler.codegen.variables import Variable
from clawblox.luau.core import iteration
from clawblox.luau.core.errors import LuaError, SnapshotError
from clawblox.luau.core.iteration import Cursor, FunctionLoop, LoopIterator, SequenceLoop, TableLoop
from clawblox.luau.core.limits import STEPS_A_COLLECTION
from clawblox.luau.core.operators import make_vector
from clawblox.luau.core.values import (
    Buffer,
    LuaTable,
    MetaTable,
    SlowTable,
    Userdata,
    check_key,
    flag,
    own_class_of_users,
    raw_set,
)
from clawblox.luau.lib.string import MatchIterator
from clawblox.luau.lib.support.registry import BUILTINS
from clawblox.luau.runtime.chunk import (
    FORMAT,
    CheckedFunction,
    Chunk,
    Prototype,
    environment_cell,
    is_direct,
    prototype_of,
)
from clawblox.luau.runtime.coroutines import Coroutine, WrapFunction
from clawblox.luau.runtime.host import to_python
from clawblox.luau.runtime.suspension import Frame, ProtectedFrame, ScriptFrame
from clawblox.luau.state.checks import check_kind, items, position, text, whole
from clawblox.luau.state.snapshot import CLASS_LETTERS, NAME, Json, digest

if TYPE_CHECKING:
    from clawblox.luau.runtime.host import Host
    from clawblox.luau.vm import VM

_HIDDEN = object()
_UNUSUAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
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
        self._values: list[Any] = []  # the same, without what is no value of a script
        self._with_meta: list[LuaTable] = []
        self._users: list[LuaTable] = []  # tables whose class is made for their metatable
        self._boxes: list[tuple[list[Any], Variable]] = []
        self._owners: dict[int, tuple[Chunk, str]] = {}  # which local a box belongs to

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
        self._chunks = [self._chunk(*entry) for entry in items(document["chunks"])]
        objects = items(document["objects"])
        self._objects = [self._shell(saved) for saved in objects]
        self._values = [_HIDDEN if _is_hidden(found) else found for found in self._objects]
        for found, saved in zip(self._objects, objects, strict=True):
            self._fill(found, saved)
        for box, variable in self._boxes:
            check_kind(variable.kind, box[0])
        self._give_classes()
        for group in items(document["shared globals"]):
            self._share_globals(items(group))
        for number, serial in items(document["serials"]):
            self._set_serial(self._object(number), whole(serial))
        roots = document["roots"]
        vm.globals = self._one_of(roots["globals"], LuaTable)
        vm.string_library = self._one_of(roots["string"], LuaTable)
        vm.string_metatable = self._one_of(roots["string metatable"], LuaTable)
        vm.main_environment = self._one_of(roots["environment"], LuaTable)
        vm.main_coroutine = self._one_of(roots["main"], (Coroutine, type(None)))
        vm.roots = {text(name): self.value(saved) for name, saved in roots["kept"].items()}
        vm.serials_given = whole(document["next serial"])
        vm.random.state = whole(int(text(document["random"])), 2**64 - 1)
        vm.has_weak_tables = "steps since collection" in document
        vm.steps_since_collection = whole(
            document.get("steps since collection", 0), STEPS_A_COLLECTION
        )
        vm.allocated = whole(document.get("allocated", 0))

    def _give_classes(self) -> None:
        """Give tables with metatables their classes; all chains of metatables are known now."""
        for table in self._with_meta:
            if not isinstance(table._meta, SlowTable):
                raise TypeError("a table is a metatable and does not know it")
        for table in self._users:
            assert table._meta is not None
            table.__class__ = own_class_of_users(table._meta)

    def _share_globals(self, group: list[Json]) -> None:
        frames: list[ScriptFrame] = []
        functions: list[Any] = []
        for member in group:
            if member.__class__ is int:
                functions.append(self._object(member))
                continue
            coroutine, at = member
            found = self._object(coroutine).frames[whole(at)]
            if not isinstance(found, ScriptFrame):
                raise TypeError("a frame without globals shares them")
            frames.append(found)
        owners = [prototype_of(function) for function in functions]
        owners += [frame.continuation.prototype for frame in frames]
        if len(functions) > 1 or None in owners or len(set(owners)) != 1:
            raise ValueError("different functions share their globals")
        cell = environment_cell(functions[0]) if functions else frames[0].environment
        if cell is None:
            raise ValueError("a function without globals shares them")
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
        shown = to_python(text(name))
        if self._sources is not None and shown in self._sources:
            current = self._sources[shown].encode().decode("latin-1")
            if digest(current) != fingerprint:
                raise SnapshotError(f"the source of {shown!r} has changed since the snapshot")
        return self._vm.compile(source, name)

    def _object(self, number: Json) -> Any:
        return self._objects[whole(number)]

    def value(self, saved: Json) -> Any:
        """Return the Luau value that stands in the document."""
        kind = saved.__class__
        if kind is float or kind is bool or saved is None:
            return saved
        if kind is str:
            return saved if saved.isascii() else text(saved)
        if kind is int:
            return float(saved)
        if kind is not list:
            raise TypeError(f"a {kind.__name__} is where a value belongs")
        kind = saved[0]
        if kind == "r":
            found = self._values[whole(saved[1])]
            if found is _HIDDEN:
                raise TypeError(f"object {saved[1]} is where a value belongs")
            return found
        if kind == "b":
            return self._builtin(saved[1])
        if kind == "n":
            return _UNUSUAL[saved[1]]
        if kind == "v":
            x, y, z = (self._one_of(part, float) for part in saved[1:])
            return make_vector(x, y, z)
        if kind == "h":
            return self._host_function(text(saved[1]))
        if kind == "o":
            return self._host_object(text(saved[1]), text(saved[2]))
        raise SnapshotError(f"the document has a value of unknown kind {kind!r}")

    def _one_of(self, saved: Json, kinds: type | tuple[type, ...]) -> Any:
        value = self.value(saved)
        if not isinstance(value, kinds):
            raise TypeError(f"a {type(value).__name__} is where it cannot be")
        return value

    def key(self, saved: Json) -> Any:
        """Return a table key."""
        key = flag(saved) if saved.__class__ is bool else self.value(saved)
        check_key(key)
        return key

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

    # Objects

    def _prototype(self, chunk: Json, index: Json) -> Prototype:
        return self._chunks[whole(chunk)].prototypes[whole(index)]

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
            return MatchIterator("", "")
        if kind == "string":
            return text(saved[1])
        if kind == "userdata":
            return Userdata(None)
        if kind == "buffer":
            return Buffer(bytearray(base64.b64decode(text(saved[1]), validate=True)))
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
            self._fill_checked(found, saved[1])
        elif kind == "wrap":
            found.coroutine = self._one_of(saved[1], Coroutine)
        elif kind == "userdata":
            found.meta = self._one_of(saved[1], _TABLE_OR_NIL)
        elif kind == "gmatch":
            found.text, found.pattern = (self._one_of(part, str) for part in saved[1:3])
            found.position = whole(saved[3], len(found.text) + 1)

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
        if not letter:
            if meta is not None:
                raise ValueError("a table has a metatable that its class does not allow")
            return
        # First: a table of such a class has one, also for a collection in another thread.
        table._meta = self._one_of(meta, LuaTable if letter in "mo" else _TABLE_OR_NIL)
        table.__class__ = _CLASSES.get(letter, MetaTable)
        if table._meta is not None:
            self._with_meta.append(table)
        if letter == "o":
            self._users.append(table)
        elif letter == "m" and not hasattr(table._meta, "_own_class"):
            assert table._meta is not None
            table._meta._own_class = MetaTable
        elif letter not in _CLASSES:
            raise ValueError(f"no table is of class {letter!r}")

    def _fill_extra(self, table: LuaTable, extra: dict[str, Json]) -> None:
        if "border" in extra:
            table._hint = position(self.value(extra["border"]))
        if "next" in extra:
            at, *keys = extra["next"]
            cursor = table._cursor = Cursor(list(map(self.key, keys)))
            cursor.position = whole(at, len(keys))

    def _fill_checked(self, found: CheckedFunction, saved: Json) -> None:
        function = self._referred(saved)
        if not is_direct(function) or "checked" in function.__dict__:
            raise ValueError("a function is checked without need, or twice")
        found.function = function
        function.__dict__["checked"] = found

    def _fill_function(self, function: FunctionType, saved: Json) -> None:
        prototype = self._prototype(saved[1], saved[2])
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        names = [name for name in prototype.upvalues if name in cells]
        for name, upvalue in zip(names, items(saved[3]), strict=True):
            cells[name].cell_contents = (
                self._one_of(upvalue, LuaTable)
                if name == "E"
                else self._held(prototype, name, upvalue)
            )

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
            raise ValueError(f"no saved coroutine is {status!r} like this")
        coroutine.status = status
        coroutine.function = self.value(function)
        coroutine.environment = self._one_of(environment, LuaTable)
        coroutine.frames = [self._frame(frame) for frame in items(frames)]
        _check_calls(coroutine.frames)
        if error is not None:
            value, trace = error
            coroutine.error = LuaError(self.value(value))
            coroutine.error.traceback = text(trace)

    # Frames, and the variables of functions

    def _frame(self, saved: Json) -> Frame:
        if saved == ["pcall"]:
            return ProtectedFrame(None)
        if saved[0] == "xpcall":
            handler = self.value(saved[1])
            check_kind("func", handler)
            return ProtectedFrame(handler)
        kind, chunk, index, ordinal, variables, environment = saved
        if kind != "call":
            raise ValueError(f"no frame is a {kind!r}")
        prototype = self._prototype(chunk, index)
        continuation = prototype.continuation(whole(ordinal))
        held = {
            name: self._held(prototype, name, value, continuation.site.key)
            for name, value in zip(continuation.names, items(variables), strict=True)
        }
        _check_loops(prototype, held)
        cell = CellType(self._one_of(environment, LuaTable))
        return ScriptFrame(continuation, list(held.values()), cell)

    def _held(self, prototype: Prototype, name: str, saved: Json, key: str = "") -> Any:
        """Return what a variable of a function holds; ``key`` is one that stands for a call."""
        variable = prototype.variables[name]
        if variable.is_boxed:
            return self._box(prototype, name, saved)
        if variable.function is not None:
            function = self._referred(saved)
            if prototype_of(function) is not prototype.chunk.prototypes[variable.function]:
                raise TypeError(f"{name} holds another function")
            return function
        if name == key:
            if saved != ["c"]:
                raise ValueError(f"{name} does not stand for a call")
            return iteration.CALL
        if variable.kind == "loop":
            kind, *parts = saved
            if kind != "l":
                raise TypeError(f"{name} is no loop")
            return self._loop(*parts)
        if variable.kind == "arm":
            kind, number = saved
            if kind != "i":
                raise TypeError(f"{name} holds no number of a branch")
            return whole(number)
        is_tuple = saved.__class__ is list and saved[0] == "t"
        if variable.kind == "arguments" or (variable.kind == "many" and is_tuple):
            if not is_tuple:
                raise TypeError(f"{name} holds no arguments")
            return tuple(map(self.value, saved[1:]))
        value = self.value(saved)
        check_kind(variable.kind, value)
        return value

    def _box(self, prototype: Prototype, name: str, saved: Json) -> Any:
        """Return a box; it belongs to one local, whose kind is that of all it may hold."""
        box = self._referred(saved)
        owner = (prototype.chunk, name)
        if box.__class__ is not list or self._owners.setdefault(id(box), owner) != owner:
            raise TypeError(f"{name} holds no box of its own")
        self._boxes.append((box, prototype.variables[name]))
        return box

    def _referred(self, saved: Json) -> Any:
        kind, number = saved
        if kind != "r":
            raise TypeError(f"{kind!r} is where an object belongs")
        return self._object(number)

    def _loop(self, kind: str, *parts: Json) -> LoopIterator:
        if kind == "table":
            table, keys = parts
            return TableLoop(self._one_of(table, LuaTable), list(map(self.key, items(keys))))
        if kind == "sequence":
            table, control = parts
            return SequenceLoop(self._one_of(table, LuaTable), position(self.value(control)))
        if kind != "function":
            raise ValueError(f"no loop is a {kind!r}")
        return FunctionLoop(*map(self.value, parts))


def _is_hidden(found: Any) -> bool:
    """Return whether an object is no value of a script: a box, or a direct function."""
    return found.__class__ is list or is_direct(found)


def _check_calls(frames: list[Frame]) -> None:
    """Check that a call of a direct function waits for that function: it trusts the result."""
    for at, frame in enumerate(frames):
        if not isinstance(frame, ScriptFrame) or frame.continuation.site.callee is None:
            continue
        callee = frame.continuation.prototype.chunk.prototypes[frame.continuation.site.callee]
        inner = frames[at + 1] if at + 1 < len(frames) else None
        if not isinstance(inner, ScriptFrame) or inner.continuation.prototype is not callee:
            raise ValueError(f"a call of {callee.name!r} waits for something else")


def _check_loops(prototype: Prototype, held: dict[str, Any]) -> None:
    """Check the keys at which loops are."""
    for name, value in held.items():
        variable = prototype.variables[name]
        if variable.kind != "key":
            continue
        loop = held[variable.loop]
        if value is iteration.CALL and not isinstance(loop, FunctionLoop):
            raise TypeError(f"{name} stands for a call that its loop does not make")
        if isinstance(loop, SequenceLoop):
            position(value)


def _check_format(document: Json) -> None:
    if not isinstance(document, dict) or document.get("format") != NAME:
        raise SnapshotError("this is no snapshot of a Luau VM")
    version = document.get("version")
    if version != FORMAT:
        raise SnapshotError(f"the snapshot is of version {version}; this program reads {FORMAT}")
