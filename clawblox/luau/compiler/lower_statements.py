"""Lowers the statements of a function to structured code (`ir`).

Expressions are in `lower_expressions`. `vm.NAMES` lists the names available to generated code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clawblox.luau.compiler import syntax as ast
from clawblox.luau.compiler.ir import (
    Block,
    CodeBranch,
    CodeLine,
    CodeLoop,
    Variable,
    charged_loop,
    toll,
)
from clawblox.luau.compiler.lower_expressions import ExpressionLowering
from clawblox.luau.compiler.lowering import Lowered

_HIDDEN_IDENTS = 1_000_000  # above the idents of any chunk's locals


class FunctionLowering(ExpressionLowering):
    """The lowering of a function."""

    def compile(self) -> tuple[str, Block]:
        """Return the Python signature and the structured body.

        Raises:
            LuaError: `charge` refuses.
        """
        body = self.body
        for parameter in body.params:
            self.show_local(parameter)
            if parameter.boxed:
                name = self.local_name(parameter)
                self.emit(f"{name} = [{name}]", body.line)
        self.statements(body.body)
        if not (body.body and isinstance(body.body[-1], ast.Return)):
            self.emit("return ()", body.end_line)
        parameters = [f"{self.local_name(parameter)}=None" for parameter in body.params]
        if body in self.numbers.direct.names:
            return ", ".join(parameters), self.block
        return ", ".join([*parameters, "*va" if body.is_vararg else "*_"]), self.block

    def statements(self, block: list[ast.Statement]) -> None:
        """Lower a block and end the scope of its locals.

        Raises:
            LuaError: `charge` refuses.
        """
        with self._scope():
            self._open_statements(block)

    def _hidden(self, kind: str, loop: str = "") -> str:
        """Return the name of a variable hidden from scripts, in scope until its block ends."""
        self.hidden_count += 1
        name = f"h_{_HIDDEN_IDENTS + self.hidden_count}"
        self.show(name, Variable(kind, loop=loop))
        return name

    @contextmanager
    def _scope(self) -> Iterator[None]:
        visible = len(self.visible)
        yield
        del self.visible[visible:]

    # Plain statements

    def _call_statement(self, statement: ast.CallStatement) -> None:
        self.call(statement.call, "drop")

    def _do(self, statement: ast.Do) -> None:
        self.statements(statement.body)

    def _break(self, statement: ast.Break) -> None:
        if self.break_flags[-1]:
            self.emit(f"{self.break_flags[-1]} = True", statement.line)
        self.emit("break", statement.line)

    def _continue(self, statement: ast.Continue) -> None:
        self.emit("continue", statement.line)

    def _return(self, statement: ast.Return) -> None:
        values = statement.values
        if len(values) == 1 and isinstance(values[0], (ast.Call, ast.MethodCall)):
            self.call(values[0], "return")
            return
        texts, has_spread = self.value_list(values)
        if has_spread:
            self.emit(f"return many(({texts},))", statement.line)
        elif len(values) == 1:
            self.emit(f"return {texts}", statement.line)
        else:
            self.emit(f"return ({texts})", statement.line)

    def _local_statement(self, statement: ast.LocalStatement) -> None:
        if len(statement.locals) == len(statement.values) == 1:
            local, source = statement.locals[0], statement.values[0]
            if isinstance(source, (ast.Call, ast.MethodCall)) and not local.boxed:
                self.call(source, "one", self.local_name(local))
                self.show_local(local)
                return
        values = self.adjusted(statement.values, len(statement.locals))
        for local, value in zip(statement.locals, values, strict=True):
            self._declare(local, value, statement.line)

    def _declare(self, local: ast.Local, value: Lowered, line: int) -> None:
        name = self.local_name(local)
        self.emit(f"{name} = [{value.text}]" if local.boxed else f"{name} = {value.text}", line)
        if not local.writes:
            self.kinds[local] = value.kind
        self.show_local(local)

    def _local_function(self, statement: ast.LocalFunction) -> None:
        local, name = statement.local, self.local_name(statement.local)
        self.show_local(local)
        if local.boxed:
            self.emit(f"{name} = [None]", statement.line)
        value = self.expression(statement.function)
        target = f"{name}[0]" if local.boxed else name
        self.emit(f"{target} = {value.text}", statement.line)

    # Assignments

    def _assignment(self, statement: ast.Assignment) -> None:
        if len(statement.targets) == 1 and len(statement.values) == 1:
            self._assign_one(statement.targets[0], statement.values[0], statement.line)
            return
        later = any(self.has_call(value) for value in statement.values)
        places = [self._place(target, pin=True, later=later) for target in statement.targets]
        values = self.adjusted(statement.values, len(places))
        values = [self.pin(value, statement.line) for value in values]
        for target, place, value in zip(statement.targets, places, values, strict=True):
            self._store(target, place, value, target.line)
        for value in values:  # they may be garbage as soon as they are overwritten
            if not value.constant:
                self.emit(f"{value.text} = None", statement.line)

    def _assign_one(self, target: ast.Expression, source: ast.Expression, line: int) -> None:
        is_local = isinstance(target, ast.LocalName) and target.local.owner is self.body
        if isinstance(source, (ast.Call, ast.MethodCall)) and is_local:
            assert isinstance(target, ast.LocalName)
            if not target.local.boxed:
                self.call(source, "one", self.local_name(target.local))
                return
        place = self._place(target, pin=False, later=self.has_call(source))
        self._store(target, place, self.expression(source), line)

    def _place(
        self, target: ast.Expression, *, pin: bool, later: bool
    ) -> tuple[Lowered, Lowered] | None:
        if not isinstance(target, ast.Index):
            return None
        holder = self.expression(target.object)
        if (pin or later or self.has_call(target.key)) and (pin or not holder.stable):
            holder = self.pin(holder, target.line)
        key = self.expression(target.key)
        if (pin or later) and (pin or not key.stable) and not key.constant:
            key = self.pin(key, target.line)
        return holder, key

    def _store(
        self,
        target: ast.Expression,
        place: tuple[Lowered, Lowered] | None,
        value: Lowered,
        line: int,
    ) -> None:
        if isinstance(target, ast.LocalName):
            name = self.local_name(target.local)
            self.emit(f"{name}{'[0]' if target.local.boxed else ''} = {value.text}", line)
        elif isinstance(target, ast.GlobalName):
            key = Lowered(repr(target.name), "str", stable=True, simple=True, constant=True)
            self.store(Lowered("E", "table", stable=True, simple=True), key, value, line)
        else:
            assert place is not None
            self.store(*place, value, line)

    def _compound_assignment(self, statement: ast.CompoundAssignment) -> None:
        target, line = statement.target, statement.line
        place = self._place(target, pin=True, later=True)
        before = self.expression(target) if place is None else self.read(*place)
        if self.has_call(statement.value):
            before = self.pin(before, line)
        after = self.operate(statement.operator, before, self.expression(statement.value))
        self._store(target, place, after, line)

    # Control flow

    def _if(self, statement: ast.If) -> None:
        with self._scope():
            arm = self._hidden("arm")  # visible in the conditions, because they may be suspended
            blocks: list[tuple[Block, str]] = []
            for condition, _ in statement.arms:
                with self.sub_block() as block:
                    self.line = condition.line
                    text = self.condition(condition)
                blocks.append((block, text))
            if any(block for block, _ in blocks[1:]):
                self._numbered_arms(statement, blocks, arm)
                return
            self.block += blocks[0][0]
            texts = [text for _, text in blocks]
            self._chain(texts, statement)

    def _chain(self, conditions: list[str], statement: ast.If) -> None:
        into = self.block
        for condition, (tested, body) in zip(conditions, statement.arms, strict=True):
            node = CodeBranch(condition, tested.line)
            into.append(node)
            with self.sub_block() as node.then:
                self.statements(body)
            into = node.otherwise
        with self.sub_block() as block:
            self.statements(statement.otherwise)
        into += block

    def _numbered_arms(self, statement: ast.If, blocks: list[tuple[Block, str]], arm: str) -> None:
        """Find the number of the arm, then branch on it, to keep long chains flat."""
        self.emit(f"{arm} = 0", statement.line)
        for number, (block, text) in enumerate(blocks, 1):
            chosen = CodeBranch(
                text, statement.line, [CodeLine(f"{arm} = {number}", statement.line)]
            )
            if number == 1:
                self.block += [*block, chosen]
            else:
                self.block.append(CodeBranch(f"{arm} == 0", statement.line, [*block, chosen]))
        conditions = [f"{arm} == {number}" for number in range(1, len(blocks) + 1)]
        self._chain(conditions, statement)

    def _while(self, statement: ast.While) -> None:
        loop = charged_loop(statement.line)
        self.block.append(loop)
        with self.sub_block() as loop.body, self._in_loop():
            before = len(self.assigned)
            test = self.condition(statement.condition)
            if test != "True":
                self.emit(f"if not {test}: break", statement.line)
                for name in self.assigned[before:]:  # from here on it may be garbage
                    self.emit(f"{name} = None", statement.line)
            self.statements(statement.body)

    @contextmanager
    def _in_loop(self, flag: str = "") -> Iterator[None]:
        self.break_flags.append(flag)
        yield
        self.break_flags.pop()

    def _repeat(self, statement: ast.Repeat) -> None:
        loop = charged_loop(statement.line)
        self.block.append(loop)
        with self.sub_block() as loop.body, self._scope():
            if _continues(statement.body):
                self._body_once(statement)
            else:
                with self._in_loop():
                    self._open_statements(statement.body)
            self.line = statement.condition.line
            test = self.condition(statement.condition)
            self.emit(f"if {test}: break", statement.condition.line)

    def _open_statements(self, block: list[ast.Statement]) -> None:
        """Lower a block whose locals stay in scope, since ``until`` may use them."""
        for statement in block:
            self.line = statement.line
            self.charge(1)
            getattr(self, statement.lowerer)(statement)

    def _body_once(self, statement: ast.Repeat) -> None:
        """Lower a body with a ``continue`` that goes to ``until``."""
        flag = self._hidden("bool")
        self.emit(f"{flag} = False", statement.line)
        once = CodeLoop("for _ in ONCE:", "for _ in ONCE:", statement.line)
        self.block.append(once)
        with self.sub_block() as once.body, self._in_loop(flag):
            self._open_statements(statement.body)
        self.emit(f"if {flag}: break", statement.line)

    def _numeric_for(self, statement: ast.NumericFor) -> None:
        line = statement.line
        step = statement.step or ast.Constant(line, 1.0)
        bounds = self.ordered([statement.start, statement.limit, step])
        with self._scope():
            start, limit, increment = (self._kept(bound, line) for bound in bounds)
            control = self._loop_name(statement.local, Variable("counter"))
            self.loop_names.add(control)
            loop = CodeLoop(
                f"for {control} in count({start}, {limit}, {increment}):",
                f"for {control} in count_on({control}, {limit}, {increment}):",
                line,
            )
            self.block.append(loop)
            with self.sub_block() as loop.body, self._in_loop():
                if statement.local.writes:
                    self._declare(statement.local, Lowered(control, "num"), line)
                self.statements(statement.body)

    def _kept(self, value: Lowered, line: int) -> str:
        if value.constant:
            return value.text
        name = self._hidden(value.kind)
        self.emit(f"{name} = {value.text}", line)
        return name

    def _generic_for(self, statement: ast.GenericFor) -> None:
        line = statement.line
        start = self.adjusted(statement.values, 3)
        with self._scope():
            iterator = self._hidden("loop")
            texts = [value.text for value in start]
            if _uses_builtin(statement.values):
                texts.append("is_call=True")
            self.emit(f"{iterator} = iterate({', '.join(texts)})", line)
            key, *others = statement.locals
            names = [self._loop_name(key, Variable("key", loop=iterator))]
            names += [self._loop_name(local, Variable("any")) for local in others]
            if len(names) == 1:
                names.append(self._hidden("any"))
            first, second = names[:2]
            loop = CodeLoop(
                f"for {first}, {second} in {iterator}:",
                f"for {first}, {second} in {iterator}.again({first}, {second}):",
                line,
            )
            self.block.append(loop)
            with self.sub_block() as loop.body, self._in_loop():
                self._advance(iterator, names, line)
                for local, name in zip(statement.locals, names, strict=False):
                    if local.writes:
                        self._declare(local, Lowered(name, "any"), line)
                self.statements(statement.body)

    def _loop_name(self, local: ast.Local, variable: Variable) -> str:
        if local.writes:
            return self._hidden(variable.kind, variable.loop)
        name = self.local_name(local)
        self.show(name, variable)
        return name

    def _advance(self, iterator: str, names: list[str], line: int) -> None:
        """Emit the start of a generic loop's body: the call of an iterator that is a function."""
        step = CodeBranch(f"{names[0]} is CALL", line)
        with self.sub_block() as step.then:
            self.block.append(toll(line))
            result = self.temporary("many")
            call = f"{iterator}.function({iterator}.state, {iterator}.control)"
            self.emit_site(call, result, line, key=names[0])
            self.emit(f"{', '.join(names)} = {iterator}.take({result}, {len(names)})", line)
            self.emit(f"if {names[0]} is None: break", line)
        step.otherwise.append(CodeBranch(f"{names[1]} is None", line, [CodeLine("continue", line)]))
        step.otherwise += [CodeLine(f"{name} = None", line) for name in names[2:]]
        self.block.append(step)


def _uses_builtin(values: list[ast.Expression]) -> bool:
    """Return whether a loop is over ``pairs(x)``, ``ipairs(x)`` or ``next, x``."""
    match values:
        case [ast.Call(function=ast.GlobalName(name="pairs" | "ipairs"), arguments=[_])]:
            return True
        case [ast.GlobalName(name="next"), _]:
            return True
    return False


def _continues(block: list[ast.Statement]) -> bool:
    """Return whether the body contains a ``continue`` for this loop."""
    for statement in block:
        if isinstance(statement, ast.Continue):
            return True
        if isinstance(statement, ast.Do) and _continues(statement.body):
            return True
        if isinstance(statement, ast.If) and any(map(_continues, statement.bodies())):
            return True
    return False
