"""The time axis: descent, both scales, lost lives, folds, and the inverse mapping."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.recording.blocks import BlockHeader, Moment, Track, format_moment_utc
from clawblox.recording.reader import BlockEntry, RecordingReader
from clawblox.rundir.lineage import Lineage, read_lineage
from clawblox.views.axis import FOLD_S, Axis, Point, make_axis
from clawblox.views.descent import DescentLife, find_descent, find_life
from clawblox.web.recordings import OpenRecording, Recordings, read_lanes
from tests.recording.files import Recorded
from tests.support.lineages import listings, make_restart, manifests, run_of, save_of, write_run
from tests.web.descents import PAUSE, record_descent

BEGIN = datetime(2026, 6, 22, 18, 0, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_descent(tmp_path_factory.mktemp("descent"))


def descent(run: Path, name: str) -> tuple[DescentLife, ...]:
    return find_descent([read_lineage(run)], run, name)


def pauses(axis: Axis) -> list[Point]:
    return [point for point in axis.points if point.kind == "pause"]


def at(seconds: float) -> str:
    return format_moment_utc(BEGIN + timedelta(seconds=seconds))


# -- a real run with a crash, a restore, a pause and a fork ----------------------------------------


def test_axis_covers_a_crash_a_pause_and_a_fork(run: Path) -> None:
    lives = descent(run, "w000")
    assert [life.name for life in lives] == [
        "alpha, life 1", "alpha, life 2", "alpha, life 3", "w000",
    ]  # fmt: skip
    with Recordings().opened_axis(lives) as (axis, _):
        pass
    saves = [life.until.time for life in lives[:3] if life.until and life.until.time]
    assert len(saves) == 3
    assert axis.is_simulated
    assert axis.note == ""
    line = [(piece.life, piece.begin, piece.end) for piece in axis.pieces if not piece.is_lost]
    (lost,) = (piece for piece in axis.pieces if piece.is_lost)
    begins, ends = [0.0, *saves], [*saves, axis.end]
    assert line == [(n, *span) for n, span in enumerate(zip(begins, ends, strict=True))]
    assert (lost.life, lost.begin) == (0, saves[0])
    assert lost.end > saves[0]
    (pause,) = pauses(axis)
    assert (pause.label, pause.place.position) == ("6h", saves[1])
    kinds = [point.kind for point in axis.points]
    assert kinds == [
        "start", "save", "crash", "restart", "save", "end", "resume", "save", "fork", "end",
        "pause",
    ]  # fmt: skip
    crash = axis.points[2].place
    assert (crash.position, crash.is_lost) == (lost.end, True)


def test_host_times_are_placed_on_the_line_in_lost_parts_and_in_pauses(run: Path) -> None:
    lives = descent(run, "alpha")
    with Recordings().opened_axis(lives) as (axis, _):
        pass
    lost = next(piece for piece in axis.pieces if piece.is_lost)
    crashed = lost.place(lost.knots[-1])
    assert axis.place(crashed.utc) == crashed
    assert axis.place_time(lost.end, 0) == crashed
    kept = axis.place_time(lost.end)
    assert kept is not None
    assert (kept.life, kept.is_lost) == (1, False)
    again = axis.place(kept.utc)
    assert again is not None
    assert again.position == pytest.approx(kept.position, abs=0.1)  # within 1 ms, for a fast world
    (pause,) = pauses(axis)
    later = datetime.fromisoformat(pause.place.utc) + timedelta(hours=1)
    paused = axis.place(format_moment_utc(later))
    assert paused is not None
    assert (paused.is_paused, paused.position, paused.life) == (True, pause.place.position, 2)
    at_end = axis.place(format_moment_utc(later - timedelta(hours=1, seconds=30) + PAUSE))
    assert at_end is not None
    assert at_end.is_paused
    assert axis.place("yesterday") is None


def test_lanes_have_every_input_once_and_mark_lost_inputs(run: Path) -> None:
    counts = {}
    for name in ("alpha", "w000"):
        lives = descent(run, name)
        with Recordings().opened_axis(lives) as (axis, known):
            lanes = read_lanes(axis, known)
        for agent, points in lanes.items():
            kept = [point.time for point in points if not point.is_lost and not point.is_message]
            assert kept == sorted(set(kept))
            counts[name, agent] = len(kept)
            lost = {point.time for point in points if point.is_lost}
            assert lost
            assert lost <= {point.time for point in points if point.time >= 2.4}
    assert counts == {
        ("alpha", "Ada"): 38, ("alpha", "Bo"): 38, ("w000", "Ada"): 39, ("w000", "Bo"): 38,
    }  # fmt: skip


def test_axis_without_a_recording_has_host_time_with_folded_pauses(run: Path) -> None:
    axis = make_axis(descent(run, "alpha"), {})
    assert not axis.is_simulated
    assert axis.note == "No recording: this axis shows only host time."
    assert [pause.label for pause in pauses(axis)] == ["6h"]
    assert axis.end < 300
    (resumed,) = (point.place for point in axis.points if point.kind == "resume")
    found = axis.place(resumed.utc)
    assert found is not None
    assert found.position == resumed.position


# -- lines of descent ------------------------------------------------------------------------------


def test_axis_of_a_fork_omits_later_events_of_its_parent_in_another_run(
    tmp_path: Path,
) -> None:
    parent = {
        "run": run_of("w000"),
        "checkpoints": [save_of("w000", 1), save_of("w000", 2), save_of("w000", 9)],
        "restarts": [make_restart("w000", 5, 1), make_restart("w000", 8, 2)],
    }
    first = read_lineage(write_run(tmp_path / "first", {"w000": parent}))
    run_of_fork = run_of("g002", parent_sha256="digest of w000-2", resume_from="gone/w000-2.json")
    second = read_lineage(write_run(tmp_path / "second", {"g002": {"run": run_of_fork}}))
    lives = find_descent([first, second], second.run_dir, "g002")
    assert [(life.name, life.is_lost, life.is_forked) for life in lives] == [
        ("w000, life 1", False, True),
        ("g002", False, False),
    ]
    assert lives[0].until is not None
    assert lives[0].until.time == 2.0
    assert [life.name for life in find_descent([second], second.run_dir, "g002")] == ["g002"]
    assert find_descent([first], first.run_dir, "nobody") == ()


@pytest.mark.parametrize(
    ("time", "seconds", "instance", "life"),
    [
        (0.0, 1, "w000", 0),
        (2.0, 1, "w000", 1),  # the recording started with the save, regardless of the clock
        (2.0, 19, "", 1),
        (7.0, 1, "w000", None),  # recording of a life that is not on the line
        (0.0, 1, "w001", None),
    ],
)
def test_recording_belongs_to_the_life_with_the_same_start(
    two_lives: tuple[DescentLife, ...], time: float, seconds: int, instance: str, life: int | None
) -> None:
    first = Moment(0, time, at(seconds))
    assert find_life(two_lives, two_lives[0].run_dir, instance, first) == life
    assert find_life(two_lives, Path("/elsewhere"), instance, first) is None


@given(top=listings, inner=st.lists(manifests, min_size=3, max_size=3))
def test_axis_can_be_made_for_any_manifest(
    tmp_path_factory: pytest.TempPathFactory, top: Any, inner: list[Any]
) -> None:
    run = tmp_path_factory.mktemp("run")
    write_run(run, dict(zip(("w000", "w001", "w010"), inner, strict=True)))
    (run / ".clawblox" / "manifest.json").write_text(json.dumps(top))
    try:
        lineage = read_lineage(run)
    except Exception:
        return
    for instance in lineage.instances:
        axis = make_axis(find_descent([lineage], lineage.run_dir, instance.name), {})
        for point in axis.points:
            assert axis.begin <= point.place.position <= axis.end


# -- the mapping -----------------------------------------------------------------------------------


def lives_of(tmp_path: Path) -> Lineage:
    """Return a lineage: a life that saved at 2 s and died, and a life started from the save."""
    document = {
        "run": run_of("w000", ended_at="2026-06-22T19:00:00Z"),
        "checkpoints": [save_of("w000", 2), save_of("w000", 30, 5.0)],
        "restarts": [make_restart("w000", 20, 2)],
    }
    return read_lineage(write_run(tmp_path, {"w000": document}))


@pytest.fixture(scope="module")
def two_lives(tmp_path_factory: pytest.TempPathFactory) -> tuple[DescentLife, ...]:
    lineage = lives_of(tmp_path_factory.mktemp("run"))
    return find_descent([lineage], lineage.run_dir, "w000")


def block(track: Track, *ends: tuple[float, float]) -> BlockEntry:
    """Return a block from its ends: seconds since the start, and simulated time."""
    first, last = (Moment(int(time * 60), time, at(utc)) for utc, time in ends)
    return BlockEntry(BlockHeader(track, 2, first, last, 9, 9), 0, 0)


def recorded(*blocks: BlockEntry) -> list[RecordingReader]:
    """Return a recording that has only its index."""
    return [cast(RecordingReader, SimpleNamespace(index=blocks))]


steps = st.lists(
    st.tuples(st.integers(1, 400_000), st.integers(0, 4_000), st.sampled_from(Track)),
    min_size=1,
    max_size=30,
)
"""Blocks: milliseconds of host time and of simulated time from each block to the next."""


def blocks_of(drawn: list[tuple[int, int, Track]], begin: tuple[float, float]) -> list[BlockEntry]:
    blocks, (utc, time) = [], begin
    for host_ms, simulated_ms, track in drawn:
        after = utc + host_ms / 1000, time + simulated_ms / 1000
        blocks.append(block(track, (utc, time), after))
        utc, time = after
    return blocks


@given(first=steps, second=steps, more=steps)
def test_axis_mapping_is_monotone_and_invertible(
    two_lives: tuple[DescentLife, ...],
    first: list[tuple[int, int, Track]],
    second: list[tuple[int, int, Track]],
    more: list[tuple[int, int, Track]],
) -> None:
    blocks = blocks_of(first, (0.0, 0.0))
    end = (datetime.fromisoformat(blocks[-1].header.last.utc) - BEGIN).total_seconds()
    later = blocks_of(second, (end + 100, 2.0)) + blocks_of(more, (end + 100, 2.0))
    axis = make_axis(two_lives, {0: recorded(*blocks), 1: recorded(*later)})
    marks = [entry.header.first.utc for entry in (*blocks, *later)] + [at(end + 50)]
    places = [place for utc in sorted(marks) if (place := axis.place(utc))]
    assert len(places) == len(marks)
    kept = [place.position for place in places if not place.is_lost]
    assert kept == sorted(kept)
    for piece in axis.pieces:
        for utc, position in piece.knots:
            assert axis.begin <= position <= axis.end
            found = axis.place_time(position, piece.life)
            assert found is not None
            assert math.isclose(found.position, position)
            back = axis.place(found.utc)
            assert back is not None
            slope = max(map(abs, slopes(piece.knots)), default=0.0)
            assert abs(back.position - position) <= 0.002 * (slope + 1)
            assert datetime.fromisoformat(found.utc).timestamp() <= utc + 0.002


def slopes(knots: Sequence[tuple[float, float]]) -> Iterator[float]:
    for (begin, left), (end, right) in pairwise(knots):
        yield (right - left) / (end - begin)


def test_long_gap_within_a_life_is_folded(two_lives: tuple[DescentLife, ...]) -> None:
    quiet = 10 + FOLD_S + 1
    first = block(Track.INPUTS, (0, 0), (10, 10))
    blocks = [first, block(Track.INPUTS, (quiet, 10), (quiet + 5, 12))]
    axis = make_axis(two_lives[:1], {0: recorded(*blocks)})
    assert [(one.place.position, one.label) for one in pauses(axis)] == [(10.0, "1m")]
    blocks[1] = block(Track.INPUTS, (quiet - 2, 10), (quiet, 12))
    assert pauses(make_axis(two_lives[:1], {0: recorded(*blocks)})) == []


def test_killed_life_reaches_its_save_beyond_the_end_of_its_recording(
    two_lives: tuple[DescentLife, ...],
) -> None:
    axis = make_axis(two_lives, {0: recorded(block(Track.FRAMES, (0, 0), (1, 1.5)))})
    assert [(piece.life, piece.is_lost, piece.end) for piece in axis.pieces] == [
        (0, False, 2.0), (1, False, 5.0),
    ]  # fmt: skip
    # The position of the save.
    assert axis.pieces[0].knots[-1][0] - axis.pieces[0].knots[0][0] == 2.0


def test_line_leaves_the_parent_at_the_save_of_the_fork(
    tmp_path: Path,
) -> None:
    parent = {"run": run_of("w000"), "checkpoints": [save_of("w000", 2)]}
    fork = {"run": run_of("w001", ("w000", 2), started_at="2026-06-22T18:00:30Z")}
    lineage = read_lineage(write_run(tmp_path, {"w000": parent, "w001": fork}))
    lives = find_descent([lineage], lineage.run_dir, "w001")
    ends = (0, 0), (2, 2), (50, 2), (60, 12)
    waiting = [block(Track.FRAMES, *ends[:2]), block(Track.FRAMES, *ends[2:])]
    axis = make_axis(
        lives, {0: recorded(*waiting), 1: recorded(block(Track.FRAMES, (30, 2), (40, 12)))}
    )
    left, right = axis.pieces
    assert left.place(left.knots[-1]).utc == at(2)
    assert right.place(right.knots[0]).utc == at(30)
    between = axis.place(at(20))
    assert between is not None
    assert (between.is_paused, between.life, between.position) == (True, 1, 2.0)


# -- cost ------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_axis_of_a_long_recording_reads_the_index_and_the_inputs_once(
    tmp_path: Path, two_lives: tuple[DescentLife, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Recorded(tmp_path)
    stamps = [at(tick / 10) for tick in range(36_000)]
    monkeypatch.setattr(
        "tests.recording.files.moment", lambda tick: Moment(tick, tick / 10, stamps[tick])
    )
    for tick in range(36_000):
        written.frame(tick, frame={"tick": tick})
        written.add(Track.INPUTS, tick, event="input", agent_id="a", action="Go", data=tick % 7)
        written.flush() if tick % 1000 == 0 else None
    path = written.close()
    blocks: list[BlockEntry] = []
    read = RecordingReader.read_lines

    def count(reader: RecordingReader, entry: BlockEntry) -> list[bytes]:
        blocks.append(entry)
        return read(reader, entry)

    monkeypatch.setattr(RecordingReader, "read_lines", count)
    with path.open("rb") as file:
        reader = RecordingReader(file.fileno(), path)
        known = {0: [OpenRecording(reader)]}
        blocks.clear()  # the first is the start
        axis = make_axis(two_lives[:1], {0: [reader]})
        assert not blocks
        lanes = read_lanes(axis, known)
        inputs = [entry for entry in reader.index if entry.header.track is Track.INPUTS]
        assert blocks == inputs
        read_lanes(axis, known)
        assert blocks == inputs
    assert len(lanes["a"]) == 36_000
