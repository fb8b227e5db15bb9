"""The save that a resumed recording began from, as the manifest of its run names it. Blocks.

A manifest may come from a stranger. So a file counts only with the digest that the manifest has,
and only as data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from clawblox.foreign_values import parse_document
from clawblox.recording.blocks import MAX_START_BYTES, MAX_START_MEMBERS
from clawblox.rundir.lives import Origin
from clawblox.system.regular_files import read_regular


def find_save(origins: Iterable[Origin], time: object) -> Origin | None:
    """Return the save that a recording began from; None unless exactly one can be it.

    Args:
        origins: The saves that lives of its instance began from.
        time: Simulation time at which it begins, in seconds.
    """
    saves = {origin.sha256: origin for origin in origins if origin.time in (None, time)}
    return next(iter(saves.values())) if len(saves) == 1 and None not in saves else None


def read_saved_start(save: Origin) -> dict[str, Any] | None:
    """Return the snapshot in a save as recordings have it, without ids of sessions and their key.

    Args:
        save: The save, with its digest.

    Returns:
        None if the file is gone, has another content, or is not a snapshot of the kit.
    """
    try:
        content = read_regular(save.path, max_bytes=MAX_START_BYTES)
        if hashlib.sha256(content).hexdigest() != save.sha256:
            return None
        snapshot = parse_document(content, max_members=MAX_START_MEMBERS)
        return {
            **{key: value for key, value in snapshot.items() if key != "ended_sessions"},
            "ids": {"issued": snapshot["ids"]["issued"]},
            "sessions": [
                {"agent_id": session["agent_id"], "name": session["name"]}
                for session in snapshot["sessions"]
            ],
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
