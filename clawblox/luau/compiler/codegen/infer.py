"""Finds the locals that only ever hold numbers, so that arithmetic on them needs no guard."""

from __future__ import annotations

from clawblox.luau.compiler.codegen.direct import DirectFunctions, is_multiple
from clawblox.luau.compiler.grammar import syntax as ast

ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "^"))


class NumberLocals:
    """The locals of a chunk that provably hold numbers, and the functions that return them.

    Attributes:
        direct: The functions that are only called by name.
        numbers: The locals.
        numeric_functions: The locals that name functions which always return one number.
    """

    def __init__(self, functions: list[ast.FunctionBody]) -> None:
        self.direct = direct = DirectFunctions(functions)
        self._sources: dict[ast.Local, list[ast.Expression | None]] = {}
        for function in functions:
            for at, parameter in enumerate(function.params):
                self._parameter(function, at, parameter)
            self._block(function.body)
        self.numbers: set[ast.Local] = set(self._sources)
        self.numeric_functions = set(direct.single)
        while self._shrink() or self._shrink_functions():
            pass

    def _parameter(self, function: ast.FunctionBody, at: int, parameter: ast.Local) -> None:
        local = self.direct.names.get(function)
        if local is None:
            self._note(parameter, None)
            return
        for call in self.direct.calls[local]:
            self._note(parameter, call.arguments[at] if at < len(call.arguments) else None)

    def _shrink(self) -> bool:
        wrong = [
            local
            for local in self.numbers
            if not all(self.is_number(source) for source in self._sources[local])
        ]
        self.numbers.difference_update(wrong)
        return bool(wrong)

    def _shrink_functions(self) -> bool:
        wrong = [
            local
            for local in self.numeric_functions
            if not all(
                self.is_number(statement.values[0]) for statement in self.direct.returns[local]
            )
        ]
        self.numeric_functions.difference_update(wrong)
        return bool(wrong)

    def is_number(self, expression: ast.Expression | None) -> bool:
        """Return whether an expression always gives a number; None stands for any value."""
        if isinstance(expression, ast.Constant):
            return type(expression.value) is float
        if isinstance(expression, ast.LocalName):
            return expression.local in self.numbers
        if isinstance(expression, ast.Binary):
            return expression.operator in ARITHMETIC and (
                self.is_number(expression.left) and self.is_number(expression.right)
            )
        if isinstance(expression, ast.Unary):
            return expression.operator == "#" or (
                expression.operator == "-" and self.is_number(expression.operand)
            )
        if isinstance(expression, ast.Single):
            return self.is_number(expression.inner)
        if isinstance(expression, ast.Call):
            return self.direct.callee(expression) in self.numeric_functions
        if isinstance(expression, ast.IfExpression):
            values = [value for _, value in expression.arms]
            return all(self.is_number(value) for value in [*values, expression.otherwise])
        return False

    def _note(self, local: ast.Local, source: ast.Expression | None) -> None:
        self._sources.setdefault(local, []).append(source)

    def _block(self, block: list[ast.Statement]) -> None:
        for statement in block:
            self._statement(statement)

    def _statement(self, statement: ast.Statement) -> None:
        match statement:
            case ast.LocalStatement():
                self._pairs(
                    [ast.LocalName(0, local) for local in statement.locals], statement.values
                )
            case ast.Assignment():
                self._pairs(statement.targets, statement.values)
            case ast.CompoundAssignment(target=ast.LocalName(local=local) as target):
                self._note(local, ast.Binary(0, statement.operator, target, statement.value))
            case ast.LocalFunction():
                self._note(statement.local, None)
            case ast.Do() | ast.While() | ast.Repeat():
                self._block(statement.body)
            case ast.If():
                for _, block in statement.arms:
                    self._block(block)
                self._block(statement.otherwise)
            case ast.NumericFor():
                self._note(statement.local, ast.Constant(0, 0.0))
                self._block(statement.body)
            case ast.GenericFor():
                for local in statement.locals:
                    self._note(local, None)
                self._block(statement.body)

    def _pairs(self, targets: list[ast.Expression], values: list[ast.Expression]) -> None:
        for index, target in enumerate(targets):
            if not isinstance(target, ast.LocalName):
                continue
            is_plain = index < len(values) and not (
                index == len(values) - 1
                and is_multiple(values[index])
                and self.direct.callee(values[index]) not in self.direct.single
            )
            self._note(target.local, values[index] if is_plain else None)
