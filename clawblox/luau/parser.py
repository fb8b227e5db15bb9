"""Luau's grammar: statements and expressions. Types are read by `typesyntax` and forgotten."""

from __future__ import annotations

from typing import NoReturn

from clawblox.luau import syntax as ast
from clawblox.luau.errors import LuauSyntaxError
from clawblox.luau.lexer import Lexer, Token
from clawblox.luau.scope import MAX_LOCALS, Scope
from clawblox.luau.typesyntax import TypeReader

MAX_DEPTH = 200  # nesting of blocks and expressions; the generated code has limits of its own
BINARY_PRIORITY = {
    "or": (1, 1), "and": (2, 2),
    "<": (3, 3), ">": (3, 3), "<=": (3, 3), ">=": (3, 3), "~=": (3, 3), "==": (3, 3),
    "..": (5, 4),
    "+": (6, 6), "-": (6, 6),
    "*": (7, 7), "/": (7, 7), "//": (7, 7), "%": (7, 7),
    "^": (10, 9),
}  # fmt: skip
UNARY_PRIORITY = 8
COMPOUND = {"+=", "-=", "*=", "/=", "//=", "%=", "^=", "..="}
ATTRIBUTES = {"checked", "native", "deprecated"}
_BLOCK_END = {"eof", "else", "elseif", "end", "until"}
_EXPERIMENTAL = {"const", "class"}


def parse(source: str, chunk_name: str) -> tuple[ast.FunctionBody, list[ast.FunctionBody]]:
    """Return the main function of a chunk and all its functions, the main one first.

    Args:
        source: The source, one character a byte.
        chunk_name: The chunk's name, with its ``=`` or ``@`` if it has one.

    Raises:
        LuauSyntaxError: The chunk is not Luau.
    """
    return Parser(source, chunk_name).chunk()


class Parser:
    """A recursive descent over the tokens of one chunk."""

    def __init__(self, source: str, chunk_name: str) -> None:
        self.chunk_name = chunk_name
        self.tokens = Lexer(source, chunk_name).tokens()
        self.position = 0
        self.token = self.tokens[0]
        self.scope = Scope()
        self.types = TypeReader(self)
        self._depth = 0

    # Tokens

    def fail(self, message: str, line: int | None = None) -> NoReturn:
        """Raise a syntax error at a line, or at the current token."""
        raise LuauSyntaxError(self.chunk_name, line or self.token.line, message)

    def unexpected(self, wanted: str, context: str = "") -> NoReturn:
        """Raise Luau's complaint about the current token."""
        if self.token.kind == "name" and self.token.value in _EXPERIMENTAL:
            self._refuse_experimental()
        during = f" when parsing {context}" if context else ""
        self.fail(f"Expected {wanted}{during}, got {self.token.text}")

    def _refuse_experimental(self) -> NoReturn:
        self.fail(f"'{self.token.value}' declarations are experimental and not supported")

    def next(self) -> Token:
        """Return the current token and step over it."""
        token = self.token
        if token.kind != "eof":
            self.position += 1
            self.token = self.tokens[self.position]
        return token

    def peek(self, distance: int = 1) -> Token:
        """Return a later token."""
        return self.tokens[min(self.position + distance, len(self.tokens) - 1)]

    def accept(self, kind: str) -> bool:
        """Step over the current token if it is of this kind."""
        if self.token.kind != kind:
            return False
        self.next()
        return True

    def expect(self, kind: str, context: str = "") -> Token:
        """Step over a token that has to be here."""
        if self.token.kind != kind:
            self.unexpected(f"'{kind}'", context)
        return self.next()

    def expect_name(self, context: str = "") -> Token:
        """Step over an identifier that has to be here."""
        if self.token.kind != "name":
            self.unexpected("identifier", context)
        return self.next()

    def expect_match(self, kind: str, opener: Token) -> Token:
        """Step over the token that closes ``opener``."""
        if self.token.kind == kind:
            return self.next()
        if self.token.line == opener.line:
            place = f"column {opener.column}"
        else:
            place = f"line {opener.line}"
        self.fail(f"Expected '{kind}' (to close '{opener.kind}' at {place}), got {self.token.text}")

    def _enter(self, what: str) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(
                f"Exceeded allowed recursion depth; simplify your {what} to make the code compile"
            )

    def _leave(self) -> None:
        self._depth -= 1

    # Blocks

    def chunk(self) -> tuple[ast.FunctionBody, list[ast.FunctionBody]]:
        """Read the whole chunk."""
        with self.scope.enter_function("", 1) as main:
            main.is_vararg = True
            main.body = self._block_statements()
            if self.token.kind != "eof":
                self.unexpected("<eof>")
            main.end_line = self.token.line
        return main, self.scope.functions

    def _block(self) -> list[ast.Statement]:
        with self.scope.enter_block():
            return self._block_statements()

    def _block_statements(self) -> list[ast.Statement]:
        self._enter("block")
        statements: list[ast.Statement] = []
        while self.token.kind not in _BLOCK_END:
            statement = self._statement()
            if statement is not None:
                statements.append(statement)
            self.accept(";")
            if isinstance(statement, (ast.Return, ast.Break, ast.Continue)):
                break
        self._leave()
        return statements

    def _loop_body(self) -> list[ast.Statement]:
        self.scope.loop_depth += 1
        body = self._block()
        self.scope.loop_depth -= 1
        return body

    # Statements

    def _statement(self) -> ast.Statement | None:
        reader = getattr(self, f"_{self.token.kind}_statement", None)
        if reader is not None and self.token.kind in _STATEMENTS:
            result: ast.Statement | None = reader()
            return result
        if self.token.kind == "@":
            return self._attributed()
        return self._expression_statement()

    def _if_statement(self) -> ast.Statement:
        opener = self.next()
        arms = [self._if_arm(opener)]
        otherwise: list[ast.Statement] = []
        while True:
            if self.token.kind == "elseif":
                arms.append(self._if_arm(self.next()))
            elif self.token.kind == "else":
                opener = self.next()
                otherwise = self._block()
                break
            else:
                break
        self.expect_match("end", opener)
        return ast.If(opener.line, arms, otherwise)

    def _if_arm(self, opener: Token) -> tuple[ast.Expression, list[ast.Statement]]:
        condition = self.expression()
        self.expect("then", "if statement")
        return condition, self._block()

    def _while_statement(self) -> ast.Statement:
        opener = self.next()
        condition = self.expression()
        do = self.expect("do", "while loop")
        body = self._loop_body()
        self.expect_match("end", do)
        return ast.While(opener.line, condition, body)

    def _do_statement(self) -> ast.Statement:
        opener = self.next()
        body = self._block()
        self.expect_match("end", opener)
        return ast.Do(opener.line, body)

    def _repeat_statement(self) -> ast.Statement:
        opener = self.next()
        with self.scope.enter_block():
            self.scope.loop_depth += 1
            body = self._block_statements()
            self.scope.loop_depth -= 1
            self.expect_match("until", opener)
            condition = self.expression()
        return ast.Repeat(opener.line, body, condition)

    def _for_statement(self) -> ast.Statement:
        opener = self.next()
        names = [self._typed_name("for loop")]
        if self.token.kind == "=":
            return self._numeric_for(opener, names[0])
        while self.accept(","):
            names.append(self._typed_name("for loop"))
        self.expect("in", "for loop")
        values = self._expressions()
        do = self.expect("do", "for loop")
        with self.scope.enter_block():
            self._room(len(names) + 3, names[-1])
            variables = [self.scope.declare(name.value, name.line) for name in names]
            body = self._loop_body()
        self.expect_match("end", do)
        return ast.GenericFor(opener.line, variables, values, body)

    def _numeric_for(self, opener: Token, name: Token) -> ast.Statement:
        self.next()
        start = self.expression()
        self.expect(",", "index range")
        limit = self.expression()
        step = self.expression() if self.accept(",") else None
        do = self.expect("do", "for loop")
        with self.scope.enter_block():
            self._room(4, name)
            variable = self.scope.declare(name.value, name.line)
            body = self._loop_body()
        self.expect_match("end", do)
        return ast.NumericFor(opener.line, variable, start, limit, step, body)

    def _typed_name(self, context: str = "") -> Token:
        name = self.expect_name(context)
        if self.accept(":"):
            self.types.type()
        return name

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
        function = self._function_body(opener, debug_name, is_method=is_method)
        self._note_write(target)
        return ast.Assignment(opener.line, [target], [function])

    def _local_statement(self) -> ast.Statement:
        opener = self.next()
        if self.token.kind == "function":
            return self._local_function()
        names = [self._typed_name("variable name")]
        while self.accept(","):
            names.append(self._typed_name("variable name"))
        values = self._expressions() if self.accept("=") else []
        self._room(len(names), names[-1])
        variables = [self.scope.declare(name.value, name.line) for name in names]
        return ast.LocalStatement(opener.line, variables, values)

    def _local_function(self) -> ast.Statement:
        keyword = self.next()
        name = self.expect_name("variable name")
        self._room(1, name)
        local = self.scope.declare(name.value, name.line)
        function = self._function_body(keyword, name.value)
        local.self_function = function.body
        return ast.LocalFunction(keyword.line, local, function)

    def _room(self, count: int, name: Token) -> None:
        if not self.scope.has_room(count):
            self.fail(
                f"Out of local registers when trying to allocate {name.value}: "
                f"exceeded limit {MAX_LOCALS}",
                name.line,
            )

    def _return_statement(self) -> ast.Statement:
        opener = self.next()
        if self.token.kind in _BLOCK_END or self.token.kind == ";":
            return ast.Return(opener.line, [])
        return ast.Return(opener.line, self._expressions())

    def _break_statement(self) -> ast.Statement:
        opener = self.next()
        if not self.scope.loop_depth:
            self.fail("Break statement must be inside a loop", opener.line)
        return ast.Break(opener.line)

    def _attributed(self) -> ast.Statement:
        self._attributes()
        if self.token.kind == "function":
            return self._function_statement()
        if self.token.kind == "local" and self.peek().kind == "function":
            return self._local_statement()
        self.unexpected(
            "'function', 'local function', 'declare function' or a function type declaration "
            "after attribute"
        )

    def _attributes(self) -> None:
        while self.token.kind == "@":
            self.next()
            if self.token.kind == "[":
                self._attribute_list()
                continue
            name = self.expect_name("attribute name")
            self._check_attribute(name)

    def _attribute_list(self) -> None:
        opener = self.next()
        while True:
            name = self.expect_name("attribute")
            self._check_attribute(name)
            if self.token.kind in ("string", "{"):
                self._simple_argument()
            elif self.token.kind == "(":
                self._call_arguments()
            if not self.accept(","):
                break
        self.expect_match("]", opener)

    def _simple_argument(self) -> None:
        self.next() if self.token.kind == "string" else self._table()

    def _check_attribute(self, name: Token) -> None:
        if name.value not in ATTRIBUTES:
            self.fail(f"Invalid attribute '@{name.value}'", name.line)

    def _expression_statement(self) -> ast.Statement | None:
        first = self.token
        expression = self._primary()
        if isinstance(expression, (ast.Call, ast.MethodCall)):
            return ast.CallStatement(expression.line, expression)
        if self.token.kind in ("=", ","):
            return self._assignment(expression)
        if self.token.kind in COMPOUND:
            operator = self.next().kind[:-1]
            self._check_target(expression)
            self._note_write(expression)
            return ast.CompoundAssignment(first.line, operator, expression, self.expression())
        if first.kind == "name" and self._before_is(first):
            handled = self._soft_keyword(first)
            if handled is not _NOT_A_KEYWORD:
                return handled
        self.fail("Incomplete statement: expected assignment or a function call", first.line)

    def _before_is(self, token: Token) -> bool:
        return self.tokens[self.position - 1] is token

    def _soft_keyword(self, word: Token) -> ast.Statement | None:
        if word.value == "continue":
            if not self.scope.loop_depth:
                self.fail("Continue statement must be inside a loop", word.line)
            return ast.Continue(word.line)
        if word.value == "type" and self.token.kind in ("name", "function"):
            self.types.alias()
            return None
        if word.value == "export" and self.token.value == "type":
            self.next()
            self.types.alias()
            return None
        if word.value in _EXPERIMENTAL and self.token.kind in ("name", "function"):
            self.fail(f"'{word.value}' declarations are experimental and not supported", word.line)
        return _NOT_A_KEYWORD

    def _assignment(self, first: ast.Expression) -> ast.Statement:
        targets = [first]
        self._check_target(first)
        while self.accept(","):
            target = self._primary()
            self._check_target(target)
            targets.append(target)
        equals = self.expect("=", "assignment")
        values = self._expressions()
        for target in targets:
            self._note_write(target)
        return ast.Assignment(equals.line, targets, values)

    def _check_target(self, target: ast.Expression) -> None:
        if not isinstance(target, (ast.LocalName, ast.GlobalName, ast.Index)):
            self.fail("Assigned expression must be a variable or a field", target.line)

    def _note_write(self, target: ast.Expression) -> None:
        if isinstance(target, ast.LocalName):
            target.local.writes += 1

    # Functions

    def _function_body(
        self, opener: Token, name: str, *, is_method: bool = False
    ) -> ast.FunctionExpression:
        with self.scope.enter_function(name, opener.line) as body:
            if is_method:
                body.params.append(self.scope.declare("self", opener.line))
            self.types.generics()
            self._parameters(body)
            if self.token.kind in (":", "->"):
                self.next()
                self.types.return_type()
            body.body = self._block_statements()
            body.end_line = self.token.line
            self.expect_match("end", opener)
            if not self.scope.upvalues_fit():
                self.fail(
                    "Out of upvalue registers when trying to allocate upvalue: exceeded limit 200",
                    opener.line,
                )
        return ast.FunctionExpression(opener.line, body)

    def _parameters(self, body: ast.FunctionBody) -> None:
        paren = self.expect("(", "function")
        names: list[Token] = []
        while self.token.kind != ")":
            if self.accept("..."):
                body.is_vararg = True
                if self.accept(":"):
                    self.types.pack_type()
                break
            names.append(self._typed_name())
            if not self.accept(","):
                break
            if self.token.kind == ")":
                self.unexpected("identifier")
        self.expect_match(")", paren)
        for name in names:
            self._room(1, name)
            body.params.append(self.scope.declare(name.value, name.line))

    # Expressions

    def _expressions(self) -> list[ast.Expression]:
        expressions = [self.expression()]
        while self.accept(","):
            if self.token.kind == ")":
                self.fail("Expected expression after ',' but got ')' instead")
            expressions.append(self.expression())
        return expressions

    def expression(self, limit: int = 0) -> ast.Expression:
        """Read an expression whose binary operators bind tighter than ``limit``."""
        self._enter("expression")
        left = self._unary()
        while True:
            priority = BINARY_PRIORITY.get(self.token.kind)
            if priority is None or priority[0] <= limit:
                break
            operator = self.next()
            right = self.expression(priority[1])
            left = ast.Binary(operator.line, operator.kind, left, right)
        self._leave()
        return left

    def _unary(self) -> ast.Expression:
        if self.token.kind in ("-", "not", "#"):
            operator = self.next()
            return ast.Unary(operator.line, operator.kind, self.expression(UNARY_PRIORITY))
        if self.token.kind == "!":
            self.fail("Unexpected '!'; did you mean 'not'?")
        return self._cast(self._simple())

    def _cast(self, expression: ast.Expression) -> ast.Expression:
        while self.accept("::"):
            self.types.type()
            expression = ast.Single(expression.line, expression)
        return expression

    def _simple(self) -> ast.Expression:
        token = self.token
        if token.kind in _CONSTANTS:
            self.next()
            return ast.Constant(token.line, _CONSTANTS[token.kind])
        if token.kind == "number":
            self.next()
            return ast.Constant(token.line, self._number(token))
        if token.kind == "string":
            self.next()
            return ast.Constant(token.line, token.value)
        reader = _SIMPLE.get(token.kind)
        if reader is not None:
            result: ast.Expression = getattr(self, reader)()
            return result
        return self._primary()

    def _number(self, token: Token) -> float:
        value = read_number(token.value)
        if value is None:
            self.fail("Malformed number", token.line)
        return value

    def _vararg(self) -> ast.Expression:
        token = self.next()
        if not self.scope.function.is_vararg:
            self.fail("Cannot use '...' outside of a vararg function", token.line)
        return ast.Vararg(token.line)

    def _function_expression(self) -> ast.Expression:
        return self._function_body(self.next(), "")

    def _attributed_function(self) -> ast.Expression:
        self._attributes()
        if self.token.kind != "function":
            self.unexpected("'function' declaration after attribute")
        return self._function_expression()

    def _if_expression(self) -> ast.Expression:
        opener = self.next()
        arms = []
        while True:
            condition = self.expression()
            self.expect("then", "if then else expression")
            arms.append((condition, self.expression()))
            if not self.accept("elseif"):
                break
        self.expect("else", "if then else expression")
        return ast.IfExpression(opener.line, arms, self.expression())

    def _interpolation(self) -> ast.Expression:
        token = self.next()
        texts, values = [token.value], []
        while token.kind not in ("interp-simple", "interp-end"):
            if self.token.kind in ("interp-mid", "interp-end"):
                self.fail("Malformed interpolated string, expected expression inside '{}'")
            values.append(self.expression())
            if self.token.kind not in ("interp-mid", "interp-end"):
                self.fail("Malformed interpolated string; did you forget to add a '}'?")
            token = self.next()
            texts.append(token.value)
        return ast.Interpolation(token.line, texts, values)

    def _table(self) -> ast.Expression:
        opener = self.expect("{")
        items: list[tuple[ast.Expression | None, ast.Expression]] = []
        while self.token.kind != "}":
            items.append(self._table_item())
            if not (self.accept(",") or self.accept(";")):
                break
        self.expect_match("}", opener)
        return ast.TableLiteral(opener.line, items)

    def _table_item(self) -> tuple[ast.Expression | None, ast.Expression]:
        token = self.token
        if token.kind == "[":
            self.next()
            key = self.expression()
            self.expect_match("]", token)
            self.expect("=", "table field")
            return key, self.expression()
        if token.kind == "name" and self.peek().kind == "=":
            self.next()
            self.next()
            value = self.expression()
            if isinstance(value, ast.FunctionExpression) and not value.body.name:
                value.body.name = token.value
            return ast.Constant(token.line, token.value), value
        return None, self.expression()

    def _name(self, token: Token) -> ast.Expression:
        local = self.scope.find(token.value)
        if local is None:
            return ast.GlobalName(token.line, token.value)
        return ast.LocalName(token.line, local)

    def _prefix(self) -> ast.Expression:
        if self.token.kind == "(":
            opener = self.next()
            inner = self.expression()
            self.expect_match(")", opener)
            return ast.Single(inner.line, inner)
        if self.token.kind == "name":
            return self._name(self.next())
        self.unexpected("identifier", "expression")

    def _primary(self) -> ast.Expression:
        expression = self._prefix()
        self._enter("expression")
        started = self._depth
        while True:
            extended = self._suffix(expression)
            if extended is None:
                break
            expression = extended
            self._depth += 1
            if self._depth > started + 1000:
                self._enter("expression")
        self._depth = started - 1
        return expression

    def _suffix(self, expression: ast.Expression) -> ast.Expression | None:
        token = self.token
        if token.kind == ".":
            self.next()
            name = self.expect_name()
            return ast.Index(name.line, expression, ast.Constant(name.line, name.value))
        if token.kind == "[":
            self.next()
            key = self.expression()
            self.expect_match("]", token)
            return ast.Index(token.line, expression, key)
        if token.kind == ":":
            return self._method(expression)
        if token.kind in ("(", "{", "string"):
            if token.kind == "(" and self._is_ambiguous(token):
                self.fail(
                    "Ambiguous syntax: this looks like an argument list for a function call, but "
                    "could also be a start of new statement; use ';' to separate statements"
                )
            line = self.tokens[self.position - 1].end_line
            return ast.Call(line, expression, self._call_arguments())
        if token.kind == "<" and self._is_instantiation():
            self.types.instantiation()
            return (
                ast.Single(expression.line, expression)
                if self._ends_multi(expression)
                else (expression)
            )
        return None

    def _ends_multi(self, expression: ast.Expression) -> bool:
        return isinstance(expression, (ast.Call, ast.MethodCall))

    def _is_ambiguous(self, token: Token) -> bool:
        return self.tokens[self.position - 1].end_line != token.line

    def _is_instantiation(self) -> bool:
        following = self.peek()
        return following.kind == "<" and following.start == self.token.end

    def _method(self, expression: ast.Expression) -> ast.Expression:
        self.next()
        name = self.expect_name("method name")
        if self.token.kind == "<" and self._is_instantiation():
            self.types.instantiation()
        if self.token.kind not in ("(", "{", "string"):
            self.fail(
                f"Expected '(', '{{' or <string> when parsing function call, got {self.token.text}"
            )
        return ast.MethodCall(name.line, expression, name.value, self._call_arguments())

    def _call_arguments(self) -> list[ast.Expression]:
        token = self.token
        if token.kind == "string":
            self.next()
            return [ast.Constant(token.line, token.value)]
        if token.kind == "{":
            return [self._table()]
        opener = self.expect("(")
        if self.accept(")"):
            return []
        arguments = self._expressions()
        self.expect_match(")", opener)
        return arguments


def read_number(text: str) -> float | None:
    """Return the value of a number literal, or None if it is malformed."""
    digits = text.replace("_", "")
    try:
        if digits[:2] in ("0x", "0X"):
            return float(int(digits[2:], 16)) if digits[2:].isalnum() else None
        if digits[:2] in ("0b", "0B"):
            return float(int(digits[2:], 2)) if digits[2:].isalnum() else None
        return float(digits) if digits[0] in ".0123456789" else None
    except (ValueError, OverflowError):
        return None


_NOT_A_KEYWORD = ast.Statement(0)
_CONSTANTS = {"nil": None, "true": True, "false": False}
_STATEMENTS = {"if", "while", "do", "repeat", "for", "function", "local", "return", "break"}
_SIMPLE = {
    "...": "_vararg",
    "function": "_function_expression",
    "@": "_attributed_function",
    "if": "_if_expression",
    "{": "_table",
    "interp-begin": "_interpolation",
    "interp-simple": "_interpolation",
}
