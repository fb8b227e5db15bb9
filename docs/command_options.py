"""Writes the tables of options into ``cli.md``, from the commands.

python -m docs.command_options
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from clawblox.cli import main as program

__all__ = ["PAGE", "render_page"]

PAGE: Final = Path(__file__).parent / "cli.md"
_MARKED: Final = re.compile(r"<!-- options: ([\w, ]+) -->\n.*?<!-- end -->", re.DOTALL)


def render_page(text: str) -> str:
    """Return the text of the page with the tables that the commands give."""
    return _MARKED.sub(lambda match: _render_table(match[1]), text)


def _render_table(names: str) -> str:
    """Return the table of options of some commands, its marks included."""
    commands = {name.rpartition(" ")[2]: _find_command(name) for name in names.split(", ")}
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, command in commands.items():
        context = click.Context(command, info_name=name)
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                rows.setdefault(_describe(option, context), []).append(name)
    heading = ("option", "variable", "default", "meaning")
    table = [heading, tuple("---" for _ in heading)]
    for row, owners in rows.items():
        prefix = "" if len(owners) == len(commands) else f"`{'`, `'.join(owners)}`: "
        table.append((*row[:-1], prefix + row[-1]))
    used = [column for column in range(len(heading)) if any(row[column] for row in table[2:])]
    lines = ["| " + " | ".join(row[column] for column in used) + " |" for row in table]
    return "\n".join([f"<!-- options: {names} -->", *lines, "<!-- end -->"])


def _find_command(words: str) -> click.Command:
    command: click.Command | None = program
    for word in words.split():
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word)
    if command is None:
        raise LookupError(f"no command {words!r}; correct the mark in {PAGE.name}")
    return command


def _describe(option: click.Option, context: click.Context) -> tuple[str, ...]:
    """Return name, variable, default and meaning of an option."""
    record = option.get_help_record(context)
    extra = option.get_help_extra(context)
    names = "`, `".join(re.split(r" / |, ", record[0] if record else ""))
    default = str(extra.get("default", ""))
    if default.startswith("(") and default.endswith(")"):
        default = default[1:-1]
    elif default and not option.is_flag:
        default = f"`{default}`"
    variables = ", ".join(f"`{name}`" for name in extra.get("envvars", ()))
    meaning = (option.help or "").rstrip(".")
    return tuple(_cell(text) for text in (f"`{names}`", variables, default, meaning))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Write the tables."""
    PAGE.write_text(render_page(PAGE.read_text()))


if __name__ == "__main__":
    main()
