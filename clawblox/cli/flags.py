"""Rewrites errors of the library in the words of a command: its flags replace Python's arguments.

Texts of the library name arguments of Python: ``run_dir=`` or ``sandbox=True`` in hints, a bare
name as the subject of an error. If a command has an option or a parameter of that name, the
error shows ``--run-dir`` instead. Parts of a hint about arguments that the command lacks are
left out.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from clawblox.errors import ClawbloxError, ConfigError

_ARGUMENT: Final = re.compile(
    r"(?P<without>\bwith )?(?<![\w?&.:/-])(?P<name>[a-z][a-z_]*)="
    r"(?:(?P<truth>True|False)\b|(?P<number>\d+)\b|(?=[\s,;.]|$))"
)
_VALUE: Final = re.compile(r'(?<![\w?&.:/-])[a-z][a-z_]*=["\[]')
"""An argument with a Python value."""
_BREAK: Final = re.compile(r"(; |, or |\. Or )")
"""Separators between the parts of a hint."""
_DOCUMENTS: Final = (".toml", ".json", ".py")
_OTHER_NAMES: Final = {"command": "agent_command"}
"""Options of commands whose names differ from the argument that they set."""


def find_command(group: click.Group, context: click.Context, words: Sequence[str]) -> click.Command:
    """Return the command that a command line invokes.

    Args:
        group: The whole command line.
        context: Its context.
        words: The words after the program's name.
    """
    command: click.Command = group
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(context, word) or command
    return command


def in_flags(error: ClawbloxError, command: click.Command) -> ClawbloxError:
    """Return an error with its subject and its hint in the words of a command."""
    names = dict(_argument_flags(command))
    names |= {name: names[option] for name, option in _OTHER_NAMES.items() if option in names}
    worded = copy.copy(error)
    if error.hint:
        worded.hint = _translate(error.hint, names)
    if isinstance(worded, ConfigError):
        worded.others = tuple(in_flags(other, command) for other in worded.others)  # type: ignore[misc]
    if isinstance(worded, ConfigError) and worded.key:
        if worded.path is not None and worded.path.suffix in _DOCUMENTS:
            return worded  # the key belongs to the document, or to a plan that names the module
        name, dot, member = worded.key.partition(".")
        worded.key = f"{names[name]} {member}".rstrip() if name in names else f"{name}{dot}{member}"
    return worded


def _argument_flags(command: click.Command) -> Iterator[tuple[str, str]]:
    for param in command.params:
        if isinstance(param, click.Option):
            yield str(param.name), max(param.opts, key=len)
        else:
            yield str(param.name), param.make_metavar(click.Context(command)).strip("[]")


def _translate(hint: str, names: Mapping[str, str]) -> str | None:
    """Return a hint in the words of a command; None if no part applies to the command."""

    def has_all(part: str) -> bool:
        arguments = {match["name"] for match in _ARGUMENT.finditer(part)}
        return arguments <= names.keys() and not _VALUE.search(part)

    def flag(match: re.Match[str]) -> str:
        before = match["without"] or ""
        if match["truth"] == "False":
            before = "without " if before else "no "
        number = f" {match['number']}" if match["number"] else ""
        return f"{before}{names[match['name']]}{number}"

    first, *rest = _BREAK.split(hint)
    parts = [("", first), *zip(rest[::2], rest[1::2], strict=True)]
    kept = [(link, part) for link, part in parts if has_all(part)]
    text = "".join(link * bool(index) + part for index, (link, part) in enumerate(kept))
    return _ARGUMENT.sub(flag, text) or None
