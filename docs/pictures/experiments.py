"""Draws the pictures of ``experiments.md`` from a real run of the experiment on that page.

    python -m docs.pictures.experiments

The agents are stand-ins that play marbles. One of them reports a usage limit, so that the table
also shows a pause. Then a checkpoint is forked, as on the page. ``experiment_steps.svg`` is drawn
from the journal's own order of lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from clawblox import AsyncExperiment, Plan, Results
from clawblox.experiment import LiveGeneration
from clawblox.views.board import BoardFrame
from clawblox.views.event_lines import EventLine
from clawblox.views.experiment_events import describe_experiment_event
from clawblox.views.experiments import render_experiment
from clawblox.views.score_svg import draw_scores
from docs import examples
from docs.pictures.live_table import use_local_fonts
from docs.pictures.svg import Canvas, Colour
from tests.agents.standins import misbehave

__all__ = ["FORK", "SCORES", "STEPS", "TABLE", "draw_fork", "draw_steps"]

_HERE: Final = Path(__file__).parent
TABLE: Final = _HERE / "experiment_table.svg"
SCORES: Final = _HERE / "experiment_scores.svg"
FORK: Final = _HERE / "experiment_fork.svg"
STEPS: Final = _HERE / "experiment_steps.svg"
_COLUMNS, _LINES = 100, 16
_COMMAND: Final = "clawblox experiment run memory/plan.toml"
_NOTICE: Final = "Ctrl-C saves and stops, a second one kills."
_LIMIT_AFTER: Final = 7
"""Generations that are committed when an agent reaches its usage limit."""
_LIMIT_S: Final = 60
_HINT: Final = "Get behind a marble before you push it."


async def points(end: LiveGeneration) -> dict[str, float]:
    """Return the score of the page."""
    seen = await end.observe()
    return {"points": seen["player"]["score"]}


class _Film:
    """The events of an experiment so far, and the picture of its table.

    Args:
        experiment: The experiment, open.
    """

    def __init__(self, experiment: AsyncExperiment) -> None:
        self._experiment = experiment
        self._events: list[EventLine] = []
        self._has_limit = False
        self.frame = ""

    async def watch(self) -> None:
        """Collect events; have an agent reach its limit; keep the table of that moment."""
        async with self._experiment.events() as events:
            async for event in events:
                if line := describe_experiment_event(event):
                    self._events.append(line)
                committed = self._experiment.status().counts.get("committed", 0)
                is_late = committed >= _LIMIT_AFTER and not self._has_limit
                if event.kind == "generation.working" and is_late:
                    self._has_limit = True
                    reach_limit(self._experiment.dir, event.subject, str(event.attempt))
                if event.kind == "generation.paused":
                    await anyio.sleep(1.5)
                    self._take()

    def _take(self) -> None:
        frame = BoardFrame(_COLUMNS, _LINES, self._events[-5:], _NOTICE)
        self.frame = "\n".join(render_experiment(self._experiment.status(), frame))


def reach_limit(directory: Path, chain: str, attempt: str) -> None:
    """Have the agent of an attempt report that its usage limit is reached."""
    (agent,) = (directory / "chains" / chain / "runs" / attempt / "agents").iterdir()
    limit = {"resets_at": int(time.time()) + _LIMIT_S, "times": 1}
    misbehave(agent / "workspace", usage_limit=limit)


async def run() -> tuple[str, Results, Results]:
    """Run the experiment; return a picture of its table, its results, and those of the fork."""
    async with AsyncExperiment(Plan.load("memory/plan.toml"), score=points) as experiment:
        film = _Film(experiment)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(film.watch)
            print(await experiment.run())
            tasks.cancel_scope.cancel()
        results = experiment.results()
        source = experiment.find_checkpoint("no_workspace-s1/g002", at="boundary")
        labels, prompts = ["control", "hint"], [None, _HINT]
        await experiment.fork(source, 4, prompts=prompts, labels=labels, duration="10m", parallel=1)
        print(await experiment.run())
        return film.frame, results, experiment.results(forked_from=source)


def draw_table(frame: str) -> str:
    """Return the picture of a terminal with a table."""
    console = Console(
        record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    console.print(Text(f"$ {_COMMAND}\n", style="dim"), no_wrap=True, end="", overflow="crop")
    console.print(Text.from_ansi(frame), no_wrap=True, overflow="crop")
    svg = console.export_svg(
        title="clawblox experiment", theme=DIMMED_MONOKAI, unique_id="experiment"
    )
    return use_local_fonts(svg)


def draw_fork(points_by_label: Mapping[str, Sequence[float]], original: float) -> Canvas:
    """Return the picture of a fork: the points of each branch, and those of the original.

    Args:
        points_by_label: Points of the branches by the label of their prompt.
        original: Points of the generation that was forked.
    """
    width, left, right, top, row = 640.0, 150.0, 600.0, 46.0, 56.0
    bottom = top + row * len(points_by_label)
    canvas = Canvas(width, bottom + 44, "Points of the branches of a checkpoint, by first message")
    most = max(original, *(max(values) for values in points_by_label.values()), 1.0)
    canvas.text(8, 18, "points at the end of each branch", colour="muted")

    def place(value: float) -> float:
        return left + (right - left) * value / most

    for tick in range(0, int(most) + 1, max(1, int(most) // 8)):
        canvas.path((place(tick), top), (place(tick), bottom), colour="line")
        canvas.text(place(tick), bottom + 18, str(tick), anchor="middle", colour="muted", size=11)
    canvas.path((place(original), top - 6), (place(original), bottom), colour="muted", dashed=True)
    canvas.text(place(original) + 6, top - 8, "the original", colour="muted", size=11)
    for number, (label, values) in enumerate(points_by_label.items()):
        y = top + row * (number + 0.5)
        colour: Colour = "third" if number else "first"
        canvas.text(left - 24, y + 5, label, anchor="end", colour=colour, bold=True)
        for index, value in enumerate(sorted(values)):
            above = [earlier for earlier in sorted(values)[:index] if earlier == value]
            canvas.dot(place(value), y + 12 - 12 * len(above), colour=colour, radius=5)
    return canvas


_STEPS: Final = (
    ("opened", "decided"),
    ("prepared", "files are there"),
    ("working", "all have started"),
    ("checkpoint", "world and minds"),
    ("closing", "its time is over"),
    ("saved", "notes are made"),
    ("checkpoint", "of kind end"),
    ("scored", "the score is known"),
    ("committed", "it counts"),
)
_SOURCES: Final[Sequence[tuple[int, int, str, Colour]]] = (
    (0, 0, "itself", "muted"),
    (1, 2, "its origin", "second"),
    (3, 3, "this checkpoint", "first"),
    (4, 5, "the boundary", "third"),
    (6, 6, "the end", "third"),
    (7, 8, "its files alone", "fourth"),
)
"""First and last step of a range, and the continuation after a kill in that range."""


def draw_steps() -> Canvas:
    """Return the picture of the steps of a generation, and where it continues when killed."""
    box, gap, left, top = 92.0, 10.0, 8.0, 62.0
    width = left * 2 + len(_STEPS) * box + (len(_STEPS) - 1) * gap
    canvas = Canvas(width, 150, "The steps of a generation, and where it continues when killed")
    canvas.text(left, 20, "Each step works, then writes its line.", bold=True)
    canvas.text(left, 40, "Killed between two lines, it continues from:", colour="muted")
    for number, (line, words) in enumerate(_STEPS):
        x = left + number * (box + gap)
        canvas.rectangle(x, top, box, 40, fill="box", edge="line", radius=6)
        canvas.text(x + box / 2, top + 18, line, anchor="middle", size=12, bold=True)
        canvas.text(x + box / 2, top + 33, words, anchor="middle", size=9, colour="muted")
        if number:
            canvas.path((x - gap, top + 20), (x, top + 20), colour="muted", arrow=True)
    for begin, end, words, colour in _SOURCES:
        x0 = left + begin * (box + gap)
        x1 = left + end * (box + gap) + box
        canvas.path((x0, top + 52), (x1, top + 52), colour=colour, width=3)
        canvas.text((x0 + x1) / 2, top + 70, words, anchor="middle", size=11, colour=colour)
    return canvas


def main() -> None:
    """Run the experiment in a directory like that of the page, and write the pictures."""
    STEPS.write_text(draw_steps().render())
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        directory = Path(name)
        (directory / "examples").symlink_to(_HERE.parent.parent / "examples")
        examples.write_files(examples.PAGES_WITH_AGENTS[0], directory)
        os.environ.update(examples.install_agents(directory / ".agents"))
        frame, results, branches = anyio.run(run)
    TABLE.write_text(draw_table(frame))
    SCORES.write_text(draw_scores(results, "points", by="workspace", title="memory").document())
    by_label: dict[str, list[float]] = {}
    for row in branches.rows():
        by_label.setdefault(row.branch, []).append(row.scores["points"])
    (original,) = (r for r in results.rows() if (r.chain, r.generation) == ("no_workspace-s1", 2))
    FORK.write_text(draw_fork(by_label, original.scores["points"]).render())


if __name__ == "__main__":
    main()
