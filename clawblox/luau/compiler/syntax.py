"""The syntax tree, and the scopes that bind its names to locals while the parser runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, dataclass_transform


@dataclass(slots=True, eq=False)
class Local:
    """A local variable.

    Attributes:
        ident: Its number in the chunk.
        owner: The function that declares it.
        captured: Whether another function uses it.
        is_const: Whether it is declared with ``const``; assignments are forbidden.
        writes: The number of assignments after its declaration.
        self_function: Its function, if it is declared with ``local function``.
    """

    name: str
    ident: int
    owner: FunctionBody
    line: int
    is_const: bool = False
    captured: bool = False
    writes: int = 0
    self_function: FunctionBody | None = None

    @property
    def boxed(self) -> bool:
        """True if closures share it as a box, because it is captured and assigned."""
        return self.captured and self.writes > 0


@dataclass(slots=True, eq=False)
class FunctionBody:
    """A function of a chunk, or its main function."""

    parent: FunctionBody | None
    name: str
    line: int
    index: int = 0
    params: list[Local] = field(default_factory=list)
    is_vararg: bool = False
    body: list[Statement] = field(default_factory=list)
    upvalues: dict[Local, None] = field(default_factory=dict)
    end_line: int = 0

    def captured(self) -> list[Local]:
        """Return the upvalues that the function gets on creation, except itself."""
        return [local for local in self.upvalues if local.self_function is not self or local.boxed]


@dataclass_transform(eq_default=False)
class Node:
    """A node of the syntax tree; subclasses are data classes with the line as first field.

    Attributes:
        lowerer: The name of the method that lowers such nodes, such as ``_while`` for `While`.
        parts: The names of the fields after the line.
    """

    lowerer: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        cls.lowerer = "_" + re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        dataclass(eq=False)(cls)
        cls.parts = tuple(cls.__annotations__)


class Expression(Node):
    """Any expression."""

    line: int


class Statement(Node):
    """Any statement."""

    line: int


class Constant(Expression):
    """A literal nil, boolean, number (float) or string (bytes as Latin-1 characters)."""

    value: bool | float | str | None


class Vararg(Expression):
    """The expression ``...``."""


class FunctionExpression(Expression):
    """A function literal."""

    body: FunctionBody


class LocalName(Expression):
    """A local or upvalue."""

    local: Local


class GlobalName(Expression):
    """A global."""

    name: str


class Index(Expression):
    """An access ``object[key]`` or ``object.key``."""

    object: Expression
    key: Expression


class Call(Expression):
    """A call ``function(arguments)``."""

    function: Expression
    arguments: list[Expression]


class MethodCall(Expression):
    """A method call ``object:name(arguments)``."""

    object: Expression
    name: str
    arguments: list[Expression]


def is_multiple(expression: Expression) -> bool:
    """Return whether an expression can have any number of values."""
    return isinstance(expression, (Call, MethodCall, Vararg))


class Unary(Expression):
    """A unary operation: ``-x``, ``not x`` or ``#x``."""

    operator: str
    operand: Expression


class Binary(Expression):
    """Arithmetic, comparison, ``..``, ``and`` and ``or``."""

    operator: str
    left: Expression
    right: Expression


class IfExpression(Expression):
    """An expression ``if a then b elseif c then d else e``; arms are (condition, value)."""

    arms: list[tuple[Expression, Expression]]
    otherwise: Expression


class TableLiteral(Expression):
    """A table literal ``{…}``; positional items have None as key."""

    items: list[tuple[Expression | None, Expression]]


class Interpolation(Expression):
    """A backtick string: the first text, the first value, the second text, and so on."""

    texts: list[str]
    values: list[Expression]


class Single(Expression):
    """A parenthesised or cast expression: exactly one value."""

    inner: Expression


class LocalStatement(Statement):
    """A declaration ``local a, b = …``."""

    locals: list[Local]
    values: list[Expression]


class LocalFunction(Statement):
    """A declaration ``local function f``."""

    local: Local
    function: FunctionExpression


class Assignment(Statement):
    """An assignment ``a, b.c = …``."""

    targets: list[Expression]
    values: list[Expression]


class CompoundAssignment(Statement):
    """A compound assignment such as ``a += b``."""

    operator: str
    target: Expression
    value: Expression


class CallStatement(Statement):
    """A call whose results are dropped."""

    call: Expression


class Do(Statement):
    """A block ``do … end``."""

    body: list[Statement]


class While(Statement):
    """A loop ``while c do … end``."""

    condition: Expression
    body: list[Statement]


class Repeat(Statement):
    """A loop ``repeat … until c``."""

    body: list[Statement]
    condition: Expression


class If(Statement):
    """A conditional ``if … elseif … else … end``."""

    arms: list[tuple[Expression, list[Statement]]]
    otherwise: list[Statement]

    def bodies(self) -> list[list[Statement]]:
        """Return the alternative blocks."""
        return [*(body for _, body in self.arms), self.otherwise]


class NumericFor(Statement):
    """A numeric loop ``for i = a, b, c do … end``."""

    local: Local
    start: Expression
    limit: Expression
    step: Expression | None
    body: list[Statement]


class GenericFor(Statement):
    """A generic loop ``for k, v in … do … end``."""

    locals: list[Local]
    values: list[Expression]
    body: list[Statement]


class Return(Statement):
    """A statement ``return …``."""

    values: list[Expression]


class Break(Statement):
    """A statement ``break``."""


class Continue(Statement):
    """A statement ``continue``."""


MAX_LOCALS = 200
MAX_UPVALUES = 200


@dataclass(slots=True)
class OpenLoop:
    """A loop that encloses the parser's position.

    Attributes:
        continue_line: The line of its first ``continue`` so far, or None.
        locals_before: The number of locals declared in the chunk before the ``continue``.
    """

    continue_line: int | None = None
    locals_before: int = 0


class NameScope:
    """The names visible at the parser's position, and the enclosing function."""

    def __init__(self) -> None:
        self.functions: list[FunctionBody] = []
        self.function = FunctionBody(None, "", 1)
        self.loops: list[OpenLoop] = []  # of the current function
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
        self.functions.append(body)
        outer, outer_loops = self.function, self.loops
        self.function, self.loops = body, []
        with self.enter_block():
            yield body
        self.function, self.loops = outer, outer_loops

    @contextmanager
    def enter_block(self) -> Iterator[None]:
        """Open a block; its end is the end of its locals' scope."""
        self._blocks.append([])
        yield
        for local in self._blocks.pop():
            self._bindings[local.name].pop()
            self._active[local.owner] -= 1

    @contextmanager
    def enter_loop(self) -> Iterator[OpenLoop]:
        """Open the body of a loop."""
        loop = OpenLoop()
        self.loops.append(loop)
        yield loop
        self.loops.pop()

    def note_continue(self, line: int) -> None:
        """Record a ``continue`` of the innermost loop."""
        loop = self.loops[-1]
        if loop.continue_line is None:
            loop.continue_line, loop.locals_before = line, self._next_ident

    @contextmanager
    def enter_condition(self, loop: OpenLoop) -> Iterator[list[Local]]:
        """Open the condition after a loop's body; yield the skipped locals that it uses."""
        used: list[Local] = []
        if loop.continue_line is not None:
            self._jumps.append((loop.locals_before, self._next_ident, used))
        yield used
        if loop.continue_line is not None:
            self._jumps.pop()

    def declare(self, name: str, line: int, *, is_const: bool = False) -> Local:
        """Bind a new local at the parser's position."""
        self._next_ident += 1
        local = Local(name, self._next_ident, self.function, line, is_const)
        self._bindings.setdefault(name, []).append(local)
        self._blocks[-1].append(local)
        self._active[self.function] = self._active.get(self.function, 0) + 1
        return local

    def has_room(self, count: int) -> bool:
        """Return whether the current function can have ``count`` more locals."""
        return self._active.get(self.function, 0) + count <= MAX_LOCALS

    def find(self, name: str) -> Local | None:
        """Return the local with a name, or None; mark it if another function owns it."""
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
