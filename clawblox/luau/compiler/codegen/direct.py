"""Finds the local functions that are only ever called by their name.

All their calls are known, and so are their arguments and results: they need no room for surplus
arguments, and where they always return one value, callers need not check.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from clawblox.luau.compiler.grammar import syntax as ast


class DirectFunctions:
    """The functions of a chunk that are only called by name.

    Attributes:
        calls: Their calls, by the local that names them.
        names: The locals that name them, by function.
        returns: Their ``return`` statements, by that local.
        single: The locals of those that always return exactly one value.
    """

    def __init__(self, functions: list[ast.FunctionBody]) -> None:
        self._bodies: dict[ast.Local, ast.FunctionBody] = {}
        self._uses: dict[ast.Local, int] = {}
        self.calls: dict[ast.Local, list[ast.Call]] = {}
        for function in functions:
            for node in walk(function.body):
                self._note(node)
        self.calls = {local: self.calls.get(local, []) for local in self._bodies
                      if self._is_direct(local)}  # fmt: skip
        self.names = {self._bodies[local]: local for local in self.calls}
        self.returns = {
            local: [node for node in walk(self._bodies[local].body) if isinstance(node, ast.Return)]
            for local in self.calls
        }
        self.single = self._find_single()

    def body(self, local: ast.Local) -> ast.FunctionBody:
        """Return the function that a direct function's local names."""
        return self._bodies[local]

    def callee(self, expression: ast.Expression) -> ast.Local | None:
        """Return the local of the direct function that an expression calls, or None."""
        if isinstance(expression, ast.Call) and isinstance(expression.function, ast.LocalName):
            local = expression.function.local
            return local if local in self.calls else None
        return None

    def _note(self, node: ast.Node) -> None:
        if isinstance(node, ast.LocalFunction):
            self._bodies[node.local] = node.function.body
        elif isinstance(node, ast.LocalName):
            self._uses[node.local] = self._uses.get(node.local, 0) + 1
        elif isinstance(node, ast.Call) and isinstance(node.function, ast.LocalName):
            self.calls.setdefault(node.function.local, []).append(node)

    def _is_direct(self, local: ast.Local) -> bool:
        calls = self.calls.get(local, [])
        return (
            local.writes == 0
            and not self._bodies[local].is_vararg
            and self._uses.get(local, 0) == len(calls)
            and not any(call.arguments and is_multiple(call.arguments[-1]) for call in calls)
        )

    def _find_single(self) -> set[ast.Local]:
        single = {local for local in self.calls if always_returns(self._bodies[local].body)}
        while True:
            wrong = {local for local in single if not self._returns_one(local, single)}
            if not wrong:
                return single
            single -= wrong

    def _returns_one(self, local: ast.Local, single: set[ast.Local]) -> bool:
        for statement in self.returns[local]:
            if len(statement.values) != 1:
                return False
            (value,) = statement.values
            if is_multiple(value) and self.callee(value) not in single:
                return False
        return True


def always_returns(block: list[ast.Statement]) -> bool:
    """Return whether a block never runs to its end."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.Return):
        return True
    if isinstance(last, ast.Do):
        return always_returns(last.body)
    return isinstance(last, ast.If) and all(
        always_returns(body) for body in [*(body for _, body in last.arms), last.otherwise]
    )


def is_multiple(expression: ast.Expression) -> bool:
    """Return whether an expression can give any number of values."""
    return isinstance(expression, (ast.Call, ast.MethodCall, ast.Vararg))


def walk(block: list[ast.Statement]) -> Iterator[ast.Node]:
    """Go through all nodes of a block in no particular order, but not into functions in it."""
    pending: list[Any] = [block]
    while pending:
        part = pending.pop()
        if isinstance(part, (list, tuple)):
            pending += part
        elif isinstance(part, ast.Node):
            yield part
            pending += [getattr(part, name) for name in _parts(type(part))]


_known_parts: dict[type[ast.Node], tuple[str, ...]] = {}


def _parts(node: type[ast.Node]) -> tuple[str, ...]:
    parts = _known_parts.get(node)
    if parts is None:
        names = [field.name for field in dataclasses.fields(node) if field.name != "line"]
        parts = _known_parts[node] = tuple(names)
    return parts
