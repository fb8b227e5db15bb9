"""The few files that pages need: a style sheet, an icon, and scripts."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Final

from clawblox.views import check_page, page_style, svg

STATIC_FILES: Final = ("app.js", "icon.svg", "replay.js", "style.css")


@functools.cache
def read_static(name: str) -> bytes:
    """Return a file of :data:`STATIC_FILES`; the style sheet with the rules of the views."""
    data = (resources.files("clawblox.web") / "static" / name).read_bytes()
    if name != "style.css":
        return data
    shared = (page_style.RULES, svg.STYLE, check_page.RULES)
    return "\n".join(shared).encode() + data
