"""Lowers expressions: to statements if they may be suspended, otherwise to Python text."""

from __future__ import annotations

from typing import Any

from clawblox.luau.compiler import syntax as ast
from clawblox.luau.compiler.lower_operators import (
    MAX_TEXT,
    OperatorLowering,
    number_literal,
)
from clawblox.luau.compiler.lowering import Lowered

_FEW_FIELDS = 8  # that need no check of memory
_Pairs = list[tuple[Lowered | None, Lowered]]  # keys (None for positional items) and values


class ExpressionLowering(OperatorLowering):
    """The lowering of all expressions."""

    def expression(self, expression: ast.Expression) -> Lowered:
        """Lower an expression to one value.

        Raises:
            LuaError: `charge` refuses.
        """
        value: Lowered = getattr(self, expression.lowerer)(expression)
        if len(value.text) > MAX_TEXT or (
            not value.simple
            and expression.line != self.line
            and isinstance(expression, (ast.Index, ast.Binary, ast.Unary))  # which can fail
        ):
            return self.pin(value, expression.line)
        return value

    def _constant(self, expression: ast.Constant) -> Lowered:
        value = expression.value
        if isinstance(value, float):
            return number_literal(value)
        kind = {bool: "bool", str: "str"}.get(type(value), "nil")
        return Lowered(repr(value), kind, stable=True, simple=True, constant=True, literal=value)

    def _vararg(self, expression: ast.Vararg) -> Lowered:
        return Lowered("(va[0] if va else None)", "any", stable=True)

    def _local_name(self, expression: ast.LocalName) -> Lowered:
        local = expression.local
        name = self.local_name(local)
        kind = self.local_kind(local)
        if local.boxed:
            return Lowered(f"{name}[0]", kind)
        return Lowered(name, kind, stable=True, simple=True)

    def _global_name(self, expression: ast.GlobalName) -> Lowered:
        return Lowered(f"E[{expression.name!r}]", "any")

    def _single(self, expression: ast.Single) -> Lowered:
        return self.expression(expression.inner)

    def _call(self, expression: ast.Call | ast.MethodCall) -> Lowered:
        callee = self.numbers.direct.callee(expression)
        kind = "num" if callee in self.numbers.numeric_functions else "any"
        return Lowered(self.call(expression, "one"), kind, stable=True, simple=True)

    _method_call = _call

    def _function_expression(self, expression: ast.FunctionExpression) -> Lowered:
        body = expression.body
        captured = [self.local_name(local) for local in body.captured()]
        return Lowered(f"M{body.index}({', '.join(['E', *captured])})", "func")

    def _index(self, expression: ast.Index) -> Lowered:
        holder, key = self.ordered([expression.object, expression.key])
        return self.read(holder, key)

    def _interpolation(self, expression: ast.Interpolation) -> Lowered:
        values = self.ordered(expression.values)
        texts = ", ".join(value.text for value in values)
        if not values:
            return self._constant(ast.Constant(expression.line, expression.texts[0]))
        return Lowered(f"interpolate({tuple(expression.texts)!r}, {texts})", "str")

    def _table_literal(self, expression: ast.TableLiteral) -> Lowered:
        items = expression.items
        spread = None
        if items and items[-1][0] is None and ast.is_multiple(items[-1][1]):
            *items, (_, spread) = items
        parts = [part for item in items for part in item if part is not None]
        values = iter(self.ordered(parts))
        pairs: _Pairs = []
        for key, _ in items:
            key_value = next(values) if key is not None else None
            pairs.append((key_value, next(values)))
        if (spread is not None and self.has_call(spread)) or not _keeps_order(pairs):
            pairs = [(key and self.settle(key), self.settle(value)) for key, value in pairs]
        return self._build_table(pairs, spread)

    def _build_table(self, pairs: _Pairs, spread: ast.Expression | None) -> Lowered:
        items, fields, dynamic = _parts(pairs)
        texts = [f"{float(at)!r}: {value.text}" for at, value in enumerate(items, 1)]
        texts += [f"{key}: {value.text}" for key, value in fields.items()]
        text = self._table_text(texts, [*items, *fields.values()], len(items), spread)
        if not dynamic:
            return Lowered(text, "table")
        table = self.pin(Lowered(text, "table"), self.line)
        limit = None if spread is not None else len(items)
        for key, value in dynamic:
            self.emit(f"place({table.text}, {key.text}, {value.text}, {limit})", self.line)
        return table

    def _table_text(
        self, texts: list[str], values: list[Lowered], count: int, spread: ast.Expression | None
    ) -> str:
        shape = f"{{{', '.join(texts)}}}"
        if spread is not None:
            return f"table_with({shape}, {count}, {self.spread(spread)})"
        if not texts:
            return "T()"
        maybe_nil = any(value.may_be_nil for value in values)
        table = f"{'table_of' if maybe_nil else 'T'}({shape})"
        return f"large({table})" if len(texts) > _FEW_FIELDS else table

    def call(self, expression: ast.Expression, want: str, target: str | None = None) -> str:
        """Emit a call, as `Lowering.call` documents; return the variable of its result.

        Raises:
            LuaError: `charge` refuses.
        """
        method, receiver = None, ""
        if isinstance(expression, ast.MethodCall):
            method = expression.name
            function, receiver, arguments = self._method_parts(expression)
        else:
            assert isinstance(expression, ast.Call)
            callee = self.expression(expression.function)
            if callee.constant or callee.kind == "table":
                callee = self.force(callee, expression.line)
            if not callee.stable and any(self.has_call(part) for part in expression.arguments):
                callee = self.pin(callee, expression.line)
            outer, self.line = self.line, expression.line
            arguments = self._arguments(expression)
            self.line = outer
            function = callee.text
        direct = self.numbers.direct
        local = direct.callee(expression)
        result = None if want == "drop" else target or self._result(local, want)
        self.emit_site(
            f"{function}({arguments})",
            result,
            expression.line,
            is_return=want == "return",
            method=method,
            receiver=receiver,
            callee=None if local is None else direct.bodies[local].index,
        )
        if result is None:
            return ""
        if want == "one" and local not in direct.single:
            self.emit(
                f"if {result}.__class__ is tuple: {result} = {result}[0] if {result} else None",
                expression.line,
            )
        return result

    def _result(self, callee: ast.Local | None, want: str) -> str:
        """Return a new temporary for the result of a call."""
        if want != "one":
            return self.temporary("many")
        return self.temporary("num" if callee in self.numbers.numeric_functions else "any")

    def _arguments(self, expression: ast.Call) -> str:
        direct = self.numbers.direct
        local = direct.callee(expression)
        if local is None:
            return self.value_list(expression.arguments)[0]
        values = self.adjusted(expression.arguments, len(direct.bodies[local].params))
        return ", ".join(value.text for value in values)

    def _method_parts(self, expression: ast.MethodCall) -> tuple[str, str, str]:
        """Return the texts of a method, of its receiver's variable, and of all arguments."""
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
                f"({holder.text}[{name}] if isinstance({holder.text}, T) "
                f"else method({holder.text}, {name}))"
            )
        if any(self.has_call(part) for part in expression.arguments):
            function = self.pin(Lowered(function, "any"), expression.line).text
        outer, self.line = self.line, expression.line
        arguments, _ = self.value_list(expression.arguments)
        self.line = outer
        text = holder.text
        return function, text, f"{text}, {arguments}" if arguments else text


def _parts(
    pairs: _Pairs,
) -> tuple[list[Lowered], dict[str, Lowered], list[tuple[Lowered, Lowered]]]:
    """Return a literal's positional items, its fields in iteration order, and other entries."""
    items = [value for key, value in pairs if key is None]
    fields: dict[Any, tuple[Lowered, Lowered]] = {}
    dynamic: list[tuple[Lowered, Lowered]] = []
    for key, value in pairs:
        if key is None:
            continue
        if not (key.constant and key.kind in ("str", "num")) or dynamic:
            dynamic.append((key, value))
        elif not (
            key.kind == "num" and key.literal.is_integer() and 1 <= key.literal <= len(items)
        ):
            fields[key.literal] = key, value  # otherwise a positional item overwrites it
    are_texts = all(key.__class__ is str for key in fields)
    ordered = [fields[key] for key in (literal_order(list(fields)) if are_texts else fields)]
    return items, {key.text: value for key, value in ordered}, dynamic


def _keeps_order(pairs: _Pairs) -> bool:
    """Return whether creating the table evaluates all values in order."""
    items, fields, dynamic = _parts(pairs)
    evaluated = [*items, *fields.values(), *(part for pair in dynamic for part in pair)]
    written = [part for pair in pairs for part in pair if part is not None]
    return [id(part) for part in evaluated if not part.stable] == [
        id(part) for part in written if not part.stable
    ]


_MASK = 0xFFFFFFFF
_LONG = 32
_BLOCK = 12


def string_hash(text: str) -> int:
    """Return the reference's hash of a string."""
    data = text.encode("latin-1")
    a = b = 0
    value = len(data)
    while len(data) >= _LONG:
        block = [int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8)]
        a, b, value = (a + block[0]) & _MASK, (b + block[1]) & _MASK, (value + block[2]) & _MASK
        a = ((a ^ value) - _turn(value, 14)) & _MASK
        b = ((b ^ a) - _turn(a, 11)) & _MASK
        value = ((value ^ b) - _turn(b, 25)) & _MASK
        data = data[_BLOCK:]
    for byte in reversed(data):
        value ^= ((value << 5) + (value >> 2) + byte) & _MASK
    return value


def _turn(value: int, by: int) -> int:
    return (value >> by | value << (32 - by)) & _MASK


def literal_order(keys: list[str]) -> list[str]:
    """Return distinct keys, inserted in this order into a new table, in iteration order."""
    size = 1
    while size < len(keys):
        size *= 2
    nodes: list[str | None] = [None] * size
    free = size
    for key in keys:
        home = string_hash(key) & (size - 1)
        occupant = nodes[home]
        if occupant is not None:
            while nodes[free := free - 1] is not None:
                pass
            if string_hash(occupant) & (size - 1) == home:
                nodes[free] = key
                continue
            nodes[free] = occupant
        nodes[home] = key
    return [key for key in nodes if key is not None]
