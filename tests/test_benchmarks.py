"""The comparison of two installations measures real worlds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType

import attrs
import pytest

from benchmarks import paired, server_kit, views
from benchmarks.engine_processes import measure_trips, serve_on_first_core
from benchmarks.engine_ticks import SCENE, Played
from benchmarks.kit_clients import drive
from benchmarks.kit_servers import PROGRAMS
from benchmarks.soak import compare, soak
from benchmarks.worlds import Readiness
from clawblox.engine.instances.instance import Instance
from clawblox.engine.values import vector3
from clawblox.luau import run_deep
from clawblox.luau.core import operators
from clawblox.recording.blocks import Track


@pytest.mark.thorough
def test_installations_are_compared_in_every_figure(tmp_path: Path) -> None:
    pythons = dict.fromkeys(("fixed", "before", "after"), sys.executable)
    scale = paired.Scale(counts=(1,), saved=1, rounds=1)
    readiness = Readiness(tmp_path)
    try:
        rows = paired.Pair(pythons, tmp_path, scale).measure("here", readiness)
        assert not readiness.carriers()
    finally:
        readiness.close()
    measured = {row.what: row for row in rows}
    assert {row.where for row in rows} == {"here"}
    for what in ("start 1 light worlds", "stop 1 light worlds", "save 1 x 1 MB"):
        assert measured[what].floor
    for row in rows:
        if row.unit == "ms":
            assert min(row.before, row.after, row.fixed or 0) > 0, row
    for what in ("start", "save"):
        in_all = measured[f"CPU of a {what}, 1 at once"].after
        assert measured[f"CPU of a {what} in the loop, 1 at once"].after < in_all


def test_a_tick_of_the_engines_scene_matches_its_page() -> None:
    watched = {
        Instance.__getitem__.__code__: "properties",
        operators.method.__code__: "methods",
        vector3.magnitude.__code__: "lengths",
    }
    counted = dict.fromkeys(watched.values(), 0)

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code in watched:
            counted[watched[frame.f_code]] += 1

    def play() -> None:
        played = Played(SCENE)
        for _ in range(3):
            played.step()
        sys.setprofile(count)
        try:
            played.step()
        finally:
            sys.setprofile(None)

    run_deep(play)
    assert 1900 <= counted["properties"] <= 2100
    assert 400 <= counted["methods"] <= 440
    assert counted["lengths"] == 280


def test_the_floor_of_the_engine_serves_its_routes() -> None:
    trips = measure_trips("asyncio", 2)
    assert min(trips.values()) > 0


@pytest.mark.thorough
def test_the_kit_and_its_floors_answer_agents_with_bodies_of_the_same_size() -> None:
    with serve_on_first_core(list(PROGRAMS.values())) as worlds:
        for world in worlds:
            figures = drive(
                world.port, "observe", [world.join("Agent1"), world.join("Agent2")], 0.1
            )
            assert figures["answers"] >= 2
        sizes = [len(json.dumps(world.ask("GET", "/observe"))) for world in worlds]
        assert max(sizes) < 1.05 * min(sizes)
        with pytest.raises(ValueError, match="401 Unauthorized"):
            drive(worlds[0].port, "observe", ["unknown"], 0.1)


@pytest.mark.thorough
def test_the_kits_round_trips_recordings_and_replays_are_measured() -> None:
    rows, figures = server_kit.measure(server_kit.QUICK)
    assert len(figures["trips"]) == len(PROGRAMS) * (2 * len(server_kit.QUICK.counts) + 1)
    assert all(row.value is not None for row in rows)
    for sizes in figures["recordings"].values():
        assert 0 < sum(sizes[f"{track}_bytes"] for track in Track) < sizes["bytes"]


@pytest.mark.needs("chromium")
@pytest.mark.thorough
def test_every_figure_of_the_pages_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "bench_inspect", lambda *_: [])  # it installs 80 packages
    rows = [row for bench in views.BENCHES for row in bench(made(tmp_path), views.QUICK)]
    assert all(row.value is not None for row in rows)
    assert {row.what.split(":")[0] for row in rows} >= {
        "20 runs",
        "experiment of 10 attempts",
        "agent.log of 1 MB",
        "log of 10 MB",
        "a turn until it is seen",
        "eight tabs",
    }


def made(parent: Path) -> Path:
    """Return a new directory."""
    directory = parent / str(len(list(parent.iterdir())))
    directory.mkdir()
    return directory


def test_rows_compare_to_the_state_before_and_to_the_fixed_state(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = paired.PairedRow("", "CPU", "ms", before=4.0, after=6.0, floor=2.0, fixed=3.0)
    assert (row.change, row.growth, row.times_floor(row.after)) == (1.5, 2.0, 3.0)
    assert attrs.evolve(row, fixed=None).growth is None
    paired.print_paired([row])
    assert capsys.readouterr().out.split()[-6:] == ["6.00", "ms", "1.50", "2.00", "2.00", "3.00"]


@pytest.mark.thorough
def test_an_installation_that_fails_fails_the_comparison() -> None:
    with pytest.raises(RuntimeError, match="wait status"):
        paired.measure_imports({"before": sys.executable, "after": "/bin/false"}, 1)


@pytest.mark.anyio
@pytest.mark.thorough
async def test_a_soak_disturbs_and_measures(tmp_path: Path) -> None:
    samples, counts = await soak(tmp_path, 12.0, 4.0, 1.0)
    assert len(samples) >= 2
    assert min(counts[what] for what in ("crashes", "forks", "joins")) > 0
    assert all(sample.cpu_per_save_s > 0 and sample.disk_bytes > 0 for sample in samples)
    assert [row.goal for row in compare(samples)] == [1.1] * 5
