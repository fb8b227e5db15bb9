"""Binds names to locals while the parser runs, within the limits of Luau's registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clawblox.luau.compiler.grammar.syntax import FunctionBody, Local

MAX_LOCALS = 200
MAX_UPVALUES = 200


@dataclass(slots=True)
class Loop:
    """A loop around the parser's place.

    Attributes:
        continue_line: The line of its first ``continue``; None while it has no such statement.
        locals_before: The number of locals that the chunk has declared before that.
    """

    continue_line: int | None = None
    locals_before: int = 0


class Scope:
    """The names visible at the parser's place, and the function it is in."""

    def __init__(self) -> None:
        self.functions: list[FunctionBody] = []
        self.function = FunctionBody(None, "", 1)
        self.loops: list[Loop] = []  # of the current function
        self._bindings: dict[str, list[Local]] = {}
        self._blocks: list[list[Local]] = []
        self._active: dict[FunctionBody, int] = {}
        self._next_ident = 0
        self._jumps: list[tuple[int, int, list[Local]]] = []

    @contextmanager
    def enter_function(self, name: str, line: int) -> Iterator[FunctionBody]:
        """Open a function inside the current one."""
        parent = self.function if self.functions else None
        body = FunctionBody(parent, name, line, index=len(self.functions))
        if parent is not None:
            parent.children.append(body)
        self.functions.append(body)
        outer, outer_loops = self.function, self.loops
        self.function, self.loops = body, []
        with self.enter_block():
            yield body
        self.function, self.loops = outer, outer_loops

    @contextmanager
    def enter_block(self) -> Iterator[None]:
        """Open a block; its locals end with it."""
        self._blocks.append([])
        yield
        for local in self._blocks.pop():
            self._bindings[local.name].pop()
            self._active[local.owner] -= 1

    @contextmanager
    def enter_loop(self) -> Iterator[Loop]:
        """Open the body of a loop."""
        loop = Loop()
        self.loops.append(loop)
        yield loop
        self.loops.pop()

    def note_continue(self, line: int) -> None:
        """Note a ``continue`` of the innermost loop."""
        loop = self.loops[-1]
        if loop.continue_line is None:
            loop.continue_line, loop.locals_before = line, self._next_ident

    @contextmanager
    def enter_condition(self, loop: Loop) -> Iterator[list[Local]]:
        """Open the condition behind a loop's body; give the skipped locals that it uses."""
        used: list[Local] = []
        if loop.continue_line is not None:
            self._jumps.append((loop.locals_before, self._next_ident, used))
        yield used
        if loop.continue_line is not None:
            self._jumps.pop()

    def declare(self, name: str, line: int) -> Local:
        """Bind a new local from here on."""
        local = self.make(name, line)
        self.bind(local)
        return local

    def make(self, name: str, line: int) -> Local:
        """Return a new local that is not visible yet."""
        self._next_ident += 1
        return Local(name, self._next_ident, self.function, line)

    def bind(self, local: Local) -> bool:
        """Make a local visible; return False if the function now has too many."""
        self._bindings.setdefault(local.name, []).append(local)
        self._blocks[-1].append(local)
        count = self._active.get(local.owner, 0) + 1
        self._active[local.owner] = count
        return count <= MAX_LOCALS

    def has_room(self, count: int) -> bool:
        """Return whether the current function can have ``count`` more locals."""
        return self._active.get(self.function, 0) + count <= MAX_LOCALS

    def find(self, name: str) -> Local | None:
        """Return the local that a name means, or None; mark it if another function owns it."""
        visible = self._bindings.get(name)
        if not visible:
            return None
        local = visible[-1]
        for before, last, used in self._jumps:
            if before < local.ident <= last:
                used.append(local)
        function: FunctionBody | None = self.function
        while function is not None and function is not local.owner:
            local.captured = True
            function.upvalues[local] = None
            function = function.parent
        return local

    def upvalues_fit(self) -> bool:
        """Return whether the current function's upvalues stay within the limit."""
        return len(self.function.upvalues) <= MAX_UPVALUES
