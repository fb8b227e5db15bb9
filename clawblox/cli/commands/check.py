"""``clawblox check``: checks a world against the requirements of the world interface."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import click

from clawblox import __version__
from clawblox.cli.field_options import OptionsCommand, options_from
from clawblox.cli.parameters import FILE, PATH, examples, existing_path, json_option, world_argument
from clawblox.cli.running.runner import CommandSignals
from clawblox.cli.terminal.reports import configure_logging
from clawblox.cli.terminal.screen import Bar, progress_bar
from clawblox.cli.terminal.width import table_width
from clawblox.conformance import CHECKS, Check, CheckResult, Report, check_world
from clawblox.conformance.kept_check import keep_check
from clawblox.conformance.registry import select_checks
from clawblox.conformance.report import is_counted, mark_expected, parse_expected
from clawblox.conformance.runner import CheckOptions
from clawblox.errors import UsageError
from clawblox.system.files import publish_bytes
from clawblox.system.regular_files import read_regular
from clawblox.views.check_junit import render_junit
from clawblox.views.check_page import render_page
from clawblox.views.check_report import Kind, plain, render_list, render_report
from clawblox.views.formatting import format_json
from clawblox.world.sources import read_world_files

_PIPE_WIDTH: Final = 100
_REPORT_MODE: Final = 0o644
"""Reports are readable by other users."""
_BODIES_SUFFIX: Final = ".bodies"
"""Suffix of the directory next to a report that contains the bodies of its requests."""
_MAX_EXPECTED_BYTES: Final = 1 << 20
_STYLES: Final[dict[Kind, dict[str, Any]]] = {
    "good": {"fg": "green", "bold": True},
    "bad": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "strong": {"bold": True},
    "dim": {"dim": True},
}


@examples("""
  clawblox check worlds/panda                     all checks
  clawblox check worlds/panda restore             the checks of one area
  clawblox check worlds/panda restore.trace -v    one check, with its evidence
  clawblox check worlds/panda --html report.html  the report as a web page too
  clawblox check http://127.0.0.1:8080            what agents can reach
  clawblox check --list                           the checks

The exit status is 0 if the world meets every requirement, 1 if not, 3 if it does not start or
a check itself failed.
""")
@click.command("check", cls=OptionsCommand)
@world_argument
@click.argument("names", metavar="[ID]...", nargs=-1)
@options_from(CheckOptions, "options")
@click.option("--html", type=PATH, metavar="FILE", help="Write the report to this file, as HTML.")
@click.option(
    "--junit", type=PATH, metavar="FILE", help="Write the report to this file, as JUnit XML."
)
@click.option(
    "--expected-failures",
    "expected_file",
    type=FILE,
    help="File with ids of checks that are expected to fail, one per line; a listed check that "
    "passes is a failure.",
)
@click.option("--list", "wants_list", is_flag=True, help="List the checks without running them.")
@click.option(
    "-v", "--verbose", "is_verbose", is_flag=True, help="Also list the checks that passed."
)
@json_option
def command(
    *,
    world: str,
    names: tuple[str, ...],
    options: CheckOptions,
    html: str | None,
    junit: str | None,
    expected_file: str | None,
    wants_list: bool,
    is_verbose: bool,
    as_json: bool,
) -> int | None:
    """Check whether a world meets the requirements of the world interface.

    WORLD is the directory of a world, by default the current one, or the address of a running
    instance. An ID is a check, an area such as restore, or a pattern. The world is started several
    times from a private copy of its directory, played, saved and restored. Only the report, in
    .clawblox of the directory, and the long request bodies that it refers to remain.

    \f
    Raises:
        ConfigError: The directory is not a world, or the file of expected failures is wrong.
        UsageError: No check matches an ID, or a report cannot be written to its path.
        OSError: A file cannot be read or written.
    """
    if wants_list:
        _list_checks(select_checks(CHECKS, names), as_json=as_json)
        return 0
    expected = () if expected_file is None else _read_expected(expected_file)
    for flag, file in (("--html", html), ("--junit", junit)):
        _check_destination(flag, file)
    configure_logging()
    directory = Path(world) if Path(world).is_dir() else None
    files = None if directory is None else read_world_files(directory)
    signals = CommandSignals()
    file = html or junit
    bodies_dir = None if file is None else Path(file).with_suffix(_BODIES_SUFFIX)
    work = partial(_check, world, names, options, bodies_dir)
    report = anyio.run(signals.run_or_cancel, work)
    if report is None:
        return signals.exit_status
    report = mark_expected(report, expected)
    if directory is not None:
        keep_check(directory, report, files, __version__)
    if html is not None:
        _write(html, render_page(report))
    if junit is not None:
        _write(junit, render_junit(report, strict=options.strict))
    if as_json:
        click.echo(format_json(report.document()))
    else:
        width = table_width() or _PIPE_WIDTH
        is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        paint = _paint if is_coloured else plain
        click.echo(render_report(report, width=width, is_verbose=is_verbose, paint=paint))
    return report.exit_status(strict=options.strict)


def _paint(kind: Kind, text: str) -> str:
    return click.style(text, **_STYLES[kind])


def _list_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    if as_json:
        fields = ("id", "level", "requirement")
        objects = [{name: getattr(check, name) for name in fields} for check in checks]
        click.echo(format_json(objects))
    else:
        click.echo(render_list(checks, width=table_width() or _PIPE_WIDTH))


def _check_destination(flag: str, file: str | None) -> None:
    """Refuse a file that cannot be written, before the world is run.

    Raises:
        UsageError: Its directory does not exist, or the path exists and is not a file.
    """
    if file is None:
        return
    path = Path(file)
    if not path.parent.is_dir():
        raise UsageError(f"{flag}: must be in a directory that exists, not {file!r}")
    if path.exists() and not path.is_file():
        raise UsageError(f"{flag}: must be a path for a file, not {file!r}")


def _write(file: str, text: str) -> None:
    publish_bytes(file, text.encode(), mode=_REPORT_MODE, durable=False)


def _read_expected(file: str) -> tuple[str, ...]:
    data = read_regular(existing_path(file), max_bytes=_MAX_EXPECTED_BYTES)
    ids = [check.id for check in CHECKS]
    return parse_expected(data.decode(errors="replace"), ids, path=file)


async def _check(
    world: str, names: Sequence[str], options: CheckOptions, bodies_dir: Path | None
) -> Report:
    async with progress_bar("Checking", len(select_checks(CHECKS, names))) as bar:
        return await check_world(
            world,
            names,
            seed=options.seed,
            in_place=options.in_place,
            health_timeout=options.health_timeout,
            check_timeout=options.check_timeout,
            bodies_dir=bodies_dir,
            on_result=partial(_count, bar, options),
        )


def _count(bar: Bar, options: CheckOptions, result: CheckResult) -> None:
    bar.advance(is_failed=is_counted(result, strict=options.strict))
