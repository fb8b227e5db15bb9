"""Recordings of worlds: what happened, in blocks that are found by track and time.

Nothing here knows a world or starts a thread: programs that record drive the writer, and readers
pass a descriptor that they opened. ``docs/recordings.md`` describes the format.

- ``blocks``: the format: tracks, moments, blocks and their headers.
- ``writer``: records become blocks, and blocks a file.
- ``background``: records are added without waiting, and written by other threads.
- ``reader``: the index of a file, its records by track and time, and those of the older format.
- ``replay_script``: what a new process of a world repeats, without what came of it then.
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = "clawblox-recording-v2"
OLD_FORMAT: Final = "clawblox-events-v1"
