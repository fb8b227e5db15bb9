"""The syntax tree, with every name already bound to a local, an upvalue or a global."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Local:
    """A local variable.

    Attributes:
        ident: Its number in the chunk.
        owner: The function that declares it.
        captured: Whether another function uses it.
        writes: The number of assignments after its declaration.
        self_function: The function it names, if ``local function`` declares it.
    """

    name: str
    ident: int
    owner: FunctionBody
    line: int
    captured: bool = False
    writes: int = 0
    self_function: FunctionBody | None = None

    @property
    def boxed(self) -> bool:
        """Whether closures share it as a box: it is captured, and changes after that."""
        return self.captured and self.writes > 0


@dataclass(slots=True, eq=False)
class FunctionBody:
    """One function of a chunk, the main function included."""

    parent: FunctionBody | None
    name: str
    line: int
    index: int = 0
    params: list[Local] = field(default_factory=list)
    is_vararg: bool = False
    body: list[Statement] = field(default_factory=list)
    upvalues: dict[Local, None] = field(default_factory=dict)
    children: list[FunctionBody] = field(default_factory=list)
    end_line: int = 0


@dataclass(slots=True, eq=False)
class Node:
    """A part of the tree with a place in the source."""

    line: int


class Expression(Node):
    """Any expression."""

    __slots__ = ()


class Statement(Node):
    """Any statement."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class Constant(Expression):
    """A literal nil, boolean, number (float) or string (bytes as Latin-1 characters)."""

    value: bool | float | str | None


@dataclass(slots=True, eq=False)
class Vararg(Expression):
    """``...``."""


@dataclass(slots=True, eq=False)
class FunctionExpression(Expression):
    """A function literal."""

    body: FunctionBody


@dataclass(slots=True, eq=False)
class LocalName(Expression):
    """A local or upvalue."""

    local: Local


@dataclass(slots=True, eq=False)
class GlobalName(Expression):
    """A global."""

    name: str


@dataclass(slots=True, eq=False)
class Index(Expression):
    """``object[key]`` and ``object.key``."""

    object: Expression
    key: Expression


@dataclass(slots=True, eq=False)
class Call(Expression):
    """``function(arguments)``."""

    function: Expression
    arguments: list[Expression]


@dataclass(slots=True, eq=False)
class MethodCall(Expression):
    """``object:name(arguments)``."""

    object: Expression
    name: str
    arguments: list[Expression]


@dataclass(slots=True, eq=False)
class Unary(Expression):
    """``-x``, ``not x``, ``#x``."""

    operator: str
    operand: Expression


@dataclass(slots=True, eq=False)
class Binary(Expression):
    """Arithmetic, comparison, ``..``, ``and`` and ``or``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(slots=True, eq=False)
class IfExpression(Expression):
    """``if a then b elseif c then d else e``; arms are (condition, value)."""

    arms: list[tuple[Expression, Expression]]
    otherwise: Expression


@dataclass(slots=True, eq=False)
class TableLiteral(Expression):
    """``{…}``; a positional item has no key."""

    items: list[tuple[Expression | None, Expression]]


@dataclass(slots=True, eq=False)
class Interpolation(Expression):
    """A backtick string: the first text, the first value, the second text, and so on."""

    texts: list[str]
    values: list[Expression]


@dataclass(slots=True, eq=False)
class Single(Expression):
    """A parenthesised or cast expression: exactly one value."""

    inner: Expression


@dataclass(slots=True, eq=False)
class LocalStatement(Statement):
    """``local a, b = …``."""

    locals: list[Local]
    values: list[Expression]


@dataclass(slots=True, eq=False)
class LocalFunction(Statement):
    """``local function f``."""

    local: Local
    function: FunctionExpression


@dataclass(slots=True, eq=False)
class Assignment(Statement):
    """``a, b.c = …``."""

    targets: list[Expression]
    values: list[Expression]


@dataclass(slots=True, eq=False)
class CompoundAssignment(Statement):
    """``a += b``."""

    operator: str
    target: Expression
    value: Expression


@dataclass(slots=True, eq=False)
class CallStatement(Statement):
    """A call whose results are dropped."""

    call: Expression


@dataclass(slots=True, eq=False)
class Do(Statement):
    """``do … end``."""

    body: list[Statement]


@dataclass(slots=True, eq=False)
class While(Statement):
    """``while c do … end``."""

    condition: Expression
    body: list[Statement]


@dataclass(slots=True, eq=False)
class Repeat(Statement):
    """``repeat … until c``."""

    body: list[Statement]
    condition: Expression


@dataclass(slots=True, eq=False)
class If(Statement):
    """``if … elseif … else … end``."""

    arms: list[tuple[Expression, list[Statement]]]
    otherwise: list[Statement]


@dataclass(slots=True, eq=False)
class NumericFor(Statement):
    """``for i = a, b, c do … end``."""

    local: Local
    start: Expression
    limit: Expression
    step: Expression | None
    body: list[Statement]


@dataclass(slots=True, eq=False)
class GenericFor(Statement):
    """``for k, v in … do … end``."""

    locals: list[Local]
    values: list[Expression]
    body: list[Statement]


@dataclass(slots=True, eq=False)
class Return(Statement):
    """``return …``."""

    values: list[Expression]


@dataclass(slots=True, eq=False)
class Break(Statement):
    """``break``."""


@dataclass(slots=True, eq=False)
class Continue(Statement):
    """``continue``."""
