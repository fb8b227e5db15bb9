"""The static files for people: the host page and the renderers.

The page is served at ``/`` and ``/ui``, all other files at ``/ui/*``. `docs/engine.md` explains how
a world provides its own renderer.

- ``index.html``, ``style.css``, ``*.js``: the host page: feed, panels, chat, GUI overlay, play.
- ``runtime/``: the ``ctx.runtime`` of renderer modules.
- ``starter/``: the renderer for worlds without their own.
- ``three/``: three.js 0.160.0, unchanged; ``three/SHA256SUMS`` has the digests of its files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["PAGE_DIR"]

PAGE_DIR: Final = Path(__file__).parent
"""Directory of the page; ``index.html`` is served at ``/`` and ``/ui``."""
