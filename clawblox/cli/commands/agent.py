"""``clawblox agent``: sends messages to running agents, stops them, and shows their state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from clawblox.agents.control import ask_agent
from clawblox.agents.status import AgentStatus, find_agent
from clawblox.cli.commands.trajectory import command as trajectory
from clawblox.cli.field_options import OptionsCommand, options_from
from clawblox.cli.options import StopOptions
from clawblox.cli.parameters import (
    directory_argument,
    examples,
    existing_agent_place,
    json_option,
    show,
)
from clawblox.errors import UsageError
from clawblox.views.rows import describe_agent, plain_facts


@examples("""
  clawblox agent status runs/r001/agents/Eko
  clawblox agent send runs/r001/agents/Eko "Come back to the camp."
  clawblox agent stop runs/r001/agents/Eko
  clawblox agent trajectory runs/r001/agents/Eko

DIR is the directory of an agent, or a run directory with one agent.
""")
@click.group("agent")
def command() -> None:
    """Send a message to a running agent, stop it, or show its state.

    The program that runs the agent does the work. clawblox ps shows all agents of a run.
    """


@examples("""
  clawblox agent send runs/r001 "Come back to the camp."
""")
@command.command("send")
@directory_argument
@click.argument("text", metavar="TEXT")
def send(directory: str, text: str) -> None:
    """Send an agent its next message.

    A working agent gets TEXT when its turn ends; an idle agent gets it immediately.

    \f
    Raises:
        ClawbloxError: The directory does not exist.
        UsageError: There is no agent, there are several, or no program runs the agent.
        ControlError: The program that runs the agent refused.
    """
    agent = find_agent(existing_agent_place(directory))
    answer = _ask(agent, "send", {"prompt": text})
    if answer is None:
        raise UsageError(
            f"no program runs agent {agent.name!r}",
            hint="to continue it from its directory, in Python: Agent(…, dir=…).send(…)",
        )
    click.echo(f"{answer.name}: {answer.state}")


@examples("""
  clawblox agent stop runs/r001
  clawblox agent stop runs/r001/agents/Eko --grace 0     kill immediately
""")
@command.command("stop", cls=OptionsCommand)
@directory_argument
@options_from(StopOptions, "options")
def stop(directory: str, options: StopOptions) -> None:
    """Stop an agent and wait until its program has ended.

    The agent can continue later, since its conversation is kept. The command also succeeds if the
    agent is not running.

    \f
    Raises:
        ClawbloxError: The directory does not exist.
        UsageError: There is no agent, or there are several.
        ControlError: The program that runs the agent refused.
    """
    agent = find_agent(existing_agent_place(directory))
    answer = _ask(agent, "stop", {"grace_seconds": options.grace_seconds})
    click.echo(f"{agent.name}: {'was not running' if answer is None else answer.state}")


@examples("""
  clawblox agent status runs/r001
  clawblox agent status runs/r001 --json     every field, for programs
""")
@command.command("status")
@directory_argument
@json_option
def status(directory: str, as_json: bool) -> None:
    """Show the state and the usage of an agent.

    \f
    Raises:
        ClawbloxError: The directory does not exist.
        UsageError: There is no agent, or there are several.
    """
    recorded = find_agent(existing_agent_place(directory))
    # Only the agent's program knows the usage of the current turn.
    agent = recorded if recorded.is_over else _ask(recorded, "status", {}) or recorded
    show(plain_facts(agent), describe_agent(agent), as_json=as_json)


command.add_command(trajectory)


def _ask(agent: AgentStatus, op: str, arguments: Mapping[str, Any]) -> AgentStatus | None:
    return anyio.run(partial(ask_agent, Path(agent.dir), op, arguments))
