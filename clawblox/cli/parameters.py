"""What the commands' parameters have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from clawblox.errors import ClawbloxError
from clawblox.runs import read_instances

__all__ = [
    "EnvironmentOption",
    "SectionedCommand",
    "existing_path",
    "existing_run_dir",
    "grace_option",
    "json_option",
    "not_negative",
    "run_dir_arguments",
]

_F = TypeVar("_F", bound=Callable[..., Any])


class EnvironmentOption(click.Option):
    """An option whose environment variable counts as unset when it is blank."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of the variable without surrounding blanks, or None."""
        value = super().resolve_envvar_value(ctx)
        return (value or "").strip() or None


class SectionedCommand(click.Command):
    """A command whose help shows its options in sections.

    Attributes:
        sections: Names of parameters by the title of their section; the rest comes last.
    """

    sections: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, in one column for all of them."""
        records = {
            str(param.name): record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx))
        }
        titled = {
            title: [records.pop(name) for name in names] for title, names in self.sections.items()
        }
        for title, rows in {**titled, "Other": list(records.values())}.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def not_negative(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse a number below 0, and NaN; a click callback."""
    if value is None or value >= 0:
        return value
    raise click.BadParameter(f"{value:g} is not 0 or more.", ctx, param)


def existing_path(text: str) -> Path:
    """Return the path that a person named.

    Raises:
        ClawbloxError: It does not exist.
    """
    path = Path(text)
    if not path.exists():
        raise ClawbloxError(f"Path '{text}' does not exist")
    return path


def existing_run_dir(text: str) -> Path:
    """Return the run directory that a person named.

    Raises:
        ClawbloxError: It does not exist, or nothing ever ran in it.
    """
    path = existing_path(text)
    if not read_instances(path):
        raise ClawbloxError(
            f"Nothing has run in '{text}'",
            hint="give the run directory: what --run-dir was, or the world directory",
        )
    return path


def run_dir_arguments(command: _F) -> _F:
    """Add the arguments ``[RUN_DIR] [INSTANCE]...``."""
    names = click.argument("names", metavar="[INSTANCE]...", nargs=-1)
    run_dir = click.argument("run_dir", default=".", metavar="[RUN_DIR]")
    return run_dir(names(command))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

grace_option = click.option(
    "--grace",
    type=float,
    callback=not_negative,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between TERM and KILL.",
)
