"""``clawblox init``: a small world to begin with."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path

import click
import tomlkit

from clawblox.cli.parameters import PATH
from clawblox.errors import ClawbloxError

__all__ = ["command"]

_FILES = ("world.toml", "world.py", "API.md")
_STARTER_NAME = 'name = "meadow"'


@click.command(
    "init",
    epilog="""\
    \b
    Examples:
      clawblox init                 my-world, in this directory
      clawblox init worlds/panda    and run it: clawblox run worlds/panda
    """,
)
@click.argument("name", type=PATH, default="my-world", metavar="[NAME]")
def command(name: str) -> None:
    """Write a starter world: three small files, playable, made to be changed.

    NAME is the directory to make; its last part names the world. The world is a Python program
    on clawblox.server, which needs the extra of that name: pip install "clawblox[server]".
    """
    directory = Path(name)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ClawbloxError(f"Path '{name}' exists already, and is not an empty directory")
    directory.mkdir(parents=True, exist_ok=True)
    starter = files("clawblox.cli") / "starter"
    for file_name in _FILES:
        text = (starter / file_name).read_text(encoding="utf-8")
        text = text.replace(
            _STARTER_NAME, f"name = {tomlkit.string(directory.resolve().name).as_string()}"
        )
        (directory / file_name).write_text(text, encoding="utf-8")
        click.echo(f"Wrote {directory / file_name}")
    dashes = ("--",) if name.startswith("-") else ()
    click.echo(f"Run it: {shlex.join(('clawblox', 'run', *dashes, name))}")
