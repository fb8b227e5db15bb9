"""The look of every page: colours by their use, and the rules that all pages share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "page": ("#ffffff", "#0e1217"),
    "panel": ("#f6f8fa", "#161b22"),
    "line": ("#d8dee4", "#2b323b"),
    "ink": ("#1f2328", "#e9eef4"),
    "muted": ("#59636f", "#9aa6b4"),
    "good": ("#0f66c3", "#69bcf6"),
    "warning": ("#8b6505", "#daa012"),
    "bad": ("#8a1e2c", "#eb654e"),
    "lost": ("#692585", "#c650fc"),
    "mark": ("#ffe4b0", "#4d3a05"),
}
"""Colours by their use, on a light and on a dark page.

Every text has a contrast of 4.9 or more. The smallest difference between two of ``good``,
``warning``, ``bad``, ``lost`` and ``muted`` is 24 (CIE76), for normal sight and without red, green
or blue cones.
"""
_BASE: Final = """
*{box-sizing:border-box}
body{margin:0 auto;background:var(--page);color:var(--ink);
font:14px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums}
h1{margin:0 0 4px;font-size:22px;line-height:1.3;overflow-wrap:anywhere}
h2{margin:32px 0 8px;font-size:16px}
h3{margin:0 0 2px;font-size:15px;overflow-wrap:anywhere}
p{margin:0;overflow-wrap:anywhere}
code,pre{font:12.5px/1.5 ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}
.muted{color:var(--muted)}
.good{color:var(--good)}.warning{color:var(--warning)}.bad{color:var(--bad)}.lost{color:var(--lost)}
.sign{color:var(--lost);font-weight:600}
mark{background:var(--mark);color:inherit;border-radius:2px}
summary{cursor:pointer}
table{width:100%;margin:8px 0 0;border-collapse:collapse}
th,td{padding:4px 12px 4px 0;text-align:left;vertical-align:top;border-top:1px solid var(--line);
overflow-wrap:anywhere}
:focus-visible{outline:2px solid var(--good);outline-offset:2px}
@media print{details::details-content{content-visibility:visible}}
"""


def _variables() -> str:
    light, dark = (
        ";".join(f"--{name}:{pair[theme]}" for name, pair in COLOURS.items()) for theme in (0, 1)
    )
    dark_rule = f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f":root{{color-scheme:light dark;{light}}}\n{dark_rule}"


RULES: Final = _variables() + _BASE
"""Rules for every page; the colours are variables, ``var(--ink)``."""
