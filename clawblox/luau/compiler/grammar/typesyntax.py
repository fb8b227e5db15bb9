"""Reads Luau's type syntax and forgets it: types have no meaning at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawblox.luau.compiler.grammar.expressions import ExpressionParser

_ACCESS = {"read", "write"}


class TypeReader:
    """Steps the parser's tokens over types."""

    def __init__(self, parser: ExpressionParser) -> None:
        self._parser = parser

    def alias(self) -> None:
        """Read what follows ``type``: an alias, or a type function."""
        parser = self._parser
        if parser.token.kind == "function":
            opener = parser.next()
            name = parser.expect_name("type function name")
            parser.function_body(opener, name.value)
            return
        parser.expect_name("type name")
        self.generics(defaults=True)
        parser.expect("=", "type alias")
        self.type()

    def generics(self, *, defaults: bool = False) -> None:
        """Read ``<T, U...>`` if it is here."""
        parser = self._parser
        if parser.token.kind != "<":
            return
        opener = parser.next()
        while parser.token.kind != ">":
            parser.expect_name()
            is_pack = parser.accept("...")
            if defaults and parser.accept("="):
                self._pack_argument() if is_pack else self.type()
            if not parser.accept(","):
                break
        parser.expect_match(">", opener)

    def instantiation(self) -> None:
        """Read ``<<A, B>>`` behind a function's name."""
        parser = self._parser
        opener = parser.next()
        inner = parser.expect("<")
        self._arguments(">")
        parser.expect_match(">", inner)
        parser.expect_match(">", opener)

    def return_type(self) -> None:
        """Read a return type: one type, a pack in parentheses, ``...T`` or ``T...``."""
        self.pack_type()

    def pack_type(self) -> None:
        """Read the type of ``...``: ``T`` or ``T...``."""
        parser = self._parser
        parser.accept("...")
        self.type()
        parser.accept("...")

    def _pack_argument(self) -> None:
        parser = self._parser
        if parser.accept("..."):
            self.type()
            return
        self.type()
        parser.accept("...")

    def _arguments(self, close: str) -> None:
        parser = self._parser
        while parser.token.kind != close:
            self._pack_argument()
            if not parser.accept(","):
                break

    def type(self) -> None:
        """Read one type."""
        parser = self._parser
        parser.enter("type annotation")
        if parser.token.kind in ("|", "&"):
            parser.next()
        self._suffixed()
        while parser.token.kind in ("|", "&"):
            parser.next()
            self._suffixed()
        parser.leave()

    def _suffixed(self) -> None:
        self._simple()
        while self._parser.accept("?"):
            pass

    def _simple(self) -> None:
        parser = self._parser
        kind = parser.token.kind
        if kind == "@":
            parser.attributes()
            self._simple()
        elif kind in ("nil", "true", "false", "string", "interp-simple"):
            parser.next()
        elif kind == "{":
            self._table()
        elif kind == "(" or kind == "<":
            self._function_or_group()
        elif kind == "name":
            self._named()
        else:
            parser.unexpected("type")

    def _named(self) -> None:
        parser = self._parser
        name = parser.next()
        if name.value == "typeof" and parser.token.kind == "(":
            opener = parser.next()
            parser.expression()
            parser.expect_match(")", opener)
            return
        while parser.accept("."):
            parser.expect_name("field name")
        if parser.token.kind == "<":
            opener = parser.next()
            self._arguments(">")
            parser.expect_match(">", opener)

    def _table(self) -> None:
        parser = self._parser
        opener = parser.next()
        while parser.token.kind != "}":
            self._field()
            if not (parser.accept(",") or parser.accept(";")):
                break
        parser.expect_match("}", opener)

    def _field(self) -> None:
        parser = self._parser
        if parser.token.value in _ACCESS and parser.peek().kind in ("name", "["):
            parser.next()
        if parser.token.kind == "[":
            opener = parser.next()
            self.type()
            parser.expect_match("]", opener)
            parser.expect(":", "table field")
        elif parser.token.kind == "name" and parser.peek().kind == ":":
            parser.next()
            parser.next()
        self.type()

    def _function_or_group(self) -> None:
        parser = self._parser
        self.generics()
        opener = parser.expect("(")
        while parser.token.kind != ")":
            if parser.token.kind == "name" and parser.peek().kind == ":":
                parser.next()
                parser.next()
            self._pack_argument()
            if not parser.accept(","):
                break
        parser.expect_match(")", opener)
        if parser.accept("->"):
            self.return_type()
