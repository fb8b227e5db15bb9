"""HTML that escapes by default: text goes in as text, and only markup of our own is markup.

A page is one file without script, that asks nobody for anything: its policy forbids the rest.
Characters that control, hide or reorder text are shown as escapes, and marked as such.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final, TypeAlias

import attrs

from clawblox.printable import printable_lines

_ATTRIBUTES: Final = frozenset({"class", "id", "lang", "open", "scope"})
"""Attributes that load nothing, run nothing and lead nowhere."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


@attrs.frozen
class Markup:
    """A piece of HTML made by this module; everything else is text.

    Attributes:
        html: The piece.
    """

    html: str


Child: TypeAlias = str | Markup | None
"""Text, markup, or nothing."""


def text(content: str) -> Markup:
    """Return a text as markup; its lines and tabs stay."""
    return Markup(printable_lines(html.escape(content, quote=False), _mark_escape))


def _mark_escape(shown: str) -> str:
    return f'<b class="sign">{shown}</b>'


def element(tag: str, *children: Child, **attributes: str) -> Markup:
    """Return an element that has an end tag.

    Args:
        tag: Its name.
        *children: Its content in order.
        **attributes: Its attributes; ``class_`` is ``class``.

    Raises:
        ValueError: An attribute is none of the harmless ones.
    """
    words = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_")
        if name not in _ATTRIBUTES:
            raise ValueError(f"attributes: must be among {sorted(_ATTRIBUTES)}, not {name!r}")
        words.append(f'{name}="{html.escape(printable_lines(value))}"')
    return Markup(f"<{' '.join(words)}>{join(children).html}</{tag}>")


def join(children: Iterable[Child], separator: str = "") -> Markup:
    """Return several pieces as one, with text between them."""
    pieces = [
        child.html if isinstance(child, Markup) else text(child).html
        for child in children
        if child is not None
    ]
    return Markup(text(separator).html.join(pieces))


def document(title: str, style: str, *body: Child) -> str:
    """Return a whole page in English.

    Args:
        title: Its title.
        style: Its style sheet, a constant.
        *body: Its content.
    """
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{html.escape(printable_lines(title))}</title>",
            f"<style>{style}</style>",
            f"{element('body', *body).html}",
            "</html>",
            "",
        )
    )
