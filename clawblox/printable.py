r"""Foreign text for people: characters that control a terminal or hide text are shown as escapes.

Text from agents, worlds, programs and strangers' files can contain characters that move the cursor,
set the title or the clipboard, or hide or reorder text. In a line for people, each such character
is shown as in a Python string, ``\x1b`` or ``\u202e``. Text for programs stays unchanged.

``python printable.py`` escapes the lines of its standard input.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

_SUSPECT: Final = r"[^\x20-\x7e\xa1-\xac\xae-\u02ff\u2010-\u2027]"
"""Matches all unsafe characters and some safe ones; compiled only for text that is not ASCII."""

_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters, invisible characters such as bidi marks and tags, surrogates, separators."""

_INVISIBLE: Final = (
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\ufffe\uffff]"
    r"|[\U000e0000-\U000e0fff]"
)
"""Other invisible characters, and two that are not allowed in XML documents."""

_PICTURE: Final = r"[\u2600-\u27bf\u2b00-\u2bff\U0001f300-\U0001f3fa\U0001f400-\U0001faff]"
_COLOR: Final = r"[\U0001f3fb-\U0001f3ff]"
_EMOJI: Final = (
    rf"{_PICTURE}(?:{_COLOR}|\ufe0f)?(?:\u200d{_PICTURE}(?:{_COLOR}|\ufe0f)?)*"
    r"|[\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299]\ufe0f|[#*0-9]\ufe0f\u20e3"
)
"""Pictures, with the invisible characters that join them or select their style.

A joiner is allowed only between two pictures, and a style selector only directly after a picture.
"""

_EMOJI_OR_SUSPECT: Final = rf"{_EMOJI}|{_SUSPECT}"

_SHORT_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", "'": "\\'"}


def is_printable(text: str) -> bool:
    """Return whether all characters are printable, including joiners between two pictures."""
    if text.isprintable():
        return True
    return re.sub(_EMOJI, lambda emoji: emoji[0].replace("\u200d", ""), text).isprintable()


def printable(text: str) -> str:
    """Return the first line of a text, with unsafe characters escaped."""
    first = text.strip().partition("\n")[0]
    return printable_name(first.removesuffix("\r").expandtabs())


def printable_lines(text: str, mark: Callable[[str], str] = str) -> str:
    """Return a text with unsafe characters escaped, except newlines and tabs.

    Args:
        text: The text.
        mark: Wraps an escape in markup.
    """
    if _is_plain(text.replace("\n", "")) or re.search(_SUSPECT, text) is None:
        return text
    lines = text.removesuffix("\r").replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(_escape(part, mark) for part in line.split("\t")) for line in lines)


def printable_name(text: str) -> str:
    """Return a text such as a file name on one line, with newlines escaped."""
    return _escape(text, str)


def name_some(names: Sequence[str], most: int) -> str:
    """Return the first names, separated by commas, and the number of further names.

    Args:
        names: The names.
        most: Maximum number of names to list.
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def join_choices(words: Sequence[str]) -> str:
    """Return words as a choice: ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def printable_json(document: str) -> str:
    """Return a JSON document with the same value and only printable characters."""
    return re.sub(_SUSPECT, _escape_in_json, document)


def quote_words(words: Iterable[str]) -> str:
    """Return a printable command line that a shell parses into these words.

    The command line is one line and needs no further escaping: control characters and the like
    become escapes that bash, zsh and ksh interpret in any locale. It must never be cut.

    Args:
        words: The words; bytes that are not UTF-8 in the form of ``surrogateescape``. NUL is not
            possible in a shell.
    """
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    if word.isprintable() and printable_name(word) == word:
        import shlex  # few texts need it

        return shlex.quote(word)
    return f"$'{''.join(map(_escape_in_shell, word))}'"


def _escape_in_shell(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char.isprintable() and not _is_unsafe(char):
        return char
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in char.encode(errors=errors))


def _is_unsafe(char: str) -> bool:
    import unicodedata  # few texts need it

    return unicodedata.category(char) in _UNSAFE_CATEGORIES or bool(re.match(_INVISIBLE, char))


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _escape(text: str, mark: Callable[[str], str]) -> str:
    def show(match: re.Match[str]) -> str:
        shown = match[0]
        if len(shown) > 1 or not _is_unsafe(shown):  # longer matches are emoji
            return shown
        return mark(shown.encode("unicode_escape").decode())

    return text if _is_plain(text) else re.sub(_EMOJI_OR_SUSPECT, show, text)


def _escape_in_json(match: re.Match[str]) -> str:
    char = match[0]
    if char in "\n\r\t" or not _is_unsafe(char):  # between values; in texts they are escaped
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return "".join(f"\\u{unit}" for unit in units)


def _main() -> None:
    for line in sys.stdin.buffer:
        sys.stdout.write(printable_lines(line.decode(errors="replace")))
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
