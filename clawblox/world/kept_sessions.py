"""Sessions that ``act`` keeps between calls, so that all calls act as the same agent.

Each session is in a private file ``<run dir>/.clawblox/act/<instance>/<agent>.json``. A session
gives access to the world as that agent, so only the user may read the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from clawblox.errors import ConfigError
from clawblox.foreign_values import parse_json
from clawblox.protocol import JoinAnswer, read_join_answer
from clawblox.rundir.paths import state_dir
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.regular_files import read_regular

_MAX_BYTES = 64 << 10


class KeptSession:
    """The file with the session of an agent in an instance.

    Args:
        run_dir: The run directory.
        instance: Name of the instance.
        run_id: Id of the run of the instance.
        agent: Name of the agent.
    """

    def __init__(self, run_dir: Path, instance: str, run_id: str, agent: str) -> None:
        self._run_id = run_id
        name = f"{quote(agent, safe=' ')}.json"
        self._path = state_dir(run_dir) / "act" / instance / name

    def read(self) -> JoinAnswer | None:
        """Return the world's answer to the join; None if no session of this run is kept. Blocks.

        Raises:
            ConfigError: The file cannot be read.
        """
        try:
            kept = parse_json(read_regular(self._path, max_bytes=_MAX_BYTES))
            if not isinstance(kept, dict) or kept.pop("run_id", None) != self._run_id:
                return None
            return read_join_answer(kept)
        except (FileNotFoundError, ValueError):
            return None
        except OSError as error:
            raise self._error("read", error) from error

    def write(self, answer: JoinAnswer) -> None:
        """Keep a session. Blocks.

        Raises:
            ConfigError: The file cannot be written.
        """
        data = json.dumps({**answer.fields, "run_id": self._run_id}).encode()
        if len(data) >= _MAX_BYTES:
            data = json.dumps({"session": answer.session, "run_id": self._run_id}).encode()
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
