"""The facts about a failed check for people, the same in all forms of the report. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

import attrs

from clawblox.conformance.report import CheckResult, Report
from clawblox.differences import common_length
from clawblox.foreign_values import clean_value
from clawblox.printable import printable_json, quote_words

_NOTHING: Final = "no value"
_MAX_CHARS: Final = 20_000
_CUT: Final = "…"


@attrs.frozen
class Fact:
    """One fact about a failed check.

    Attributes:
        label: Name of the fact.
        text: The fact; text from the world is included unchanged.
        is_verbatim: Whether the text is a command line to copy, which must not be wrapped or cut.
    """

    label: str
    text: str
    is_verbatim: bool = False


def describe_failure(report: Report, result: CheckResult, *, width: int) -> list[Fact]:
    """Return the facts that a person needs to fix a failure, the requirement first.

    Args:
        report: The report.
        result: The result of the check in the report.
        width: Maximum length of a value, in characters; longer values are cut around the first
            difference.
    """
    facts = [Fact("requirement", result.requirement), Fact("seen", result.evidence)]
    if result.path is not None:
        expected, got = excerpt_pair(*_value_texts(result), width=width)
        facts += [
            Fact("where", result.path or "the whole value"),
            Fact("expected", expected),
            Fact("got", got),
        ]
    if result.request is not None:
        facts.append(Fact("request", result.request, is_verbatim=True))
    repeat = quote_words(report.repeat_words(result.id))
    return [*facts, Fact("repeat", repeat, is_verbatim=True)]


def _value_texts(result: CheckResult) -> tuple[str, str]:
    return (
        _NOTHING if result.absent == "expected" else _as_json(result.expected),
        _NOTHING if result.absent == "got" else _as_json(result.got),
    )


def _as_json(value: Any) -> str:  # noqa: ANN401 - JSON
    cleaned = clean_value(value, max_chars=_MAX_CHARS)
    return printable_json(json.dumps(cleaned, ensure_ascii=False))


def excerpt_pair(first: str, second: str, *, width: int) -> tuple[str, str]:
    """Return two texts, cut to a width around the first difference."""
    if max(len(first), len(second)) <= width:
        return first, second
    place = common_length(first, second)
    start = max(0, place - width // 3)
    return _cut(first, start, width), _cut(second, start, width)


def _cut(text: str, start: int, width: int) -> str:
    before = _CUT if start else ""
    room = max(1, width - len(before))
    rest = text[start:]
    return before + (rest if len(rest) <= room else rest[: room - 1] + _CUT)
