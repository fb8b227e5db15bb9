"""The strip of an axis: its content, positions and limits."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from clawblox.recording.blocks import Track
from clawblox.rundir.lineage import read_lineage
from clawblox.views import svg
from clawblox.views.axis import Sent, make_axis
from clawblox.views.axis_svg import LEFT, MAX_POINTS, RIGHT, draw_axis
from clawblox.views.descent import DescentLife, find_descent
from clawblox.views.svg import Picture
from tests.support.lineages import make_restart, run_of, save_of, write_run
from tests.views.test_axis import block, recorded

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> tuple[DescentLife, ...]:
    """Return a life that saved at 2 s and died at 8 s, and a life that started six hours later."""
    document = {
        "run": run_of("w000", ended_at="2026-06-23T00:00:10Z"),
        "checkpoints": [save_of("w000", 2)],
        "restarts": [{**make_restart("w000", 9, 2), "at": "2026-06-23T00:00:00Z"}],
    }
    lineage = read_lineage(write_run(tmp_path_factory.mktemp("run"), {"w000": document}))
    return find_descent([lineage], lineage.run_dir, "w000")


def drawn(lives: tuple[DescentLife, ...], **lanes: list[Sent]) -> tuple[Picture, ET.Element]:
    later = block(Track.INPUTS, (6 * 3600, 2), (6 * 3600 + 10, 12))
    axis = make_axis(lives, {0: recorded(block(Track.INPUTS, (0, 0), (8, 8))), 1: recorded(later)})
    picture = draw_axis(axis, lanes)
    return picture, ET.fromstring(picture.part().html)


def titles(root: ET.Element, name: str) -> list[str]:
    groups = (group for group in root.iter(f"{SVG}g") if group.get("class") == name)
    return ["".join(group[0].itertext()) for group in groups]


def test_strip_shows_lost_life_fold_save_crash_and_restart(
    lives: tuple[DescentLife, ...],
) -> None:
    picture, root = drawn(lives)
    assert root.get("role") == "group"
    assert picture.name == "Axis of time of w000."
    assert titles(root, "kept") == ["w000, life 1", "w000, life 2"]
    assert titles(root, "lost") == ["w000, life 1: lost"]
    assert titles(root, "fold") == ["5h59m without a running world"]
    assert titles(root, "save") == ["w000-2.json, 2026-06-22T18:00:02Z"]
    (crash,) = titles(root, "crash")
    assert crash.startswith("w000, life 1: killed by SIGKILL")
    assert len(titles(root, "restart")) == 1
    links = [link.get("href") for link in root.iter(f"{SVG}a")]
    assert links == ["#t=0", "#t=2", "#t=8", "#t=2", "#t=12"]
    kept, lost = (
        next(g for g in root.iter(f"{SVG}g") if g.get("class") == name)[1].get("d") or ""
        for name in ("kept", "lost")
    )
    y = float(re.findall(r"[\d.]+", kept)[1])
    assert float(re.findall(r"[\d.]+", lost)[-2]) < y  # above the line


def test_an_axis_spreads_evenly_from_left_to_right(lives: tuple[DescentLife, ...]) -> None:
    lane = [Sent(0.0), Sent(6.0), Sent(12.0)]
    _, root = drawn(lives, Ada=lane)
    (marks,) = (p for p in root.iter(f"{SVG}path") if p.get("class") == "lane0-line hair")
    xs = [float(x) for x in re.findall(r"M([\d.]+)", marks.get("d") or "")]
    assert xs == [LEFT, (LEFT + RIGHT) / 2, RIGHT]
    assert titles(root, "lane") == ["Ada\n3 inputs\n0 messages"]


def test_a_long_lane_becomes_columns(lives: tuple[DescentLife, ...]) -> None:
    def count(points: int) -> int:
        _, root = drawn(lives, Ada=[Sent(12 * n / points) for n in range(points)])
        (marks,) = (p for p in root.iter(f"{SVG}path") if p.get("class") == "lane0-line hair")
        return (marks.get("d") or "").count("M")

    assert count(MAX_POINTS) == MAX_POINTS
    assert count(MAX_POINTS + 1) == (RIGHT - LEFT) / 2
    assert count(36_000) == (RIGHT - LEFT) / 2


def test_hostile_names_are_escaped(lives: tuple[DescentLife, ...], tmp_path: Path) -> None:
    name = "<script>alert(1)</script>\u202e\x1b[31m"
    picture, root = drawn(lives, **{name: [Sent(1.0, is_lost=True, is_message=True)]})
    assert "<script" not in picture.part().html
    assert not [e for e in root.iter() if e.tag == f"{SVG}script" or "style" in e.attrib]
    assert "1 of them lost" in titles(root, "lane")[0]


def test_axis_without_times_has_a_note() -> None:
    picture = draw_axis(make_axis((), {}), {})
    assert "The times of this run are unknown." in picture.part().html


def test_overlapping_fold_labels_are_only_in_tooltips() -> None:
    folds = [*svg.draw_folds([(100, "6h"), (110, "2m"), (200, "1h")], "of nothing", 20, 60)]
    assert ["<text" in fold.html for fold in folds] == [True, False, True]
    assert "2m of nothing" in folds[1].html
