"""Parses and drops Luau's type syntax, since types have no effect at run time."""

from __future__ import annotations

from clawblox.luau.compiler.lexer import Token, TokenReader

_ACCESS = {"read", "write"}


class TypeReader(TokenReader):
    """Steps over types; the subclass reads expressions."""

    def expression(self) -> object:
        """Read an expression, as in ``typeof(x)``.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        raise NotImplementedError

    def attributes(self) -> None:
        """Read the attributes before a type.

        Raises:
            LuauSyntaxError: An attribute is unknown or malformed.
        """
        raise NotImplementedError

    def type_alias(self) -> None:
        """Read an alias after the word ``type``.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        self.expect_name("type name")
        self.generics(defaults=True)
        self.expect("=", "type alias")
        self.type()

    def generics(self, *, defaults: bool = False) -> None:
        """Read ``<T, U...>`` if it starts at the current token.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        if self.token.kind != "<":
            return
        for _ in self.listed(">", self.next()):
            self.expect_name()
            is_pack = self.accept("...")
            if defaults and self.accept("="):
                self.type_pack() if is_pack else self.type()

    def instantiation(self) -> None:
        """Read ``<<A, B>>`` after a function's name.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        opener = self.next()
        self._type_arguments(self.expect("<"))
        self.expect_match(">", opener)

    def type_pack(self) -> None:
        """Read a return type, an argument or the type of ``...``: ``T``, ``...T`` or ``T...``.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        is_variadic = self.accept("...")
        self.type()
        if not is_variadic:
            self.accept("...")

    def _type_arguments(self, opener: Token) -> None:
        for _ in self.listed(">", opener):
            self.type_pack()

    def type(self) -> None:
        """Read one type.

        Raises:
            LuauSyntaxError: The source is not valid Luau here.
        """
        self.enter("type annotation")
        if self.token.kind in ("|", "&"):
            self.next()
        self._simple_type()
        while self.token.kind in ("?", "|", "&"):
            if self.next().kind != "?":
                self._simple_type()
        self.leave()

    def _simple_type(self) -> None:
        kind = self.token.kind
        if kind == "@":
            self.attributes()
            self._simple_type()
        elif kind in ("nil", "true", "false", "string", "interp-simple"):
            self.next()
        elif kind == "{":
            for _ in self.listed("}", self.next(), ",;"):
                self._type_field()
        elif kind == "(" or kind == "<":
            self._function_type()
        elif kind == "name":
            self._named_type()
        else:
            self.unexpected("type")

    def _named_type(self) -> None:
        name = self.next()
        if name.value == "typeof" and self.token.kind == "(":
            opener = self.next()
            self.expression()
            self.expect_match(")", opener)
            return
        while self.accept("."):
            self.expect_name("field name")
        if self.token.kind == "<":
            self._type_arguments(self.next())

    def _type_field(self) -> None:
        if self.token.value in _ACCESS and self.peek().kind in ("name", "["):
            self.next()
        if self.token.kind == "[":
            opener = self.next()
            self.type()
            self.expect_match("]", opener)
            self.expect(":", "table field")
        elif self.token.kind == "name" and self.peek().kind == ":":
            self.next()
            self.next()
        self.type()

    def _function_type(self) -> None:
        self.generics()
        for _ in self.listed(")", self.expect("(")):
            if self.token.kind == "name" and self.peek().kind == ":":
                self.next()
                self.next()
            self.type_pack()
        if self.accept("->"):
            self.type_pack()
