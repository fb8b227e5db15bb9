"""A score over generations, as a picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clawblox.experiment.history.scores import MAX_SCORE
from clawblox.experiment.tables.results import make_results
from clawblox.views import svg
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
    results = make_results(journal.plans(plan))
    score = "cubes" if generations else "turns"
    return ET.fromstring(draw_scores(results, score, by=by, title=title).document())


def groups(root: ET.Element, name: str) -> dict[str, tuple[float, float]]:
    """Return the positions of the marks of a class, by their tooltips."""
    found = {}
    for group in root.iter(f"{SVG}g"):
        if group.attrib["class"] == name:
            title, shape = group
            place = shape.attrib.get("d", "").removeprefix("M").partition("m")[0].split(",")
            x, y = place if len(place) == 2 else (shape.attrib["cx"], shape.attrib["cy"])
            found[str(title.text)] = (float(x), float(y))
    return found


def lines(root: ET.Element, generations: int) -> list[str]:
    """Return the classes of lines that span a number of generations."""
    paths = [e for e in root.iter(f"{SVG}path") if e.attrib["d"].count("L") == generations - 1]
    return [e.attrib["class"] for e in paths if "line" in e.attrib["class"].split()]


def bands(root: ET.Element) -> list[str]:
    return [e.attrib["class"] for e in root.iter(f"{SVG}path") if "band" in e.attrib["class"]]


def texts(root: ET.Element) -> list[str]:
    return [str(e.text) for e in root.iter(f"{SVG}text")]


def many(
    sweep: dict[str, list[object]], repeats: int, generations: int = 2, by: str | None = None
) -> ET.Element:
    """Return the picture of the turns of many chains."""
    journal, plan = Journal(), make_plan(sweep=sweep, repeats=repeats, generations=generations)
    for chain in plan.chains():
        for generation in range(1, generations + 1):
            journal.open(chain.name, generation).work().commit([used(1)])
    return ET.fromstring(
        draw_scores(make_results(journal.plans(plan)), "turns", by=by, title="panda").document()
    )


def test_each_generation_of_a_chain_is_a_point_and_each_model_a_thick_line() -> None:
    root = picture()
    assert len(groups(root, "value")) == 12
    assert len(groups(root, "point")) == 6
    assert sorted(lines(root, 3)) == [
        "lane0-line line",
        *["lane0-line line faint"] * 2,
        "lane1-line line",
        *["lane1-line line faint"] * 2,
    ]
    assert bands(root) == ["lane0 band", "lane1 band"]
    assert {"panda", "cubes by model", "claude-fable-5", "claude-opus-4-8", "generation"} <= {
        *texts(root)
    }


def test_the_legend_has_the_name_of_the_column_above_its_values() -> None:
    small = [e for e in picture().iter(f"{SVG}text") if e.attrib["class"].endswith("small")]
    places = {e.text: (float(e.attrib["x"]), float(e.attrib["y"])) for e in small}
    title, *values = (places[name] for name in ("model", "claude-fable-5", "claude-opus-4-8"))
    assert all(title[0] <= x for x, _ in values)
    assert title[1] < values[0][1] < values[1][1]


def test_twelve_groups_differ_in_the_legend_and_in_their_lines() -> None:
    models: list[object] = [f"claude-model{number}-2" for number in range(6)]
    root = many({"inherit.workspace": [True, False], "agents.0.model": models}, 1)
    names = [e.text for e in root.iter(f"{SVG}text") if e.attrib["class"] == "ink small"]
    assert len(set(names)) == len(names) == 12
    assert len(set(lines(root, 2))) == len(lines(root, 2)) == 12
    marks = {
        (group[1].attrib["class"], group[1].attrib["d"].partition("m")[2])
        for group in root.iter(f"{SVG}g")
    }
    assert len(marks) == 12
    assert len({shape for _, shape in marks}) == 6
    assert not bands(root)


@pytest.mark.parametrize("by", [None, "chain", "workspace"])
def test_more_than_twelve_chains_are_drawn_as_bands_per_condition(by: str | None) -> None:
    root = many({"inherit.workspace": [True, False]}, 9, by=by)
    assert lines(root, 2) == ["lane0-line line", "lane1-line line"]
    assert sorted(bands(root)) == ["lane0 band"] * 2 + ["lane1 band"] * 2
    assert not groups(root, "value")
    words = "turns by workspace · 18 chains"
    assert (f"{words} · more than 12 by chain" if by == "chain" else words) in texts(root)
    assert "line: median; dark band: the middle half of the chains; light band: 8 of 10" in texts(
        root
    )


def test_conditions_beyond_twelve_are_joined_with_a_note() -> None:
    models: list[object] = [f"claude-model{number}-2" for number in range(9)]
    root = many({"inherit.workspace": [True, False], "agents.0.model": models}, 1)
    assert "turns by workspace · 18 chains · more than 12 by model, workspace" in texts(root)
    root = many({"agents.0.model": [*models, *(f"m{n}" for n in range(9))]}, 1, by="chain")
    assert "turns of all chains · 18 chains · more than 12 by chain" in texts(root)
    assert not [e for e in root.iter(f"{SVG}text") if e.attrib["class"] == "ink small"]


def test_bands_of_many_conditions_are_narrow() -> None:
    models: list[object] = ["claude-fable-5", "claude-opus-4-8"]
    root = many({"inherit.workspace": [True, False], "agents.0.model": models}, 25)
    assert len(bands(root)) == len(lines(root, 2)) == 4


def test_groups_of_a_single_generation_are_next_to_each_other() -> None:
    root = picture(1)
    assert len({x for x, _ in groups(root, "point").values()}) == 2
    assert len(bands(root)) == 2
    assert "generation 1" in texts(root)


def test_a_long_legend_is_below_the_axes_and_inside_the_picture() -> None:
    models: list[object] = [f"claude-{'long-' * 6}{number}" for number in range(10)]
    root = many({"agents.0.model": models}, 10)
    names = [e for e in root.iter(f"{SVG}text") if e.attrib["class"] == "ink small"]
    assert [str(e.text) for e in names] == models
    for name in names:
        right = float(name.attrib["x"]) + svg.text_width(str(name.text), svg.SMALL)
        assert right <= svg.WIDTH
        assert 376 < float(name.attrib["y"]) <= float(root.attrib["height"])


@settings(max_examples=60, deadline=None)
@example([[-MAX_SCORE, MAX_SCORE], [MAX_SCORE, MAX_SCORE]])
@given(st.lists(st.lists(st.floats(-MAX_SCORE, MAX_SCORE), min_size=1, max_size=4), max_size=15))
def test_any_scores_can_be_drawn(scores: list[list[float]]) -> None:
    journal, plan = Journal(), make_plan(repeats=max(1, len(scores)), generations=4)
    for number, values in enumerate(scores, 1):
        for generation, value in enumerate(values, 1):
            attempt = journal.open(f"r{number}", generation).work()
            attempt.write("scored", {"scores": {"cubes": value}}).commit([used(1)])
    if scores:
        text = draw_scores(make_results(journal.plans(plan)), "cubes", title="panda").document()
        ET.fromstring(text)
        assert not re.search(r"[,\" ](nan|-?inf)", text.partition("</style>")[2])


def test_score_grows_upwards_and_generations_to_the_right() -> None:
    places = groups(picture(), "value")
    first, low = places["claude-opus-4-8, opus-r1, generation 1: 0"]
    last, high = places["claude-opus-4-8, opus-r2, generation 3: 8"]
    assert first < last
    assert low > high
    assert groups(picture(), "point").keys() >= {
        "claude-opus-4-8, generation 3: mean 5 ± 3 of 2",
        "claude-fable-5, generation 1: mean 0 ± 1 of 2",
    }


@pytest.mark.parametrize("generations", [0, 1, 40])
def test_everything_is_inside_the_picture(generations: int) -> None:
    root = picture(generations, by="chain")
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    marks = [*groups(root, "point").values(), *groups(root, "value").values()]
    names = [(float(e.attrib["x"]), float(e.attrib["y"])) for e in root.iter(f"{SVG}text")]
    for x, y in [*marks, *names]:
        assert 0 <= x <= width
        assert 0 <= y <= height


def test_hostile_names_are_escaped() -> None:
    root = picture(title=HOSTILE)
    assert not list(root.iter(f"{SVG}script"))
    assert all((e.text or "").isprintable() for e in root.iter(f"{SVG}text"))


def test_picture_has_a_note_about_mixed_score_function_versions() -> None:
    journal = Journal()
    for chain in ("r1", "r2"):
        attempt = journal.open(chain, 1).work()
        attempt.write("scored", {"scores": {"cubes": 1.0}}).commit([used(1)])
    facts = {"scores": {"cubes": 2.0}, "function": {"name": "scores:cubes", "digest": "ab" * 32}}
    journal.write("rescored", facts, chain="r1", generation=1)
    root = ET.fromstring(
        draw_scores(make_results(journal.plans(make_plan())), "cubes", title="panda").document()
    )
    assert "cubes by chain, some of another version of the score function" in texts(root)
