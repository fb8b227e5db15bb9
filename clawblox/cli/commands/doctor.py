"""``clawblox doctor``: required and optional dependencies on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from clawblox.checks import CheckStatus, MachineCheck, MachineCheckResult, run_checks
from clawblox.cli.doctor import agents, machine, nodes, resources, software
from clawblox.cli.parameters import PATH, examples, json_option
from clawblox.printable import printable
from clawblox.views.formatting import count_words, format_json

_TIMEOUT_S = 12.0

ALL_CHECKS = [check for module in (machine, software, agents, resources) for check in module.CHECKS]


@examples("""
  clawblox doctor           a table, with remedies
  clawblox doctor --json    the same for programs
  clawblox doctor --cluster auto
  clawblox doctor --dir /data    what the file system of a directory can do

The exit status is 1 if a requirement is missing.
""")
@click.command("doctor")
@click.option(
    "--cluster",
    "address",
    metavar="ADDRESS",
    help="Check the nodes of this Ray cluster instead: auto, or host:port.",
)
@click.option(
    "--dir",
    "directory",
    type=PATH,
    default=".",
    metavar="DIR",
    help="Check this directory, instead of the current one, as a place for run directories.",
)
@json_option
def command(*, address: str | None, directory: Path, as_json: bool) -> int:
    """Check this machine for required and optional dependencies.

    A missing dependency is shown with its consequence and a remedy. The current directory is also
    checked as a place for run directories.

    \f
    Raises:
        ConfigError: The address is invalid, or the extra for clusters is not installed.
        ClawbloxError: There is no such cluster.
    """
    checks = ALL_CHECKS if address is None else nodes.find_cluster_checks(address)
    with contextlib.chdir(directory):
        results = run_checks(checks, _TIMEOUT_S)
    if as_json:
        click.echo(format_json(_as_objects(results)))
    else:
        is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        text = as_table(results, is_coloured=is_coloured)
        encoding = sys.stdout.encoding or "utf-8"
        click.echo(text.encode(encoding, errors="replace").decode(encoding))
    return 1 if missing_requirements(results) else 0


_Results: TypeAlias = Sequence[tuple[MachineCheck, MachineCheckResult]]

_WIDTH = 79
_NAME_WIDTH = 18
_SIGNS: Final[Mapping[CheckStatus, str]] = {"ok": "✓", "warning": "!", "missing": "-"}
_COLOURS: Final = {"✓": "green", "!": "yellow", "-": "yellow", "✗": "red"}
_INDENT = " " * 13


def missing_requirements(results: _Results) -> list[str]:
    """Return the names of the requirements that are not met."""
    return [
        check.id for check, result in results if check.is_required and result.status == "missing"
    ]


def _as_objects(results: _Results) -> list[dict[str, Any]]:
    """Return the results as values for JSON."""
    return [
        {
            "group": check.group,
            "name": check.id,
            "state": result.status,
            "is_required": check.is_required,
            "found": result.text,
            "without": check.without,
            "remedy": result.remedy or check.remedy,
        }
        for check, result in results
    ]


def as_table(results: _Results, *, is_coloured: bool) -> str:
    """Return the results under the headings of their groups, followed by a summary."""
    lines: list[str] = []
    for group, members in groupby(results, lambda pair: pair[0].group):
        lines.append(group)
        for check, result in members:
            lines += _describe(check, result, is_coloured=is_coloured)
        lines.append("")
    return "\n".join([*lines, *_wrap(_sum_up(results), "", "")])


def _describe(
    check: MachineCheck, result: MachineCheckResult, *, is_coloured: bool
) -> Iterator[str]:
    is_lacking = check.is_required and result.status == "missing"
    sign = "✗" if is_lacking else _SIGNS[result.status]
    state = f"{sign} {result.status}".ljust(10)
    text = f"{check.id.ljust(_NAME_WIDTH)} {printable(result.text)}"
    later = _INDENT + " " * (_NAME_WIDTH + 1)
    first, *rest = _wrap(text, _INDENT, later)
    if is_coloured:
        state = click.style(state, fg=_COLOURS[sign])
    yield f"  {state} {first.removeprefix(_INDENT)}"
    yield from rest
    if result.status != "ok":
        need = "Required: " if is_lacking else ""
        yield from _wrap(f"{need}{check.without}", _INDENT, _INDENT)
        yield from _wrap(result.remedy or check.remedy, _INDENT, _INDENT)


def _wrap(text: str, first: str, later: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        # A shell would run the rest of a broken path as a separate command when it is pasted.
        break_long_words="clawblox stop" not in text,
        break_on_hyphens=False,
    )


def _sum_up(results: _Results) -> str:
    counts = Counter(result.status for _, result in results)
    warnings = count_words(counts["warning"], "warning")
    counted = f"{counts['ok']} ok, {warnings}, {counts['missing']} missing."
    if absent := missing_requirements(results):
        return f"{counted} clawblox cannot work without: {', '.join(absent)}."
    return f"{counted} All requirements of clawblox are met."
