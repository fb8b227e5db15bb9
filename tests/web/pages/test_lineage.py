"""The page of runs that started from each other's saves."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.web.site import Site
from tests.support.lineages import run_of, save_of, write_run
from tests.web.drawing import draw
from tests.web.families import find_run, moved, saves_of


@pytest.mark.parametrize("is_moved", [False, True])
def test_runs_are_a_tree_and_a_picture_whose_names_and_saves_are_links(
    family: Path, tmp_path: Path, is_moved: bool
) -> None:
    first, second = "first", "second"
    if is_moved:
        first, second = "old/one", "two"
        family = moved(family, tmp_path / "lab", ("first", first), ("second", second))
    site = Site(family)
    text = draw(site, "lineage")
    assert "1 family · 2 runs of 2 in them" in text
    runs = [f'href="/run/{find_run(site, name).ident}"' for name in (first, second)]
    tree = text[text.index("<tbody>") :]
    assert tree.index(runs[0]) < tree.index("└ ") < tree.index(runs[1])
    ((origin, path),) = saves_of(site, first, "w000")
    assert f'<a href="/{origin}">{path.name}</a>' in tree
    picture = text[text.index("<svg") : text.index("</svg>")]
    assert all(run in picture for run in runs)
    assert picture.count('class="fork"') == 2
    assert "elsewhere" not in picture
    for name in (first, second):
        for instance in ("alpha", "w000", "w001"):
            for page, _ in (
                saves_of(site, name, instance) if name == first or instance == "w001" else ()
            ):
                assert f'<a href="/{page}"' in picture


def test_runs_without_relatives_are_only_counted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, {name: {"run": run_of(name)}})
    text = draw(tmp_path, "lineage")
    assert "0 families · 0 runs of 2 in them" in text
    assert "<svg" not in text


def test_cycle_of_hand_edited_manifests_is_drawn_once(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        run = run_of(name, (other, 1))
        run["resume_from"] = f"../../../{other}/worlds/{other}/checkpoints/{other}-1.json"
        write_run(tmp_path / name, {name: {"run": run, "checkpoints": [save_of(name, 1)]}})
    text = draw(tmp_path, "lineage")
    assert "1 family · 2 runs of 2 in them" in text
    assert text.count("└ ") == 1


def test_line_of_forty_forks_is_listed_completely(tmp_path: Path) -> None:
    for number in range(40):
        name = f"r{number:02}"
        run = run_of(name, (f"r{number - 1:02}", 1) if number else None)
        if number:
            before = f"r{number - 1:02}"
            run["resume_from"] = f"../../../{before}/worlds/{before}/checkpoints/{before}-1.json"
        write_run(tmp_path / name, {name: {"run": run, "checkpoints": [save_of(name, 1)]}})
    text = draw(tmp_path, "lineage")
    assert "1 family · 40 runs of 40 in them" in text
    assert text.count("└ ") == 39
    assert text[text.index("<svg") :].count('class="fork"') == 39


def test_hostile_names_of_instances_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    write_run(tmp_path / "a", {"a": {"run": run_of("a"), "checkpoints": [save_of("a", 1)]}})
    run = run_of("b", ("a", 1), labels={"x": evil})
    write_run(tmp_path / evil.replace("/", "-"), {"b": {"run": run}})
    text = draw(tmp_path, "lineage")
    assert "1 family" in text
    assert "<script" not in text
