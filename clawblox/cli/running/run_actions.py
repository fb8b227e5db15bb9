"""Views of and actions on the instance that is selected in a live table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import read_agents
from clawblox.cli.experiment_dirs import refuse_running_attempt
from clawblox.columns import format_lines
from clawblox.concurrency.batch import Outcome
from clawblox.config.options import DEFAULT_GRACE_S, RestartOptions
from clawblox.errors import ClawbloxError
from clawblox.results import SavedSnapshot
from clawblox.rundir.find_runs import shown_log
from clawblox.rundir.operations import (
    fork_instances,
    restart_instances,
    save_one,
    stop_instances,
)
from clawblox.rundir.requests import Restarted
from clawblox.rundir.status import InstanceStatus
from clawblox.telemetry.logs import last_lines
from clawblox.views.event_lines import describe_restarted, describe_saved, describe_stopped
from clawblox.views.formatting import shorten_path
from clawblox.views.rows import agent_columns
from clawblox.views.steering import Verb

_AGENT_LINES = 6
"""Number of lines from the log of each agent."""


def read_log(status: InstanceStatus, lines: int) -> list[str]:
    """Return a heading and the last lines of the log of an instance. Blocks.

    Args:
        status: The instance.
        lines: Maximum number of lines.
    """
    if (log := shown_log(status.run_dir, status.log_file)) is None:
        return [f"{status.name} has no log that may be shown"]
    return [f"{status.name}: {shorten_path(log)}", *last_lines(log, count=lines)]


def read_agent_logs(status: InstanceStatus) -> list[str]:
    """Return a heading and the agents of an instance's run with their latest actions. Blocks."""
    agents = read_agents(status.run_dir)
    if not agents:
        return [f"{shorten_path(status.run_dir)} has no agents"]
    lines = [
        f"agents of {shorten_path(status.run_dir)}",
        *format_lines(agent_columns(agents), None),
    ]
    for agent in agents:
        log = last_lines(AgentDir(agent.dir).log_file, count=_AGENT_LINES)
        lines += [f"{agent.name}:", *(f"  {line}" for line in log)]
    return lines


async def act_on_instance(verb: Verb, status: InstanceStatus) -> str:
    """Save, fork, restart or stop an instance; return a line with the result.

    Raises:
        ClawbloxError: The action is not possible.
        OSError: A file cannot be read or written.

    Cancellation: as for the command of that name.
    """
    if verb == "save":
        return describe_saved(await save_one(status.run_dir, status.name))
    if verb == "fork":
        return await _fork(status, await save_one(status.run_dir, status.name))
    refuse_running_attempt(status.run_dir)
    if verb == "restart":
        outcomes: list[Outcome[Restarted]] = []
        names, options = [status.name], RestartOptions()
        await restart_instances(status.run_dir, names, options, on_restarted=outcomes.append)
        (outcome,) = outcomes
        return describe_restarted(status.name, outcome.result())
    (result,) = await stop_instances(status.run_dir, [status.name], grace_seconds=DEFAULT_GRACE_S)
    return describe_stopped(result)


async def _fork(status: InstanceStatus, saved: SavedSnapshot) -> str:
    events: list[Mapping[str, Any]] = []
    source = {"path": str(saved.path), "sha256": saved.sha256}
    if not await fork_instances(
        status.run_dir, status.world_dir, source, 1, on_event=events.append
    ):
        raise ClawbloxError(f"no orchestrator is running in '{shorten_path(status.run_dir)}'")
    last = events[-1]
    if last["event"] == "failed":
        raise ClawbloxError(str(last["error"]))
    return f"{last['instance']}: forked from {status.name}, ready at {last['url']}"
