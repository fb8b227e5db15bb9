"""The lineage as text and as a picture: content and readability."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, NamedTuple
from xml.etree import ElementTree

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from clawblox import ManifestError
from clawblox.rundir.lineage import Lineage, read_lineage
from clawblox.views.lineage_layout import lay_out
from clawblox.views.lineage_svg import draw_lineage
from clawblox.views.lineage_text import format_forks, render_lineage, to_ascii
from docs.pictures import lineage as picture
from tests.cli.conftest import Start, read_instances
from tests.rundir.test_records import written
from tests.support.lineages import (
    NAMES,
    listings,
    make_restart,
    manifests,
    run_of,
    save_of,
    write_manifest,
    write_run,
)
from tests.support.waiting import wait_until

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert(1)</script>&\"'"


LANES = """\
runs/r: 4 instances, 7 saves, 2 forks, 2 deaths

         0                5                10
         ┴────────────────┴────────────────┴──────────────     simulated time
w000     ├─────────────○────────────○╌╌┤                       exited
  w003                 │            ╰─────────────○╌╌┤         exited
  w002                 ╰╌╌×                                    failed
w001     ├─────────○──────────○↻─────────────────────────○╌╌┤  exited, 1 restart
                              ╰─────────○╌╌×                   killed by SIGKILL

○ save   ╰ fork   ↻ restarted   × died   ┤ stopped or finished"""  # noqa: RUF001


def family(run: Path) -> Lineage:
    """Write and read a run with two forks of w000, one of which died, and a restart of w001."""
    documents = {
        "w000": {"run": run_of("w000"), "checkpoints": [save_of("w000", at) for at in (4, 8)]},
        "w001": {
            "run": run_of("w001"),
            "checkpoints": [save_of("w001", at) for at in (3, 6, 9, 14)],
            "restarts": [make_restart("w001", 11, 6)],
        },
        "w002": {"run": run_of("w002", ("w000", 4), status="failed")},
        "w003": {"run": run_of("w003", ("w000", 8)), "checkpoints": [save_of("w003", 12)]},
    }
    return read_lineage(write_run(run, documents))


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float
    text: str

    def overlaps(self, other: Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def parse(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    return root


def groups(root: ElementTree.Element) -> Counter[str]:
    return Counter(one.get("class", "") for one in root.iter(f"{SVG}g"))


def titles(root: ElementTree.Element, name: str) -> list[str]:
    found = root.iterfind(f".//{SVG}g[@class='{name}']/{SVG}title")
    return [one.text or "" for one in found]


def boxes(root: ElementTree.Element) -> Iterator[Box]:
    sizes = {"title": 16.0, "small": 12.0}
    for one in root.iter(f"{SVG}text"):
        words = one.get("class", "").split()
        size = next((sizes[word] for word in words if word in sizes), 13.0)
        width = cell_len(one.text or "") * size * 0.602
        x, y = float(one.get("x", "nan")), float(one.get("y", "nan"))
        left = x - width / 2 if one.get("text-anchor") == "middle" else x
        yield Box(left, y - 0.8 * size, left + width, y + 0.2 * size, one.text or "")


def assert_readable(svg: str) -> None:
    """Require that labels do not overlap and are inside the picture."""
    root = parse(svg)
    width, height = float(root.get("width", "nan")), float(root.get("height", "nan"))
    found = list(boxes(root))
    for box in found:
        assert box.left >= 0
        assert box.right <= width
        assert box.bottom <= height
    overlapping = [pair for pair in itertools.combinations(found, 2) if pair[0].overlaps(pair[1])]
    assert overlapping == []


# ----------------------------------------------------------------------------- the picture


def test_a_picture_has_a_ring_per_save_a_curve_per_fork_and_a_cross_per_death(
    tmp_path: Path,
) -> None:
    root = parse(draw_lineage(family(tmp_path), title="r").document())
    assert groups(root) & Counter(save=99, fork=99, death=99, turn=99) == Counter(
        save=7, fork=2, death=2, turn=1
    )
    assert titles(root, "fork") == [
        "w003 forked from w000, w000-8.json",
        "w002 forked from w000, w000-4.json",
    ]
    assert titles(root, "turn") == ["restarted at 2026-06-22T18:00:11Z from w001-6.json"]
    (save,) = [title for title in titles(root, "save") if "w000-8" in title]
    assert save == "w000-8.json\nsim time 8, 2026-06-22T18:00:08Z, 1.0 kB"
    assert "killed by SIGKILL; continued at 2026-06-22T18:00:11Z" in titles(root, "death")


def test_fork_curve_starts_at_the_ring_of_its_save(tmp_path: Path) -> None:
    svg = draw_lineage(family(tmp_path), title="r").document()
    (ring,) = re.findall(
        r'<title>w000-8[^/]*?</title><circle[^>]* cx="([\d.]+)" cy="([\d.]+)"', svg
    )
    (curve,) = re.findall(r'<title>w003 forked[^/]*?</title><path[^>]* d="M([\d.]+),([\d.]+)V', svg)
    assert curve == ring


def test_saves_at_the_same_place_share_a_ring_and_a_tooltip(tmp_path: Path) -> None:
    saves = [save_of("w000", number, 5.0) for number in range(1, 4)]
    saves += [save_of("w000", 9, removed_at="2026-06-22T18:01:00Z")]
    run = write_run(tmp_path, {"w000": {"run": run_of("w000"), "checkpoints": saves}})
    root = parse(draw_lineage(read_lineage(run), title="r").document())
    first, removed = titles(root, "save")
    assert [f"w000-{number}.json" in first for number in range(1, 4)] == [True] * 3
    assert "removed 2026-06-22T18:01:00Z" in removed


def test_many_deaths_at_the_same_place_are_counted(tmp_path: Path) -> None:
    restarts = [make_restart("w000", 10 + number, 4, number=number) for number in range(7)]
    document = {"run": run_of("w000"), "checkpoints": [save_of("w000", 4)], "restarts": restarts}
    root = parse(
        draw_lineage(read_lineage(write_run(tmp_path, {"w000": document})), title="r").document()
    )
    assert groups(root)["death"] == 4
    assert "+3" in [one.text for one in root.iter(f"{SVG}text")]


def test_without_simulation_times_the_axis_is_the_time_of_day(tmp_path: Path) -> None:
    saves = [{**save_of("w000", at), "time": None} for at in (10, 30)]
    run = write_run(tmp_path, {"w000": {"run": run_of("w000"), "checkpoints": saves}})
    layout = lay_out(read_lineage(run))
    assert not layout.is_simulated
    assert [ring.at for ring in layout.lanes[0].rings] == [10.0, 30.0]
    assert "seconds since the first start" in draw_lineage(read_lineage(run), title="r").document()


def test_a_save_without_a_simulation_time_is_at_the_previous_save(tmp_path: Path) -> None:
    saves = [save_of("w000", 10), {**save_of("w000", 20), "time": None}, save_of("w000", 30)]
    run = write_run(tmp_path, {"w000": {"run": run_of("w000"), "checkpoints": saves}})
    (lane,) = lay_out(read_lineage(run)).lanes
    assert [ring.at for ring in lane.rings] == [10.0, 10.0, 30.0]


def test_lost_saves_and_earlier_runs_are_on_branches(tmp_path: Path) -> None:
    saves = [save_of("w000", 2, run_id="older"), *(save_of("w000", at) for at in (3, 6, 9, 14))]
    restarts = [make_restart("w000", 8, 3), make_restart("w000", 11, 6)]
    document = {"run": run_of("w000"), "checkpoints": saves, "restarts": restarts}
    (lane,) = lay_out(read_lineage(write_run(tmp_path, {"w000": document}))).lanes
    assert [ring.at for ring in lane.rings] == [3, 6, 14]
    told = [
        (branch.is_apart, branch.ending, branch.begin, [ring.at for ring in branch.rings])
        for branch in lane.branches
    ]
    assert told == [(True, "unknown", 2, [2]), (False, "died", 6, []), (False, "died", 3, [9])]
    assert [turn.at for turn in lane.turns] == [6]


def test_text_from_outside_is_escaped(tmp_path: Path) -> None:
    documents = {
        EVIL: {"run": run_of(EVIL), "checkpoints": [save_of(EVIL, 1)]},
        "a\ufffe\x1b[31mb\u202ec": {"run": run_of("x")},
    }
    svg = draw_lineage(read_lineage(write_run(tmp_path, documents)), title=f"{EVIL}\x00").document()
    root = parse(svg)
    assert "<script" not in svg
    assert "\u202e" not in svg
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
        "svg", "title", "style", "rect", "path", "circle", "text", "g",
    }  # fmt: skip
    assert f"{EVIL}-1.json".endswith(titles(root, "save")[0].partition("\n")[0])
    assert rf"{EVIL}\x00" in [one.text for one in root.iter(f"{SVG}text")]


def test_picture_is_deterministic_and_loads_no_external_files(tmp_path: Path) -> None:
    lineage = family(tmp_path)
    svg = draw_lineage(lineage, title="r").document()
    assert svg == draw_lineage(lineage, title="r").document()
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|href|@font-face", svg)
    assert "prefers-color-scheme:dark" in svg


@pytest.mark.parametrize("count", [0, 1, 100])
def test_labels_do_not_overlap_for_any_number_of_instances(tmp_path: Path, count: int) -> None:
    names = [f"worker-{number}-{'x' * (number % 40)}" for number in range(count)]
    documents = {
        name: {
            "run": run_of(name, (names[number // 2], 1 + number % 3) if number else None),
            "checkpoints": [save_of(name, at) for at in range(1, 4)],
            "restarts": [make_restart(name, 5, number % 3 + 1)] * (number % 2),
        }
        for number, name in enumerate(names)
    }
    lineage = read_lineage(write_run(tmp_path, documents))
    svg = draw_lineage(lineage, title="runs/" + "long" * 40).document()
    assert groups(parse(svg))["save"] == 3 * count
    assert all(cell_len(box.text) <= 80 for box in boxes(parse(svg)))
    assert all(cell_len(box.text) <= 30 for box in boxes(parse(svg)) if "worker" in box.text)
    assert_readable(svg)


# -------------------------------------------------------------------------------- the text


def test_the_text_shows_lanes_forks_and_lost_lives(tmp_path: Path) -> None:
    assert render_lineage(family(tmp_path), columns=80, title="runs/r") == LANES


def test_fork_of_a_lost_save_starts_at_the_line_of_the_branch(tmp_path: Path) -> None:
    saves = [save_of("w000", at) for at in (2, 4, 8)]
    restarts = [make_restart("w000", 5, None), make_restart("w000", 9, None)]
    documents = {
        "w000": {"run": run_of("w000"), "checkpoints": saves, "restarts": restarts},
        "w001": {"run": run_of("w001", ("w000", 8))},
    }
    text = render_lineage(read_lineage(write_run(tmp_path, documents)), columns=60, title="r")
    main, first, second, fork = text.splitlines()[4:8]
    column = fork.index("╰")
    assert (main + " " * 60)[column] == " "
    assert (first + " " * 60)[column] == " "
    assert second[column] == "○"


def test_the_text_fits_the_terminal(tmp_path: Path) -> None:
    lineage = family(tmp_path)
    for columns in (60, 80, 160):
        lines = render_lineage(lineage, columns=columns, title="r").splitlines()
        assert max(map(cell_len, lines)) <= columns


def test_the_words_next_to_the_axis_fit_the_terminal(
    tmp_path: Path,
) -> None:
    documents = {"w000": {"run": run_of("w000"), "checkpoints": [save_of("w000", 4)]}}
    lineage = read_lineage(write_run(tmp_path, documents))
    short = attrs.evolve(lineage.instances[0], state="ready", exit=None)
    text = render_lineage(attrs.evolve(lineage, instances=[short]), columns=80, title="r")
    assert max(map(cell_len, text.splitlines())) <= 80


def test_text_without_unicode_has_the_same_columns(tmp_path: Path) -> None:
    text = render_lineage(family(tmp_path), columns=80, title="r")
    plain = to_ascii(text)
    assert plain.isascii()
    assert "?" not in plain
    assert [*map(len, plain.splitlines())] == [*map(len, text.splitlines())]


def test_ps_tree_shows_forks_below_their_parents(tmp_path: Path) -> None:
    assert format_forks(family(tmp_path)).splitlines() == [
        "INSTANCE  STATE   SIM TIME  SAVES  RESTARTS  BEGAN FROM",
        "w000      exited  8.0       2",
        "├─ w003   exited  12.0      1                w000 at 8.0",
        "└─ w002   failed  4.0                        w000 at 4.0",
        "w001      exited  14.0      4      1",
    ]


# --------------------------------------------------------------------------- any manifests


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lineage")


@pytest.mark.thorough
@settings(max_examples=40)
@given(listings, st.lists(manifests, min_size=3, max_size=3))
def test_any_lineage_can_be_drawn(scratch: Path, top: Any, documents: list[Any]) -> None:
    shutil.rmtree(scratch)
    write_manifest(scratch, top)
    for name, document in zip(NAMES, documents, strict=False):
        write_manifest(scratch / "worlds" / name, document)
    try:
        lineage = read_lineage(scratch)
    except ManifestError:
        return
    assert_readable(draw_lineage(lineage, title="r").document())
    text = render_lineage(lineage, columns=80, title="r")
    assert to_ascii(text).isascii()
    if lineage.instances:
        assert len(format_forks(lineage).splitlines()) == len(lineage.instances) + 1


# ------------------------------------------------------------------------------- commands


def is_back(told: dict[str, Any]) -> bool:
    return bool(told["restarts"] and told["state"] == "ready")


def deaths(run: Path) -> int:
    return sum(len(instance.deaths) for instance in read_lineage(run).instances)


@pytest.mark.thorough
def test_the_command_shows_a_running_run(up: Start, call: Start, run_dir: Path) -> None:
    up("--restart", "checkpoint")
    assert call("save", str(run_dir), "w000").wait() == 0
    assert call("fork", str(run_dir), "w000").wait() == 0
    os.kill(read_instances(run_dir)["w000"]["pid"], signal.SIGKILL)
    wait_until(lambda: is_back(read_instances(run_dir)["w000"]), what="w000 is back")
    wait_until(lambda: deaths(run_dir) == 1, what="the manifest has the restart")
    shown = call("lineage", str(run_dir))
    assert shown.wait() == 0
    assert shown.out.startswith(f"{run_dir}: 4 instances, 2 saves, 1 fork, 1 death")
    assert re.search(r"^  w003 +╰.*▸ +ready$", shown.out, re.MULTILINE)
    plain = call("lineage", str(run_dir), env={"PYTHONIOENCODING": "ascii"}, stdin=DEVNULL)
    assert plain.out == to_ascii(shown.out)
    told = json.loads(call("lineage", str(run_dir), "--json").out)
    assert [one["name"] for one in told["instances"]] == ["w000", "w003", "w001", "w002"]
    assert told["instances"][1]["parent"]["instance"] == "w000"
    tree = call("ps", str(run_dir), "--tree")
    assert re.search(r"^└─ w003 +ready .* w000", tree.out, re.MULTILINE)
    svg = run_dir / "l.svg"
    assert call("lineage", str(run_dir), "--svg", str(svg)).out == f"Wrote {svg}\n"
    assert groups(parse(svg.read_text()))["alive"] == 4


def test_lineage_command_reports_missing_runs_and_wrong_options(
    call: Start, tmp_path: Path
) -> None:
    nothing = call("lineage", str(tmp_path))
    assert (nothing.wait(), "Nothing has run" in nothing.err) == (1, True)
    both = call("lineage", str(tmp_path), "--json", "--svg", "x")
    assert (both.wait(), "cannot be combined" in both.err) == (2, True)
    two = call("ps", str(tmp_path), "--json", "--tree")
    assert (two.wait(), "cannot be combined" in two.err) == (2, True)
    run = write_run(tmp_path / "run", {"w000": {}})
    (run / "worlds" / "w000" / ".clawblox" / "manifest.json").write_text("{")
    written(run, "w000", instance_dir=str(run / "worlds" / "w000"), state="exited")
    broken = call("lineage", str(run))
    assert broken.wait() == 0
    assert "manifest is not JSON" in broken.err
    assert "w000" in broken.out


def test_the_picture_of_the_guide_is_up_to_date() -> None:
    root = parse(picture.PICTURE.read_text())
    assert_readable(picture.PICTURE.read_text())
    assert groups(root) >= Counter(save=20, fork=5, death=2, turn=1, alive=4, end=2)
