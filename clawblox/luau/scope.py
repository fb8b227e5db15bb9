"""Binds names to locals while the parser runs; refuses what Luau's registers cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clawblox.luau.syntax import FunctionBody, Local

MAX_LOCALS = 200
MAX_UPVALUES = 200


class Scope:
    """The names visible at the parser's place, and the function it is in."""

    def __init__(self) -> None:
        self.functions: list[FunctionBody] = []
        self.function = FunctionBody(None, "", 1)
        self.loop_depth = 0
        self._bindings: dict[str, list[Local]] = {}
        self._blocks: list[list[Local]] = []
        self._active: dict[FunctionBody, int] = {}
        self._next_ident = 0

    @contextmanager
    def enter_function(self, name: str, line: int) -> Iterator[FunctionBody]:
        """Open a function inside the current one."""
        parent = self.function if self.functions else None
        body = FunctionBody(parent, name, line, index=len(self.functions))
        if parent is not None:
            parent.children.append(body)
        self.functions.append(body)
        outer, outer_depth = self.function, self.loop_depth
        self.function, self.loop_depth = body, 0
        with self.enter_block():
            yield body
        self.function, self.loop_depth = outer, outer_depth

    @contextmanager
    def enter_block(self) -> Iterator[None]:
        """Open a block; its locals end with it."""
        self._blocks.append([])
        yield
        for local in self._blocks.pop():
            self._bindings[local.name].pop()
            self._active[local.owner] -= 1

    def declare(self, name: str, line: int) -> Local:
        """Bind a new local from here on."""
        local = self.make(name, line)
        self.bind(local)
        return local

    def make(self, name: str, line: int) -> Local:
        """Return a local that is not visible yet."""
        self._next_ident += 1
        return Local(name, self._next_ident, self.function, line)

    def bind(self, local: Local) -> bool:
        """Make a local visible; False where the function has too many."""
        self._bindings.setdefault(local.name, []).append(local)
        self._blocks[-1].append(local)
        count = self._active.get(local.owner, 0) + 1
        self._active[local.owner] = count
        return count <= MAX_LOCALS

    def has_room(self, count: int) -> bool:
        """Return whether the current function can take ``count`` more locals."""
        return self._active.get(self.function, 0) + count <= MAX_LOCALS

    def find(self, name: str) -> Local | None:
        """Return the local a name means, and note the capture if another function owns it."""
        visible = self._bindings.get(name)
        if not visible:
            return None
        local = visible[-1]
        function: FunctionBody | None = self.function
        while function is not None and function is not local.owner:
            local.captured = True
            function.upvalues[local] = None
            function = function.parent
        return local

    def upvalues_fit(self) -> bool:
        """Return whether the current function's upvalues stay within the limit."""
        return len(self.function.upvalues) <= MAX_UPVALUES
