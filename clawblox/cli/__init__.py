"""The command line: parses, prints and exits; everything it does is a call of the library.

A command's module is imported when the command is used, so that ``clawblox --help`` loads
nothing but click. Summaries stand here for the same reason.

- ``commands``: one module for each command.
- ``running``: running worlds for a command, in the foreground or in the background.
- ``tables``: tables, event lines and archives as text.
- ``terminal``: writing to terminals and pipes without blocking.
- ``parameters``: what the commands' parameters have in common.
- ``starter``: the world that ``clawblox init`` writes.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from clawblox import __version__
from clawblox.errors import ClawbloxError

__all__ = ["WORDS_KEY", "main"]

WORDS_KEY: Final = "clawblox.words"
"""Where ``Context.meta`` has the words of the command line."""

_SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Worlds": {
        "init": "Write a starter world.",
        "run": "Run a world in the foreground until Ctrl-C.",
        "up": "Run many instances of a world, with a live table.",
    },
    "Runs, from any terminal": {
        "ps": "Show what runs, or ran, in a run directory.",
        "logs": "Print what worlds have written.",
        "save": "Save snapshots of what runs.",
        "fork": "Start instances that go on from a snapshot.",
        "stop": "Stop what runs; with --save, save it first.",
    },
    "Archives of world and agents": {
        "ckpt": "Inspect, verify, extract, compare, scan and repair .ckpt files.",
    },
}
_INTERRUPTED_STATUS = 130


class _CommandLine(click.Group):
    """Loads commands when they are used, and ends with one line where an error is expected."""

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - click's own
        """Run the program."""
        _replace_closed_streams()
        return super().main(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; those of a command may be needed once more, in the background."""
        ctx.meta[WORDS_KEY] = tuple(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return [name for commands in _SECTIONS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of that name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"clawblox.cli.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections, without importing any."""
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()), col_max=10)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; say expected errors in one breath, without a traceback."""
        try:
            return super().invoke(ctx)
        except ClawbloxError as error:
            _fail(ctx, str(error), error.exit_code)
        except OSError as error:
            if error.errno == errno.EPIPE:  # click ends quietly when nobody reads any more
                raise
            place = f": {error.filename}" if error.filename else ""
            _fail(ctx, f"{error.strerror or error}{place}", 1)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED_STATUS)


def _replace_closed_streams() -> None:
    """Put the null device where a standard stream is closed, or any file would take its place."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open("w" if fd else "r")  # noqa: SIM115 - it stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _fail(ctx: click.Context, message: str, exit_code: int) -> NoReturn:
    from clawblox.cli.terminal.output import printable_lines

    click.echo(f"Error: {printable_lines(message)}", err=True)
    ctx.exit(exit_code)


@click.group(
    cls=_CommandLine,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\
    \b
    Examples:
      clawblox init worlds/panda
      clawblox run worlds/panda --record --run-dir runs/r001
      clawblox up worlds/panda -n 32 --run-dir runs/r002
      clawblox ps -f runs/r002
      clawblox logs -f runs/r002 w003
      clawblox fork runs/r002 w003 -n 8
      clawblox stop --save runs/r002

    A world is a directory with a world.toml. What runs, and what it left, is kept in the run
    directory: the world directory itself, unless --run-dir or --record-dir say otherwise.
    """,
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def main() -> None:
    """Start, watch and stop interactive worlds for agents."""
