"""Recordings of worlds: events in blocks that can be found by track and time.

This package is independent of worlds and starts no threads: recording programs drive the writer,
and readers pass a descriptor that they opened. ``docs/recordings.md`` describes the format.

- ``blocks``: the format: tracks, moments, blocks and their headers.
- ``writer``: collects records in blocks, and writes blocks to a file.
- ``background``: records are added without waiting, and written by other threads.
- ``reader``: the index of a file, its records by track and time, and those of the older format.
- ``replay_script``: the inputs that a new process of a world repeats, without their results.
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = "clawblox-recording-v2"
OLD_FORMAT: Final = "clawblox-events-v1"
