"""Files for the bodies of requests that are too long for a command line of a report."""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from pathlib import Path
from typing import Final

from clawblox.system.files import publish_bytes
from clawblox.telemetry.own_log import OwnLog

_DIGITS: Final = 16
_MODE: Final = 0o644
"""As reports are, they are for others to read; sessions and tokens are in headers."""

_log = OwnLog(__name__)


class BodyFiles:
    """The files of one report.

    Args:
        directory: Their directory, made with the first of them; None means a new one among the
            temporary files.
    """

    def __init__(self, directory: Path | None) -> None:
        name = f"clawblox-check-{secrets.token_hex(8)}"
        self._directory = directory or Path(tempfile.gettempdir(), name)

    def keep(self, body: bytes) -> str:
        """Write a body to a file, named after its digest, and return its path. Blocks.

        A file that cannot be written is a warning: what the check has found is worth more.
        """
        digest = hashlib.sha256(body).hexdigest()
        path = self._directory / f"{digest[:_DIGITS]}.body"
        with _log.contain("body not written", expected=(OSError,), path=str(path)):
            self._directory.mkdir(exist_ok=True)
            publish_bytes(path, body, mode=_MODE, durable=False)
        return str(path)
