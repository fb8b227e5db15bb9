"""What the commands' parameters have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import click

from clawblox.cli import WORDS_KEY
from clawblox.errors import ClawbloxError
from clawblox.rundir.status import select_records
from clawblox.system.ports import MAX_LEASES

__all__ = [
    "PATH",
    "EnvironmentOption",
    "SectionedCommand",
    "at_least_one",
    "count_option",
    "environment_of",
    "existing_path",
    "existing_run_dir",
    "grace_option",
    "json_option",
    "not_negative",
    "port_number",
    "positive",
    "run_dir_arguments",
    "words_of",
]

_F = TypeVar("_F", bound=Callable[..., Any])


class EnvironmentOption(click.Option):
    """An option whose environment variable counts as unset when it is blank."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of the variable without surrounding blanks, or None."""
        value = super().resolve_envvar_value(ctx)
        return (value or "").strip() or None


class _Path(click.types.StringParamType):
    """A path as it was written; an empty one, as of an unset variable, is no path."""

    name = "path"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path."""
        if not value:
            self.fail("the path is empty; '.' is the current directory.", param, ctx)
        return value


PATH: Final = _Path()


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


def positive(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse 0, a number below it, and NaN; a click callback."""
    if value is None or value > 0:
        return value
    raise click.BadParameter(f"{value:g} is not above 0.", ctx, param)


def at_least_one(ctx: click.Context, param: click.Parameter, value: int) -> int:
    """Refuse a number below 1; a click callback."""
    if value >= 1:
        return value
    raise click.BadParameter(f"{value} is not 1 or more.", ctx, param)


def instance_count(ctx: click.Context, param: click.Parameter, value: int) -> int:
    """Refuse a number of instances that cannot be started at once; a click callback."""
    if value > MAX_LEASES:
        message = f"{value} is more than {MAX_LEASES}: each needs a port of its own."
        raise click.BadParameter(message, ctx, param)
    return at_least_one(ctx, param, value)


def port_number(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    """Refuse what is no port, and not 0; a click callback."""
    if value is None or 0 <= value <= 65535:
        return value
    raise click.BadParameter(f"{value} is not 0 to 65535.", ctx, param)


def environment_of(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    """Return variables that were given as ``KEY=VALUE``; a click callback."""
    for entry in value:
        if not entry.partition("=")[0] or "=" not in entry:
            raise click.BadParameter(f"{entry!r} is not KEY=VALUE.", ctx, param)
    return dict(entry.split("=", 1) for entry in value)


def words_of(ctx: click.Context) -> tuple[str, ...]:
    """Return the command and its arguments as they were given."""
    words: tuple[str, ...] = ctx.meta[WORDS_KEY]
    return words


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
    if not select_records(path, ()):
        raise ClawbloxError(
            f"Nothing has run in '{text}'",
            hint="give the run directory: what --run-dir was, or the world directory",
        )
    return path


def run_dir_arguments(command: _F) -> _F:
    """Add the arguments ``[RUN_DIR] [INSTANCE]...``."""
    names = click.argument("names", metavar="[INSTANCE]...", nargs=-1)
    run_dir = click.argument("run_dir", type=PATH, default=".", metavar="[RUN_DIR]")
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

count_option = click.option(
    "-n",
    "--count",
    type=int,
    callback=instance_count,
    default=1,
    show_default=True,
    metavar="N",
    help="How many instances.",
)
