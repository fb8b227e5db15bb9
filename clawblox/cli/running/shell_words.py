"""Command lines to paste: the options that a command had, quoted for a shell. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import click

from clawblox.cli.field_options import FieldOption
from clawblox.results import format_label

_SHORT_ESCAPES = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", "'": "\\'"}


def option_words(
    command: click.Command, options: object, *, without: Collection[str] = ()
) -> Iterator[str]:
    """Yield the words that give a command options, as far as they differ from its defaults.

    Args:
        command: The command.
        options: An object of one of its option classes.
        without: Names of options that are left out.
    """
    for param in command.params:
        if not isinstance(param, FieldOption) or param.name in without:
            continue
        if param.owner is type(options):
            value = getattr(options, str(param.name))
            if value != param.default and (value or param.default is not None):
                yield from _words(param, value)


def _words(param: click.Option, value: Any) -> Iterator[str]:  # noqa: ANN401 - of any option
    if param.is_flag:
        yield (param.opts if value else param.secondary_opts)[0]
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield from (param.opts[0], f"{name}={format_label(member)}")
    else:
        is_whole = isinstance(value, float) and value.is_integer()
        text = str(int(value or 0) if is_whole or value is None else value)  # --port 0 is no port
        # A value that looks like an option must be part of the same word.
        yield from (f"{param.opts[0]}={text}",) if text.startswith("-") else (param.opts[0], text)


def quote_words(words: Iterable[str]) -> str:
    """Return a command line that a shell reads as these words.

    Control characters and the like become escapes that bash, zsh and ksh read.
    """
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escape, word))}'"


def _escape(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return (
        f"\\{code:03o}" if code < 128 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )
