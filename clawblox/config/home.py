"""Where clawblox keeps a user's own files: downloaded worlds, and the index of runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_HOME_ENV: Final = "CLAWBLOX_HOME"


def home_dir() -> Path:
    """Return ``CLAWBLOX_HOME``, else ``~/.clawblox``, absolute; it may not exist.

    Raises:
        RuntimeError: Neither is known: the user has no home directory.
    """
    return Path(os.environ.get(_HOME_ENV) or Path.home() / ".clawblox").absolute()
