"""A score over generations, as a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from clawblox.experiment.tables.results import make_results
from clawblox.views.score_svg import draw_scores
from tests.experiment.journals import Journal, make_plan, used

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</svg><script>\x1b[2J\u202e"


def picture(generations: int = 3, title: str = "panda", by: str = "model") -> ET.Element:
    """Return the picture of two models in two repeats."""
    journal = Journal()
    models = ["claude-fable-5", "claude-opus-4-8"]
    plan = make_plan(sweep={"agents.0.model": models}, generations=max(1, generations))
    for generation in range(1, generations + 1):
        for place, chain in enumerate(("fable-r1", "opus-r1", "fable-r2", "opus-r2")):
            attempt = journal.open(chain, generation).work()
            attempt.write("scored", {"scores": {"cubes": generation * place - 1.0}})
            attempt.commit([used(1)])
    results = make_results(plan, journal.state)
    score = "cubes" if generations else "turns"
    return ET.fromstring(draw_scores(results, score, by=by, title=title))


def points(root: ET.Element) -> list[tuple[float, float]]:
    return [(float(e.attrib["cx"]), float(e.attrib["cy"])) for e in root.iter(f"{SVG}circle")]


def test_each_generation_is_a_point_and_each_model_a_line() -> None:
    root = picture()
    assert len(points(root)) == 12
    lines = [e for e in root.iter(f"{SVG}path") if e.attrib["d"].count("L") == 2]
    assert [e.attrib["class"].split()[0] for e in lines] == ["lane0-line", "lane1-line"]
    texts = [e.text for e in root.iter(f"{SVG}text")]
    assert {"panda", "cubes by model", "claude-fable-5", "claude-opus-4-8", "generation"} <= {
        *texts
    }


def test_the_legend_has_the_name_of_the_column_above_its_values() -> None:
    texts = [e for e in picture().iter(f"{SVG}text") if e.attrib["class"].endswith("small")]
    places = {e.text: (float(e.attrib["x"]), float(e.attrib["y"])) for e in texts}
    title, *values = (places[name] for name in ("model", "claude-fable-5", "claude-opus-4-8"))
    assert all(title[0] <= x for x, _ in values)
    assert title[1] < values[0][1] < values[1][1]


def test_different_chains_are_different_in_the_legend_and_in_their_lines() -> None:
    journal = Journal()
    models = [f"claude-model{number}-2" for number in range(9)]
    sweep = {"inherit.workspace": [True, False], "agents.0.model": models, "duration": [3600]}
    plan = make_plan(sweep=sweep, repeats=1, generations=2)
    for chain in plan.chains():
        for generation in (1, 2):
            journal.open(chain.name, generation).work().commit([used(1)])
    root = ET.fromstring(draw_scores(make_results(plan, journal.state), "turns", title="panda"))
    names = [e.text for e in root.iter(f"{SVG}text") if e.attrib["class"] == "ink small"]
    assert len(set(names)) == len(names) == 18
    lines = [e for e in root.iter(f"{SVG}path") if e.attrib["d"].count("L") == 1]
    assert len({e.attrib["class"] for e in lines}) == len(lines) == 18


def test_a_higher_score_is_higher_and_a_later_generation_further_right() -> None:
    titles = {e[0].text: (e[1].attrib["cx"], e[1].attrib["cy"]) for e in picture().iter(f"{SVG}g")}
    first, low = map(float, titles["claude-opus-4-8, generation 1: 0"])
    last, high = map(float, titles["claude-opus-4-8, generation 3: 8"])
    assert first < last
    assert low > high


@pytest.mark.parametrize("generations", [0, 1, 40])
def test_everything_is_inside_the_picture(generations: int) -> None:
    root = picture(generations, by="chain")
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    texts = [(float(e.attrib["x"]), float(e.attrib["y"])) for e in root.iter(f"{SVG}text")]
    for x, y in [*points(root), *texts]:
        assert 0 <= x <= width
        assert 0 <= y <= height


def test_hostile_names_are_text() -> None:
    root = picture(title=HOSTILE)
    assert not list(root.iter(f"{SVG}script"))
    assert all((e.text or "").isprintable() for e in root.iter(f"{SVG}text"))


def test_the_picture_says_when_it_mixes_versions_of_the_score_function() -> None:
    journal = Journal()
    for chain in ("r1", "r2"):
        attempt = journal.open(chain, 1).work()
        attempt.write("scored", {"scores": {"cubes": 1.0}}).commit([used(1)])
    facts = {"scores": {"cubes": 2.0}, "function": {"name": "scores:cubes", "digest": "ab" * 32}}
    journal.write("rescored", facts, chain="r1", generation=1)
    root = ET.fromstring(
        draw_scores(make_results(make_plan(), journal.state), "cubes", title="panda")
    )
    texts = [e.text for e in root.iter(f"{SVG}text")]
    assert "cubes by chain, some of another version of the score function" in texts
