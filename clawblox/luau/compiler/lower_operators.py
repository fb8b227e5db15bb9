"""Lowers operators and conditions."""

from __future__ import annotations

import math

from clawblox.luau.compiler import syntax as ast
from clawblox.luau.compiler.infer import ARITHMETIC
from clawblox.luau.compiler.ir import CodeBranch, CodeLine
from clawblox.luau.compiler.lowering import Lowered, Lowering, is_short
from clawblox.luau.core.limits import LONG_TEXT

MAX_TEXT = 700  # characters of one Python expression; this limits its nesting
_HELPERS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "idiv", "%": "mod", "^": "power",
}  # fmt: skip
_SHORT_LITERALS = 100  # bytes that the charge for a step covers
_COMPARE = {"<": "less", "<=": "less_equal"}


class OperatorLowering(Lowering):
    """The lowering of operators and of conditional expressions."""

    def _unary(self, expression: ast.Unary) -> Lowered:
        if expression.operator == "not":
            return Lowered(f"(not {self.condition(expression.operand)})", "bool")
        operand = self.expression(expression.operand)
        if expression.operator == "#":
            if operand.kind == "str":
                return Lowered(f"float(len({operand.text}))", "num", stable=operand.stable)
            return Lowered(f"length({operand.text})", "num")
        if operand.constant and operand.kind == "num":
            return number_literal(-operand.literal)
        if operand.kind == "num":
            return Lowered(f"(-{operand.text})", "num", stable=operand.stable)
        text, again = self.twice(operand)
        return Lowered(f"(-{again} if {text}.__class__ is float else minus({again}))", "any")

    def _binary(self, expression: ast.Binary) -> Lowered:
        operator = expression.operator
        if operator in ("and", "or"):
            return self._logical(expression)
        if operator == "..":
            return self._concatenation(expression)
        if operator not in ARITHMETIC:
            return Lowered(self._comparison(expression), "bool")
        left, right = self.ordered([expression.left, expression.right])
        return self.operate(operator, left, right)

    def operate(self, operator: str, left: Lowered, right: Lowered) -> Lowered:
        """Lower a binary operator on two values."""
        if operator == "..":
            return self._join([left, right])
        helper = _HELPERS[operator]
        kind = "num" if left.kind == right.kind == "num" else "any"
        may_divide_by_zero = operator in ("/", "%") and not _is_safe_divisor(operator, right)
        if operator in ("//", "^") or (
            may_divide_by_zero and (operator == "%" or not right.simple)
        ):
            return Lowered(f"{helper}({left.text}, {right.text})", kind)
        guards, left_text, right_text = self._number_guards(left, right)
        if may_divide_by_zero:
            guards.append(right_text)
        if operator == "%":
            first = left_text
            if not left.simple and left.kind == "num":
                first, left_text = self.twice(left)
            quick = f"({first} - ({left_text} / {right_text}) // 1.0 * {right_text})"
        else:
            quick = f"{left_text} {operator} {right_text}"
        if not guards:
            return Lowered(f"({quick})", kind, stable=left.stable and right.stable)
        test = " and ".join(guards)
        return Lowered(f"({quick} if {test} else {helper}({left_text}, {right_text}))", kind)

    def _number_guards(self, left: Lowered, right: Lowered) -> tuple[list[str], str, str]:
        """Return tests that two operands are numbers, and the operands' texts after the tests.

        An operand that a test must evaluate is in the first test, because that always runs.
        """
        if left.kind != "num" and right.kind != "num" and not (left.simple or right.simple):
            left = self.pin(left, self.line)
        guards: list[str] = []
        texts = []
        for value in (left, right):
            again = value.text
            if value.kind != "num":
                text, again = self.twice(value)
                guards.insert(len(guards) if value.simple else 0, f"{text}.__class__ is float")
            texts.append(again)
        return guards, texts[0], texts[1]

    def _concatenation(self, expression: ast.Binary) -> Lowered:
        parts: list[ast.Expression] = []
        rest: ast.Expression = expression
        while isinstance(rest, ast.Binary) and rest.operator == "..":
            parts.append(rest.left)
            rest = rest.right
        return self._join(self.ordered([*parts, rest]))

    def _join(self, values: list[Lowered]) -> Lowered:
        texts = ", ".join(value.text for value in values)
        if all(value.kind in ("str", "num") for value in values):
            pieces = [v.text if v.kind == "str" else f"text({v.text})" for v in values]
            variable = [v for v in values if v.kind == "str" and not v.constant]
            is_short = sum(len(v.text) for v in values if v.constant) <= _SHORT_LITERALS
            joined = " + ".join(pieces)
            if not variable and is_short:
                return Lowered(f"({joined})", "str", short=True)
            if is_short and len(variable) == 1 and variable[0].simple:
                call = "concat_all" if len(values) > 2 else "concat"
                test = f"len({variable[0].text}) <= {_SHORT_LITERALS}"
                return Lowered(f"({joined} if {test} else {call}({texts}))", "str")
        kind = "str" if all(value.kind in ("str", "num") for value in values) else "any"
        if len(values) > 2:
            return Lowered(f"concat_all({texts})", kind)
        literals = [
            value.constant and value.kind == "str" and len(value.text) <= _SHORT_LITERALS
            for value in values
        ]
        if not any(literals):  # doubling a string must be charged
            return Lowered(f"concat({texts})", kind)
        literal, other = values if literals[0] else values[::-1]
        first, again = self.twice(other)
        a, b = (literal.text, again) if literals[0] else (again, literal.text)
        quick = f"{first}.__class__ is str and len({again}) <= {_SHORT_LITERALS}"
        return Lowered(f"({a} + {b} if {quick} else concat({a}, {b}))", kind)

    def _logical(self, expression: ast.Binary) -> Lowered:
        is_and = expression.operator == "and"
        left = self.expression(expression.left)
        with self.sub_block() as block:
            right = self.expression(expression.right)
        if not block:
            if left.kind == "bool":
                test, again = left.text, "False" if is_and else "True"
            else:
                test, again = self._truth_test(left)
            chosen, other = (right.text, again) if is_and else (again, right.text)
            is_true = is_and and left.constant and left.kind != "nil"
            is_bool = right.kind == "bool" and (left.kind == "bool" or is_true)
            return Lowered(f"({chosen} if {test} else {other})", "bool" if is_bool else "any")
        result = self.temporary()
        self.emit(f"{result} = {left.text}", self.line)
        truth, _ = self._truth_test(Lowered(result, left.kind, simple=True))
        then = [*block, CodeLine(f"{result} = {right.text}", self.line)]
        self.block.append(CodeBranch(truth if is_and else f"not {truth}", self.line, then))
        return Lowered(result, "any", stable=True, simple=True)

    def _truth_test(self, value: Lowered) -> tuple[str, str]:
        """Return the Python test of a value's truth, and the text for using the value again."""
        if value.constant:
            return str(value.literal is not None and value.literal is not False), value.text
        if value.kind == "bool":
            return self.twice(value)
        text, again = self.twice(value)
        if value.kind in ("num", "str", "table", "func"):
            return (f"({text} is not None)", again)
        return f"({text} is not None and {again} is not False)", again

    def condition(self, expression: ast.Expression) -> str:
        """Lower an expression to a Python truth value.

        Raises:
            LuaError: `charge` refuses.
        """
        while isinstance(expression, ast.Single):
            expression = expression.inner
        if isinstance(expression, ast.Unary) and expression.operator == "not":
            return f"(not {self.condition(expression.operand)})"
        if isinstance(expression, ast.Binary) and expression.operator in ("and", "or"):
            return self._logical_condition(expression)
        value = self.expression(expression)
        return value.text if value.kind == "bool" else self._truth_test(value)[0]

    def _logical_condition(self, expression: ast.Binary) -> str:
        left = self.condition(expression.left)
        with self.sub_block() as block:
            right = self.condition(expression.right)
        whole = f"({left} {expression.operator} {right})"
        if not block and len(whole) <= MAX_TEXT:
            return whole
        result = self.temporary("bool")
        self.emit(f"{result} = {left if block else whole}", self.line)
        if not block:
            return result
        test = result if expression.operator == "and" else f"not {result}"
        self.block.append(
            CodeBranch(test, self.line, [*block, CodeLine(f"{result} = {right}", self.line)])
        )
        return result

    def _comparison(self, expression: ast.Binary) -> str:
        operator = expression.operator
        left, right = self.ordered([expression.left, expression.right])
        if operator in ("==", "~="):
            text = self._equality(left, right)
            return text if operator == "==" else f"(not {text})"
        if left.kind == right.kind == "num":
            return f"({left.text} {operator} {right.text})"
        guards: list[str] = []
        left_text, right_text = left.text, right.text
        if not left.kind == right.kind == "str":
            guards, left_text, right_text = self._number_guards(left, right)
        quick = f"{left_text} {operator} {right_text}"
        operands = (left_text, right_text) if "<" in operator else (right_text, left_text)
        slow = f"{_COMPARE[operator.replace('>', '<')]}({', '.join(operands)})"
        return f"({quick} if {' and '.join(guards)} else {slow})" if guards else slow

    def _equality(self, left: Lowered, right: Lowered) -> str:
        if left.constant and right.constant:
            return f"({left.text} == {right.text})" if left.kind == right.kind else "False"
        if left.constant:
            left, right = right, left
        if right.constant:
            if right.kind in ("nil", "bool"):
                if left.kind in ("num", "str"):  # Python would warn about a literal
                    return f"equal({left.text}, {right.text})"
                return f"({left.text} is {right.text})"
            if right.kind == "num" and left.kind != "num" and right.literal in (0, 1):
                text, again = self.twice(left)
                return f"({text} == {right.text} and {again}.__class__ is float)"
            if right.kind == "str" and not is_short(right):
                return f"equal({left.text}, {right.text})"
            return f"({left.text} == {right.text})"
        if left.kind == right.kind and left.kind in ("num", "bool"):
            return f"({left.text} == {right.text})"
        if left.kind == right.kind == "str":
            return f"equal({left.text}, {right.text})"
        if not (left.simple or right.simple):
            left = self.pin(left, self.line)
        if right.simple and not left.simple:
            first, a = self.twice(left)
            b = other = right.text
        else:
            first, b = self.twice(right)
            a = other = left.text
        alike = f"(c := {first}.__class__) is {other}.__class__"
        short = f"(c is not str or len({other}) < {LONG_TEXT})"
        return f"({a} == {b} if {alike} and {short} else equal({a}, {b}))"

    def _if_expression(self, expression: ast.IfExpression) -> Lowered:
        return self._if_arms(expression.arms, expression.otherwise)

    def _if_arms(
        self, arms: list[tuple[ast.Expression, ast.Expression]], otherwise: ast.Expression
    ) -> Lowered:
        if not arms:
            return self.expression(otherwise)
        test = self.condition(arms[0][0])
        with self.sub_block() as then_block:
            chosen = self.expression(arms[0][1])
        with self.sub_block() as else_block:
            other = self._if_arms(arms[1:], otherwise)
        kind = chosen.kind if chosen.kind == other.kind else "any"
        if not then_block and not else_block:
            return Lowered(f"({chosen.text} if {test} else {other.text})", kind)
        result = self.temporary(kind)
        then = [*then_block, CodeLine(f"{result} = {chosen.text}", self.line)]
        remaining = [*else_block, CodeLine(f"{result} = {other.text}", self.line)]
        self.block.append(CodeBranch(test, self.line, then, remaining))
        return Lowered(result, kind, stable=True, simple=True)


def _is_safe_divisor(operator: str, value: Lowered) -> bool:
    """Return whether division by a literal is safe in Python without a check."""
    if not value.constant or value.kind != "num" or math.isinf(value.literal):
        return False
    size: float = abs(value.literal)
    return size != 0 if operator == "/" else size >= 1


def number_literal(value: float) -> Lowered:
    """Return the lowered form of a number."""
    size = "INF" if math.isinf(value) else repr(abs(value))
    text = size if math.copysign(1.0, value) > 0.0 else f"(-{size})"
    return Lowered(text, "num", stable=True, simple=True, constant=True, literal=value)
