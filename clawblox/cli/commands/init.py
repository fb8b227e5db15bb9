"""``clawblox init``: a small world to start from."""

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
      clawblox init                 create my-world in this directory
      clawblox init worlds/panda    then run it: clawblox run worlds/panda
    """,
)
@click.argument("name", type=PATH, default="my-world", metavar="[NAME]")
def command(name: str) -> None:
    """Create a starter world: three small files that run and are meant to be changed.

    NAME is the directory to create, by default my-world; its last part becomes the name of the
    world. The world is a Python program that needs the extra "server": pip install
    "clawblox[server]".

    \f
    Raises:
        ClawbloxError: The directory exists and is not empty.
        OSError: The files cannot be written.
    """
    directory = Path(name)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ClawbloxError(f"Path '{name}' already exists and is not an empty directory")
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
