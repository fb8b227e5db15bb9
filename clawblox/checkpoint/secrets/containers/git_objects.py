"""Git's loose objects: zlib streams that begin with the type and size of the object.

After that follows the content as it was committed, which may be a container itself.
"""

from __future__ import annotations

import re
from typing import Final

from clawblox.checkpoint.secrets.containers.decoder import Sink

_HEADER: Final = re.compile(rb"(?:blob|commit|tag|tree) \d{1,20}\0")
_HEADER_SIZE: Final = 32
"""Maximum length of a header."""


class ObjectContent:
    """Passes on a git object without its header, and anything else unchanged.

    Args:
        inside: Takes the bytes.
    """

    def __init__(self, inside: Sink) -> None:
        self._inside = inside
        self._head: bytes | None = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the object."""
        if self._head is None:
            self._inside.feed(data)
            return
        self._head += data
        if len(self._head) >= _HEADER_SIZE:
            self._begin(self._head)

    def close(self) -> None:
        """Finish: nothing follows."""
        if self._head is not None:
            self._begin(self._head)
        self._inside.close()

    def _begin(self, head: bytes) -> None:
        self._head = None
        header = _HEADER.match(head)
        self._inside.feed(head[header.end() :] if header else head)
