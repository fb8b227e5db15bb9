"""The results of checks, as a table that fits 80 columns or as plain values. Nothing is printed."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

import click

from clawblox.cli.doctor.check import Check, CheckResult, CheckState
from clawblox.cli.tables.formatting import count_words
from clawblox.printable import printable

Results: TypeAlias = Sequence[tuple[Check, CheckResult]]

_WIDTH = 79
_NAME_WIDTH = 18
_SIGNS: Final[Mapping[CheckState, str]] = {"ok": "✓", "warning": "!", "missing": "-"}
_REQUIRED_SIGN = "✗"
_COLOURS: Final[Mapping[CheckState, str]] = {
    "ok": "green",
    "warning": "yellow",
    "missing": "yellow",
}
_INDENT = " " * 13


def has_what_is_required(results: Results) -> bool:
    """Return whether everything is there that clawblox cannot do without."""
    return not any(check.is_required and result.state == "missing" for check, result in results)


def as_objects(results: Results) -> list[dict[str, Any]]:
    """Return the results as plain values."""
    return [
        {
            "group": check.group,
            "name": check.name,
            "state": result.state,
            "is_required": check.is_required,
            "found": result.found,
            "without": check.without,
            "remedy": result.remedy or check.remedy,
        }
        for check, result in results
    ]


def as_table(results: Results, *, is_coloured: bool) -> str:
    """Return the results under the headings of their groups, and a last line that sums them up."""
    lines: list[str] = []
    for group, members in groupby(results, lambda pair: pair[0].group):
        lines.append(group)
        for check, result in members:
            lines += _describe(check, result, is_coloured=is_coloured)
        lines.append("")
    return "\n".join([*lines, *_wrap(_sum_up(results), "", "")])


def _describe(check: Check, result: CheckResult, *, is_coloured: bool) -> Iterator[str]:
    is_lacking = check.is_required and result.state == "missing"
    sign = _REQUIRED_SIGN if is_lacking else _SIGNS[result.state]
    state = f"{sign} {result.state}".ljust(10)
    text = f"{check.name.ljust(_NAME_WIDTH)} {printable(result.found)}"
    later = _INDENT + " " * (_NAME_WIDTH + 1)
    first, *rest = _wrap(text, _INDENT, later)
    if is_coloured:
        state = click.style(state, fg="red" if is_lacking else _COLOURS[result.state])
    yield f"  {state} {first.removeprefix(_INDENT)}"
    yield from rest
    if result.state != "ok":
        need = "Required: " if is_lacking else ""
        yield from _wrap(f"{need}{check.without}", _INDENT, _INDENT)
        yield from _wrap(result.remedy or check.remedy, _INDENT, _INDENT)


def _wrap(text: str, first: str, later: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )


def _sum_up(results: Results) -> str:
    counts = Counter(result.state for _, result in results)
    warnings = count_words(counts["warning"], "warning")
    counted = f"{counts['ok']} ok, {warnings}, {counts['missing']} missing."
    absent = [
        check.name for check, result in results if check.is_required and result.state == "missing"
    ]
    if absent:
        return f"{counted} clawblox cannot work without: {', '.join(absent)}."
    return f"{counted} Everything that clawblox requires is there."
