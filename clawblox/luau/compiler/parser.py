"""Luau's grammar of statements; expressions are in `expressions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from clawblox.luau.compiler import syntax as ast
from clawblox.luau.compiler.expressions import ExpressionParser
from clawblox.luau.compiler.lexer import Token
from clawblox.luau.core.limits import Charge

COMPOUND = {"+=", "-=", "*=", "/=", "//=", "%=", "^=", "..="}
_BLOCK_END = {"eof", "else", "elseif", "end", "until"}


def parse(source: str, chunk_name: str, charge: Charge) -> tuple[list[ast.FunctionBody], int]:
    """Parse a chunk.

    Args:
        source: The source, one character per byte.
        chunk_name: The chunk's name, with its ``=`` or ``@`` if it has one.
        charge: Called with a number of steps before the work that they pay for.

    Returns:
        All functions of the chunk, the main one first, and the number of tokens.

    Raises:
        LuauSyntaxError: The chunk is not valid Luau.
        LuaError: `charge` refuses.
    """
    parser = Parser(source, chunk_name, charge)
    return parser.chunk(), len(parser.tokens)


class Parser(ExpressionParser):
    """A recursive descent parser for the tokens of a chunk."""

    def chunk(self) -> list[ast.FunctionBody]:
        """Read the whole chunk.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        with self.scope.enter_function("", 1) as main:
            main.is_vararg = True
            main.body = self.block_statements()
            if self.token.kind != "eof":
                self.unexpected("<eof>")
            main.end_line = self.token.line
        return self.scope.functions

    def _block(self) -> list[ast.Statement]:
        with self.scope.enter_block():
            return self.block_statements()

    def block_statements(self) -> list[ast.Statement]:
        """Read statements up to the end of their block.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        self.enter("block")
        statements: list[ast.Statement] = []
        while self.token.kind not in _BLOCK_END:
            self.charge(1)
            statement = self._statement()
            if statement is not None:
                statements.append(statement)
            self.accept(";")
            if isinstance(statement, (ast.Return, ast.Break, ast.Continue)):
                break
        self.leave()
        return statements

    def _do_loop(
        self, what: str, names: Sequence[Token] = ()
    ) -> tuple[list[ast.Local], list[ast.Statement]]:
        """Read ``do … end``, declaring the names of a ``for`` and three hidden locals."""
        do = self.expect("do", what)
        with self.scope.enter_block():
            if names:
                self.room(len(names) + 3, names[-1])
            variables = [self.scope.declare(name.value, name.line) for name in names]
            with self.scope.enter_loop():
                body = self._block()
        self.expect_match("end", do)
        return variables, body

    def _statement(self) -> ast.Statement | None:
        if self.token.kind == "@":
            return self._attributed()
        read = getattr(self, f"_{self.token.kind}_statement", self._expression_statement)
        statement: ast.Statement | None = read()
        return statement

    def _if_statement(self) -> ast.Statement:
        opener = self.next()
        arms = [self._if_arm()]
        otherwise: list[ast.Statement] = []
        while self.accept("elseif"):
            arms.append(self._if_arm())
        if self.token.kind == "else":
            opener = self.next()
            otherwise = self._block()
        self.expect_match("end", opener)
        return ast.If(opener.line, arms, otherwise)

    def _if_arm(self) -> tuple[ast.Expression, list[ast.Statement]]:
        condition = self.expression()
        self.expect("then", "if statement")
        return condition, self._block()

    def _while_statement(self) -> ast.Statement:
        opener = self.next()
        condition = self.expression()
        _, body = self._do_loop("while loop")
        return ast.While(opener.line, condition, body)

    def _do_statement(self) -> ast.Statement:
        opener = self.next()
        body = self._block()
        self.expect_match("end", opener)
        return ast.Do(opener.line, body)

    def _repeat_statement(self) -> ast.Statement:
        opener = self.next()
        with self.scope.enter_block():
            with self.scope.enter_loop() as loop:
                body = self.block_statements()
            self.expect_match("until", opener)
            start = self.token
            with self.scope.enter_condition(loop) as undefined:
                condition = self.expression()
        if undefined:
            self.fail(
                f"Local {undefined[0].name} used in the repeat..until condition is undefined "
                f"because continue statement on line {loop.continue_line} jumps over it",
                start.line,
            )
        return ast.Repeat(opener.line, body, condition)

    def _for_statement(self) -> ast.Statement:
        opener = self.next()
        names = [self.typed_name("for loop")]
        if self.token.kind == "=":
            return self._numeric_for(opener, names[0])
        while self.accept(","):
            names.append(self.typed_name("for loop"))
        self.expect("in", "for loop")
        values = self.expressions()
        variables, body = self._do_loop("for loop", names)
        return ast.GenericFor(opener.line, variables, values, body)

    def _numeric_for(self, opener: Token, name: Token) -> ast.Statement:
        self.next()
        start = self.expression()
        self.expect(",", "index range")
        limit = self.expression()
        step = self.expression() if self.accept(",") else None
        (variable,), body = self._do_loop("for loop", [name])
        return ast.NumericFor(opener.line, variable, start, limit, step, body)

    def _function_statement(self) -> ast.Statement:
        opener = self.next()
        name = self.expect_name("function name")
        target = self._name(name)
        debug_name, is_method = name.value, False
        while self.token.kind in (".", ":"):
            is_method = self.next().kind == ":"
            part = self.expect_name("field name" if not is_method else "method name")
            debug_name = part.value
            target = ast.Index(part.line, target, ast.Constant(part.line, part.value))
            if is_method:
                break
        self._check_target(target)
        function = self.function_body(opener, debug_name, is_method=is_method)
        self._note_write(target)
        return ast.Assignment(opener.line, [target], [function])

    def _local_statement(self) -> ast.Statement:
        return self._declaration(self.next(), is_const=False)

    def _declaration(self, keyword: Token, *, is_const: bool) -> ast.Statement:
        """Read the declaration after ``local`` or ``const``."""
        if self.token.kind == "function":
            return self._local_function(is_const=is_const)
        names = [self.typed_name("variable name")]
        while self.accept(","):
            names.append(self.typed_name("variable name"))
        values = self.expressions() if self.accept("=") else []
        if is_const and len(values) != len(names) and not (values and ast.is_multiple(values[-1])):
            self.fail("Missing initializer in const declaration", keyword.line)
        self.room(len(names), names[-1])
        variables = [self.scope.declare(name.value, name.line, is_const=is_const) for name in names]
        return ast.LocalStatement(keyword.line, variables, values)

    def _local_function(self, *, is_const: bool) -> ast.Statement:
        keyword = self.next()
        name = self.expect_name("variable name")
        self.room(1, name)
        local = self.scope.declare(name.value, name.line, is_const=is_const)
        function = self.function_body(keyword, name.value)
        local.self_function = function.body
        return ast.LocalFunction(keyword.line, local, function)

    def _return_statement(self) -> ast.Statement:
        opener = self.next()
        if self.token.kind in _BLOCK_END or self.token.kind == ";":
            return ast.Return(opener.line, [])
        return ast.Return(opener.line, self.expressions())

    def _break_statement(self) -> ast.Statement:
        opener = self.next()
        if not self.scope.loops:
            self.fail("Break statement must be inside a loop", opener.line)
        return ast.Break(opener.line)

    def _attributed(self) -> ast.Statement:
        self.attributes()
        if self.token.kind == "function":
            return self._function_statement()
        if self.peek().kind == "function":
            if self.token.kind == "local":
                return self._local_statement()
            if self.token.value == "const":
                return self._declaration(self.next(), is_const=True)
        self.unexpected(
            "'function', 'local function', 'const function', 'declare function' or a function "
            "type declaration after attribute"
        )

    def _expression_statement(self) -> ast.Statement | None:
        first = self.token
        expression = self.primary()
        if isinstance(expression, (ast.Call, ast.MethodCall)):
            return ast.CallStatement(expression.line, expression)
        if self.token.kind in ("=", ","):
            return self._assignment(expression)
        if self.token.kind in COMPOUND:
            operator = self.next().kind[:-1]
            self._check_target(expression)
            self._note_write(expression)
            return ast.CompoundAssignment(first.line, operator, expression, self.expression())
        if first.kind == "name" and self.tokens[self.position - 1] is first:
            return self._soft_keyword(first)
        self._fail_incomplete(first)

    def _soft_keyword(self, word: Token) -> ast.Statement | None:
        if word.value == "const" and self.token.kind in ("name", "function"):
            return self._declaration(word, is_const=True)
        if word.value == "continue":
            if not self.scope.loops:
                self.fail("Continue statement must be inside a loop", word.line)
            self.scope.note_continue(word.line)
            return ast.Continue(word.line)
        is_export = word.value == "export" and self.token.value == "type"
        if is_export:
            self.next()
        if is_export or (word.value == "type" and self.token.kind in ("name", "function")):
            if self.token.kind == "function":
                keyword = self.next()
                name = self.expect_name("type function name")
                self.function_body(keyword, name.value)
            else:
                self.type_alias()
            return None
        if self.token.kind in ("name", "function"):
            self.refuse_class(word)
        self._fail_incomplete(word)

    def _fail_incomplete(self, first: Token) -> NoReturn:
        self.fail("Incomplete statement: expected assignment or a function call", first.line)

    def _assignment(self, first: ast.Expression) -> ast.Statement:
        targets = [first]
        self._check_target(first)
        while self.accept(","):
            target = self.primary()
            self._check_target(target)
            targets.append(target)
        equals = self.expect("=", "assignment")
        values = self.expressions()
        for target in targets:
            self._note_write(target)
        return ast.Assignment(equals.line, targets, values)

    def _check_target(self, target: ast.Expression) -> None:
        if isinstance(target, ast.LocalName) and target.local.is_const:
            name = target.local.name
            self.fail(f"Variable '{name}' is constant and may not be reassigned", target.line)
        if not isinstance(target, (ast.LocalName, ast.GlobalName, ast.Index)):
            self.fail("Assigned expression must be a variable or a field", target.line)

    def _note_write(self, target: ast.Expression) -> None:
        if isinstance(target, ast.LocalName):
            target.local.writes += 1
