"""The command line: parses arguments, prints and exits; the library does the rest.

A command's module is imported when the command is used, so ``clawblox --help`` loads only click.
The commands' summaries are here for the same reason.

- ``commands``: one module for each command.
- ``doctor``: what ``clawblox doctor`` checks.
- ``playing``: acting in a running world from a shell.
- ``running``: running worlds for a command, in the foreground or in the background.
- ``terminal``: writing to terminals and pipes without blocking.
- ``flags``: errors of the library in the words of a command.
- ``experiment_dirs``: errors for a run directory in place of an experiment's, and vice versa.
- ``parameters``: parameters that several commands share.
- ``options``, ``field_options``, ``option_help``: command options made from the option classes.
- ``plan_options``: options that set fields of a plan.
- ``starter``: the world that ``clawblox init`` writes.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import click

from clawblox import __version__
from clawblox.cli.terminal.streams import guard_streams
from clawblox.errors import ClawbloxError
from clawblox.printable import printable_name

__all__ = ["main"]

_SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Worlds": {
        "init": "Create a starter world.",
        "check": "Check whether a world meets the requirements of the world interface.",
        "run": "Run one world in the foreground until Ctrl-C.",
        "up": "Run many instances of a world, with a live table.",
        "resume": "Continue an interrupted run from its last saves.",
    },
    "Runs, from any terminal": {
        "app": "Show runs and experiments as web pages.",
        "ps": "Show instances and agents, running or ended.",
        "lineage": "Show saves, deaths, restarts and forks of a run.",
        "logs": "Print the logs of instances.",
        "replay": "Show what happened in a recorded world.",
        "verify": "Check whether a world repeats its recordings exactly.",
        "save": "Save snapshots of running instances.",
        "fork": "Start new instances from a snapshot.",
        "restart": "Restart instances from their current state.",
        "stop": "Stop instances; with --save, save them first.",
        "wait": "Wait until instances have ended, and exit with their status.",
        "clean": "Remove unneeded saves and files from ended runs.",
    },
    "Experiments": {
        "experiment": "Run, resume, fork and score experiments of many generations.",
        "generations": "Run a chain of generations, like the public generation script.",
    },
    "Playing": {
        "play": "Play in a world: look, act and chat from a shell.",
        "act": "Send one input as an agent, and print the observation after it.",
    },
    "Agents": {
        "agent": "Send a message to a running agent, stop it, or show its state.",
        "trajectory": "Write the trajectory of an agent as an ATIF document.",
    },
    "Checkpoint archives": {
        "ckpt": "Inspect, verify, extract, compare, scan and repair .ckpt files.",
    },
    "This machine": {
        "doctor": "Check this machine for required and optional dependencies.",
    },
}
_INTERRUPTED_STATUS = 130


class _CommandLine(click.Group):
    """Imports commands when they are used, and prints expected errors without a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - click's own
        """Run the command line."""
        _replace_closed_streams()
        guard_streams()
        return super().main(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep them for commands that run again in the background."""
        ctx.obj = tuple(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return [name for commands in _SECTIONS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no command of that name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"clawblox.cli.commands.{cmd_name}")
        gc.enable()  # see __main__
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections, without importing them."""
        width = max(map(len, self.list_commands(ctx)))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of some arguments; for a misspelled command, suggest the right one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from clawblox.spelling import nearest_name

            meant = nearest_name(args[0], self.list_commands(ctx))
            if meant is None:
                raise
            raise click.UsageError(f"{error.message} Did you mean {meant!r}?", error.ctx) from None

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run a command, and exit with the status that it returns or that its errors have.

        Expected errors are printed. Tasks that fail together raise a group, usually of a single
        error; all errors of a group are reported.

        Raises:
            OSError: The reader of the output is gone; click handles this error.
        """
        try:
            ctx.exit(super().invoke(ctx) or 0)
        except BaseExceptionGroup as group:
            _end(ctx, list(_errors_in(group)), group)
        except (ClawbloxError, OSError, KeyboardInterrupt, click.Abort) as error:
            _end(ctx, [error], error)


def _errors_in(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _errors_in(error)
        else:
            yield error


def _end(ctx: click.Context, errors: Sequence[BaseException], raised: BaseException) -> NoReturn:
    """Report the errors that end a command, and exit.

    Args:
        ctx: The command.
        errors: The errors; identical texts are printed once.
        raised: The exception that was raised: one of the errors, or their group.
    """
    if any(isinstance(error, KeyboardInterrupt | click.Abort) for error in errors):
        if isinstance(raised, click.Abort):  # Ctrl-C was pressed at a question
            click.echo(err=True)
        ctx.exit(_INTERRUPTED_STATUS)
    if not all(map(_is_expected, errors)):
        raise errors[0] if len(errors) == 1 else raised
    for text in dict.fromkeys(_describe(ctx, error) for error in errors):
        click.echo(f"Error: {text}", err=True)
    ctx.exit(max(getattr(error, "exit_code", 1) for error in errors))


def _is_expected(error: BaseException) -> bool:
    """Return whether the text of an error is enough for the user; click handles a closed pipe."""
    is_closed_pipe = isinstance(error, OSError) and error.errno == errno.EPIPE
    return isinstance(error, ClawbloxError | OSError) and not is_closed_pipe


def _describe(ctx: click.Context, error: BaseException) -> str:
    if isinstance(error, ClawbloxError):
        from clawblox.cli.flags import find_command, in_flags

        return str(in_flags(error, find_command(main, ctx, ctx.obj or ())))
    assert isinstance(error, OSError)
    subject = f"{printable_name(str(error.filename))}: " if error.filename else ""
    return f"{subject}{printable_name(error.strerror or str(error))}"


def _replace_closed_streams() -> None:
    """Open the null device for closed standard streams, so that no other file gets their number."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "w" if fd else "r")  # noqa: PTH123, SIM115 - stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


@click.group(
    cls=_CommandLine,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        # Otherwise click drops escapes from pipes before guard_streams can show them.
        "color": True,
    },
    epilog="""\
    \b
    Examples:
      clawblox init worlds/panda
      clawblox run worlds/panda --record --run-dir runs/r001
      clawblox up worlds/panda -n 32 --run-dir runs/r002
      clawblox resume runs/r002
      clawblox ps
      clawblox ps runs/r002 -w
      clawblox logs runs/r002 w003 -f
      clawblox fork runs/r002 w003 -n 8
      clawblox stop runs/r002 --save

    A world is a directory with a world.toml. Each run has a run directory for its logs,
    checkpoints and recordings: the value of --run-dir, by default runs/<world>-<time>.
    """,
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def main() -> None:
    """Start, watch, save and stop interactive worlds for LLM agents."""
