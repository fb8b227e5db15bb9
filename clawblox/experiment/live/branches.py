"""The agents of a branch: copies of a checkpoint's agents with their own conversations.

The checkpoint is loaded into the run directory of the branch, and each agent is forked from there.
The original is never opened for writing. Each new agent is the same player as the original, in a
separate world that continues from the same snapshot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.config.options import DEFAULT_MAX_FILE_BYTES
from clawblox.experiment.live.attempt_agents import AttemptAgent
from clawblox.experiment.live.attempt_files import copy_session, update_manifest
from clawblox.rundir.manifest_updates import agent_update
from clawblox.rundir.paths import state_dir
from clawblox.system.files import digest_file
from clawblox.system.regular_files import read_file

_SOURCE: Final = "source"
_MAX_ID_BYTES: Final = 4096


def source_dir(run_dir: Path) -> Path:
    """Return the directory of the loaded agents from which a branch is forked."""
    return state_dir(run_dir) / _SOURCE


def carry_over(source: AttemptAgent, branch: AsyncAgent, run_dir: Path) -> None:
    """Let a forked agent rejoin as the loaded agent's player, and record its origin. Blocks.

    Args:
        source: The loaded agent.
        branch: The agent forked from it.
        run_dir: The run directory of the branch.

    Raises:
        ManifestError: The manifest of the branch cannot be written.
        OSError: A file cannot be read or copied.
    """
    copy_session(source.agent.dir, branch.dir)
    update = agent_update(dir=branch.dir)
    (entry,) = update.agents
    known = {**entry, "forked_from": _describe(source)}
    update_manifest(run_dir, msgspec.structs.replace(update, agents=(known,)))


def _describe(source: AttemptAgent) -> dict[str, Any]:
    """Return a description of the conversation that a branch continues."""
    directory = AgentDir(source.agent.dir)
    driver = find_driver(source.spec.driver)
    id_file = directory.id_file(source.spec.driver)
    content = read_file(directory.path, id_file.name, max_bytes=_MAX_ID_BYTES)
    session = content.decode(errors="replace").strip()
    transcript = (driver.transcripts(directory) or {}).get(session)
    digest = (
        None if transcript is None else digest_file(transcript, max_bytes=DEFAULT_MAX_FILE_BYTES)
    )
    facts = {"name": source.agent.name, "session": session, "transcript_sha256": digest}
    return {name: value for name, value in facts.items() if value is not None}
