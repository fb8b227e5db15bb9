"""The programs of commands: where a path with a slash leads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from clawblox.agents.options import IN_WORKSPACE

COMMANDS: Final = ("command", "start", "resume")
"""Fields of agents that begin with a program, or consist of such fields."""


def map_program(command: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - any plain value
    """Return a command with another path of its program; a name to look up in PATH stays.

    Args:
        command: The words of a command, or a table of such; any other value is returned unchanged.
        change: Returns the new path.
    """
    if isinstance(command, Mapping):
        changed = {key: map_program(command[key], change) for key in command if key in COMMANDS}
        return {**command, **changed}
    if not isinstance(command, list | tuple) or not command or not isinstance(command[0], str):
        return command
    program, *others = command
    return type(command)([change(program) if os.sep in program else program, *others])


def find_program(base: Path, program: str) -> str:
    """Return the path of a program: in a directory, or else in the workspace of its agent.

    Blocks: looks for the program.

    Args:
        base: The directory.
        program: The path; one that is absolute, or in the workspace already, is returned.
    """
    path = base / program
    if program.startswith(IN_WORKSPACE) or Path(program).is_absolute():
        return program
    is_here = os.path.isfile(path) or ".." in Path(program).parts  # noqa: PTH113 - never raises
    return str(path.absolute()) if is_here else f"{IN_WORKSPACE}{os.path.normpath(program)}"
