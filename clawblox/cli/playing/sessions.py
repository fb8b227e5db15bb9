"""The sessions that ``act`` keeps between its calls, so that they are one agent in the world.

Each is a private file ``<run dir>/.clawblox/act/<instance>/<agent>.json``. The session is the
agent's key to the world, so only its user may read it.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from clawblox.errors import ConfigError
from clawblox.foreign_values import parse_json
from clawblox.protocol import is_session_id
from clawblox.rundir.paths import state_dir
from clawblox.rundir.records import InstanceRecord
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.regular_files import read_regular

__all__ = ["KeptSession"]

_MAX_BYTES = 64 << 10


class KeptSession:
    """The file with the session of an agent in an instance.

    Args:
        run_dir: The run directory.
        record: The instance.
        agent: Name of the agent.
    """

    def __init__(self, run_dir: Path, record: InstanceRecord, agent: str) -> None:
        self._run_id = record.run_id
        name = f"{quote(agent, safe=' ')}.json"
        self._path = state_dir(run_dir) / "act" / record.name / name

    def read(self) -> str | None:
        """Return the session; None if there is none of this run of the instance. Blocks.

        Raises:
            ConfigError: The file cannot be read.
        """
        try:
            kept = parse_json(read_regular(self._path, max_bytes=_MAX_BYTES))
        except (FileNotFoundError, ValueError):
            return None
        except OSError as error:
            raise self._error("read", error) from error
        session = kept.get("session") if isinstance(kept, dict) else None
        if not isinstance(session, str) or kept.get("run_id") != self._run_id:
            return None
        return session if is_session_id(session) else None

    def write(self, session: str) -> None:
        """Keep a session. Blocks.

        Raises:
            ConfigError: The file cannot be written.
        """
        data = json.dumps({"run_id": self._run_id, "session": session}).encode()
        try:
            make_private_dir(self._path.parent)
            publish_bytes(self._path, data + b"\n")
        except OSError as error:
            raise self._error("written", error) from error

    def remove(self) -> None:
        """Forget the session. Blocks.

        Raises:
            ConfigError: The file cannot be removed.
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._error("removed", error) from error

    def _error(self, verb: str, error: OSError) -> ConfigError:
        return ConfigError(f"the session cannot be {verb}: {error.strerror}", path=self._path)
