"""How Codex names the files of its conversations, which it calls rollouts."""

from __future__ import annotations

import re
from typing import Final

from clawblox.agents.programs.program import UUID

ROLLOUT: Final = re.compile(rf"sessions/\d{{4}}/\d\d/\d\d/rollout-[0-9T-]+-(?P<id>{UUID})\.jsonl")
"""Path of a rollout below the state directory."""


def thread_id(path: str) -> str | None:
    """Return the thread whose rollout has this path; None if it is no rollout.

    Args:
        path: Path below the state directory.
    """
    match = ROLLOUT.fullmatch(path)
    return match["id"] if match else None
