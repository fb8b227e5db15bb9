"""The directory of an agent that is there only while something is tried."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from clawblox.agents.layout import AgentDir
from clawblox.system.files import make_private_dir


@contextlib.contextmanager
def scratch_agent_dir() -> Iterator[AgentDir]:
    """Make the directory of an agent, and remove it with all that was written there. Blocks.

    Raises:
        OSError: It cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix="clawblox-doctor-", ignore_cleanup_errors=True) as name:
        directory = AgentDir(Path(name))
        for place in (directory.workspace, directory.runtime, directory.home, directory.state):
            make_private_dir(place)
        yield directory
