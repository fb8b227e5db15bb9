"""Reads suspended calls and their variables, checking the kinds that generated code relies on."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

from clawblox.luau.compiler.ir import Variable
from clawblox.luau.core import iteration
from clawblox.luau.core.iteration import FunctionLoop, LoopIterator, SequenceLoop, TableLoop
from clawblox.luau.core.machine import SuspendedFrame
from clawblox.luau.core.values import LuaTable
from clawblox.luau.runtime.chunk import Chunk, Prototype, find_prototype
from clawblox.luau.runtime.host import Host
from clawblox.luau.runtime.raw import VectorType
from clawblox.luau.runtime.suspension import ProtectedFrame, ScriptFrame
from clawblox.luau.state.read_values import ValueReader, check_kind, items, position, whole
from clawblox.luau.state.snapshot import Json


class FrameReader(ValueReader):
    """Reads frames and variables.

    For a damaged document, every method raises VMSnapshotError, LuaError, TypeError, ValueError or
    LookupError.
    """

    def __init__(self, host: Host | None, vectors: VectorType) -> None:
        super().__init__(host, vectors)
        self._boxes: list[tuple[list[Any], Variable]] = []
        self._owners: dict[int, tuple[Chunk, str]] = {}  # the local of a box

    def frames(self, saved: Json) -> list[SuspendedFrame]:
        """Return the frames of a coroutine.

        Raises:
            TypeError, ValueError, LookupError: The document is damaged.
        """
        frames = [self._frame(frame) for frame in items(saved)]
        _check_calls(frames)
        return frames

    def held(self, prototype: Prototype, name: str, saved: Json, key: str = "") -> Any:
        """Return the value of a variable of a function.

        Args:
            prototype: The function.
            name: The variable.
            saved: The value in the document.
            key: The key of the loop if the function is suspended in a call of the loop's iterator.

        Raises:
            TypeError, ValueError, LookupError: Generated code never stores such a value in the
                variable.
        """
        variable = prototype.variables[name]
        if variable.is_boxed:
            return self._box(prototype, name, saved)
        if variable.function is not None:
            function = self.referenced(saved)
            if find_prototype(function) is not prototype.chunk.prototypes[variable.function]:
                raise TypeError(f"{name} holds another function")
            return function
        if name == key:
            if saved != ["c"]:
                raise ValueError(f"{name} is not the mark of a call")
            return iteration.CALL
        if variable.kind in _SPECIAL:
            return _SPECIAL[variable.kind](self, name, saved)
        if variable.kind == "many" and saved.__class__ is list and saved[0] == "t":
            return self._arguments(name, saved)
        value = self.value(saved)
        check_kind(variable.kind, value)
        return value

    def check_boxes(self) -> None:
        """Check the contents of the boxes, after all objects are read.

        Raises:
            TypeError: The contents of a box do not fit its variable.
        """
        for box, variable in self._boxes:
            check_kind(variable.kind, box[0])

    def _frame(self, saved: Json) -> SuspendedFrame:
        if saved == ["pcall"]:
            return ProtectedFrame(None)
        if saved[0] == "xpcall":
            handler = self.value(saved[1])
            check_kind("func", handler)
            return ProtectedFrame(handler)
        kind, chunk, index, ordinal, variables, environment = saved
        if kind != "call":
            raise ValueError(f"unknown kind of frame {kind!r}")
        prototype = self.prototype(chunk, index)
        continuation = prototype.continuation(whole(ordinal))
        held = {
            name: self.held(prototype, name, value, continuation.site.key)
            for name, value in zip(continuation.names, items(variables), strict=True)
        }
        _check_loops(prototype, held)
        cell = CellType(self.value_of_type(environment, LuaTable, "table"))
        return ScriptFrame(continuation, list(held.values()), cell)

    def _box(self, prototype: Prototype, name: str, saved: Json) -> Any:
        """Return a box after checking that it belongs to a single local."""
        box = self.referenced(saved)
        owner = (prototype.chunk, name)
        if box.__class__ is not list or self._owners.setdefault(id(box), owner) != owner:
            raise TypeError(f"{name} holds no box of its own")
        self._boxes.append((box, prototype.variables[name]))
        return box

    def _arguments(self, name: str, saved: Json) -> tuple[Any, ...]:
        if saved.__class__ is not list or saved[0] != "t":
            raise TypeError(f"{name} holds no arguments")
        return tuple(map(self.value, saved[1:]))

    def _arm(self, name: str, saved: Json) -> int:
        kind, number = saved
        if kind != "i":
            raise TypeError(f"{name} holds no number of a branch")
        return whole(number)

    def _loop(self, name: str, saved: Json) -> LoopIterator:
        mark, kind, *parts = saved
        if mark != "l":
            raise TypeError(f"{name} holds no loop")
        if kind == "table":
            table, keys = parts
            keys = list(map(self.key, items(keys)))
            return TableLoop(self.value_of_type(table, LuaTable, "table"), keys)
        if kind == "sequence":
            table, control = parts
            table = self.value_of_type(table, LuaTable, "table")
            return SequenceLoop(table, position(self.value(control)))
        if kind != "function":
            raise ValueError(f"unknown kind of loop {kind!r}")
        return FunctionLoop(*map(self.value, parts))


_SPECIAL: dict[str, Callable[[FrameReader, str, Json], Any]] = {
    "loop": FrameReader._loop,
    "arm": FrameReader._arm,
    "arguments": FrameReader._arguments,
}
"""Readers for the kinds of variables that never contain script values."""


def _check_calls(frames: list[SuspendedFrame]) -> None:
    """Check that a call of a direct function, whose result is trusted, waits for this function."""
    for at, frame in enumerate(frames):
        if not isinstance(frame, ScriptFrame) or frame.continuation.site.callee is None:
            continue
        callee = frame.continuation.prototype.chunk.prototypes[frame.continuation.site.callee]
        inner = frames[at + 1] if at + 1 < len(frames) else None
        if not isinstance(inner, ScriptFrame) or inner.continuation.prototype is not callee:
            raise ValueError(f"a call of {callee.name!r} waits for something else")


def _check_loops(prototype: Prototype, held: dict[str, Any]) -> None:
    """Check the current keys of loops."""
    for name, value in held.items():
        variable = prototype.variables[name]
        if variable.kind != "key":
            continue
        loop = held[variable.loop]
        if value is iteration.CALL and not isinstance(loop, FunctionLoop):
            raise TypeError(f"{name} refers to a call that the loop does not contain")
        if isinstance(loop, SequenceLoop):
            position(value)
