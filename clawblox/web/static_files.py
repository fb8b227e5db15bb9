"""The few files that pages need: a style sheet, an icon, and scripts."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Final

from clawblox.views.html import read_rules

STATIC_FILES: Final = ("app.js", "icon.svg", "replay.js", "style.css")


@functools.cache
def read_static(name: str) -> bytes:
    """Return a file of :data:`STATIC_FILES`; the style sheet with the rules of the views."""
    data = (resources.files("clawblox.web") / "static" / name).read_bytes()
    if name != "style.css":
        return data
    return "".join(map(read_rules, ("page", "picture", "check"))).encode() + data
