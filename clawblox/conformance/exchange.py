"""Requests to a world with their answers, as evidence: raw bytes, including headers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import msgspec

from clawblox.differences import ValueDifference, common_length, find_differences
from clawblox.foreign_values import MAX_NUMBER, finite_number, parse_document
from clawblox.printable import quote_words
from clawblox.protocol import OPERATOR_HEADER, SESSION_HEADER
from clawblox.system.request import Answer

_SECRET_HEADERS: Final = {
    SESSION_HEADER.lower(): "$SESSION",
    OPERATOR_HEADER.lower(): "$WORLD_OPERATOR_TOKEN",
    "authorization": "$AUTHORIZATION",
    "cookie": "$COOKIE",
}
"""Headers whose values are secret, with the shell variables that stand for them."""
_MAX_WORD: Final = 600
"""Maximum length of a quoted body in a command; longer bodies go to a file."""
_SHOWN_BYTES: Final = 60
_MAX_MEMBERS: Final = 4 << 20
_NOT_JSON: Final = object()
_Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class _Times(msgspec.Struct):
    """The members of a document that state its simulated time."""

    time: Any = None
    tick: Any = None


_times_decoder: Final = msgspec.json.Decoder(_Times)


@attrs.frozen
class Exchange:
    """A request and its answer.

    Attributes:
        method: Method of the request.
        url: Its address with route and query.
        headers: Its headers; sessions and tokens are never shown.
        body: Its body; None for no body.
        host: Its ``Host`` header, if it differs from the address.
        answer: The answer; None if there was none.
        failure: Reason why there was no usable answer; empty if there was one.
    """

    method: str
    url: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes | None
    host: str | None
    answer: Answer | None
    failure: str = ""

    @property
    def status(self) -> int:
        """Status of the answer; 0 without an answer."""
        return 0 if self.answer is None else self.answer.status

    @property
    def content(self) -> bytes:
        """Body of the answer; empty without an answer."""
        return b"" if self.answer is None else self.answer.body

    @property
    def is_accepted(self) -> bool:
        """True if the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def document(self) -> Any:  # noqa: ANN401 - JSON
        """The body of the answer as JSON.

        Raises:
            ValueError: There is no answer, or its body is not JSON.
        """
        if self.answer is None:
            raise ValueError("there is no answer")
        return parse_document(self.answer.body, max_members=_MAX_MEMBERS)

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object in the answer; empty if there is none."""
        document = read_json(self.content)
        return document if isinstance(document, dict) else {}

    @property
    def time(self) -> float | None:
        """The simulated time in the answer: its ``time``, else its ``tick``; None without both."""
        fields = self.fields
        return next(_find_numbers(fields.get("time"), fields.get("tick")), None)

    @property
    def times(self) -> list[float]:
        """The simulated time and the tick in the answer, if they are numbers.

        Only these members are read, because a snapshot can be large.
        """
        try:
            times = _times_decoder.decode(self.content)
        except (ValueError, RecursionError):
            return []
        return [*_find_numbers(times.time, times.tick)]

    @property
    def outcome(self) -> str:
        """The status with the start of the body, or the reason why there was no answer.

        The text is a single line; a further line could pass for a line of the report, such as a
        command.
        """
        if self.answer is None:
            return self.failure
        text = " ".join(self.answer.body_start.split())
        return f"{self.status} {text}" if text else str(self.status)

    @property
    def long_body(self) -> bytes | None:
        """The body if a command must name a file in its place because it is too long; else None."""
        body = self.body
        if body is None:
            return None
        is_short = len(body) <= _MAX_WORD and len(_body_word(body)) <= _MAX_WORD
        return None if is_short and b"\0" not in body else body

    def command(self, body_file: str) -> str:
        """Return the request as a command line; sessions and tokens are variables of the shell.

        Args:
            body_file: The file with the :attr:`long_body`.
        """
        words = ["curl", "-i"]
        if self.method != "GET":
            words += ["-X", quote_words([self.method])]
        for name, value in self.headers.items():
            words += ["-H", _header_word(name, value)]
        if self.host is not None:
            words += ["-H", quote_words([f"Host: {self.host}"])]
        if self.long_body is not None:
            words += ["--data-binary", quote_words([f"@{body_file}"])]
        elif self.body is not None:
            words += ["--data-raw", _body_word(self.body)]
        return " ".join([*words, quote_words([self.url])])


def _find_numbers(*values: Any) -> Iterator[float]:
    numbers = (finite_number(value, low=-MAX_NUMBER) for value in values)
    return (number for number in numbers if number is not None)


def _body_word(body: bytes) -> str:
    return quote_words([body.decode(errors="surrogateescape")])


def _header_word(name: str, value: str) -> str:
    variable = _SECRET_HEADERS.get(name.lower())
    return quote_words([f"{name}: {value}"]) if variable is None else f'"{name}: {variable}"'


def read_json(body: bytes) -> Any:  # noqa: ANN401 - JSON, or a marker
    """Parse a body as JSON; return a sentinel, which is not a JSON value, for other bodies."""
    try:
        return parse_document(body, max_members=_MAX_MEMBERS)
    except ValueError:
        return _NOT_JSON


def is_json(value: Any) -> bool:  # noqa: ANN401 - JSON, or a marker
    """Return whether :func:`read_json` found JSON."""
    return value is not _NOT_JSON


def compare_answers(expected: Exchange, actual: Exchange) -> ValueDifference | None:
    """Return the first difference between two answers, in status, headers or body.

    The comparison is by bytes. Paths start with ``status``, ``headers`` or ``body``.
    """
    if expected.answer is None or actual.answer is None:
        sides = expected.outcome, actual.outcome
        return None if sides[0] == sides[1] else ValueDifference("status", *sides)
    if expected.status != actual.status:
        return ValueDifference("status", expected.status, actual.status)
    in_body = compare_bodies(expected.content, actual.content)
    headers = expected.answer.raw_headers, actual.answer.raw_headers
    if in_body is not None:  # determined by the body
        headers = _without_length(headers[0]), _without_length(headers[1])
    if headers[0] != headers[1]:
        before, after = map(_header_map, headers)
        found = find_differences(before, after)
        first = found[0] if found else ValueDifference("", list(before), list(after))
        return attrs.evolve(first, path=_join("headers", first.path))
    return in_body


def _without_length(headers: _Headers) -> _Headers:
    return tuple(header for header in headers if header[0].lower() != b"content-length")


def _header_map(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}


def compare_bodies(expected: bytes, actual: bytes) -> ValueDifference | None:
    """Return the first difference between two bodies; None if their bytes are equal."""
    if expected == actual:
        return None
    documents = read_json(expected), read_json(actual)
    if all(map(is_json, documents)):
        found = find_differences(*documents)
        if found:
            return attrs.evolve(found[0], path=_join("body", found[0].path))
    place = common_length(expected, actual)
    shown = slice(max(0, place - 10), place + _SHOWN_BYTES)
    before, after = (body[shown].decode(errors="replace") for body in (expected, actual))
    return ValueDifference(f"body, byte {place}", before, after)


def _join(first: str, path: str) -> str:
    return first + path if path.startswith("[") or not path else f"{first}.{path}"


def number_names(exchange: Exchange, names: Sequence[str]) -> Exchange:
    """Return an exchange with some names in its answer replaced with numbers.

    A restored world issues other sessions than the original; the numbers make them comparable.

    Args:
        exchange: The exchange.
        names: The names, each a whole JSON string.
    """
    if exchange.answer is None:
        return exchange
    body = exchange.answer.body
    for number, name in enumerate(names, 1):
        if name:
            body = body.replace(json.dumps(name).encode(), _numbered(number, len(name)))
    return attrs.evolve(exchange, answer=attrs.evolve(exchange.answer, body=body))


def _numbered(number: int, length: int) -> bytes:
    """Return a JSON string of the same length, so that ``Content-Length`` stays correct."""
    return b'"%s"' % f"#{number}".ljust(length, "-").encode()
