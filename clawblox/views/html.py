"""HTML and SVG with escaping by default: only values of :class:`Markup` are markup.

This is the only module that puts text between tags. Characters that control, hide or reorder text
are shown as marked escapes. No link leads to another host, because an address has its own type and
cannot have a scheme.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Final, TypeAlias
from urllib.parse import quote, urlencode

import attrs

from clawblox.printable import printable_lines

_HARMLESS: Final = """
    autocomplete checked class colspan datetime defer disabled for hidden id lang max maxlength
    method min name open placeholder rel role sandbox scope selected spellcheck step tabindex title
    type value
    cx cy d height points r rx text-anchor transform viewBox width x x1 x2 xmlns y y1 y2
"""
_ATTRIBUTES: Final = frozenset(_HARMLESS.split())
"""Attributes that cannot load, run or link to anything."""
_LEADING: Final = frozenset(("action", "href", "src"))
"""Attributes whose values must be a :class:`PageAddress`."""
_WITHOUT_CONTENT: Final = frozenset(("iframe", "script", "style"))
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_OWN_ADDRESS: Final = re.compile(r"(?!//)[\w./~?#=&%+,!@-]*", re.ASCII)


@attrs.frozen
class Markup:
    """A piece of HTML or SVG made by this module; everything else is text.

    Attributes:
        html: The piece.
    """

    html: str


Child: TypeAlias = str | Markup | None
"""Text, markup, or None to leave the child out."""


@attrs.frozen
class PageAddress:
    """An address of our own pages, without scheme and host.

    Attributes:
        text: The address, quoted (RFC 3986).

    Raises:
        ValueError: The address is not relative, or not quoted.
    """

    text: str = attrs.field(validator=attrs.validators.matches_re(_OWN_ADDRESS))

    @classmethod
    def make(cls, *pieces: str, fragment: str = "", **query: str | int | None) -> PageAddress:
        """Return an address.

        Args:
            *pieces: Pieces of the path; they are quoted here.
            fragment: The part after ``#``.
            **query: Parameters after ``?``; None leaves a parameter out.
        """
        path = "/".join(quote(piece, safe="") for piece in pieces)
        given = {key: value for key, value in query.items() if value is not None}
        more = f"?{urlencode(given)}" if given else ""
        return cls(path + more + (f"#{quote(fragment, safe='=,')}" if fragment else ""))


def escape(content: str, mark: Callable[[str], str] = str, *, quote: bool = True) -> str:
    """Return a text escaped for HTML and SVG.

    Args:
        content: The text; newlines and tabs stay.
        mark: Wraps the escape of an unprintable character in markup.
        quote: Whether to escape quotes too, as in the value of an attribute.
    """
    return printable_lines(html.escape(content, quote=quote), mark)


def text(content: str) -> Markup:
    """Return a text as markup; newlines and tabs stay."""
    return Markup(escape(content, lambda shown: f'<b class="sign">{shown}</b>', quote=False))


def element(tag: str, *children: Child, **attributes: str | PageAddress | None) -> Markup:
    """Return an element that has an end tag.

    Args:
        tag: Name of the tag.
        *children: Content, in order.
        **attributes: Attributes; ``class_`` is ``class``, ``aria_label`` is ``aria-label``, and
            None leaves an attribute out.

    Raises:
        ValueError: An attribute is not allowed, or a script would have content.
    """
    if tag in _WITHOUT_CONTENT and children:
        raise ValueError(f"{tag}: must be empty")
    return Markup(f"<{_open(tag, attributes)}>{join(children).html}</{tag}>")


def void(tag: str, **attributes: str | PageAddress | None) -> Markup:
    """Return an element without content or end tag, such as an input or a path.

    Raises:
        ValueError: As for :func:`element`.
    """
    return Markup(f"<{_open(tag, attributes)}/>")


def _open(tag: str, attributes: dict[str, str | PageAddress | None]) -> str:
    words = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        is_address = isinstance(value, PageAddress)
        is_free = not is_address and name.startswith(("aria-", "data-"))
        allowed = _LEADING if is_address else _ATTRIBUTES
        if value is not None and name not in allowed and not is_free:
            raise ValueError(f"attributes: must be among {sorted(allowed)}, not {name!r}")
        if value is not None:
            text = value.text if isinstance(value, PageAddress) else value
            words.append(f'{name}="{escape(text)}"')
    return " ".join(words)


def link(words: Child, to: PageAddress, **attributes: str | None) -> Markup:
    """Return a link to another of our pages."""
    return element("a", words, href=to, **attributes)


def join(children: Iterable[Child], separator: str = "") -> Markup:
    """Join several pieces, with a separator between them."""
    pieces = [
        child.html if isinstance(child, Markup) else text(child).html
        for child in children
        if child is not None
    ]
    return Markup(text(separator).html.join(pieces))


def document(title: str, head: Markup, *body: Child, policy: str | None = _POLICY) -> str:
    """Return a whole page in English.

    Args:
        title: Title of the page.
        head: Further content of the head, for example from :func:`style`.
        *body: Content of the body.
        policy: The Content-Security-Policy, by default without loading and scripts. None leaves the
            policy to the server.
    """
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n' if policy else ""
    return f"""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
{meta}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
{head.html}
{element("body", *body).html}
</html>
"""


def style(*names: str) -> Markup:
    """Return the named style sheets for the head of a page, or for a picture."""
    return Markup(f"<style>\n{''.join(map(read_rules, names))}</style>")


@functools.cache
def read_rules(name: str) -> str:
    """Return a style sheet of ``views/styles`` by its name, such as ``page``. Blocks."""
    return (resources.files("clawblox.views") / "styles" / f"{name}.css").read_text("utf-8")
