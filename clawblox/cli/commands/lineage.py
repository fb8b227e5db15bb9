"""``clawblox lineage``: the history of the instances of a run, as lanes over time."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import attrs
import click

from clawblox.cli.parameters import (
    PATH,
    examples,
    existing_run_dir,
    json_option,
    run_dir_argument,
)
from clawblox.cli.terminal.output import note
from clawblox.rundir.lineage import Lineage, read_lineage
from clawblox.views.formatting import format_json, shorten_path
from clawblox.views.lineage_svg import draw_lineage
from clawblox.views.lineage_text import render_lineage, to_ascii


@examples("""
  clawblox lineage runs/r001                     as text
  clawblox lineage runs/r001 --svg lineage.svg   as a picture
  clawblox lineage runs/r001 --json              every field, for programs

A lane shows an instance over simulated time, and starts where the instance was forked. A lane
ends shortly after its last save, because the time of the world after that is unknown.
""")
@click.command("lineage")
@run_dir_argument
@click.option("--svg", type=PATH, metavar="FILE", help="Write a picture to this file, as SVG.")
@json_option
def command(run_dir: str, svg: str | None, as_json: bool) -> None:
    """Show saves, deaths, restarts and forks of a run, running or finished.

    RUN_DIR is the current directory by default.

    \f
    Raises:
        ClawbloxError: The run directory does not exist, or contains no run.
        click.UsageError: Both --svg and --json were given.
        OSError: The picture cannot be written.
    """
    if svg is not None and as_json:
        raise click.UsageError("--svg and --json cannot be combined.")
    directory = existing_run_dir(run_dir).absolute()
    lineage = read_lineage(directory)
    for problem in lineage.problems:
        note(problem)
    if as_json:
        click.echo(format_json(attrs.asdict(lineage)))
        return
    title = shorten_path(directory)
    title = directory.name if title == "." else title
    if svg is None:
        click.echo(_render(lineage, title))
    else:
        Path(svg).write_text(draw_lineage(lineage, title=title).document(), encoding="utf-8")
        click.echo(f"Wrote {svg}")


def _render(lineage: Lineage, title: str) -> str:
    text = render_lineage(lineage, columns=shutil.get_terminal_size().columns, title=title)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return to_ascii(text)
    return text
