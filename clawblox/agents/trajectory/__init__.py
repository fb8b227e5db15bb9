"""An agent's trajectory in the Agent Trajectory Interchange Format, ATIF 1.7.

It is built on demand from the agent's files on disk.

- ``history``: the history of an agent, from its log and ``events.jsonl``.
- ``records``: the events in ``events.jsonl``, with their places in the log.
- ``steps``: the steps of a trajectory.
- ``document``: the document, with the facts of world and run.
- ``turns``: the turns of an agent, updated while it works.
- ``window``: the steps in a part of a log of any length.
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
from clawblox.agents.trajectory.turns import AgentTurn, TurnIndex
from clawblox.agents.trajectory.window import WINDOW_BYTES, StepWindow, read_window

__all__ = [
    "FILE_NAME",
    "WINDOW_BYTES",
    "AgentTurn",
    "StepWindow",
    "TurnIndex",
    "encode_trajectory",
    "export_trajectory",
    "has_conversation",
    "read_activity",
    "read_window",
    "write_trajectory",
]
