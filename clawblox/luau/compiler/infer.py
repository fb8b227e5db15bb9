"""Finds local functions that are only called by name, and locals that are always numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from clawblox.luau.compiler import syntax as ast


class DirectFunctions:
    """The functions of a chunk that are only called by name.

    Attributes:
        calls: The calls of each function, by its local.
        names: The local of each function.
        returns: The ``return`` statements of each function, by its local.
        single: The locals of functions that always return exactly one value.
        bodies: The function by the local of its ``local function``.
        statements: The statements of all functions of the chunk.
    """

    def __init__(self, functions: list[ast.FunctionBody]) -> None:
        self.bodies: dict[ast.Local, ast.FunctionBody] = {}
        self._uses: dict[ast.Local, int] = {}
        self.calls: dict[ast.Local, list[ast.Call]] = {}
        self.statements: dict[ast.FunctionBody, list[ast.Statement]] = {}
        for function in functions:
            nodes = list(walk(function.body))
            for node in nodes:
                self._note(node)
            self.statements[function] = [node for node in nodes if isinstance(node, ast.Statement)]
        self.calls = {local: self.calls.get(local, []) for local in self.bodies
                      if self._is_direct(local)}  # fmt: skip
        self.names = {self.bodies[local]: local for local in self.calls}
        self.returns = {
            local: [node for node in self.statements[body] if isinstance(node, ast.Return)]
            for body, local in self.names.items()
        }
        self.single = self._find_single()

    def callee(self, expression: ast.Expression) -> ast.Local | None:
        """Return the local of the direct function that an expression calls, or None."""
        if isinstance(expression, ast.Call) and isinstance(expression.function, ast.LocalName):
            local = expression.function.local
            return local if local in self.calls else None
        return None

    def _note(self, node: ast.Node) -> None:
        if isinstance(node, ast.LocalFunction):
            self.bodies[node.local] = node.function.body
        elif isinstance(node, ast.LocalName):
            self._uses[node.local] = self._uses.get(node.local, 0) + 1
        elif isinstance(node, ast.Call) and isinstance(node.function, ast.LocalName):
            self.calls.setdefault(node.function.local, []).append(node)

    def _is_direct(self, local: ast.Local) -> bool:
        calls = self.calls.get(local, [])
        return (
            local.writes == 0
            and not self.bodies[local].is_vararg
            and self._uses.get(local, 0) == len(calls)
            and not any(call.arguments and ast.is_multiple(call.arguments[-1]) for call in calls)
        )

    def _find_single(self) -> set[ast.Local]:
        single = {local for local in self.calls if always_returns(self.bodies[local].body)}
        while _shrink(single, lambda local: self._returns_one(local, single)):
            pass
        return single

    def _returns_one(self, local: ast.Local, single: set[ast.Local]) -> bool:
        return all(
            len(statement.values) == 1
            and (
                not ast.is_multiple(statement.values[0])
                or self.callee(statement.values[0]) in single
            )
            for statement in self.returns[local]
        )


def _shrink(chosen: set[ast.Local], fits: Callable[[ast.Local], bool]) -> bool:
    """Remove the locals that do not fit; return whether any was removed."""
    wrong = {local for local in chosen if not fits(local)}
    chosen -= wrong
    return bool(wrong)


def always_returns(block: list[ast.Statement]) -> bool:
    """Return whether a block always returns before its end."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.Return):
        return True
    if isinstance(last, ast.Do):
        return always_returns(last.body)
    return isinstance(last, ast.If) and all(map(always_returns, last.bodies()))


def walk(block: list[ast.Statement]) -> Iterator[ast.Node]:
    """Iterate over the nodes of a block, except within its functions, in arbitrary order."""
    pending: list[ast.Node] = [*block]
    while pending:
        node = pending.pop()
        yield node
        pending += children(node)


def children(node: ast.Node) -> list[ast.Node]:
    """Return the child nodes of a node, without a function's body."""
    nodes: list[ast.Node] = []
    pending: list[Any] = [getattr(node, name) for name in node.parts]
    while pending:
        part = pending.pop()
        if isinstance(part, (list, tuple)):
            pending += part
        elif isinstance(part, ast.Node):
            nodes.append(part)
    return nodes


ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "^"))


class NumberLocals:
    """The locals of a chunk that are provably numbers, and the functions that return them.

    Attributes:
        direct: The functions that are only called by name.
        numbers: The locals that are provably numbers.
        numeric_functions: The locals of functions that always return one number.
    """

    def __init__(self, functions: list[ast.FunctionBody]) -> None:
        self.direct = direct = DirectFunctions(functions)
        self._sources: dict[ast.Local, list[ast.Expression | None]] = defaultdict(list)
        for function in functions:
            for at, parameter in enumerate(function.params):
                self._parameter(function, at, parameter)
            for statement in direct.statements[function]:
                self._read(statement)
        self.numbers: set[ast.Local] = set(self._sources)
        self.numeric_functions = set(direct.single)
        results: dict[ast.Local, list[ast.Expression | None]] = {
            local: [statement.values[0] for statement in direct.returns[local]]
            for local in direct.single
        }
        while _shrink(
            self.numbers, lambda local: all(map(self.is_number, self._sources[local]))
        ) or _shrink(
            self.numeric_functions, lambda local: all(map(self.is_number, results[local]))
        ):
            pass

    def _parameter(self, function: ast.FunctionBody, at: int, parameter: ast.Local) -> None:
        local = self.direct.names.get(function)
        if local is None:
            self._sources[parameter].append(None)
            return
        for call in self.direct.calls[local]:
            has_argument = at < len(call.arguments)
            self._sources[parameter].append(call.arguments[at] if has_argument else None)

    def is_number(self, expression: ast.Expression | None) -> bool:
        """Return whether an expression is always a number; None stands for an arbitrary value."""
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

    def _read(self, node: ast.Statement) -> None:
        match node:
            case ast.LocalStatement():
                self._pairs([ast.LocalName(0, local) for local in node.locals], node.values)
            case ast.Assignment():
                self._pairs(node.targets, node.values)
            case ast.CompoundAssignment(target=ast.LocalName(local=local) as target):
                self._sources[local].append(ast.Binary(0, node.operator, target, node.value))
            case ast.LocalFunction():
                self._sources[node.local].append(None)
            case ast.NumericFor():
                self._sources[node.local].append(ast.Constant(0, 0.0))
            case ast.GenericFor():
                for local in node.locals:
                    self._sources[local].append(None)

    def _pairs(self, targets: list[ast.Expression], values: list[ast.Expression]) -> None:
        for index, target in enumerate(targets):
            if not isinstance(target, ast.LocalName):
                continue
            is_plain = index < len(values) and not (
                index == len(values) - 1
                and ast.is_multiple(values[index])
                and self.direct.callee(values[index]) not in self.direct.single
            )
            self._sources[target.local].append(values[index] if is_plain else None)
