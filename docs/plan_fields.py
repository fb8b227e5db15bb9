"""Writes the tables of the fields of plans into ``experiments.md``, from the docstrings.

python -m docs.plan_fields
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox import experiment
from clawblox.agents.usage import Budget
from clawblox.experiment.plan.values import fields_by_key
from docs.option_docstrings import read_entries

__all__ = ["PAGE", "render_page"]

PAGE: Final = Path(__file__).parent / "experiments.md"
_MARKED: Final = re.compile(r"<!-- fields: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
_FACTORIES: Final[Mapping[Any, str]] = {dict: "`{}`"}
_END: Final = "<!-- end -->"
_MAX_DEFAULT: Final = 24
_ROLE: Final = re.compile(r":class:`~?(?:\w+\.)*(\w+)`")


def render_page(text: str) -> str:
    """Return the text of the page with the tables that the docstrings give."""
    return _MARKED.sub(lambda match: _render_table(match[1]), text)


def _render_table(name: str) -> str:
    """Return the table between the marks of a class, the marks included."""
    owner = Budget if name == "Budget" else getattr(experiment, name)
    entries = read_entries(owner)
    fields = fields_by_key(owner)
    rows = [
        (f"`{key}`", _describe_default(field), _clean(entries[field.name]))
        for key, field in fields.items()
    ]
    heading: tuple[str, ...] = ("key", "default", "")
    if all(field.default is attrs.NOTHING for field in fields.values()):
        heading, rows = ("column", ""), [(row[0], row[2]) for row in rows]
    lines = [
        "| " + " | ".join(row) + " |" for row in (heading, tuple("---" for _ in heading), *rows)
    ]
    return "\n".join([f"<!-- fields: {name} -->", *lines, _END])


def _clean(text: str) -> str:
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


def _describe_default(field: attrs.Attribute[Any]) -> str:
    """Return a default as TOML writes it, or nothing where it is a text or a table of its own."""
    match field.default:
        case attrs.NOTHING:
            return "required"
        case attrs.Factory(factory=factory):  # type: ignore[misc]
            return _FACTORIES.get(factory, "a table")
        case None:
            return ""
        case bool() as flag:
            return f"`{str(flag).lower()}`"
        case tuple():
            return "`[]`"
        case float() | int() as number:
            return f"`{number:g}`" if number < 1e6 else f"`{number:,}`".replace(",", "_")
        case text:
            return f'`"{text}"`' if len(str(text)) <= _MAX_DEFAULT else "a text"


def main() -> None:
    """Write the page if its tables have changed."""
    text = PAGE.read_text()
    PAGE.write_text(render_page(text))


if __name__ == "__main__":
    main()
