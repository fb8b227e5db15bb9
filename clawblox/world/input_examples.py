"""Finds the inputs that the documentation of a world shows. Pure.

The documentation is untrusted text, so every pattern here takes linear time, and no function raises
an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import attrs

from clawblox.world.shell_words import take_curl_bodies

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"`([^`]+)`")
_BRACE = re.compile(r"[{}]")
_BRACE_OR_STRING = re.compile(r'[{}]|"(?:[^"\\\n]++|\\.)*+"?')
_TYPE_MEMBER = re.compile(r'\{\s*+"type"\s*+:\s*+"([^"\\\s]+)"\s*+')
_DATA_MEMBER = re.compile(r',\s*+"data"\s*+:')
_TYPE = re.compile(r"[^\s\"'`{}\[\]<>|]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
_BAR = re.compile(r"(?<!\\)\|")
_LIST_ITEM = re.compile(r"\s{0,8}(?:[-*+]|[0-9]{1,3}[.)])\s+(?:\*\*)?`([^`]+)`")
_ABOUT_INPUTS = re.compile(r"\b(?:inputs?|actions?|commands?)\b", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"<[^<>]*>|\.\.\.|…")
_NO_DATA = re.compile(
    r"(?:no(?:ne|thing| data)?|empty|null|n/?a|[-\u2013\u2014]*)\.?", re.IGNORECASE
)
_REQUEST = re.compile(r"`?(?:GET|POST|PUT|PATCH|DELETE)\b")
_MEMBERS: Final = {"type", "data"}
_NOT_TYPES: Final = {"object", "array", "string", "number", "integer", "boolean", "null"}
"""Types of JSON schemas, which documentation shows in objects that look like inputs."""
_NAME_COLUMNS: Final = {"input", "action", "command", "input type", "action type"}
_DATA_COLUMNS: Final = {"data", "payload", "body", "json", "arguments", "parameters", "schema"}
_MAX_CHARS: Final = 1 << 19
"""Maximum length of text that is searched, in characters; the rest is ignored."""
_MAX_EXAMPLES: Final = 1000


@attrs.frozen
class InputExample:
    """An input that the documentation of a world shows.

    Attributes:
        type: Type of the input.
        data: Its data as text on one line, JSON or nearly so; empty without data.
    """

    type: str
    data: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.data}".rstrip()

    @property
    def is_sendable(self) -> bool:
        """True if the input can be sent as it is: its data is JSON without placeholders."""
        if not self.data:
            return True
        try:
            return not _has_placeholder(json.loads(self.data))
        except (ValueError, RecursionError):
            return False


def find_examples(text: str) -> tuple[InputExample, ...]:
    """Return the distinct inputs that a Markdown text shows, grouped by type in order.

    An input is an object with ``type``, optionally ``data`` and no other member, in code, in prose
    or in the body of a ``curl`` command; a row of a table with a column for types, such as *type*,
    *input* or *action*, and a column for data; or an item in a list of inputs with type and data in
    code. Inputs whose type is a placeholder are ignored. Never raises.
    """
    prose, blocks = _split_code(text[:_MAX_CHARS].splitlines())
    paragraphs = list(_split_paragraphs(prose))
    shown = chain(
        _in_tables(prose),
        _in_lists(prose),
        *map(_in_code, (*blocks, *chain.from_iterable(map(_CODE_SPAN.findall, paragraphs)))),
        *map(_in_prose, paragraphs),
    )
    examples = dict.fromkeys(_take(shown, _MAX_EXAMPLES))
    # An example with data replaces the bare type in a table.
    with_data = {example.type for example in examples if example.data}
    kept = [example for example in examples if example.data or example.type not in with_data]
    places = {example.type: place for place, example in reversed(list(enumerate(kept)))}
    return tuple(sorted(kept, key=lambda shown: (places[shown.type], not shown.is_sendable)))


def _take(examples: Iterable[InputExample], number: int) -> Iterator[InputExample]:
    """Yield examples until the limit on distinct examples is exceeded."""
    seen = set[InputExample]()
    for example in examples:
        seen.add(example)
        if len(seen) > number:
            return
        yield example


def _has_placeholder(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value contains a placeholder, such as ``<name>``."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str) and _PLACEHOLDER.fullmatch(part):
            return True
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return False


# -- Markdown --------------------------------------------------------------------------------------


def _split_code(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the lines outside of fenced code blocks, and the blocks."""
    prose: list[str] = []
    blocks: list[str] = []
    fence, block = "", list[str]()
    for line in lines:
        match = _FENCE.match(line)
        if fence and match and match[1].startswith(fence):
            blocks.append("\n".join(block))
            fence, block = "", []
        elif fence:
            block.append(line)
        elif match:
            fence = match[1]
        else:
            prose.append(line)
    return prose, [*blocks, *(["\n".join(block)] if block else [])]


def _split_paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield the paragraphs of a text, so that a stray quote affects only its own paragraph."""
    paragraph: list[str] = []
    for line in chain(lines, [""]):
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield "\n".join(paragraph)
            paragraph = []


def _in_tables(lines: Sequence[str]) -> Iterator[InputExample]:
    """Yield the inputs of tables with a column for types and one for data."""
    columns: tuple[int, int] | None = None
    is_inside = False
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        if "|" not in line:
            columns, is_inside = None, False
        elif not is_inside:
            is_inside = _is_rule(following)
            columns = _find_columns(_split_row(line)) if is_inside else None
        elif columns is not None and not _is_rule(line):
            cells = _split_row(line)
            if len(cells) > max(columns):
                yield from _in_row(cells[columns[0]], cells[columns[1]])


def _is_rule(line: str) -> bool:
    """Return whether a line is the rule below the head of a table."""
    return "-" in line and "|" in line and set(line) <= set("|-: \t")


def _split_row(line: str) -> list[str]:
    cells = _BAR.split(line.strip().removeprefix("|"))
    return [cell.strip().replace("\\|", "|") for cell in cells]


def _find_columns(head: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns of types and of data; None for other tables."""
    names = [cell.strip("`* ").lower() for cell in head]
    if names[:2] == ["type", "data"]:
        return 0, 1
    found = [
        next((place for place, name in enumerate(names) if name in wanted), None)
        for wanted in (_NAME_COLUMNS, _DATA_COLUMNS)
    ]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _in_row(kind: str, data: str) -> Iterator[InputExample]:
    spans = _CODE_SPAN.findall(kind)
    kinds = spans or [kind.strip("* ")]
    wanted = _TYPE if spans else _NAME
    shown = list(_read_data(data))
    is_whole = any(_read_input(one) for one in shown)  # found as code
    if is_whole or _REQUEST.match(data):  # a table of routes
        return
    for name in kinds:
        if wanted.fullmatch(name) and name.lower() not in _NOT_TYPES and not name.startswith("/"):
            yield from (InputExample(name, one) for one in shown)


def _read_data(cell: str) -> Iterator[str]:
    """Yield the data in a cell, each on one line; an empty text for an input without data."""
    spans = _CODE_SPAN.findall(cell)
    shown = [span for span in spans if span.startswith(("{", "[")) or _is_json(span)]
    if not shown and cell.startswith(("{", "[")):
        shown = [cell]
    if not shown and not _NO_DATA.fullmatch(cell.strip("`")):
        shown = [cell.replace("`", "")]  # described in words, so it cannot be sent
    for span in shown or [""]:
        yield " ".join(span.split())


def _in_lists(lines: Iterable[str]) -> Iterator[InputExample]:
    """Yield the inputs of lists that follow a line about inputs and show the data in code."""
    is_about_inputs = False
    for line in lines:
        item = _LIST_ITEM.match(line)
        if item is None:
            if line.strip() and not line.startswith(" "):
                is_about_inputs = _ABOUT_INPUTS.search(line) is not None
            continue
        name = item[1]
        if is_about_inputs and _NAME.fullmatch(name) and name.lower() not in _NOT_TYPES:
            spans = _CODE_SPAN.findall(line[item.end() :])
            objects = (" ".join(span.split()) for span in spans if span.startswith(("{", "[")))
            yield from (InputExample(name, one) for one in objects if not _read_input(one))


def _in_prose(paragraph: str) -> Iterator[InputExample]:
    """Yield the inputs in a paragraph outside of its code spans."""
    yield from _in_code(_CODE_SPAN.sub(" ", paragraph))


# -- code ------------------------------------------------------------------------------------------


def _in_code(code: str) -> Iterator[InputExample]:
    """Yield the inputs in bodies of curl commands and in outermost objects of code."""
    bodies, rest = take_curl_bodies(code)
    for body in bodies:
        yield from _in_objects(body, _BRACE_OR_STRING)
    found = list(_in_objects(rest, _BRACE_OR_STRING))
    # Quotes other than JSON's, as in a program's string literals, are ignored.
    yield from found or _in_objects(rest.replace('\\"', '"'), _BRACE)


def _in_objects(code: str, token: re.Pattern[str]) -> Iterator[InputExample]:
    places = _outermost_objects(code, token)
    yield from filter(None, (_read_input(code[slice(*place)]) for place in places))


def _outermost_objects(code: str, token: re.Pattern[str]) -> Sequence[tuple[int, int]]:
    """Return start and end of each outermost ``{…}``."""
    open_at: list[int] = []
    objects: list[tuple[int, int]] = []
    for match in token.finditer(code):
        if match[0] == "{":
            open_at.append(match.start())
        elif match[0] == "}" and open_at:
            start = open_at.pop()
            while objects and objects[-1][0] > start:
                objects.pop()
            objects.append((start, match.end()))
    return objects


def _read_input(text: str) -> InputExample | None:
    """Return the input that an object represents, even with placeholders in the data."""
    example = _read_object(text)
    if example is None or not _TYPE.fullmatch(example.type):
        return None
    is_schema = not example.data and example.type.lower() in _NOT_TYPES
    return None if is_schema or _PLACEHOLDER.fullmatch(example.type) else example


def _read_object(text: str) -> InputExample | None:
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        return _read_members(text)
    if not isinstance(members, dict) or not members.keys() <= _MEMBERS:
        return None
    kind, data = members.get("type"), members.get("data")
    if not isinstance(kind, str):
        return None
    try:
        return InputExample(kind, "" if data is None else json.dumps(data, ensure_ascii=False))
    except RecursionError:
        return None


def _read_members(text: str) -> InputExample | None:
    """Return the input in an object that is not JSON, such as one with placeholders."""
    if (kind := _TYPE_MEMBER.match(text)) is None:
        return None
    rest = text[kind.end() :].removesuffix("}")
    data = _DATA_MEMBER.match(rest)
    shown = "" if data is None else " ".join(rest[data.end() :].split())
    is_whole = bool(shown) if data is not None else not rest
    return InputExample(kind[1], shown) if is_whole else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
