"""The world that was written only from the public description, for the tests that run it."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

PLAIN_WORLD = Path(__file__).parents[1] / "worlds" / "plain_world"


def copy_plain_world(parent: Path, name: str = "plain") -> Path:
    """Copy the world below ``parent`` and return its directory."""
    directory = parent / name
    shutil.copytree(PLAIN_WORLD, directory, ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def read_players(save: Path) -> list[str]:
    """Return the names of the players in a snapshot or an archive, in the order of their joins."""
    if save.suffix == ".ckpt":
        with zipfile.ZipFile(save) as archive:
            document = json.loads(archive.read("world.snapshot"))
    else:
        document = json.loads(save.read_bytes())
    return [player["name"] for player in document["players"].values()]
