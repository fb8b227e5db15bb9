"""Writes the table of the checks into ``conformance.md``, from the checks themselves.

python -m docs.check_ids
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clawblox.conformance import CHECKS

__all__ = ["PAGE", "render_page"]

PAGE: Final = Path(__file__).parent / "conformance.md"
_BEGIN, _END = "<!-- checks -->", "<!-- end -->"
_MARKED: Final = re.compile(f"{_BEGIN}\n.*?{_END}", re.DOTALL)


def render_page(text: str) -> str:
    """Return the text of the page with the table of the checks."""
    table = "\n".join((_BEGIN, *_table(), _END))
    return _MARKED.sub(lambda _: table, text)


def _table() -> Iterator[str]:
    yield "| check | level | requirement |"
    yield "|---|---|---|"
    for check in CHECKS:
        requirement = check.requirement.replace("|", "\\|")
        yield f"| `{check.id}` | {check.level} | {requirement} |"


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text()))
