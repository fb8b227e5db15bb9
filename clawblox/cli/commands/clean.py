"""``clawblox clean``: frees the disk space of ended runs."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import click

from clawblox.cli.parameters import PATH, examples, existing_run_dir, json_option
from clawblox.rundir.paths import resolve_run_dir
from clawblox.system.amounts import format_bytes
from clawblox.team.cleaning import RunFile, held, list_files, remove_files
from clawblox.views.formatting import (
    count_words,
    format_json,
    format_table,
    shorten_path,
)


@examples("""
  clawblox clean runs/r001 --dry-run   list the removable files, with sizes
  clawblox clean runs/*                remove it
  clawblox clean runs/r001 --all       remove requested saves, too

These files always stay: the last good save of each instance and each run, the latest archive,
the archive that checkpoint.json names, and every save from which a run, restart or fork
started, in any known run (clawblox ps -a). Logs, recordings and the files of agents also stay.
""")
@click.command("clean")
@click.argument("run_dirs", type=PATH, nargs=-1, required=True, metavar="RUN_DIR...")
@click.option("--all", "all_saves", is_flag=True, help="Also remove requested saves.")
@click.option("--dry-run", is_flag=True, help="List the removable files without removing them.")
@json_option
def command(run_dirs: tuple[str, ...], *, all_saves: bool, dry_run: bool, as_json: bool) -> None:
    """Remove old autosaves, old archives and half-written files from ended runs.

    RUN_DIR is the directory of an ended run.

    \f
    Raises:
        ClawbloxError: A run directory does not exist or contains no run, or its run has not ended.
        OSError: A file cannot be removed.
    """
    places = [resolve_run_dir(existing_run_dir(text)) for text in run_dirs]
    with ExitStack() as holding:
        for place in dict.fromkeys(places):
            holding.enter_context(held(place))
        files = list_files(list(dict.fromkeys(places)))
        chosen = {
            run_dir: [
                file
                for file in candidates
                if file.named_by is None and (all_saves or file.kind != "save")
            ]
            for run_dir, candidates in files.items()
        }
        if not dry_run:
            for run_dir, spent in chosen.items():
                remove_files(run_dir, spent)
    if as_json:
        click.echo(format_json([_json_object(run, files[run], chosen[run]) for run in files]))
        return
    spent = [file for candidates in chosen.values() for file in candidates]
    if spent:
        rows = [
            (shorten_path(file.path), file.kind, format_bytes(file.size_bytes)) for file in spent
        ]
        click.echo(format_table(("FILE", "KIND", "SIZE"), rows))
    kept = sum(len(candidates) for candidates in files.values()) - len(spent)
    click.echo(_summarise(spent, kept, dry_run=dry_run))


def _summarise(spent: list[RunFile], kept: int, *, dry_run: bool) -> str:
    size = format_bytes(sum(file.size_bytes for file in spent))
    stay = f"{count_words(kept, 'save')} and archives stay." if kept != 1 else "1 save stays."
    if not spent:
        return f"Nothing to remove. {stay}"
    verb = "Would remove" if dry_run else "Removed"
    return f"{verb} {count_words(len(spent), 'file')}, {size}. {stay}"


def _json_object(run_dir: Path, candidates: list[RunFile], spent: list[RunFile]) -> dict[str, Any]:
    return {
        "run_dir": run_dir,
        "removed": [attrs.asdict(file) for file in spent],
        "kept": [attrs.asdict(file) for file in candidates if file not in spent],
        "freed_bytes": sum(file.size_bytes for file in spent),
    }
