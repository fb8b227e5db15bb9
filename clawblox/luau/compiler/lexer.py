"""Splits Luau source into tokens, without grammar.

Source text is a ``str`` of bytes: every character is one byte (Latin-1), as everywhere in the VM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from clawblox.luau.core.errors import LuauSyntaxError
from clawblox.luau.core.limits import Charge

KEYWORDS = frozenset(
    (
        "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in",
        "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
    )
)  # fmt: skip

_SKIP = re.compile(r"[ \t\r\n\v\f]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"(?:\.?[0-9])[0-9._]*(?:[eE][+-]?)?[A-Za-z0-9_]*")
_SYMBOL = re.compile(
    r"\.\.\.|\.\.=|//=|::|->|==|~=|<=|>=|\+=|-=|\*=|/=|%=|\^=|//|\.\.|[-+*/%^#<>=(){}\[\];:,.?|&@]"
)
_LONG_OPEN = re.compile(r"\[(=*)\[")
_STRING_RUN = {quote: re.compile(rf"[^\\\r\n{quote}]+") for quote in "\"'"}
_INTERP_RUN = re.compile(r"[^\\\r\n`{]+")
_ESCAPES = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_ESCAPE = re.compile(
    r"x(?P<hex>[0-9a-fA-F]{2})|u\{(?P<code_point>[0-9a-fA-F]+)\}|(?P<decimal>[0-9]{1,3})"
    r"|(?P<blank>z[ \t\r\n\v\f]*)|\r(?P<newline>\n)|(?P<other>[^xu]|\Z)",
    re.DOTALL,
)
_MAX_CODE_POINT = 0x10FFFF
_BYTES_PER_STEP = 4
_STEPS_PER_TOKEN = 8
_TOKENS_PER_CHARGE = 64
_UNFINISHED = "Malformed string; did you forget to finish it?"


class Token(NamedTuple):
    """One token.

    ``kind`` is ``name``, ``number``, ``string``, ``eof``, or for pieces of a backtick string
    ``interp-begin``, ``interp-mid``, ``interp-end`` and ``interp-simple``. For other tokens it is
    the symbol or keyword itself. ``value`` is the name or the decoded literal, ``text`` the form in
    error messages. ``end_line`` differs from ``line`` for long strings.
    """

    kind: str
    value: str
    text: str
    line: int
    column: int
    start: int
    end: int
    end_line: int


class Lexer:
    """Splits a chunk into tokens.

    Each token is charged, for reading and compiling.
    """

    def __init__(self, source: str, chunk_name: str, charge: Charge) -> None:
        self._charge = charge
        self._source = source
        self._chunk_name = chunk_name
        self._position = 0
        self._line = 1
        self._line_start = 0
        self._braces: list[bool] = []  # True for a `{` that opened an interpolated expression
        self._tokens: list[Token] = []

    def tokens(self) -> list[Token]:
        """Return all tokens, the last of kind ``eof``.

        Raises:
            LuauSyntaxError: A token is malformed.
            LuaError: `charge` refuses.
        """
        if self._source.startswith("#!"):
            self._position = self._find("\n")
        length = len(self._source)
        self._charge(length // _BYTES_PER_STEP)
        while True:
            if len(self._tokens) % _TOKENS_PER_CHARGE == 0:
                self._charge(_TOKENS_PER_CHARGE * _STEPS_PER_TOKEN)
            self._skip_blanks()
            if self._position >= length:
                break
            self._scan()
        self._add("eof", "", self._position, text="<eof>")
        return self._tokens

    def _find(self, text: str) -> int:
        position = self._source.find(text, self._position)
        return len(self._source) if position < 0 else position

    def fail(self, message: str) -> NoReturn:
        """Raise a syntax error at the current line.

        Raises:
            LuauSyntaxError: Always.
        """
        raise LuauSyntaxError(self._chunk_name, self._line, message)

    def _count_lines(self, start: int, end: int) -> None:
        newlines = self._source.count("\n", start, end)
        if newlines:
            self._line += newlines
            self._line_start = self._source.rfind("\n", start, end) + 1

    def _add(self, kind: str, value: str, start: int, *, text: str | None = None) -> None:
        line, column = self._line, start - self._line_start + 1
        self._count_lines(start, self._position)
        shown = f"'{self._source[start : self._position]}'" if text is None else text
        self._tokens.append(
            Token(kind, value, shown, line, column, start, self._position, self._line)
        )

    def _skip_blanks(self) -> None:
        while True:
            blank = _SKIP.match(self._source, self._position)
            if blank:
                self._count_lines(self._position, blank.end())
                self._position = blank.end()
            if not self._source.startswith("--", self._position):
                return
            self._skip_comment()

    def _skip_comment(self) -> None:
        start = self._position
        opening = _LONG_OPEN.match(self._source, start + 2)
        if opening:
            self._position = self._long_end(
                opening, "Expected identifier when parsing expression, got unfinished comment"
            )
        else:
            self._position = self._find("\n")
        self._count_lines(start, self._position)

    def _long_end(self, opening: re.Match[str], failure: str) -> int:
        close = f"]{opening.group(1)}]"
        end = self._source.find(close, opening.end())
        if end < 0:
            self.fail(failure)
        return end + len(close)

    def _scan(self) -> None:
        source, start = self._source, self._position
        if name := _NAME.match(source, start):
            self._position = name.end()
            word = name.group()
            self._add(word if word in KEYWORDS else "name", word, start)
        elif number := _NUMBER.match(source, start):
            self._position = number.end()
            self._add("number", number.group(), start)
        elif source[start] in "\"'":
            self._scan_string(source[start])
        elif source[start] == "`":
            self._position += 1
            self._scan_interpolated(start, "begin", "simple")
        elif opening := _LONG_OPEN.match(source, start):
            self._scan_long_string(opening)
        elif symbol := _SYMBOL.match(source, start):
            self._scan_symbol(symbol.group(), start)
        else:
            self._unexpected(source[start])

    def _scan_symbol(self, symbol: str, start: int) -> None:
        if symbol == "{":
            self._braces.append(False)
        elif symbol == "}" and self._braces and self._braces.pop():
            self._position = start + 1
            self._scan_interpolated(start, "mid", "end")
            return
        self._position = start + len(symbol)
        self._add(symbol, symbol, start)

    def _unexpected(self, character: str) -> NoReturn:
        if character == "!" and self._source.startswith("!=", self._position):
            self.fail("Unexpected '!='; did you mean '~='?")
        encoded = self._source[self._position : self._position + 4].encode("latin-1")
        code = ord(encoded.decode("utf-8", "surrogateescape")[0])
        shown = f"Unicode character U+{code:x}"
        if 0xDC80 <= code <= 0xDCFF:
            shown = "invalid UTF-8 sequence"
        elif " " < character < "\x7f":
            shown = f"'{character}'"
        self.fail(f"Expected identifier when parsing expression, got {shown}")

    def _scan_long_string(self, opening: re.Match[str]) -> None:
        start = self._position
        end = self._long_end(opening, _UNFINISHED)
        body = self._source[opening.end() : end - len(opening.group(1)) - 2].replace("\r\n", "\n")
        self._position = end
        self._add("string", body.removeprefix("\n"), start, text=f'"{body}"')

    def _scan_string(self, quote: str) -> None:
        start = self._position
        self._position += 1
        value = self._text(_STRING_RUN[quote])
        if self._source[self._position : self._position + 1] != quote:
            self.fail(_UNFINISHED)
        self._position += 1
        self._add("string", value, start, text=f'"{self._source[start + 1 : self._position - 1]}"')

    def _scan_interpolated(self, start: int, before_value: str, at_end: str) -> None:
        """Read text after its opener up to the closing backtick or the next ``{``."""
        value = self._text(_INTERP_RUN)
        stop = self._source[self._position : self._position + 1]
        if not stop or stop not in "`{":
            self.fail("Malformed interpolated string; did you forget to add a '`'?")
        if self._source.startswith("{{", self._position):
            self.fail(
                "Double braces are not permitted within interpolated strings; did you mean '\\{'?"
            )
        self._position += 1
        if stop == "{":
            self._braces.append(True)
        shown = f"`{value}{stop}"
        kind = before_value if stop == "{" else at_end
        self._add(f"interp-{kind}", value, start, text=shown)

    def _text(self, run: re.Pattern[str]) -> str:
        source, parts = self._source, []
        while self._position < len(source):
            if plain := run.match(source, self._position):
                parts.append(plain.group())
                self._position = plain.end()
                continue
            character = source[self._position]
            if character != "\\":
                break
            self._position += 1
            parts.append(self._escape())
        return "".join(parts)

    def _escape(self) -> str:
        escape = _ESCAPE.match(self._source, self._position)
        if escape is not None:
            self._position = escape.end()
            kind = escape.lastgroup
            text = escape[kind or 0]
            if kind in ("newline", "other"):
                return _ESCAPES.get(text, text)
            if kind == "blank":
                return ""
            code = int(text, 10 if kind == "decimal" else 16)
            if kind == "code_point" and code <= _MAX_CODE_POINT:
                return chr(code).encode("utf-8", "surrogatepass").decode("latin-1")
            if kind != "code_point" and code <= 255:
                return chr(code)
        self.fail("String literal contains malformed escape sequence")


MAX_DEPTH = 1000  # of blocks and expressions; generated code has its own limits


class TokenReader:
    """The tokens of a chunk, and the current position."""

    def __init__(self, source: str, chunk_name: str, charge: Charge) -> None:
        self.chunk_name = chunk_name
        self.charge = charge
        self.tokens = Lexer(source, chunk_name, charge).tokens()
        self.position = 0
        self.token = self.tokens[0]
        self.depth = 0

    def fail(self, message: str, line: int | None = None) -> NoReturn:
        """Raise a syntax error at a line, or at that of the current token.

        Raises:
            LuauSyntaxError: Always.
        """
        raise LuauSyntaxError(self.chunk_name, line or self.token.line, message)

    def unexpected(self, wanted: str, context: str = "") -> NoReturn:
        """Raise Luau's error for an unexpected current token.

        Raises:
            LuauSyntaxError: Always.
        """
        if self.token.kind == "name":
            self.refuse_class(self.token)
        during = f" when parsing {context}" if context else ""
        self.fail(f"Expected {wanted}{during}, got {self.token.text}")

    def refuse_class(self, word: Token) -> None:
        """Refuse a word that starts a class declaration.

        Raises:
            LuauSyntaxError: The word is ``class``.
        """
        if word.value == "class":
            self.fail("'class' declarations are not supported; use a metatable", word.line)

    def next(self) -> Token:
        """Return the current token and step over it."""
        token = self.token
        if token.kind != "eof":
            self.position += 1
            self.token = self.tokens[self.position]
        return token

    def peek(self) -> Token:
        """Return the token after the current token."""
        return self.tokens[min(self.position + 1, len(self.tokens) - 1)]

    def accept(self, kind: str) -> bool:
        """Step over the current token if it has this kind; return whether it has."""
        if self.token.kind != kind:
            return False
        self.next()
        return True

    def expect(self, kind: str, context: str = "") -> Token:
        """Step over the current token, after checking its kind.

        Raises:
            LuauSyntaxError: The current token has another kind.
        """
        if self.token.kind != kind:
            self.unexpected(f"'{kind}'", context)
        return self.next()

    def expect_name(self, context: str = "") -> Token:
        """Step over the current token, after checking that it is an identifier.

        Raises:
            LuauSyntaxError: The current token is not an identifier.
        """
        if self.token.kind != "name":
            self.unexpected("identifier", context)
        return self.next()

    def expect_match(self, kind: str, opener: Token) -> Token:
        """Step over the token that closes ``opener``.

        Raises:
            LuauSyntaxError: The current token has another kind.
        """
        if self.token.kind == kind:
            return self.next()
        is_near = self.token.line == opener.line
        place = f"column {opener.column}" if is_near else f"line {opener.line}"
        self.fail(f"Expected '{kind}' (to close '{opener.kind}' at {place}), got {self.token.text}")

    def listed(self, close: str, opener: Token, separators: str = ",") -> Iterator[None]:
        """Iterate once per item of a list, and step over the token that ends the list.

        Args:
            close: The kind of the last token.
            opener: The first token of the list, for error messages.
            separators: The kinds of tokens allowed between items and after the last item.

        Raises:
            LuauSyntaxError: The list ends with another token.
        """
        while self.token.kind != close:
            yield
            if self.token.kind not in separators:
                break
            self.next()
        self.expect_match(close, opener)

    def enter(self, what: str) -> None:
        """Enter a level of nesting.

        Raises:
            LuauSyntaxError: The nesting is too deep.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(
                f"Exceeded allowed recursion depth; simplify your {what} to make the code compile"
            )

    def leave(self) -> None:
        """Leave a level of nesting."""
        self.depth -= 1
