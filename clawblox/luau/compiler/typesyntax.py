"""Parses Luau's type syntax and drops it: types have no meaning at run time."""

from __future__ import annotations

from collections.abc import Callable

from clawblox.luau.compiler.lexer import TokenReader

_ACCESS = {"read", "write"}


class TypeReader:
    """Steps a reader of tokens over types.

    Args:
        tokens: The reader.
        parse_expression: Steps over an expression, as in ``typeof(x)``.
        skip_attributes: Steps over the attributes before a type.
    """

    def __init__(
        self,
        tokens: TokenReader,
        parse_expression: Callable[[], object],
        skip_attributes: Callable[[], None],
    ) -> None:
        self._tokens = tokens
        self._parse_expression = parse_expression
        self._skip_attributes = skip_attributes

    def alias(self) -> None:
        """Read an alias from behind the word ``type``.

        Raises:
            LuauSyntaxError: The source is not Luau here.
        """
        tokens = self._tokens
        tokens.expect_name("type name")
        self.generics(defaults=True)
        tokens.expect("=", "type alias")
        self.type()

    def generics(self, *, defaults: bool = False) -> None:
        """Read ``<T, U...>`` if the current token begins one.

        Raises:
            LuauSyntaxError: The source is not Luau here.
        """
        tokens = self._tokens
        if tokens.token.kind != "<":
            return
        opener = tokens.next()
        while tokens.token.kind != ">":
            tokens.expect_name()
            is_pack = tokens.accept("...")
            if defaults and tokens.accept("="):
                self._pack_argument() if is_pack else self.type()
            if not tokens.accept(","):
                break
        tokens.expect_match(">", opener)

    def instantiation(self) -> None:
        """Read ``<<A, B>>`` behind a function's name.

        Raises:
            LuauSyntaxError: The source is not Luau here.
        """
        tokens = self._tokens
        opener = tokens.next()
        inner = tokens.expect("<")
        self._arguments(">")
        tokens.expect_match(">", inner)
        tokens.expect_match(">", opener)

    def return_type(self) -> None:
        """Read a return type, or the type of ``...``: ``T``, ``...T``, ``T...`` or a pack.

        Raises:
            LuauSyntaxError: The source is not Luau here.
        """
        tokens = self._tokens
        tokens.accept("...")
        self.type()
        tokens.accept("...")

    def _pack_argument(self) -> None:
        tokens = self._tokens
        if tokens.accept("..."):
            self.type()
            return
        self.type()
        tokens.accept("...")

    def _arguments(self, close: str) -> None:
        tokens = self._tokens
        while tokens.token.kind != close:
            self._pack_argument()
            if not tokens.accept(","):
                break

    def type(self) -> None:
        """Read one type.

        Raises:
            LuauSyntaxError: The source is not Luau here.
        """
        tokens = self._tokens
        tokens.enter("type annotation")
        if tokens.token.kind in ("|", "&"):
            tokens.next()
        self._suffixed()
        while tokens.token.kind in ("|", "&"):
            tokens.next()
            self._suffixed()
        tokens.leave()

    def _suffixed(self) -> None:
        self._simple()
        while self._tokens.accept("?"):
            pass

    def _simple(self) -> None:
        tokens = self._tokens
        kind = tokens.token.kind
        if kind == "@":
            self._skip_attributes()
            self._simple()
        elif kind in ("nil", "true", "false", "string", "interp-simple"):
            tokens.next()
        elif kind == "{":
            self._table()
        elif kind == "(" or kind == "<":
            self._function_or_group()
        elif kind == "name":
            self._named()
        else:
            tokens.unexpected("type")

    def _named(self) -> None:
        tokens = self._tokens
        name = tokens.next()
        if name.value == "typeof" and tokens.token.kind == "(":
            opener = tokens.next()
            self._parse_expression()
            tokens.expect_match(")", opener)
            return
        while tokens.accept("."):
            tokens.expect_name("field name")
        if tokens.token.kind == "<":
            opener = tokens.next()
            self._arguments(">")
            tokens.expect_match(">", opener)

    def _table(self) -> None:
        tokens = self._tokens
        opener = tokens.next()
        while tokens.token.kind != "}":
            self._field()
            if not (tokens.accept(",") or tokens.accept(";")):
                break
        tokens.expect_match("}", opener)

    def _field(self) -> None:
        tokens = self._tokens
        if tokens.token.value in _ACCESS and tokens.peek().kind in ("name", "["):
            tokens.next()
        if tokens.token.kind == "[":
            opener = tokens.next()
            self.type()
            tokens.expect_match("]", opener)
            tokens.expect(":", "table field")
        elif tokens.token.kind == "name" and tokens.peek().kind == ":":
            tokens.next()
            tokens.next()
        self.type()

    def _function_or_group(self) -> None:
        tokens = self._tokens
        self.generics()
        opener = tokens.expect("(")
        while tokens.token.kind != ")":
            if tokens.token.kind == "name" and tokens.peek().kind == ":":
                tokens.next()
                tokens.next()
            self._pack_argument()
            if not tokens.accept(","):
                break
        tokens.expect_match(")", opener)
        if tokens.accept("->"):
            self.return_type()
