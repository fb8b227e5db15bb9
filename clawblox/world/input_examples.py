"""The inputs that the documentation of a world shows. Pure."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import attrs

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"`([^`]+)`")
_BRACE = re.compile(r"[{}]")
_INPUT = re.compile(
    r'\{\s*"type"\s*:\s*"([^"\\\s]+)"\s*(?:,\s*"data"\s*:\s*(.*\S)\s*)?\}', re.DOTALL
)
_TYPE = re.compile(r"[^\s\"'`{}\[\]]+")
_MEMBERS = {"type", "data"}


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


def find_examples(text: str) -> tuple[InputExample, ...]:
    """Return the inputs that a Markdown text shows, each once, by type in their order.

    An input is an object with ``type`` and perhaps ``data`` and nothing else, in code or in the
    body of a ``curl`` command; or a row of a table whose columns begin with *type* and *data*.
    Never raises.
    """
    prose, blocks = _split_code(text.splitlines())
    code = (*blocks, *_CODE_SPAN.findall("\n".join(prose)))
    examples = dict.fromkeys(chain(_in_tables(prose), *map(_in_code, code)))
    # An example with data replaces the bare type in a table.
    with_data = {example.type for example in examples if example.data}
    kept = [example for example in examples if example.data or example.type not in with_data]
    types = list(dict.fromkeys(example.type for example in kept))
    return tuple(
        sorted(kept, key=lambda shown: (types.index(shown.type), not _is_json(shown.data)))
    )


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


def _in_code(code: str) -> Iterator[InputExample]:
    """Yield the inputs among the outermost objects of some code."""
    if '\\"' in code:  # a body in double quotes of a shell
        yield from _in_code(code.replace('\\"', '"'))
    yield from filter(
        None, (_read_input(code[slice(*place)]) for place in _outermost_objects(code))
    )


def _outermost_objects(code: str) -> Sequence[tuple[int, int]]:
    """Return begin and end of each outermost ``{…}``."""
    open_at: list[int] = []
    objects: list[tuple[int, int]] = []
    for match in _BRACE.finditer(code):
        if match[0] == "{":
            open_at.append(match.start())
        elif open_at:
            start = open_at.pop()
            while objects and objects[-1][0] > start:
                objects.pop()
            objects.append((start, match.end()))
    return objects


def _read_input(text: str) -> InputExample | None:
    """Return the input that an object is, even with placeholders in its data."""
    with contextlib.suppress(ValueError, RecursionError):
        members = json.loads(text)
        kind = members.get("type")
        if members.keys() <= _MEMBERS and isinstance(kind, str) and _TYPE.fullmatch(kind):
            data = members.get("data")
            return InputExample(kind, "" if data is None else json.dumps(data, ensure_ascii=False))
        return None
    match = _INPUT.fullmatch(text)
    return match and InputExample(match[1], " ".join((match[2] or "").split()))


def _in_tables(lines: Iterable[str]) -> Iterator[InputExample]:
    """Yield the inputs of tables whose columns begin with type and data."""
    is_inside = False
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|"):
            is_inside = False
        elif is_inside and len(cells) > 1:
            yield from _in_row(*cells[:2])
        else:
            is_inside = [cell.strip("` ").lower() for cell in cells[:2]] == ["type", "data"]


def _in_row(kind: str, data: str) -> Iterator[InputExample]:
    match = _CODE_SPAN.fullmatch(kind)
    if match is None or not _TYPE.fullmatch(match[1]):
        return
    spans = _CODE_SPAN.findall(data)
    shown = [span for span in spans if span.startswith(("{", "[")) or _is_json(span)]
    for span in shown or [""]:
        yield InputExample(match[1], " ".join(span.split()))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
