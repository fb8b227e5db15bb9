"""Reading the output of a program without talking to it: afterwards, or as an onlooker."""

from __future__ import annotations

from clawblox.agents.drivers.driver import AgentSetup, Begin, Continue, Conversation, Driver, Turn
from clawblox.agents.layout import AgentDir


def open_reading(
    driver: Driver,
    directory: AgentDir,
    session_id: str | None = None,
    *,
    joined_version: str | None = None,
) -> Conversation:
    """Return a conversation that parses the output of one process.

    A request-response protocol is parsed as long as :meth:`Conversation.say` is called for each
    further message; the bytes that it would write to the program are discarded.

    Args:
        driver: The driver of the program.
        directory: The agent's directory.
        session_id: The conversation that the process continues; None for a new one.
        joined_version: Version of the program, '' if unknown, when reading starts after the first
            line of a process that is in that conversation; else None.
    """
    name = driver.program.driver
    command = {"start": [name, "{prompt}"]}
    setup = AgentSetup(directory=directory, binary=name, command=command)
    start = Begin("") if session_id is None else Continue(session_id)
    turn = Turn(prompt="", start=start, is_onlooker=True, joined_version=joined_version)
    return driver.converse(setup, turn)
