"""``clawblox ckpt``: looking at archives, checking them, taking them apart.

What is shown of an archive is written by ``archives``; this module says what is asked and done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import attrs
import click

from clawblox.checkpoint.api import load_checkpoint
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.audit.compare import diff_checkpoints
from clawblox.checkpoint.audit.repair import repair_checkpoints
from clawblox.checkpoint.audit.verify import Verification, scan_checkpoint, verify_checkpoint
from clawblox.checkpoint.model import Allowance
from clawblox.checkpoint.progress import Report
from clawblox.checkpoint.secrets import read_allowances
from clawblox.checkpoint.twins import run_interruptible
from clawblox.cli.parameters import PATH, existing_path, json_option
from clawblox.cli.tables.archives import (
    describe,
    describe_difference,
    describe_findings,
    describe_loaded,
    describe_repair,
    fields_of,
    summarise,
)
from clawblox.cli.terminal.output import format_bytes, note, shorten_path
from clawblox.cli.terminal.screen import progress_bar
from clawblox.errors import CheckpointError, ClawbloxError

__all__ = ["command"]

_T = TypeVar("_T")


@click.group(
    "ckpt",
    epilog="""\
    \b
    Examples:
      clawblox ckpt inspect runs/r001/checkpoints/gen001.ckpt
      clawblox ckpt verify runs/r001/checkpoints/*.ckpt
      clawblox ckpt diff gen001.ckpt gen002.ckpt
      clawblox ckpt extract gen001.ckpt runs/r002
    """,
)
def command() -> None:
    """Look at checkpoint archives, check them, take them apart.

    A .ckpt file holds the state of a world and its agents at one moment. None of these commands
    runs anything that is in it.
    """


_archive = click.argument("archive", type=PATH, metavar="FILE")


@command.command(
    "inspect",
    epilog="""\
    \b
    Examples:
      clawblox ckpt inspect gen001.ckpt           what it is and holds
      clawblox ckpt inspect gen001.ckpt --files   every file in it
      clawblox ckpt inspect gen001.ckpt --json    its metadata, for programs

    Reads no content and extracts nothing; clawblox ckpt verify reads all of it.
    """,
)
@_archive
@click.option("--files", "with_files", is_flag=True, help="List every file in it.")
@json_option
def inspect(archive: str, with_files: bool, as_json: bool) -> None:
    """Show what an archive says of itself."""
    with Archive.open(existing_path(archive)) as opened:
        if as_json:
            _print_json(fields_of(opened))
        else:
            click.echo(describe(opened, with_files=with_files))


@command.command(
    "verify",
    epilog="""\
    \b
    Examples:
      clawblox ckpt verify gen001.ckpt
      clawblox ckpt verify runs/*/checkpoints/*.ckpt

    The exit status is 1 when one of them is not sound.
    """,
)
@click.argument("archives", type=PATH, metavar="FILE...", nargs=-1, required=True)
@json_option
@click.pass_context
def verify(ctx: click.Context, archives: tuple[str, ...], as_json: bool) -> None:
    """Read all of an archive and see that it is what was written."""
    results = [_verify(Path(archive), is_quiet=as_json) for archive in archives]
    if as_json:
        _print_json(results)
    ctx.exit(0 if all(result["error"] is None for result in results) else 1)


def _verify(path: Path, *, is_quiet: bool) -> dict[str, Any]:
    try:
        found: Verification = _with_bar("Verifying", partial(_verify_with, path))
    except CheckpointError as error:
        note(f"Error: {error}")
        return {"path": str(path), "error": error.message}
    if not is_quiet:
        click.echo(summarise(found))
    plain = attrs.asdict(found, recurse=False)
    return {**plain, "path": str(path), "metadata": dict(found.metadata), "error": None}


def _verify_with(path: Path, report: Report) -> Verification:
    return verify_checkpoint(path, progress=report)


@command.command(
    "extract",
    epilog="""\
    \b
    Examples:
      clawblox ckpt extract gen001.ckpt runs/r002
      clawblox ckpt extract gen001.ckpt runs/r002 --json

    Credentials and configuration that a program would run by itself are never extracted,
    whatever the archive holds. What is in the way is an error, and then nothing is changed.
    """,
)
@_archive
@click.argument("run_dir", type=PATH, metavar="DIR")
@json_option
def extract(archive: str, run_dir: str, as_json: bool) -> None:
    """Put the state in an archive into a run directory.

    DIR may exist and hold other things. The world is resumed with its --resume option, an agent by
    its recorded session.
    """
    path = existing_path(archive)
    loaded = _with_bar("Extracting", lambda report: load_checkpoint(path, run_dir, progress=report))
    if as_json:
        _print_json(loaded)
    else:
        click.echo(describe_loaded(loaded))


@command.command(
    "diff",
    epilog="""\
    \b
    Examples:
      clawblox ckpt diff gen001.ckpt gen002.ckpt

    The exit status is 1 when they differ.
    """,
)
@click.argument("first", type=PATH, metavar="FILE1")
@click.argument("second", type=PATH, metavar="FILE2")
@json_option
@click.pass_context
def diff(ctx: click.Context, first: str, second: str, as_json: bool) -> None:
    """Show what the second of two archives has that the first has not."""
    found = diff_checkpoints(existing_path(first), existing_path(second))
    if as_json:
        _print_json(attrs.asdict(found))
    else:
        click.echo(describe_difference(found))
    ctx.exit(1 if found else 0)


@command.command(
    "scan",
    epilog="""\
    \b
    Examples:
      clawblox ckpt scan gen001.ckpt
      clawblox ckpt scan gen001.ckpt --allow secret-allow.json

    The exit status is 1 when something is found. A secret itself is never shown.
    """,
)
@_archive
@click.option(
    "--allow",
    "allow_file",
    type=PATH,
    metavar="FILE",
    help="JSON list of findings that are no secrets: path, rule, fingerprint, reason.",
)
@json_option
@click.pass_context
def scan(ctx: click.Context, archive: str, allow_file: str | None, as_json: bool) -> None:
    """Search an archive for secrets, with the rules of this version."""
    path, allow = existing_path(archive), _allowances(allow_file)
    found = _with_bar(
        "Scanning", lambda report: scan_checkpoint(path, allow=allow, progress=report)
    )
    if as_json:
        _print_json(attrs.asdict(found))
    else:
        click.echo(describe_findings(found))
    ctx.exit(1 if found.findings else 0)


def _allowances(text: str | None) -> Iterable[Allowance]:
    return () if text is None else read_allowances(existing_path(text))


@command.command(
    "repair",
    epilog="""\
    \b
    Examples:
      clawblox ckpt repair runs/r001

    The exit status is 1 when an archive is not sound. Archives and entries stay as they are.
    """,
)
@click.argument("run_dir", type=PATH, default=".", metavar="[RUN_DIR]")
@json_option
@click.pass_context
def repair(ctx: click.Context, run_dir: str, as_json: bool) -> None:
    """Register archives that the manifest of their run lacks.

    A save that was killed between its last two steps leaves such an archive, which is complete.
    """
    directory = existing_path(run_dir)
    if not directory.is_dir():
        raise ClawbloxError(f"'{run_dir}' is not a directory", hint="give the run directory")
    found = repair_checkpoints(directory)
    if as_json:
        refused = {shorten_path(path): error.message for path, error in found.refused.items()}
        _print_json({**attrs.asdict(found, recurse=False), "refused": refused})
    else:
        click.echo(describe_repair(found))
    ctx.exit(1 if found.refused else 0)


def _with_bar(verb: str, function: Callable[[Report], _T]) -> _T:
    """Run ``function(report)``, with a bar when it takes long; Ctrl-C ends it cleanly."""

    async def run() -> _T:
        async with progress_bar(verb, 0, format_bytes) as bar:
            return await run_interruptible(function, bar.reach)

    return anyio.run(run)


def _print_json(value: Mapping[str, Any] | list[dict[str, Any]]) -> None:
    click.echo(json.dumps(value, indent=2, default=str))
