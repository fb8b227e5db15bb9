"""Steps through the tokens of a chunk, and raises Luau's errors about those that do not fit."""

from __future__ import annotations

from typing import NoReturn

from clawblox.luau.compiler.grammar.lexer import Lexer, Token
from clawblox.luau.core.errors import LuauSyntaxError
from clawblox.luau.core.limits import Charge

MAX_DEPTH = 1000  # of blocks and expressions; generated code has limits of its own
EXPERIMENTAL = {"const", "class"}


class TokenReader:
    """The tokens of one chunk, and the reader's place among them."""

    def __init__(self, source: str, chunk_name: str, charge: Charge) -> None:
        self.chunk_name = chunk_name
        self.charge = charge
        self.tokens = Lexer(source, chunk_name, charge).tokens()
        self.position = 0
        self.token = self.tokens[0]
        self.depth = 0

    def fail(self, message: str, line: int | None = None) -> NoReturn:
        """Raise a syntax error at a line; without one, at the current token.

        Raises:
            LuauSyntaxError: Always.
        """
        raise LuauSyntaxError(self.chunk_name, line or self.token.line, message)

    def unexpected(self, wanted: str, context: str = "") -> NoReturn:
        """Raise Luau's error about the current token.

        Raises:
            LuauSyntaxError: Always.
        """
        if self.token.kind == "name" and self.token.value in EXPERIMENTAL:
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

    def peek(self) -> Token:
        """Return the token behind the current one."""
        return self.tokens[min(self.position + 1, len(self.tokens) - 1)]

    def accept(self, kind: str) -> bool:
        """Step over the current token if it is of this kind."""
        if self.token.kind != kind:
            return False
        self.next()
        return True

    def expect(self, kind: str, context: str = "") -> Token:
        """Step over a token that must be here.

        Raises:
            LuauSyntaxError: The current token is another.
        """
        if self.token.kind != kind:
            self.unexpected(f"'{kind}'", context)
        return self.next()

    def expect_name(self, context: str = "") -> Token:
        """Step over an identifier that must be here.

        Raises:
            LuauSyntaxError: The current token is no identifier.
        """
        if self.token.kind != "name":
            self.unexpected("identifier", context)
        return self.next()

    def expect_match(self, kind: str, opener: Token) -> Token:
        """Step over the token that closes ``opener``.

        Raises:
            LuauSyntaxError: The current token is another.
        """
        if self.token.kind == kind:
            return self.next()
        if self.token.line == opener.line:
            place = f"column {opener.column}"
        else:
            place = f"line {opener.line}"
        self.fail(f"Expected '{kind}' (to close '{opener.kind}' at {place}), got {self.token.text}")

    def enter(self, what: str) -> None:
        """Go one level deeper.

        Raises:
            LuauSyntaxError: That is too deep.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(
                f"Exceeded allowed recursion depth; simplify your {what} to make the code compile"
            )

    def leave(self) -> None:
        """Return from a level."""
        self.depth -= 1
