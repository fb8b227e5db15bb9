"""The state of lowering a function, and shared parts: output, order of evaluation, fields.

Each call is a separate statement, identified by its line. A value that is computed before a call
and needed afterwards is first pinned to a temporary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from clawblox.luau.compiler import syntax as ast
from clawblox.luau.compiler.infer import NumberLocals, children
from clawblox.luau.compiler.ir import Block, CodeBranch, CodeLine, Site, Variable
from clawblox.luau.core.limits import CHARGED_COPY, LONG_TEXT, Charge


@dataclass(slots=True)
class Lowered:
    """A lowered expression.

    Attributes:
        text: A Python expression for exactly one Luau value.
        kind: Its type: num, str, bool, nil, table, func, or any if unknown.
        stable: Whether it may be evaluated later, even after a call.
        simple: Whether it may be evaluated twice.
        constant: Whether it is a literal.
        short: Whether it is a string of numbers and short literals.
        literal: The Luau value of a literal.
    """

    text: str
    kind: str
    stable: bool = False
    simple: bool = False
    constant: bool = False
    short: bool = False
    literal: Any = None

    @property
    def may_be_nil(self) -> bool:
        """True if the value can be nil."""
        return self.kind in ("any", "nil")


_COMPONENTS = ("X", "Y", "Z")  # of vectors


def is_short(value: Lowered) -> bool:
    """Return whether a string is certainly shorter than `LONG_TEXT`."""
    return len(value.text) < LONG_TEXT if value.constant else value.short


def key_text(key: Lowered) -> str:
    """Return the text of a string or number as a key."""
    return key.text if key.kind == "num" or is_short(key) else f"as_key({key.text})"


def _charged_tuple(name: str) -> str:
    """Return the text of a tuple; copying a large tuple is charged."""
    return f"({name} if len({name}) <= {CHARGED_COPY} else hold({name}))"


class Lowering:
    """The state of lowering one function."""

    def __init__(
        self,
        body: ast.FunctionBody,
        numbers: NumberLocals,
        kinds: dict[ast.Local, str],
        charge: Charge,
    ) -> None:
        self.charge = charge
        self.body = body
        self.numbers = numbers
        self.kinds = kinds
        self.block: Block = []
        self.sites: list[Site] = []
        self.variables: dict[str, Variable] = {}
        self.visible: list[str] = []
        self.show("va", Variable("arguments"))
        self.show(f"F{body.index}", Variable("func", function=body.index))
        for local in body.upvalues:
            self.show_local(local)
        self.assigned: list[str] = []  # the temporaries that expressions set
        self.break_flags: list[str] = [""]
        self.loop_names: set[str] = set()
        self.hidden_count = 0
        self.line = body.line
        self._temporaries = 0
        self._calls: dict[ast.Node, bool] = {}

    def emit(self, text: str, line: int) -> None:
        """Append a statement that cannot be suspended."""
        self.block.append(CodeLine(text, line))

    def emit_site(
        self, call: str, target: str | None, line: int, *, is_return: bool = False, **facts: Any
    ) -> None:
        """Append a call; `facts` are the optional fields of its `Site`."""
        site = Site(len(self.sites), target, is_return, frozenset(self.visible), **facts)
        self.sites.append(site)
        start = "return " if is_return else f"{target} = " if target else ""
        self.block.append(CodeLine(start + call, line, site))

    @contextmanager
    def sub_block(self) -> Iterator[Block]:
        """Collect the emitted code in a separate block."""
        outer, self.block = self.block, []
        yield self.block
        self.block = outer

    def show(self, name: str, variable: Variable) -> None:
        """Put a variable in scope."""
        self.visible.append(name)
        self.variables[name] = variable

    def show_local(self, local: ast.Local) -> None:
        """Put a local in scope."""
        variable = Variable(self.local_kind(local), is_boxed=local.boxed)
        if local in self.numbers.direct.calls:
            function = self.numbers.direct.bodies[local].index
            variable = Variable("func", is_boxed=local.boxed, function=function)
        self.show(self.local_name(local), variable)

    def local_kind(self, local: ast.Local) -> str:
        """Return the kind of a local."""
        if local in self.numbers.numbers:
            return "num"
        return "any" if local.boxed else self.kinds.get(local, "any")

    def temporary(self, kind: str = "any") -> str:
        """Return a new temporary for values of a kind."""
        self._temporaries += 1
        name = f"t{self._temporaries}"
        self.variables[name] = Variable(kind, is_temporary=True)
        return name

    def pin(self, value: Lowered, line: int) -> Lowered:
        """Evaluate a value now, into a temporary."""
        if value.constant:
            return value
        name = self.temporary(value.kind)
        self.emit(f"{name} = {value.text}", line)
        return Lowered(name, value.kind, stable=True, simple=True)

    def force(self, value: Lowered, line: int) -> Lowered:
        """Store a literal in a variable, since Python warns about operations that always fail."""
        return self.pin(Lowered(value.text, "any"), line)

    def settle(self, value: Lowered) -> Lowered:
        """Return a value that may be evaluated later, even after a call."""
        return value if value.stable else self.pin(value, self.line)

    def twice(self, value: Lowered) -> tuple[str, str]:
        """Return the text that evaluates a value, and the text for using the result again."""
        if value.simple:
            return value.text, value.text
        name = self.temporary(value.kind)
        self.assigned.append(name)
        return f"({name} := {value.text})", name

    def local_name(self, local: ast.Local) -> str:
        """Return the Python variable of a local in this function."""
        if local.self_function is self.body and not local.boxed:
            return f"F{self.body.index}"
        return f"{local.name}_{local.ident}"

    def has_call(self, expression: ast.Node) -> bool:
        """Return whether evaluating an expression calls a function."""
        if expression not in self._calls:
            self._calls[expression] = self._find_call(expression)
        return self._calls[expression]

    def _find_call(self, expression: ast.Node) -> bool:
        if isinstance(expression, (ast.Call, ast.MethodCall)):
            return True
        for part in children(expression):  # noqa: SIM110 - a generator takes C stack per level
            if self.has_call(part):
                return True
        return False

    def ordered(self, expressions: list[ast.Expression]) -> list[Lowered]:
        """Lower expressions to texts that can be used together afterwards.

        Raises:
            LuaError: `charge` refuses.
        """
        last_call = max(
            (index for index, part in enumerate(expressions) if self.has_call(part)), default=-1
        )
        values = []
        for index, part in enumerate(expressions):
            value = self.expression(part)
            values.append(self.settle(value) if index < last_call else value)
        return values

    def value_list(self, expressions: list[ast.Expression]) -> tuple[str, bool]:
        """Return the text of an argument list, and whether its last argument is spread.

        Raises:
            LuaError: `charge` refuses.
        """
        if not expressions or not ast.is_multiple(expressions[-1]):
            return ", ".join(value.text for value in self.ordered(expressions)), False
        texts = [value.text for value in self._before(expressions)]
        return ", ".join([*texts, f"*{self.spread(expressions[-1])}"]), True

    def _before(self, expressions: list[ast.Expression]) -> list[Lowered]:
        """Lower all expressions except the last, which may contain a call."""
        *firsts, last = expressions
        values = self.ordered(firsts)
        return list(map(self.settle, values)) if self.has_call(last) else values

    def spread(self, expression: ast.Expression) -> str:
        """Lower an expression with any number of values to the text of a tuple.

        Raises:
            LuaError: `charge` refuses.
        """
        if isinstance(expression, ast.Vararg):
            return _charged_tuple("va")
        result = self.call(expression, "many")
        return f"({_charged_tuple(result)} if {result}.__class__ is tuple else ({result},))"

    def adjusted(self, expressions: list[ast.Expression], count: int) -> list[Lowered]:
        """Lower a list to exactly ``count`` values.

        Raises:
            LuaError: `charge` refuses.
        """
        nil = Lowered("None", "nil", stable=True, simple=True, constant=True)
        if not expressions or len(expressions) > count or not ast.is_multiple(expressions[-1]):
            values = self.ordered(expressions)
            for extra in values[count:]:
                if not extra.stable:
                    self.emit(extra.text, self.line)
            return values[:count] + [nil] * (count - len(values))
        missing = count - len(expressions) + 1
        if missing == 1:
            return self.ordered(expressions)
        values, last = self._before(expressions), expressions[-1]
        is_vararg = isinstance(last, ast.Vararg)
        source = "va" if is_vararg else self.call(last, "many")
        take = "first_of" if is_vararg else "adjust"
        names = [self.temporary() for _ in range(missing)]
        self.emit(f"{', '.join(names)} = {take}({source}, {missing})", self.line)
        return values + [Lowered(name, "any", stable=True, simple=True) for name in names]

    def read(self, holder: Lowered, key: Lowered) -> Lowered:
        """Return the text that reads a field."""
        if holder.constant:
            holder = self.force(holder, self.line)
        if key.kind in ("str", "num"):
            index = key_text(key)
        else:
            first, again = self.twice(key)
            index = (
                f"{again} if (c := {first}.__class__) is float "
                f"or c is str and len({again}) < {LONG_TEXT} else as_key({again})"
            )
        if holder.kind == "table":
            return Lowered(f"{holder.text}[{index}]", "any")
        if not key.constant and not key.simple:
            key = self.pin(key, self.line)
            return self.read(holder, key)
        text, again = self.twice(holder)
        otherwise = f"text_field({again}, {key.text})"
        if key.literal in _COMPONENTS:
            attribute = f"{again}.{key.literal.lower()} if {text}.__class__ is V else "
            text = again
        else:
            attribute = ""
        field = f"{again}[{index}] if {text}.__class__ is not str else {otherwise}"
        return Lowered(f"({attribute}{field})", "any")

    def store(self, holder: Lowered, key: Lowered, value: Lowered, line: int) -> None:
        """Emit the assignment of a field."""
        if holder.constant:
            holder = self.force(holder, line)
        is_plain = key.kind == "str" or (key.kind == "num" and key.constant)
        if not is_plain:
            self._store_dynamic(holder, key, value, line)
            return
        key = replace(key, text=key_text(key))
        if not value.may_be_nil:
            self.emit(f"{holder.text}[{key.text}] = {value.text}", line)
            return
        if not value.simple:
            value = self.pin(value, line)
        clear = CodeLine(f"put({holder.text}, {key.text}, None)", line)
        if value.kind == "nil":
            self.block.append(clear)
            return
        write = CodeLine(f"{holder.text}[{key.text}] = {value.text}", line)
        self.block.append(CodeBranch(f"{value.text} is None", line, [clear], [write]))

    def _store_dynamic(self, holder: Lowered, key: Lowered, value: Lowered, line: int) -> None:
        if not key.simple:
            if not holder.stable:
                holder = self.pin(holder, line)
            key = self.pin(key, line)
        if not value.simple:
            value = self.pin(value, line)
        tests = [f"{value.text} is not None"] if value.may_be_nil else []
        if key.text in self.loop_names:
            pass  # the variable of a numeric loop is never NaN
        elif key.kind == "num":
            tests.append(f"{key.text} == {key.text}")
        else:
            k = key.text
            tests.append(
                f"({k}.__class__ is float and {k} == {k} "
                f"or {k}.__class__ is str and len({k}) < {LONG_TEXT})"
            )
        quick = CodeLine(f"{holder.text}[{key.text}] = {value.text}", line)
        slow = CodeLine(f"put({holder.text}, {key.text}, {value.text})", line)
        branch = CodeBranch(" and ".join(tests), line, [quick], [slow])
        self.block.append(branch if tests else quick)

    def expression(self, expression: ast.Expression) -> Lowered:
        """Lower an expression to one value.

        Raises:
            LuaError: `charge` refuses.
        """
        raise NotImplementedError

    def call(self, expression: ast.Expression, want: str, target: str | None = None) -> str:
        """Emit a call; return the variable of its result.

        Args:
            expression: The call.
            want: ``one`` value, ``many`` (as functions return them), ``drop``, or ``return``.
            target: The variable, or None for a new temporary.

        Raises:
            LuaError: `charge` refuses.
        """
        raise NotImplementedError
