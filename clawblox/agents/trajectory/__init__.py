"""An agent's trajectory in the Agent Trajectory Interchange Format, ATIF 1.7.

It is built on demand from the files that the agent left on disk.

- ``history``: the history of an agent, from its log and ``events.jsonl``.
- ``steps``: the steps of a trajectory.
- ``document``: the document, with the facts of world and run.
"""

from __future__ import annotations

from clawblox.agents.trajectory.document import (
    FILE_NAME,
    encode_trajectory,
    export_trajectory,
    has_conversation,
    read_activity,
    write_trajectory,
)

__all__ = [
    "FILE_NAME",
    "encode_trajectory",
    "export_trajectory",
    "has_conversation",
    "read_activity",
    "write_trajectory",
]
