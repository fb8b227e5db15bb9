"""``clawblox init``: a small world to start from."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Final

import click
import tomlkit

from clawblox.cli.parameters import PATH
from clawblox.errors import ClawbloxError

__all__ = ["command"]

_PYTHON: Final = {"world.toml": "world.toml", "world.py": "world.py", "API.md": "API.md"}
_ENGINE: Final = {
    "world.toml": "engine/world.toml",
    "main.lua": "engine/main.lua",
    "API.md": "engine/API.md",
    "renderer/index.js": "engine/renderer/index.js",
    ".gitignore": "engine/gitignore",
}
"""Files of the two starter worlds, by their names in the new directory."""

_NAME_LINE: Final = re.compile(r'^name = ".*"$', re.MULTILINE)


@click.command(
    "init",
    epilog="""\
    \b
    Examples:
      clawblox init                 create my-world in this directory
      clawblox init worlds/panda    then run it: clawblox run worlds/panda
      clawblox init --engine isle   a world of Luau scripts with physics
    """,
)
@click.argument("name", type=PATH, default="my-world", metavar="[NAME]")
@click.option(
    "--engine",
    "is_engine_world",
    is_flag=True,
    help="Write a world of Luau scripts for the built-in engine.",
)
def command(name: str, is_engine_world: bool) -> None:
    """Create a starter world: a few small files that run and are meant to be changed.

    NAME is the directory to create, by default my-world; its last part becomes the name of the
    world. The world is a Python program that needs the extra "server": pip install
    "clawblox[server]". With --engine it is a Luau script that needs the extra "engine".

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
    for file_name, source in (_ENGINE if is_engine_world else _PYTHON).items():
        text = starter.joinpath(source).read_text(encoding="utf-8")
        if file_name == "world.toml":
            text = _with_name(text, directory.resolve().name)
        path = directory / file_name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"Wrote {path}")
    if is_engine_world:
        (directory / "assets").mkdir()
    dashes = ("--",) if name.startswith("-") else ()
    click.echo(f"Run it: {shlex.join(('clawblox', 'run', *dashes, name))}")


def _with_name(text: str, name: str) -> str:
    """Return the text of a ``world.toml`` with another name of the world, its first ``name``."""
    line = f"name = {tomlkit.string(name).as_string()}"
    return _NAME_LINE.sub(lambda _: line, text, count=1)
