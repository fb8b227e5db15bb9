"""The observable reads and writes of the public generation scripts.

This is an independent description of their rules, for tests that each side can continue what the
other has started.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

COLUMNS = (
    "generation",
    "agent_index",
    "agent_name",
    "run_id",
    "tmux_session",
    "template_in",
    "workspace_out",
    "start_utc",
    "end_utc",
    "duration_seconds",
)


class Refused(Exception):
    """Raised where the scripts exit with this message."""


class Resumed(NamedTuple):
    """The point from which ``--resume`` continues."""

    generation: int
    templates: list[str]
    run_prefix: str
    tmux_prefix: str


def resume(experiment_dir: Path, agents: int) -> Resumed:
    """Do as ``--resume`` does, up to the start of the next generation."""
    with open(experiment_dir / "generation_chain.csv", encoding="utf-8", newline="") as file:
        rows: list[dict[str, str]] = list(csv.DictReader(file))
    if not rows:
        raise Refused("no completed generation")
    last = max(int(row["generation"]) for row in rows)
    rows = [row for row in rows if int(row["generation"]) == last]
    if len(rows) != agents:
        raise Refused(f"resume metadata has {len(rows)} agents")
    places = {int(row["agent_index"]): row["workspace_out"] for row in rows}
    if min(places) < 0 or max(places) >= agents:
        raise Refused("invalid agent index")
    for place in places.values():
        if not os.path.isdir(place):
            raise Refused(f"recorded workspace does not exist: {place}")
    sample = max(rows, key=lambda row: int(row["agent_index"]))
    prefixes = [re.sub("-g[0-9]{3}$", "", sample[key]) for key in ("run_id", "tmux_session")]
    return Resumed(last + 1, [places.get(place, ".") for place in range(agents)], *prefixes)


def begin(experiment_dir: Path) -> None:
    """Do as a first start does: write the table without rows."""
    (experiment_dir / "runs").mkdir(parents=True)
    with open(experiment_dir / "generation_chain.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerow(COLUMNS)


def complete(
    experiment_dir: Path,
    generation: int,
    *,
    agents: Sequence[str] = ("Eko",),
    template: str = "/templates/agent",
    run_id: str | None = None,
    changed: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Do as a completed generation does: leave workspaces, and append a row for each agent."""
    run = run_id or f"exp-g{generation:03d}"
    workspaces = []
    for index, display in enumerate(agents):
        name = f"{display}-r{run}-w0-a{index}"
        workspace = experiment_dir / "runs" / run / "agents" / name / "workspace"
        workspace.mkdir(parents=True, exist_ok=True)
        (workspace / "SOUL.md").write_text(f"{name}\n")
        workspaces.append(workspace)
        row = {
            "generation": generation,
            "agent_index": index,
            "agent_name": name,
            "run_id": run,
            "tmux_session": run.replace("exp", "clawblox-gen-python"),
            "template_in": template,
            "workspace_out": str(workspace),
            "start_utc": "2026-06-22T18:59:25Z",
            "end_utc": "2026-06-22T19:29:25Z",
            "duration_seconds": 1800,
        }
        with open(experiment_dir / "generation_chain.csv", "a", encoding="utf-8", newline="") as f:
            writer = csv.writer(f, quoting=csv.QUOTE_ALL)
            writer.writerow([(changed or {}).get(column, row[column]) for column in COLUMNS])
    return workspaces


def point_to(experiment_dir: Path, archive: Path) -> None:
    """Do as a checkpoint does: name it in the pointer."""
    pointer = {
        "checkpoint": str(archive),
        "generation": 2,
        "elapsed_seconds": 900,
        "written_at": "2026-06-22T19:14:25Z",
    }
    (experiment_dir / "checkpoint.json").write_text(json.dumps(pointer))


def begin_conversation(agent: Path) -> None:
    """Leave a conversation of Claude Code in the directory of an agent."""
    session = "00000000-0000-4000-8000-000000000000"
    project = agent / "session" / "projects" / "workspace"
    project.mkdir(parents=True)
    records = [
        {"type": "user", "message": {"role": "user", "content": "Begin"}},
        {"type": "assistant", "message": {"role": "assistant", "stop_reason": "end_turn"}},
    ]
    lines = [json.dumps({**record, "sessionId": session}) for record in records]
    (project / f"{session}.jsonl").write_text("\n".join([*lines, ""]))
    (agent / "claude_session_id.txt").write_text(session)
