"""Copies what the option classes say about each option to the functions that take it.

python -m docs.option_docstrings

An option is documented once, in the docstring of its class. The entries of ``Args:`` in
:data:`TARGETS` that name an option are replaced by that text; the other entries are their own.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.options import AgentOptions
from clawblox.agents.sync_agent import Agent
from clawblox.checkpoint.api import load_checkpoint, save_checkpoint
from clawblox.checkpoint.options import ArchiveOptions, LoadOptions
from clawblox.config.options import ManyOptions, SaveOptions, StartOptions
from clawblox.world.async_world import AsyncWorld
from clawblox.world.sync_world import World

__all__ = ["TARGETS", "Target", "main", "read_entries", "render"]

_WIDTH: Final = 100
_ENTRY: Final = re.compile(r"\*{0,2}(\w+):(?: |$)")
_CODE: Final = re.compile(r"``.*?``")


@attrs.frozen
class Target:
    """A function or class, and the options that it takes.

    Attributes:
        call: The function, or the class whose constructor takes them.
        options: Their classes; where two have an option of one name, that of the first is meant.
        without: Options that it does not take.
    """

    call: Callable[..., Any]
    options: tuple[type, ...]
    without: frozenset[str] = frozenset()

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The parameters that are options, in the order of the signature."""
        taken = self.fields
        every = inspect.signature(self.call).parameters.values()
        return [parameter for parameter in every if parameter.name in taken]

    @property
    def fields(self) -> dict[str, attrs.Attribute[Any]]:
        """The fields of the options, by name, in the order of the classes."""
        fields: dict[str, attrs.Attribute[Any]] = {}
        for options in self.options:
            for field in attrs.fields(options):
                if field.name not in self.without:
                    fields.setdefault(field.alias or field.name, field)
        return fields


def _without(*names: str) -> frozenset[str]:
    return frozenset(names)


TARGETS: Final = (
    Target(AsyncWorld.start, (StartOptions,)),
    Target(AsyncWorld.start_many, (ManyOptions,)),
    Target(AsyncWorld.fork, (ManyOptions,), _without("resume")),
    Target(AsyncWorld.save, (SaveOptions,)),
    Target(AsyncWorld.save_all, (SaveOptions,)),
    Target(AsyncWorld.drain, (SaveOptions,), _without("max_bytes")),
    Target(AsyncWorld.autosave, (SaveOptions,), _without("timeout", "max_bytes")),
    Target(AsyncWorld.checkpoint, (ArchiveOptions, SaveOptions), _without("world_snapshot", "dir")),
    Target(AsyncAgent, (AgentOptions,)),
    Target(Agent, (AgentOptions,)),
    Target(save_checkpoint, (ArchiveOptions,)),
    Target(load_checkpoint, (LoadOptions,)),
)
"""Everything that takes options of a class."""

TWINS: Final = ((World, AsyncWorld),)
"""Classes whose constructors take what that of another class takes."""


def render() -> dict[Path, str]:
    """Return the modules with the documentation of options, by path."""
    texts: dict[Path, str] = {}
    for target in TARGETS:
        known: dict[str, str] = {}
        for options in target.options:
            known = {**read_entries(options), **known}
        _rewrite(
            texts, target.call, {name: known[field.name] for name, field in target.fields.items()}
        )
    for call, original in TWINS:
        _rewrite(texts, call, read_entries(original))
    return texts


def read_entries(owner: type) -> dict[str, str]:
    """Return what a class and its bases say about each attribute or argument."""
    texts: dict[str, str] = {}
    for cls in reversed(owner.__mro__):
        lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
        for heading in ("Args:", "Attributes:"):
            if heading in lines:
                for name, entry in _entries(lines[lines.index(heading) + 1 :], 4).items():
                    words = " ".join(line.strip() for line in entry)
                    texts[name] = words.partition(":")[2].strip()
    return texts


def _entries(lines: Iterable[str], indent: int) -> dict[str, list[str]]:
    """Return the lines of each entry of a section, which ends at a line that is indented less."""
    entries: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if not line.strip() or depth < indent:
            break
        if depth == indent and (match := _ENTRY.match(line.strip())):
            name = match[1]
            entries[name] = []
        entries[name].append(line)
    return entries


def _rewrite(texts: dict[Path, str], call: Callable[..., Any], known: Mapping[str, str]) -> None:
    """Replace the section ``Args:`` of a docstring in the text of its module."""
    path = Path(inspect.getsourcefile(call) or "")
    text = texts.setdefault(path, path.read_text())
    lines = text.splitlines()
    docstring = _find_docstring(ast.parse(text), call.__qualname__)
    heading = next(
        place
        for place in range(docstring.lineno - 1, docstring.end_lineno or 0)
        if lines[place].strip() == "Args:"
    )
    indent = len(lines[heading]) - len(lines[heading].lstrip()) + 4
    entries = _entries(lines[heading + 1 :], indent)
    parameters = [name for name in inspect.signature(call).parameters if name != "self"]
    section = [
        line
        for name in parameters
        for line in (_fill(name, known[name], indent) if name in known else entries[name])
    ]
    end = heading + 1 + sum(map(len, entries.values()))
    texts[path] = "\n".join([*lines[: heading + 1], *section, *lines[end:]]) + "\n"


def _find_docstring(tree: ast.Module, name: str) -> ast.expr:
    node: Any = tree
    for part in name.split("."):
        node = next(child for child in node.body if getattr(child, "name", None) == part)
    expression = node.body[0]
    assert isinstance(expression, ast.Expr)
    return expression.value


def _fill(name: str, text: str, indent: int) -> list[str]:
    """Return an entry in lines of the usual width, which do not break code."""
    whole = _CODE.sub(lambda code: code[0].replace(" ", "\0"), f"{name}: {text}")
    lines = textwrap.wrap(
        whole,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]


def main() -> None:
    """Write the modules whose documentation of options has changed."""
    for path, text in render().items():
        if text != path.read_text():
            path.write_text(text)
            print(path)


if __name__ == "__main__":
    main()
