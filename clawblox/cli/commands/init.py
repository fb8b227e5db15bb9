"""``clawblox init``: a small world to start from."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Final

import click
import tomlkit

from clawblox.cli.parameters import PATH, examples
from clawblox.errors import ClawbloxError
from clawblox.extras import find_missing, install_command
from clawblox.printable import quote_words
from clawblox.views.formatting import shorten_path

_PYTHON: Final = ("world.toml", "world.py", "API.md")
_ENGINE: Final = ("world.toml", "main.lua", "API.md", "renderer/index.js", ".gitignore")
"""Files of the starter world for the engine; the package stores them without a leading dot."""

_NAME_LINE: Final = re.compile(r'^name = ".*"$', re.MULTILINE)


@examples("""
  clawblox init                 create my-world in this directory
  clawblox init worlds/panda    then run it: clawblox run worlds/panda
  clawblox init --engine isle   a world of Luau scripts with physics
""")
@click.command("init")
@click.argument("name", type=PATH, default="my-world", metavar="[NAME]")
@click.option(
    "--engine",
    "is_engine_world",
    is_flag=True,
    help="Write a world of Luau scripts for the built-in engine.",
)
def command(name: str, is_engine_world: bool) -> None:
    """Create a starter world: a few small files to run and change.

    NAME is the directory to create, by default my-world; its last part becomes the name of the
    world. The world is a Python program that needs the extra "server". With --engine it is a
    Luau script that needs the extra "engine". Existing files are never replaced.

    \f
    Raises:
        ClawbloxError: The directory exists and is not empty, or its name is not valid for a world.
        OSError: The files cannot be written.
    """
    directory = Path(name).resolve()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ClawbloxError(f"NAME: must be a new or an empty directory, not '{name}'")
    documents = _starter_files(directory.name, is_engine_world=is_engine_world)
    directory.mkdir(parents=True, exist_ok=True)
    shown = Path(shorten_path(directory))
    for file_name, document in documents.items():
        path = directory / file_name
        path.parent.mkdir(exist_ok=True)
        with path.open("xb") as file:
            file.write(document)
        click.echo(f"Wrote {shown / file_name}")
    if is_engine_world:
        (directory / "assets").mkdir()
    extra = "engine" if is_engine_world else "server"
    if missing := find_missing(extra):
        click.echo(f"It needs {', '.join(missing)}: {install_command(extra)}")
    dashes = ("--",) if str(shown).startswith("-") else ()
    click.echo(f"Run it: {quote_words(('clawblox', 'run', *dashes, str(shown)))}")


def _starter_files(name: str, *, is_engine_world: bool) -> dict[str, bytes]:
    """Return the files of a starter world, by file name.

    Raises:
        ClawbloxError: The name is not valid text.
    """
    starter = files("clawblox.cli") / "starter" / ("engine" if is_engine_world else "")
    sources = _ENGINE if is_engine_world else _PYTHON
    texts = {file: (starter / file.removeprefix(".")).read_text("utf-8") for file in sources}
    line = f"name = {tomlkit.string(name).as_string()}"
    texts["world.toml"] = _NAME_LINE.sub(lambda _: line, texts["world.toml"], count=1)
    try:
        return {file: text.encode() for file, text in texts.items()}
    except UnicodeEncodeError:
        raise ClawbloxError(f"NAME: must be text in UTF-8, not {name!r}") from None
