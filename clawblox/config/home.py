"""The directory for a user's own files: downloaded worlds, and the index of runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_HOME_ENV: Final = "CLAWBLOX_HOME"


def home_dir() -> Path:
    """Return ``CLAWBLOX_HOME``, or else ``~/.clawblox``, as an absolute path; it may not exist.

    Raises:
        RuntimeError: The variable is not set, and the user has no home directory.
    """
    return Path(os.environ.get(_HOME_ENV) or Path.home() / ".clawblox").absolute()
