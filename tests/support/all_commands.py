"""The commands of the command line, as click objects."""

from __future__ import annotations

from collections.abc import Iterator

import click

from clawblox.cli import main

COMMANDS = main.list_commands(click.Context(main))


def find_command(words: str) -> click.Command:
    command: click.Command | None = main
    for name in words.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None
    return command


def find_options(name: str) -> list[click.Option]:
    """Return the options of a command, including hidden ones."""
    return [param for param in find_command(name).params if isinstance(param, click.Option)]


def every_command(group: click.Group = main, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command and subcommand with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*words, name)), command
        if isinstance(command, click.Group):
            yield from every_command(command, *words, name)
