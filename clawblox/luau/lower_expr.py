"""Lowers expressions: to Python text where nothing can be suspended, to statements where it can.

Every call is a statement of its own, so that the line of a call tells which one it is. Whatever
was computed before a call and is needed after it is pinned to a temporary first.
"""

from __future__ import annotations

import ast as python
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clawblox.luau import syntax as ast
from clawblox.luau.direct import is_multiple
from clawblox.luau.infer import ARITHMETIC, NumberLocals
from clawblox.luau.ir import Block, If, Line, Site
from clawblox.luau.layout import literal_order

_HELPERS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "idiv", "%": "mod", "^": "power",
}  # fmt: skip
_COMPARE = {"<": "less", "<=": "less_equal"}
_MAX_TEXT = 700  # characters of one Python expression, which keeps its nesting within limits


@dataclass(slots=True)
class Value:
    """A lowered expression.

    Attributes:
        text: A Python expression of exactly one Luau value.
        kind: What is known of its type: num, str, bool, nil, table, func, or any.
        stable: Whether it may be evaluated later, even behind a call.
        simple: Whether it may be evaluated twice.
        constant: Whether it is a literal.
    """

    text: str
    kind: str
    stable: bool = False
    simple: bool = False
    constant: bool = False

    @property
    def may_be_nil(self) -> bool:
        """Whether the value can be nil."""
        return self.kind in ("any", "nil")


class ExpressionCompiler:
    """The state of lowering one function, and its expressions."""

    def __init__(
        self, body: ast.FunctionBody, numbers: NumberLocals, kinds: dict[ast.Local, str]
    ) -> None:
        self.body = body
        self.numbers = numbers
        self.kinds = kinds
        self.block: Block = []
        self.sites: list[Site] = []
        self.visible = ["E", "va", f"F{body.index}"]
        self.visible += [self.local_name(local) for local in body.upvalues]
        self.break_flags: list[str] = [""]
        self.loop_names: set[str] = set()
        self.hidden_count = 0
        self.line = body.line
        self._temporaries = 0
        self._calls: dict[ast.Expression, bool] = {}

    # Output

    def emit(self, text: str, line: int) -> None:
        """Append a statement that cannot be suspended."""
        self.block.append(Line(text, line))

    def emit_site(
        self,
        call: str,
        target: str | None,
        line: int,
        *,
        is_return: bool = False,
        method: str | None = None,
    ) -> None:
        """Append a call."""
        site = Site(len(self.sites), target, is_return, frozenset(self.visible), method)
        self.sites.append(site)
        if is_return:
            text = f"return {call}"
        elif target:
            text = f"{target} = {call}"
        else:
            text = call
        self.block.append(Line(text, line, site))

    @contextmanager
    def sub_block(self) -> Iterator[Block]:
        """Collect what is emitted in a block of its own."""
        outer, self.block = self.block, []
        yield self.block
        self.block = outer

    def show(self, name: str) -> None:
        """Put a variable in scope."""
        self.visible.append(name)

    def temporary(self) -> str:
        """Return a new temporary."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    def pin(self, value: Value, line: int) -> Value:
        """Evaluate a value now, into a temporary."""
        if value.constant:
            return value
        name = self.temporary()
        self.emit(f"{name} = {value.text}", line)
        return Value(name, value.kind, stable=True, simple=True)

    def local_name(self, local: ast.Local) -> str:
        """Return the Python variable of a local in this function."""
        if local.self_function is self.body and not local.boxed:
            return f"F{self.body.index}"
        return f"{local.name}_{local.ident}"

    # Order of evaluation

    def has_call(self, expression: ast.Expression) -> bool:
        """Return whether evaluating an expression calls a function."""
        known = self._calls.get(expression)
        if known is None:
            known = self._calls[expression] = self._find_call(expression)
        return known

    def _find_call(self, expression: ast.Expression) -> bool:
        match expression:
            case ast.Call() | ast.MethodCall():
                return True
            case ast.Index():
                parts = [expression.object, expression.key]
            case ast.Unary():
                parts = [expression.operand]
            case ast.Binary():
                parts = [expression.left, expression.right]
            case ast.Single():
                parts = [expression.inner]
            case ast.Interpolation():
                parts = expression.values
            case ast.IfExpression():
                parts = [part for arm in expression.arms for part in arm] + [expression.otherwise]
            case ast.TableLiteral():
                parts = [part for item in expression.items for part in item if part is not None]
            case _:
                return False
        for part in parts:  # noqa: SIM110 - a generator would take C stack at every level
            if self.has_call(part):
                return True
        return False

    def ordered(self, expressions: list[ast.Expression]) -> list[Value]:
        """Lower several expressions so that their texts can be used together afterwards."""
        last_call = max(
            (index for index, part in enumerate(expressions) if self.has_call(part)), default=-1
        )
        values = []
        for index, part in enumerate(expressions):
            value = self.expression(part)
            if index < last_call and not value.stable:
                value = self.pin(value, self.line)
            values.append(value)
        return values

    def value_list(self, expressions: list[ast.Expression]) -> tuple[str, bool]:
        """Return the text of an argument list, and whether its end is spread."""
        if not expressions or not is_multiple(expressions[-1]):
            return ", ".join(value.text for value in self.ordered(expressions)), False
        *firsts, last = expressions
        values = self.ordered(firsts)
        if self.has_call(last):
            values = [v if v.stable else self.pin(v, self.line) for v in values]
        texts = [value.text for value in values]
        return ", ".join([*texts, f"*{self.spread(last)}"]), True

    def spread(self, expression: ast.Expression) -> str:
        """Lower a multiple expression to the text of a tuple."""
        if isinstance(expression, ast.Vararg):
            return "va"
        result = self.call(expression, "many")
        return f"({result} if {result}.__class__ is tuple else ({result},))"

    def adjusted(self, expressions: list[ast.Expression], count: int) -> list[Value]:
        """Lower a list to exactly ``count`` values."""
        nil = Value("None", "nil", stable=True, simple=True, constant=True)
        if not expressions or len(expressions) > count or not is_multiple(expressions[-1]):
            values = self.ordered(expressions)
            for extra in values[count:]:
                if not extra.stable:
                    self.emit(extra.text, self.line)
            return values[:count] + [nil] * (count - len(values))
        missing = count - len(expressions) + 1
        if missing == 1:
            return self.ordered(expressions)
        *firsts, last = expressions
        values = self.ordered(firsts)
        if self.has_call(last):
            values = [v if v.stable else self.pin(v, self.line) for v in values]
        source = "va" if isinstance(last, ast.Vararg) else self.call(last, "many")
        names = [self.temporary() for _ in range(missing)]
        take = "first_of" if isinstance(last, ast.Vararg) else "adjust"
        self.emit(f"{', '.join(names)} = {take}({source}, {missing})", self.line)
        return values + [Value(name, "any", stable=True, simple=True) for name in names]

    # Expressions

    def expression(self, expression: ast.Expression) -> Value:
        """Lower an expression to one value."""
        value: Value = getattr(self, "_value_" + type(expression).__name__)(expression)
        if len(value.text) > _MAX_TEXT or (
            not value.simple and expression.line != self.line and _can_fail(expression)
        ):
            return self.pin(value, expression.line)
        return value

    def _value_Constant(self, expression: ast.Constant) -> Value:
        value = expression.value
        kind = {bool: "bool", float: "num", str: "str"}.get(type(value), "nil")
        text = repr(value)
        if text in ("inf", "nan"):
            text = "INF"
        return Value(text, kind, stable=True, simple=True, constant=True)

    def _value_Vararg(self, expression: ast.Vararg) -> Value:
        return Value("(va[0] if va else None)", "any", stable=True)

    def _value_LocalName(self, expression: ast.LocalName) -> Value:
        local = expression.local
        name = self.local_name(local)
        kind = "num" if local in self.numbers.numbers else self.kinds.get(local, "any")
        if local.boxed:
            return Value(f"{name}[0]", kind if kind == "num" else "any")
        return Value(name, kind, stable=True, simple=True)

    def _value_GlobalName(self, expression: ast.GlobalName) -> Value:
        return Value(f"E[{expression.name!r}]", "any")

    def _value_Single(self, expression: ast.Single) -> Value:
        return self.expression(expression.inner)

    def _value_Call(self, expression: ast.Call) -> Value:
        callee = self.numbers.direct.callee(expression)
        kind = "num" if callee in self.numbers.numeric_functions else "any"
        return Value(self.call(expression, "one"), kind, stable=True, simple=True)

    _value_MethodCall = _value_Call

    def _value_FunctionExpression(self, expression: ast.FunctionExpression) -> Value:
        body = expression.body
        captured = [
            self.local_name(local) for local in body.upvalues if not self._is_self(local, body)
        ]
        return Value(f"M{body.index}({', '.join(['E', *captured])})", "func")

    def _is_self(self, local: ast.Local, body: ast.FunctionBody) -> bool:
        return local.self_function is body and not local.boxed

    def _value_Index(self, expression: ast.Index) -> Value:
        holder, key = self.ordered([expression.object, expression.key])
        return self.read(holder, key)

    def read(self, holder: Value, key: Value) -> Value:
        """Return the text that reads a field."""
        if holder.constant:
            holder = self.force(holder, self.line)
        if (key.constant and key.kind in ("str", "num")) or key.kind in ("str", "num"):
            index = key.text
        else:
            key_text, again = self.twice(key)
            index = f"{again} if {key_text}.__class__ is not bool else flag({again})"
        if holder.kind == "table":
            return Value(f"{holder.text}[{index}]", "any")
        if not key.constant and not key.simple:
            key = self.pin(key, self.line)
            return self.read(holder, key)
        text, again = self.twice(holder)
        otherwise = f"text_field({again}, {key.text})"
        return Value(f"({again}[{index}] if {text}.__class__ is not str else {otherwise})", "any")

    def force(self, value: Value, line: int) -> Value:
        """Put a literal into a variable: Python warns of operations it knows to fail."""
        name = self.temporary()
        self.emit(f"{name} = {value.text}", line)
        return Value(name, "any", stable=True, simple=True)

    def twice(self, value: Value) -> tuple[str, str]:
        """Return the text that evaluates a value, and the text that uses it again."""
        if value.simple:
            return value.text, value.text
        name = self.temporary()
        return f"({name} := {value.text})", name

    def store(self, holder: Value, key: Value, value: Value, line: int) -> None:
        """Emit the assignment of a field."""
        if holder.constant:
            holder = self.force(holder, line)
        is_plain = key.kind == "str" or (key.kind == "num" and key.constant)
        if not is_plain:
            self._store_dynamic(holder, key, value, line)
            return
        if not value.may_be_nil:
            self.emit(f"{holder.text}[{key.text}] = {value.text}", line)
            return
        if not value.simple:
            value = self.pin(value, line)
        test = If(f"{value.text} is None", line)
        test.then.append(Line(f"put({holder.text}, {key.text}, None)", line))
        if value.kind != "nil":
            test.otherwise.append(Line(f"{holder.text}[{key.text}] = {value.text}", line))
            self.block.append(test)
        else:
            self.block += test.then

    def _store_dynamic(self, holder: Value, key: Value, value: Value, line: int) -> None:
        if not key.simple:
            if not holder.stable:
                holder = self.pin(holder, line)
            key = self.pin(key, line)
        if not value.simple:
            value = self.pin(value, line)
        tests = [f"{value.text} is not None"] if value.may_be_nil else []
        if key.text in self.loop_names:
            pass  # what a numeric loop counts through is never NaN
        elif key.kind == "num":
            tests.append(f"{key.text} == {key.text}")
        else:
            k = key.text
            tests.append(f"({k}.__class__ is float and {k} == {k} or {k}.__class__ is str)")
        if not tests:
            self.emit(f"{holder.text}[{key.text}] = {value.text}", line)
            return
        node = If(" and ".join(tests), line)
        node.then.append(Line(f"{holder.text}[{key.text}] = {value.text}", line))
        node.otherwise.append(Line(f"put({holder.text}, {key.text}, {value.text})", line))
        self.block.append(node)

    # Operators

    def _value_Unary(self, expression: ast.Unary) -> Value:
        if expression.operator == "not":
            return Value(f"(not {self.condition(expression.operand)})", "bool")
        operand = self.expression(expression.operand)
        if expression.operator == "#":
            if operand.kind == "str":
                return Value(f"float(len({operand.text}))", "num", stable=operand.stable)
            return Value(f"length({operand.text})", "num")
        if operand.constant and operand.kind == "num":
            return Value(f"(-{operand.text})", "num", stable=True, simple=True, constant=True)
        if operand.kind == "num":
            return Value(f"(-{operand.text})", "num", stable=operand.stable)
        text, again = self.twice(operand)
        return Value(f"(-{again} if {text}.__class__ is float else minus({again}))", "any")

    def _value_Binary(self, expression: ast.Binary) -> Value:
        operator = expression.operator
        if operator in ("and", "or"):
            return self._logical(expression)
        if operator == "..":
            return self._concatenation(expression)
        if operator not in ARITHMETIC:
            return Value(self._comparison(expression), "bool")
        left, right = self.ordered([expression.left, expression.right])
        return self.operate(operator, left, right)

    def operate(self, operator: str, left: Value, right: Value) -> Value:
        """Lower a binary operator on two values."""
        if operator == "..":
            return self._join([left, right])
        helper = _HELPERS[operator]
        if operator in ("//", "^"):
            kind = "num" if left.kind == right.kind == "num" else "any"
            return Value(f"{helper}({left.text}, {right.text})", kind)
        divides = operator in ("/", "%")
        if divides and not _is_safe_divisor(operator, right):
            kind = "num" if left.kind == right.kind == "num" else "any"
            if operator == "%" or not right.simple:
                return Value(f"{helper}({left.text}, {right.text})", kind)
        if left.kind != "num" and right.kind != "num" and not (left.simple or right.simple):
            left = self.pin(left, self.line)
        guards, left_text, right_text = [], left.text, right.text
        if right.kind != "num":
            first, right_text = self.twice(right)
            guards.append(f"{first}.__class__ is float")
        if left.kind != "num":
            first, left_text = self.twice(left)
            guards.append(f"{first}.__class__ is float")
        if divides and not _is_safe_divisor(operator, right):
            guards.append(right_text)
        if operator == "%":
            if not left.simple and left.kind == "num":
                first, left_text = self.twice(left)
                quick = f"({first} - ({left_text} / {right_text}) // 1.0 * {right_text})"
            else:
                quick = f"({left_text} - ({left_text} / {right_text}) // 1.0 * {right_text})"
        else:
            quick = f"{left_text} {operator} {right_text}"
        kind = "num" if left.kind == right.kind == "num" else "any"
        if not guards:
            return Value(f"({quick})", kind, stable=left.stable and right.stable)
        test = " and ".join(guards)
        return Value(f"({quick} if {test} else {helper}({left_text}, {right_text}))", kind)

    def _concatenation(self, expression: ast.Binary) -> Value:
        parts: list[ast.Expression] = []
        rest: ast.Expression = expression
        while isinstance(rest, ast.Binary) and rest.operator == "..":
            parts.append(rest.left)
            rest = rest.right
        return self._join(self.ordered([*parts, rest]))

    def _join(self, values: list[Value]) -> Value:
        texts = ", ".join(value.text for value in values)
        if all(value.kind in ("str", "num") for value in values):
            pieces = [v.text if v.kind == "str" else f"text({v.text})" for v in values]
            if sum(not value.constant for value in values if value.kind == "str") <= 1:
                return Value(f"({' + '.join(pieces)})", "str")
        kind = "str" if all(value.kind in ("str", "num") for value in values) else "any"
        if len(values) > 2:
            return Value(f"concat_all({texts})", kind)
        literals = [value.constant and value.kind == "str" for value in values]
        if not any(literals):  # doubling a string has to be charged
            return Value(f"concat({texts})", kind)
        literal, other = values if literals[0] else values[::-1]
        first, again = self.twice(other)
        order = (literal.text, again) if literals[0] else (again, literal.text)
        a, b = order
        return Value(f"({a} + {b} if {first}.__class__ is str else concat({a}, {b}))", kind)

    def _logical(self, expression: ast.Binary) -> Value:
        is_and = expression.operator == "and"
        left = self.expression(expression.left)
        with self.sub_block() as block:
            right = self.expression(expression.right)
        kind = left.kind if left.kind == right.kind else "any"
        if left.constant or kind == "any":
            kind = right.kind if left.constant and not left.may_be_nil and is_and else kind
        if not is_and and left.kind in ("any", "nil", "bool") and right.kind == left.kind:
            kind = right.kind
        if not block:
            if left.kind == "bool":
                test, again = left.text, "False" if is_and else "True"
            else:
                test, again = self._truth_of(left)
            text = (
                f"({right.text} if {test} else {again})"
                if is_and
                else (f"({again} if {test} else {right.text})")
            )
            return Value(text, "bool" if kind == "bool" else "any")
        result = self.temporary()
        self.emit(f"{result} = {left.text}", self.line)
        truth, _ = self._truth_of(Value(result, left.kind, simple=True))
        branch = If(truth if is_and else f"not {truth}", self.line)
        branch.then += [*block, Line(f"{result} = {right.text}", self.line)]
        self.block.append(branch)
        return Value(result, "any", stable=True, simple=True)

    def _truth_of(self, value: Value) -> tuple[str, str]:
        """Return the Python test of a value's truth, and the text that uses it again."""
        if value.constant:
            return str(value.text not in ("None", "False")), value.text
        if value.kind == "bool":
            return self.twice(value)
        text, again = self.twice(value)
        if value.kind in ("num", "str", "table", "func"):
            return (f"({text} is not None)", again)
        return f"({text} is not None and {again} is not False)", again

    def condition(self, expression: ast.Expression) -> str:
        """Lower an expression to a Python truth value."""
        while isinstance(expression, ast.Single):
            expression = expression.inner
        if isinstance(expression, ast.Constant):
            return str(expression.value is not None and expression.value is not False)
        if isinstance(expression, ast.Unary) and expression.operator == "not":
            return f"(not {self.condition(expression.operand)})"
        if isinstance(expression, ast.Binary) and expression.operator in ("and", "or"):
            return self._logical_condition(expression)
        value = self.expression(expression)
        return value.text if value.kind == "bool" else self._truth_of(value)[0]

    def _logical_condition(self, expression: ast.Binary) -> str:
        left = self.condition(expression.left)
        with self.sub_block() as block:
            right = self.condition(expression.right)
        if not block:
            text = f"({left} {expression.operator} {right})"
            if len(text) <= _MAX_TEXT:
                return text
            result = self.temporary()
            self.emit(f"{result} = {text}", self.line)
            return result
        result = self.temporary()
        self.emit(f"{result} = {left}", self.line)
        test = result if expression.operator == "and" else f"not {result}"
        self.block.append(If(test, self.line, [*block, Line(f"{result} = {right}", self.line)]))
        return result

    def _comparison(self, expression: ast.Binary) -> str:
        operator = expression.operator
        left, right = self.ordered([expression.left, expression.right])
        if operator in ("==", "~="):
            text = self._equality(left, right)
            return text if operator == "==" else f"(not {text})"
        if left.kind == right.kind and left.kind in ("num", "str"):
            return f"({left.text} {operator} {right.text})"
        if left.kind != "num" and right.kind != "num" and not (left.simple or right.simple):
            left = self.pin(left, self.line)
        guards, left_text, right_text = [], left.text, right.text
        if right.kind != "num":
            first, right_text = self.twice(right)
            guards.append(f"{first}.__class__ is float")
        if left.kind != "num":
            first, left_text = self.twice(left)
            guards.append(f"{first}.__class__ is float")
        quick = f"{left_text} {operator} {right_text}"
        if operator in _COMPARE:
            slow = f"{_COMPARE[operator]}({left_text}, {right_text})"
        else:
            helper = _COMPARE[operator.replace(">", "<")]
            slow = f"{helper}({right_text}, {left_text})"
        return f"({quick} if {' and '.join(guards)} else {slow})"

    def _equality(self, left: Value, right: Value) -> str:
        if left.constant and right.constant:
            same = left.kind == right.kind and left.text == right.text
            return f"({left.text} == {right.text})" if left.kind == right.kind else str(same)
        if left.constant:
            left, right = right, left
        if right.constant:
            if right.kind in ("nil", "bool"):
                return f"({left.text} is {right.text})"
            if (
                right.kind == "num"
                and left.kind != "num"
                and float(right.text.strip("()").replace("INF", "inf")) in (0, 1)
            ):
                text, again = self.twice(left)
                return f"({text} == {right.text} and {again}.__class__ is float)"
            return f"({left.text} == {right.text})"
        if left.kind == right.kind and left.kind in ("num", "str", "bool"):
            return f"({left.text} == {right.text})"
        if not (left.simple or right.simple):
            left = self.pin(left, self.line)
        if not left.simple and right.simple:
            first, again = self.twice(left)
            return (
                f"({again} == {right.text} if {first}.__class__ is {right.text}.__class__ "
                f"else equal({again}, {right.text}))"
            )
        first, again = self.twice(right)
        return (
            f"({left.text} == {again} if {first}.__class__ is {left.text}.__class__ "
            f"else equal({left.text}, {again}))"
        )

    def _value_IfExpression(self, expression: ast.IfExpression) -> Value:
        return self._if_arms(expression.arms, expression.otherwise)

    def _if_arms(
        self, arms: list[tuple[ast.Expression, ast.Expression]], otherwise: ast.Expression
    ) -> Value:
        if not arms:
            return self.expression(otherwise)
        test = self.condition(arms[0][0])
        with self.sub_block() as then_block:
            chosen = self.expression(arms[0][1])
        with self.sub_block() as else_block:
            other = self._if_arms(arms[1:], otherwise)
        kind = chosen.kind if chosen.kind == other.kind else "any"
        if not then_block and not else_block:
            return Value(f"({chosen.text} if {test} else {other.text})", kind)
        result = self.temporary()
        branch = If(test, self.line)
        branch.then += [*then_block, Line(f"{result} = {chosen.text}", self.line)]
        branch.otherwise += [*else_block, Line(f"{result} = {other.text}", self.line)]
        self.block.append(branch)
        return Value(result, kind, stable=True, simple=True)

    def _value_Interpolation(self, expression: ast.Interpolation) -> Value:
        values = self.ordered(expression.values)
        texts = ", ".join(value.text for value in values)
        if not values:
            return self._value_Constant(ast.Constant(expression.line, expression.texts[0]))
        return Value(f"interpolate({tuple(expression.texts)!r}, {texts})", "str")

    # Tables

    def _value_TableLiteral(self, expression: ast.TableLiteral) -> Value:
        items = expression.items
        spread = None
        if items and items[-1][0] is None and is_multiple(items[-1][1]):
            *items, (_, spread) = items
        parts = [part for item in items for part in item if part is not None]
        values = iter(self.ordered(parts))
        pairs: list[tuple[Value | None, Value]] = []
        for key, _ in items:
            key_value = next(values) if key is not None else None
            pairs.append((key_value, next(values)))
        if spread is not None and self.has_call(spread):
            pairs = [(k, v if v.stable else self.pin(v, self.line)) for k, v in pairs]
        return self._build_table(pairs, spread)

    def _build_table(
        self, pairs: list[tuple[Value | None, Value]], spread: ast.Expression | None
    ) -> Value:
        items = [value for key, value in pairs if key is None]
        fields: dict[str, Value] = {}
        dynamic: list[tuple[Value, Value]] = []
        for key, value in pairs:
            if key is None:
                continue
            if key.constant and key.kind in ("str", "num") and not dynamic:
                if not _shadowed(key, len(items)):
                    fields[key.text] = value
            else:
                dynamic.append((key, value))
        texts = [f"{float(at)!r}: {value.text}" for at, value in enumerate(items, 1)]
        texts += [f"{key}: {fields[key].text}" for key in _as_iterated(list(fields))]
        text = self._table_text(texts, [*items, *fields.values()], len(items), spread)
        if not dynamic:
            return Value(text, "table")
        table = self.pin(Value(text, "table"), self.line)
        limit = None if spread is not None else len(items)
        for key, value in dynamic:
            self.emit(f"place({table.text}, {key.text}, {value.text}, {limit})", self.line)
        return table

    def _table_text(
        self, texts: list[str], values: list[Value], count: int, spread: ast.Expression | None
    ) -> str:
        shape = f"{{{', '.join(texts)}}}"
        if spread is not None:
            return f"table_with({shape}, {count}, {self.spread(spread)})"
        if not texts:
            return "T()"
        maybe_nil = any(value.may_be_nil for value in values)
        return f"{'table_of' if maybe_nil else 'T'}({shape})"

    # Calls

    def call(self, expression: ast.Expression, want: str, target: str | None = None) -> str:
        """Emit a call; return the variable of its result.

        Args:
            expression: The call.
            want: ``one`` value, ``many`` (as functions return them), ``drop``, or ``return``.
            target: The variable; None takes a new temporary.
        """
        if isinstance(expression, ast.MethodCall):
            function, arguments, method = self._method_parts(expression)
        else:
            assert isinstance(expression, ast.Call)
            method = None
            callee = self.expression(expression.function)
            if callee.constant or callee.kind == "table":
                callee = self.force(callee, expression.line)
            if not callee.stable and any(self.has_call(part) for part in expression.arguments):
                callee = self.pin(callee, expression.line)
            outer, self.line = self.line, expression.line
            arguments = self._arguments(expression)
            self.line = outer
            function = callee.text
        text = f"{function}({arguments})"
        if want == "drop":
            self.emit_site(text, None, expression.line, method=method)
            return ""
        result = target or self.temporary()
        is_return = want == "return"
        self.emit_site(text, result, expression.line, is_return=is_return, method=method)
        if want == "one" and self.numbers.direct.callee(expression) not in (
            self.numbers.direct.single
        ):
            self.emit(
                f"if {result}.__class__ is tuple: {result} = {result}[0] if {result} else None",
                expression.line,
            )
        return result

    def _arguments(self, expression: ast.Call) -> str:
        direct = self.numbers.direct
        local = direct.callee(expression)
        if local is None:
            return self.value_list(expression.arguments)[0]
        values = self.adjusted(expression.arguments, len(direct.body(local).params))
        return ", ".join(value.text for value in values)

    def _method_parts(self, expression: ast.MethodCall) -> tuple[str, str, str]:
        holder = self.expression(expression.object)
        if holder.constant:
            holder = self.force(holder, expression.line)
        elif not holder.simple:
            holder = self.pin(holder, expression.line)
        name = repr(expression.name)
        if holder.kind == "table":
            function = f"{holder.text}[{name}]"
        else:
            function = (
                f"({holder.text}[{name}] if {holder.text}.__class__ is not str "
                f"else text_field({holder.text}, {name}))"
            )
        if any(self.has_call(part) for part in expression.arguments):
            function = self.pin(Value(function, "any"), expression.line).text
        outer, self.line = self.line, expression.line
        arguments, _ = self.value_list(expression.arguments)
        self.line = outer
        return (
            function,
            f"{holder.text}, {arguments}" if arguments else holder.text,
            expression.name,
        )


def _is_safe_divisor(operator: str, value: Value) -> bool:
    """Return whether dividing by a literal can be written in Python as it stands."""
    if not value.constant or value.kind != "num" or "INF" in value.text:
        return False
    size = abs(float(value.text.strip("()")))
    return size != 0 if operator == "/" else size >= 1


def _as_iterated(keys: list[str]) -> list[str]:
    """Return the texts of literal keys in the order of iteration."""
    names = {python.literal_eval(key): key for key in keys if key[0] in "'\""}
    if len(names) != len(keys):
        return keys
    return [names[name] for name in literal_order(list(names))]


def _shadowed(key: Value, positional: int) -> bool:
    """Return whether a positional item overwrites a literal key."""
    if key.kind != "num" or "INF" in key.text:
        return False
    number = float(key.text.strip("()"))
    return number.is_integer() and 1 <= number <= positional


def _can_fail(expression: ast.Expression) -> bool:
    return isinstance(expression, (ast.Index, ast.Binary, ast.Unary))
