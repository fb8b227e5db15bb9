"""The page about checks lists every check, grade, status and exit status."""

from __future__ import annotations

from typing import get_args

from clawblox.conformance import CHECKS
from clawblox.conformance.report import STATUSES, Grade
from docs import check_ids

TEXT = check_ids.PAGE.read_text()


def test_the_table_has_every_check_with_its_level_and_requirement() -> None:
    assert check_ids.render_page(TEXT) == TEXT, "run python -m docs.check_ids"
    assert TEXT.count("| `restore.trace` | must |") == 1
    assert [check.id for check in CHECKS if f"| `{check.id}` |" not in TEXT] == []


def test_the_page_explains_every_grade_and_status() -> None:
    names = (*get_args(Grade), *STATUSES)
    assert [name for name in names if f"\n| `{name}` | " not in TEXT] == []
