"""Finds the variables of a frame: those needed by the rest of a function after a call.

A variable is needed if the rest may read it before it is certainly set. Reads and writes are taken
from the Python syntax tree of a line, so strings may look like code.
"""

from __future__ import annotations

import ast as python
from collections.abc import Sequence
from typing import NamedTuple

from clawblox.luau.compiler.ir import Block, CodeBranch, CodeLine, CodeLoop, Site, Variable, holds

_Names = frozenset[str]
_LEAVING = (python.Return, python.Break, python.Continue)


class _Effect(NamedTuple):
    """The effects of a line.

    Attributes:
        reads: The variables that it may read before setting them.
        sets: The variables that it certainly sets.
        leaves: Whether it skips the rest of its block.
    """

    reads: _Names
    sets: _Names
    leaves: bool


class Liveness:
    """The variables of one function.

    Args:
        block: Its code.
        variables: All its variables.
    """

    def __init__(self, block: Block, variables: dict[str, Variable]) -> None:
        self._block = block
        self._variables = variables
        self._effects: dict[str, _Effect] = {}
        self._needed: set[str] = set()

    def needed(self, site: Site) -> list[str]:
        """Return the variables needed by the code after a site, sorted."""
        self._needed = set()
        self._follow(self._block, site, frozenset({site.target} if site.target else ()))
        return sorted(name for name in self._needed if self._has_value(name, site))

    def _has_value(self, name: str, site: Site) -> bool:
        variable = self._variables.get(name)
        return variable is not None and (variable.is_temporary or name in site.visible)

    # Each method takes the variables certainly set before, and returns those certainly set
    # afterwards; None marks an unreachable place.

    def _follow(self, block: Block, site: Site, assigned: _Names) -> tuple[bool, _Names | None]:
        """Follow the code after a site in a block; return whether the block contains the site."""
        for index, node in enumerate(block):
            is_inside, after = self._enter(node, site, assigned)
            if is_inside:
                return True, self._run(block[index + 1 :], after)
        return False, assigned

    def _enter(
        self, node: CodeLine | CodeBranch | CodeLoop, site: Site, assigned: _Names
    ) -> tuple[bool, _Names | None]:
        if isinstance(node, CodeLine):
            return node.site is site, None if site.is_return else assigned
        if isinstance(node, CodeBranch):
            is_inside, after = self._follow(node.then, site, assigned)
            return (True, after) if is_inside else self._follow(node.otherwise, site, assigned)
        if not holds(node.body, site):
            return False, assigned
        inside = self._note(f"{node.resumed} pass", assigned)
        if inside is not None:
            self._follow(node.body, site, inside)
            self._run(node.body, inside)
        return True, assigned

    def _run(self, block: Block, assigned: _Names | None) -> _Names | None:
        for node in block:
            if assigned is None:
                return None
            if isinstance(node, CodeLine):
                assigned = self._note(node.text, assigned)
            elif isinstance(node, CodeBranch):
                assigned = self._branch(node, assigned)
            else:
                self._run(node.body, self._note(f"{node.header} pass", assigned))
        return assigned

    def _branch(self, node: CodeBranch, assigned: _Names) -> _Names | None:
        tested = self._note(node.condition, assigned)
        then, otherwise = self._run(node.then, tested), self._run(node.otherwise, tested)
        if then is None or otherwise is None:
            return otherwise if then is None else then
        return then & otherwise

    def _note(self, text: str, assigned: _Names) -> _Names | None:
        """Record the variables that a line reads."""
        effect = self._effects.get(text)
        if effect is None:
            effect = self._effects[text] = _effect(text)
        self._needed |= effect.reads - assigned
        return None if effect.leaves else assigned | effect.sets


def _effect(text: str) -> _Effect:
    reads: set[str] = set()
    sets: set[str] = set()
    statements = python.parse(text).body
    for statement in statements:
        _evaluate(statement, reads, sets)
    leaves = any(isinstance(statement, _LEAVING) for statement in statements)
    return _Effect(frozenset(reads), frozenset(sets), leaves)


def _evaluate(node: python.AST, reads: set[str], sets: set[str]) -> None:
    """Visit a part of a line in Python's order of evaluation."""
    match node:
        case python.Name(id=name, ctx=python.Load()):
            if name not in sets:
                reads.add(name)
        case python.Name(id=name):
            sets.add(name)
        case (
            python.NamedExpr(target=target, value=value)
            | python.Assign(targets=[target], value=value)
        ):
            _evaluate(value, reads, sets)
            _evaluate(target, reads, sets)
        case python.For(target=target, iter=iterated):
            _evaluate(iterated, reads, sets)
            _evaluate(target, reads, sets)
        case python.IfExp(test=test, body=chosen, orelse=other):
            _evaluate(test, reads, sets)
            if_true, if_false = set(sets), set(sets)
            _evaluate(chosen, reads, if_true)
            _evaluate(other, reads, if_false)
            sets |= if_true & if_false
        case python.BoolOp(values=[first, *others]):
            _evaluate_first(first, others, reads, sets)
        case python.If(test=test, body=body):
            _evaluate_first(test, body, reads, sets)
        case _:
            for child in python.iter_child_nodes(node):
                _evaluate(child, reads, sets)


def _evaluate_first(
    first: python.AST, others: Sequence[python.AST], reads: set[str], sets: set[str]
) -> None:
    """Visit a part that is always evaluated, then parts that may be skipped."""
    _evaluate(first, reads, sets)
    perhaps = set(sets)
    for other in others:
        _evaluate(other, reads, perhaps)
