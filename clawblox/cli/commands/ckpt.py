"""``clawblox ckpt``: inspecting, verifying, extracting, comparing, scanning, repairing archives.

``views.archives`` formats the output.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import attrs
import click

from clawblox.checkpoint.api import load_checkpoint
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.audit.repair import repair_checkpoints
from clawblox.checkpoint.audit.verify import (
    diff_checkpoints,
    scan_checkpoint,
    verify_checkpoint,
)
from clawblox.checkpoint.secrets import read_allowances
from clawblox.cli.experiment_dirs import refuse_experiment, refuse_new_run
from clawblox.cli.parameters import (
    FILE,
    PATH,
    examples,
    existing_path,
    json_option,
    run_dir_argument,
    show,
)
from clawblox.cli.terminal.output import note
from clawblox.cli.terminal.screen import work_with_bar
from clawblox.concurrency.progress import Report
from clawblox.errors import CheckpointError, ClawbloxError
from clawblox.rundir.records import read_records
from clawblox.rundir.snapshot_files import source_run_dir
from clawblox.views.archives import (
    archive_fields,
    describe,
    describe_difference,
    describe_findings,
    describe_loaded,
    describe_next_steps,
    describe_repair,
    describe_verification,
)
from clawblox.views.formatting import format_json, shorten_path

_T = TypeVar("_T")


@examples("""
  clawblox ckpt inspect runs/r001/checkpoints/gen001.ckpt
  clawblox ckpt verify runs/r001/checkpoints/*.ckpt
  clawblox ckpt diff gen001.ckpt gen002.ckpt
  clawblox ckpt extract gen001.ckpt runs/r002
""")
@click.group("ckpt")
def command() -> None:
    """Inspect, verify, extract, compare, scan and repair checkpoint archives.

    A .ckpt file contains the state of a world and its agents at one moment. None of these commands
    runs code from an archive.
    """


_archive = click.argument("archive", type=PATH, metavar="FILE")


@examples("""
  clawblox ckpt inspect gen001.ckpt           world, agents, lineage
  clawblox ckpt inspect gen001.ckpt --files   with every file
  clawblox ckpt inspect gen001.ckpt --json    all metadata, for programs

Only the metadata is read; clawblox ckpt verify reads the whole archive.
""")
@command.command("inspect")
@_archive
@click.option("--files", "with_files", is_flag=True, help="List every file.")
@json_option
def inspect(archive: str, with_files: bool, as_json: bool) -> None:
    """Show the metadata of an archive.

    \f
    Raises:
        ClawbloxError: The file does not exist.
        CheckpointError: The file is not a checkpoint archive.
    """
    with Archive.open(existing_path(archive)) as opened:
        if as_json:
            click.echo(format_json(archive_fields(opened)))
        else:
            click.echo(describe(opened, with_files=with_files))


@examples("""
  clawblox ckpt verify gen001.ckpt
  clawblox ckpt verify runs/*/checkpoints/*.ckpt

The exit status is 1 if an archive is damaged.
""")
@command.command("verify")
@click.argument("archives", type=PATH, metavar="FILE...", nargs=-1, required=True)
@json_option
def verify(archives: tuple[str, ...], as_json: bool) -> int:
    """Verify that archives are intact by reading them completely."""
    results = [_verify(Path(archive), is_quiet=as_json) for archive in archives]
    if as_json:
        click.echo(format_json(results))
    return 0 if all(result["error"] is None for result in results) else 1


def _verify(path: Path, *, is_quiet: bool) -> dict[str, Any]:
    try:
        result = _with_bar("Verifying", lambda report: verify_checkpoint(path, progress=report))
    except CheckpointError as error:
        note(f"Error: {error}")
        return {"path": str(path), "error": error.message}
    if not is_quiet:
        click.echo(describe_verification(result))
    plain = attrs.asdict(result, recurse=False)
    return {**plain, "path": str(path), "metadata": dict(result.metadata), "error": None}


@examples("""
  clawblox ckpt extract gen001.ckpt runs/r002
  clawblox ckpt extract gen001.ckpt runs/r002 --json
  clawblox ckpt extract gen001.ckpt runs/r002 --keep .helix/languages.toml

Credentials, and configuration that makes a program run commands, are never extracted. If a file
is in the way, the command fails without changing anything.
""")
@command.command("extract")
@_archive
@click.argument("run_dir", type=PATH, metavar="DIR")
@click.option(
    "--keep",
    multiple=True,
    metavar="PATH",
    help="Extract this path of a workspace although programs execute or follow it "
    "automatically; can be repeated.",
)
@json_option
def extract(archive: str, run_dir: str, keep: tuple[str, ...], as_json: bool) -> None:
    """Extract the state in an archive into a run directory.

    DIR may exist and contain other files. The command prints the commands that continue from there.
    clawblox run --resume FILE --run-dir DIR extracts an archive and starts its world in one step.

    \f
    Raises:
        ClawbloxError: The file does not exist.
        CheckpointError: The archive is not intact, or a file is in the way.
        ConfigError: ``keep`` is not a path in a workspace.
    """
    path = existing_path(archive)
    refuse_new_run(Path(run_dir), "DIR")
    loaded = _with_bar(
        "Extracting", lambda report: load_checkpoint(path, run_dir, keep=keep, progress=report)
    )
    if as_json:
        click.echo(format_json(loaded))
    else:
        steps = describe_next_steps(loaded, Path(run_dir), _find_world_dir(path))
        click.echo("\n\n".join(filter(None, (describe_loaded(loaded), steps))))


def _find_world_dir(archive: Path) -> Path | None:
    """Return the directory of the archived world if it exists on this machine."""
    run_dir = source_run_dir(archive)
    worlds = set() if run_dir is None else {record.world_dir for record in read_records(run_dir)}
    present = [Path(world) for world in worlds if Path(world).is_dir()]
    return present[0] if len(present) == 1 else None


@examples("""
  clawblox ckpt diff gen001.ckpt gen002.ckpt

The exit status is 1 if they differ.
""")
@command.command("diff")
@click.argument("first", type=PATH, metavar="FILE1")
@click.argument("second", type=PATH, metavar="FILE2")
@json_option
def diff(first: str, second: str, as_json: bool) -> int:
    """Show the files and metadata in which two archives differ.

    \f
    Raises:
        ClawbloxError: A file does not exist.
        CheckpointError: A file is not a checkpoint archive.
    """
    difference = diff_checkpoints(existing_path(first), existing_path(second))
    show(attrs.asdict(difference), describe_difference(difference), as_json=as_json)
    return 1 if difference else 0


@examples("""
  clawblox ckpt scan gen001.ckpt
  clawblox ckpt scan gen001.ckpt --allow secret-allow.json

The exit status is 1 if there are findings. The secrets themselves are never shown.
""")
@command.command("scan")
@_archive
@click.option(
    "--allow",
    "allow_file",
    type=FILE,
    help="JSON list of findings to ignore, each with path, rule, fingerprint and reason.",
)
@json_option
def scan(archive: str, allow_file: str | None, as_json: bool) -> int:
    """Search an archive for secrets, with the rules of this version.

    \f
    Raises:
        ClawbloxError: A file does not exist.
        CheckpointError: A file is not a checkpoint archive, or not a list of findings.
    """
    path = existing_path(archive)
    allow = () if allow_file is None else read_allowances(existing_path(allow_file))
    result = _with_bar(
        "Scanning", lambda report: scan_checkpoint(path, allow=allow, progress=report)
    )
    show(attrs.asdict(result), describe_findings(result), as_json=as_json)
    return 1 if result.findings else 0


@examples("""
  clawblox ckpt repair runs/r001

The exit status is 1 if an archive is damaged. Archives and existing entries are not changed.
""")
@command.command("repair")
@run_dir_argument
@json_option
def repair(run_dir: str, as_json: bool) -> int:
    """Register archives missing from the manifest of their run.

    If a save is killed just before its last step, it leaves a complete archive that is not
    registered. RUN_DIR is the current directory by default.

    \f
    Raises:
        ClawbloxError: The run directory does not exist, or is not a directory.
        ManifestError: The manifest cannot be read or written.
    """
    directory = existing_path(run_dir)
    if not directory.is_dir():
        raise ClawbloxError(f"'{run_dir}' is not a directory", hint="give the run directory")
    refuse_experiment(directory)
    result = repair_checkpoints(directory)
    refused = {shorten_path(path): error.message for path, error in result.refused.items()}
    fields = {**attrs.asdict(result, recurse=False), "refused": refused}
    show(fields, describe_repair(result), as_json=as_json)
    return 1 if result.refused else 0


def _with_bar(verb: str, function: Callable[[Report], _T]) -> _T:
    """Run ``function(report)`` with a progress bar; Ctrl-C ends the function cleanly."""
    return anyio.run(work_with_bar, verb, function)
