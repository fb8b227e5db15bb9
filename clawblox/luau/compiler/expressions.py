"""Luau's grammar of expressions and functions; `typesyntax` parses types and drops them."""

from __future__ import annotations

from collections.abc import Callable

from clawblox.luau.compiler import syntax as ast
from clawblox.luau.compiler.lexer import Token
from clawblox.luau.compiler.syntax import MAX_LOCALS, MAX_UPVALUES, NameScope
from clawblox.luau.compiler.typesyntax import TypeReader
from clawblox.luau.core.limits import Charge

BINARY_PRIORITY = {
    "or": (1, 1), "and": (2, 2),
    "<": (3, 3), ">": (3, 3), "<=": (3, 3), ">=": (3, 3), "~=": (3, 3), "==": (3, 3),
    "..": (5, 4),
    "+": (6, 6), "-": (6, 6),
    "*": (7, 7), "/": (7, 7), "//": (7, 7), "%": (7, 7),
    "^": (10, 9),
}  # fmt: skip
UNARY_PRIORITY = 8
ATTRIBUTES = {"checked", "native", "deprecated"}
_MAX_SUFFIXES = 1000
_CONSTANTS = {"nil": None, "true": True, "false": False}


class ExpressionParser(TypeReader):
    """Reads expressions; its subclass reads statements."""

    def __init__(self, source: str, chunk_name: str, charge: Charge) -> None:
        super().__init__(source, chunk_name, charge)
        self.scope = NameScope()

    def block_statements(self) -> list[ast.Statement]:
        """Read statements up to the end of their block.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        raise NotImplementedError

    def function_body(
        self, opener: Token, name: str, *, is_method: bool = False
    ) -> ast.FunctionExpression:
        """Read a function from its parameters to its ``end``.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        with self.scope.enter_function(name, opener.line) as body:
            if is_method:
                body.params.append(self.scope.declare("self", opener.line))
            self.generics()
            self._parameters(body)
            if self.token.kind in (":", "->"):
                self.next()
                self.type_pack()
            body.body = self.block_statements()
            body.end_line = self.token.line
            self.expect_match("end", opener)
            if len(body.upvalues) > MAX_UPVALUES:
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
                    self.type_pack()
                break
            names.append(self.typed_name())
            if not self.accept(","):
                break
            if self.token.kind == ")":
                self.unexpected("identifier")
        self.expect_match(")", paren)
        for name in names:
            self.room(1, name)
            body.params.append(self.scope.declare(name.value, name.line))

    def attributes(self) -> None:
        """Read attributes and drop them.

        Raises:
            LuauSyntaxError: An attribute is unknown or malformed.
        """
        while self.token.kind == "@":
            self.next()
            if self.token.kind != "[":
                self._attribute("attribute name")
                continue
            opener = self.next()
            self._attribute_with_arguments()
            while self.accept(","):
                self._attribute_with_arguments()
            self.expect_match("]", opener)

    def _attribute_with_arguments(self) -> None:
        self._attribute("attribute")
        if self.token.kind in ("string", "{", "("):
            self._call_arguments()

    def _attribute(self, context: str) -> None:
        name = self.expect_name(context)
        if name.value not in ATTRIBUTES:
            self.fail(f"Invalid attribute '@{name.value}'", name.line)

    def room(self, count: int, name: Token) -> None:
        """Check that there is room for more locals, with the reference's limit of registers.

        Raises:
            LuauSyntaxError: There are too many locals.
        """
        if not self.scope.has_room(count):
            self.fail(
                f"Out of local registers when trying to allocate {name.value}: "
                f"exceeded limit {MAX_LOCALS}",
                name.line,
            )

    def typed_name(self, context: str = "") -> Token:
        """Read a name and its type annotation.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        name = self.expect_name(context)
        if self.accept(":"):
            self.type()
        return name

    def expressions(self) -> list[ast.Expression]:
        """Read a list of expressions.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        expressions = [self.expression()]
        while self.accept(","):
            if self.token.kind == ")":
                self.fail("Expected expression after ',' but got ')' instead")
            expressions.append(self.expression())
        return expressions

    def expression(self, limit: int = 0) -> ast.Expression:
        """Read an expression whose binary operators bind tighter than ``limit``.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        self.enter("expression")
        left = self._unary()
        while True:
            priority = BINARY_PRIORITY.get(self.token.kind)
            if priority is None or priority[0] <= limit:
                break
            operator = self.next()
            right = self.expression(priority[1])
            left = ast.Binary(operator.line, operator.kind, left, right)
        self.leave()
        return left

    def _unary(self) -> ast.Expression:
        if self.token.kind in ("-", "not", "#"):
            operator = self.next()
            return ast.Unary(operator.line, operator.kind, self.expression(UNARY_PRIORITY))
        if self.token.kind == "!":
            self.fail("Unexpected '!'; did you mean 'not'?")
        expression = self._simple()
        while self.accept("::"):
            self.type()
            expression = ast.Single(expression.line, expression)
        return expression

    def _simple(self) -> ast.Expression:
        token = self.token
        if token.kind in _CONSTANTS:
            self.next()
            return ast.Constant(token.line, _CONSTANTS[token.kind])
        if token.kind == "number":
            self.next()
            value = read_number(token.value)
            if value is None:
                if token.value.endswith("i") and read_number(token.value[:-1]) is not None:
                    self.fail(
                        f"64-bit integers, such as {token.value}, are not supported", token.line
                    )
                self.fail("Malformed number", token.line)
            return ast.Constant(token.line, value)
        if token.kind == "string":
            self.next()
            return ast.Constant(token.line, token.value)
        read = _READERS.get(token.kind)
        return self.primary() if read is None else read(self)

    def _vararg(self) -> ast.Expression:
        token = self.next()
        if not self.scope.function.is_vararg:
            self.fail("Cannot use '...' outside of a vararg function", token.line)
        return ast.Vararg(token.line)

    def _function_expression(self) -> ast.Expression:
        self.attributes()
        if self.token.kind != "function":
            self.unexpected("'function' declaration after attribute")
        return self.function_body(self.next(), "")

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
        items = [self._table_item() for _ in self.listed("}", opener, ",;")]
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

    def primary(self) -> ast.Expression:
        """Read a name or parenthesis, with the fields and calls after it.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        expression = self._prefix()
        self.enter("expression")
        started = self.depth
        while True:
            extended = self._suffix(expression)
            if extended is None:
                break
            expression = extended
            self.depth += 1
            if self.depth > started + _MAX_SUFFIXES:
                self.enter("expression")
        self.depth = started - 1
        return expression

    def _prefix(self) -> ast.Expression:
        if self.token.kind == "(":
            opener = self.next()
            inner = self.expression()
            self.expect_match(")", opener)
            return ast.Single(inner.line, inner)
        if self.token.kind == "name":
            return self._name(self.next())
        self.unexpected("identifier", "expression")

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
            line = self.tokens[self.position - 1].end_line
            if token.kind == "(" and line != token.line:
                self.fail(
                    "Ambiguous syntax: this looks like an argument list for a function call, but "
                    "could also be a start of new statement; use ';' to separate statements"
                )
            return ast.Call(line, expression, self._call_arguments())
        if token.kind == "<" and self._is_instantiation():
            self.instantiation()
            if isinstance(expression, (ast.Call, ast.MethodCall)):
                return ast.Single(expression.line, expression)
            return expression
        return None

    def _is_instantiation(self) -> bool:
        following = self.peek()
        return following.kind == "<" and following.start == self.token.end

    def _method(self, expression: ast.Expression) -> ast.Expression:
        self.next()
        name = self.expect_name("method name")
        if self.token.kind == "<" and self._is_instantiation():
            self.instantiation()
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
        arguments = self.expressions()
        self.expect_match(")", opener)
        return arguments


_READERS: dict[str, Callable[[ExpressionParser], ast.Expression]] = {
    "...": ExpressionParser._vararg,
    "function": ExpressionParser._function_expression,
    "@": ExpressionParser._function_expression,
    "if": ExpressionParser._if_expression,
    "{": ExpressionParser._table,
    "interp-begin": ExpressionParser._interpolation,
    "interp-simple": ExpressionParser._interpolation,
}
"""Readers of expressions by the kind of their first token."""


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
