"""The plot of each benchmark, from its JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from benchmarks.charts import Bar, Panel, draw_bars, draw_lines, format_number
from benchmarks.measure import median
from benchmarks.soak import FIGURES, course
from docs.pictures.svg import Canvas, Colour

__all__ = ["case_title", "draw"]

_FLOOR: Final = (1.0, "the floor")
_WIDE: Final = 30
"""Factor between ratios above which their axis is logarithmic."""

_SERIES: Final = {
    "floor": "floor: posix_spawn",
    "clawblox": "clawblox",
    "inherited": "clawblox, inherited socket",
    "script": "script: Popen, poll 0.2 s",
}
_AXES: Final = {
    "KiB": "memory, KiB",
    "MiB": "memory, MiB",
    "MB": "memory, MB",
    "MB/s": "speed, MB/s",
    "ms": "time, ms",
    "s": "time, s",
    "µs": "time, µs",
    "ns": "time, ns",
    "%": "share, %",
    "times": "times as long",
}


def draw(document: Mapping[str, Any]) -> Canvas:
    """Return the plot of one benchmark."""
    title = str(document["benchmark"])
    if "series" in document:
        return draw_lines(
            f"{title}: seconds until all worlds are ready",
            {_SERIES[name]: points for name, points in document["series"].items()},
            x_axis="light worlds",
            y_axis="seconds until all are ready",
        )
    if "samples" in document:
        return _draw_soak(title, document["samples"])
    if "tools" in document:
        return draw_bars(title, [_tools_panel(document["tools"])])
    if "pairs" in document:
        return draw_bars(title, _pair_panels(document["pairs"]))
    if "clients" in document:
        return draw_bars(title, _client_panels(document["rows"], document["cases"]))
    return draw_bars(title, _row_panels(document["rows"]))


def _draw_soak(title: str, samples: list[dict[str, float]]) -> Canvas:
    """Draw each figure of a soak over time, relative to its value in the second fifth."""
    fifth = max(1, len(samples) // 5)
    series = {}
    for field, (name, _) in FIGURES.items():
        values = course(samples, field)
        early = median(values[fifth : 2 * fifth] or values)
        times = [sample["at_s"] / 60 for sample in samples]
        points = [(at, value / early) for at, value in zip(times, values, strict=True)]
        series[name.rpartition(", ")[0] or name] = points
    y_axis = "multiple of the second fifth"
    return draw_lines(title, series, x_axis="minutes", y_axis=y_axis, is_log=False)


def case_title(case: str) -> str:
    """Return the title of a case of the agents' benchmark, such as ``16 observe``."""
    count, verb = case.split()
    return f"{count} {'agent' if count == '1' else 'agents'}, {verb}"


def _client_panels(rows: list[dict[str, Any]], cases: list[str]) -> list[Panel]:
    panels = []
    for title in map(case_title, cases):
        here = [row for row in rows if row["what"].startswith(f"{title}: ")]
        bars = [
            attrs.evolve(_ratio_bar(row), label=row["what"].removeprefix(f"{title}: "))
            for row in sorted(here, key=lambda row: float(row["value"]))
        ]
        panels.append(Panel(title, "multiple of http.client", bars, reference=_FLOOR))
    return panels


def _tools_panel(tools: list[dict[str, Any]]) -> Panel:
    measured = [tool for tool in tools if tool["use"]]
    bars = [
        Bar(
            tool["tool"],
            tool["use"]["known_s"],
            f"{format_number(tool['use']['known_s'])} s",
            "muted" if tool["tool"] == "floor" else "first",
        )
        for tool in sorted(measured, key=lambda tool: float(tool["use"]["known_s"]))
    ]
    return Panel(
        "From the call until its user knows that all worlds serve", "time, s", bars, is_log=True
    )


def _pair_panels(pairs: list[dict[str, Any]]) -> list[Panel]:
    places = dict.fromkeys(pair["where"] for pair in pairs)
    return [
        Panel(
            f"On {place}" if place else "Anywhere",
            "after, as a multiple of before",
            [_pair_bar(pair) for pair in pairs if pair["where"] == place],
            reference=(1.0, "before"),
        )
        for place in places
    ]


def _pair_bar(pair: dict[str, Any]) -> Bar:
    before, after, unit = pair["before"], pair["after"], pair["unit"]
    text = f"{after / before:.2f} ({format_number(before)} → {format_number(after)} {unit})"
    return Bar(pair["what"].replace("`", ""), after / before, text)


def _row_panels(rows: list[dict[str, Any]]) -> list[Panel]:
    measured = [row for row in rows if row["value"] is not None]
    panels = []
    against = [row for row in measured if row["ratio"] is not None]
    if against:
        bars = [_ratio_bar(row) for row in against]
        ratios = [bar.value for bar in bars]
        is_wide = max(ratios) > _WIDE * min(ratios)
        panels.append(
            Panel(
                "Against the floor", "multiple of the floor", bars, reference=_FLOOR, is_log=is_wide
            )
        )
    others = [row for row in measured if row["ratio"] is None]
    for unit in dict.fromkeys(row["unit"] for row in others):
        bars = [_value_bar(row) for row in others if row["unit"] == unit]
        axis = _AXES.get(unit, unit)
        panels.append(Panel(axis.partition(",")[0].capitalize(), axis, bars))
    return panels


def _ratio_bar(row: dict[str, Any]) -> Bar:
    text = f"{row['ratio']:.2f} ({format_number(row['value'])} {row['unit']})"
    return Bar(row["what"], row["ratio"], text, _colour(row["ratio"], row), row["goal"])


def _value_bar(row: dict[str, Any]) -> Bar:
    text = f"{format_number(row['value'])} {row['unit']}"
    return Bar(row["what"], row["value"], text, _colour(row["value"], row), row["goal"])


def _colour(measured: float, row: Mapping[str, Any]) -> Colour:
    return "bad" if row["goal"] is not None and measured > row["goal"] else "first"
