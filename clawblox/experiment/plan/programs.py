"""The programs of commands and hooks, and the meaning of paths with a slash."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from clawblox.agents.options import IN_WORKSPACE
from clawblox.config.arguments import mismatch

COMMANDS: Final = ("command", "start", "resume")
"""Fields of agents that start with a program, or consist of such fields."""
HOOKS: Final = ("on_pause", "on_failure", "on_done")
"""Fields of plans with a command or an address to notify of an event."""

HookTarget: TypeAlias = Sequence[str] | str
"""The words of a command, or an address: ``https://…``."""

_MAX_WORDS: Final = 64
_MAX_WORD_CHARS: Final = 4096


def map_program(command: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - any plain value
    """Return a command with a new path of its program; a name to look up in PATH is kept.

    Args:
        command: The words of a command, or a table of commands; other values are returned
            unchanged.
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
    """Return the path of a program in a directory, or else in the workspace of its agent.

    Blocks: looks for the program.

    Args:
        base: The directory.
        program: The path; an absolute path, or a path in the workspace, is returned unchanged.
    """
    path = base / program
    if program.startswith(IN_WORKSPACE) or Path(program).is_absolute():
        return program
    is_here = os.path.isfile(path) or ".." in Path(program).parts  # noqa: PTH113 - never raises
    return str(path.absolute()) if is_here else f"{IN_WORKSPACE}{os.path.normpath(program)}"


def to_hook_target(value: Any) -> Any:  # noqa: ANN401 - invalid values are left to the validator
    """Return the target of a hook with an absolute program, or None for False.

    Args:
        value: The target; a relative program with a slash is relative to the current directory.
    """
    if not isinstance(value, list | tuple):
        return None if value is False else value
    return tuple(map_program(value, lambda path: str(Path(path).absolute())))


def check_hook_target(value: object, key: str) -> None:
    """Check that a value is a command or an address.

    Raises:
        ConfigError: The value is neither.
    """
    if isinstance(value, str) and "://" in value:
        _check_address(value, key)
        return
    words = value if isinstance(value, tuple) else ()
    if not 0 < len(words) <= _MAX_WORDS or not all(map(_is_word, words)) or not words[0]:
        expected = "a list of words, such as ['./notify.sh'], or an address such as https://…"
        raise mismatch(key, expected, value)


def _is_word(word: object) -> bool:
    return isinstance(word, str) and len(word) <= _MAX_WORD_CHARS and "\0" not in word


def _check_address(text: str, key: str) -> None:
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        has_login = "@" in parts.netloc
    except ValueError:
        is_address = has_login = False
    is_plain = text.isascii() and text.isprintable() and not set(text) & set(" #\\")
    if not is_address or not is_plain or len(text) > _MAX_WORD_CHARS:
        shown = f"{text.partition('://')[0]}://…"  # the other words may be secret
        raise mismatch(key, "an address such as https://example.org/notices", shown)
    if has_login:
        raise mismatch(
            key,
            "an address without a user name and a password, as plans are written to disk",
            f"{parts.scheme}://…@{parts.hostname}",
            hint="give a program that reads the password from your own file and sends the notice",
        )
