"""The plot of a run: seconds until all worlds were ready, against how many there were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["draw_starts"]

_LABELS = {
    "floor": "floor: posix_spawn, and the worlds' own word",
    "clawblox": "clawblox",
    "inherited": "clawblox, inherited socket",
    "script": "plain script: Popen, urllib every 0.2 s",
}


def draw_starts(series: Mapping[str, Sequence[tuple[int, float]]], path: Path) -> None:
    """Draw a line for every contender; the file's ending says the format, as ``.svg``."""
    from matplotlib.figure import Figure  # an extra that only the plot needs

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="light worlds", ylabel="seconds until all are ready")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for name, points in series.items():
        counts, seconds = zip(*points, strict=True)
        axes.plot(counts, seconds, marker="o", label=_LABELS[name])
        axes.set_xticks(counts, [str(count) for count in counts])
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path)
