"""The programs in docs/luau.md run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent.parent / "docs" / "luau.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_program_in_the_docs_runs(program: str) -> None:
    exec(compile(program, "docs/luau.md", "exec"), {"__name__": "docs"})
