"""The page of a recording as text: a moment, the table around it, and observations."""

from __future__ import annotations

import json
import os
import re
import shutil
from html import unescape
from pathlib import Path

import pytest

from clawblox.recording.blocks import Track
from clawblox.recording.reader import RecordingReader
from clawblox.rundir.recordings import FoundRecording, find_recordings
from clawblox.views.axis_svg import MAX_POINTS
from clawblox.web import frames, routes
from clawblox.web.app import ServerLinks
from clawblox.web.page import Ask, Page
from clawblox.web.pieces import tree
from clawblox.web.recordings import OpenRecording, Recordings
from clawblox.web.site import NoSuchPage, Site
from tests.recording.files import Recorded, reading
from tests.web.descents import record_descent
from tests.web.replays import engine_world, only_run, record, tally_world

ACTIONS = [("Add", number) for number in range(1, 9)]


def make(root: Path, path: str = "", **query: str) -> Page:
    """Return the page of the first recording of the only run in a directory."""
    ask = Ask(Site(root), ServerLinks("key"), query)
    return routes.make_page(ask, path or f"run/{only_run(root)}/replay/1")


def words(page: Page, *names: str) -> str:
    """Return the text of some parts of a page, of all by default."""
    parts = [part.body.html for part in page.parts if not names or part.name in names]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", " ".join(parts))).split())


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a run of a world without a renderer."""
    return record_tally(tmp_path_factory.mktemp("tally"))


def record_tally(place: Path) -> Path:
    record(tally_world(place, "{recording}"), place / "runs" / "run", *ACTIONS)
    return place / "runs"


def test_replay_page_shows_events_and_observations_of_its_moment(tally: Path) -> None:
    first, later = make(tally), make(tally, t="1.0")
    assert "0.000 ▶ this moment" in words(first, "events")
    assert "All recordings" not in words(first, "facts"), "it is the only recording"
    events, seen = words(later, "events"), words(later, "seen")
    before, _, after = events.partition("1.000 ▶ this moment")
    assert re.search(r"\d\.\d{3} [\d:.]{12} Rocky Add 3", before), before
    assert "Add 5" in after
    assert re.search(r"Rocky at [\d.]+ s, changes since [\d.]+ s marked", seen), seen
    assert re.search(r"was \d", seen)


def test_moment_outside_the_recording_is_clamped(tally: Path) -> None:
    end = re.search(r"0\.00 to ([\d.]+) s", words(make(tally), "facts"))
    assert end is not None
    assert f"{end[1]} s" in words(make(tally, t="99999"), "player")
    for strange in ("-5", "nan", "1e9", "", "1" * 400, "<b>"):
        assert "0.00 s" in words(make(tally, t=strange), "player"), strange


def test_number_line_has_at_most_1400_points(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    for tick in range(1, 4001):
        recorded.observe(tick, "a", {"tick": tick, "x": tick % 7, "ok": True, "far": [1, tick]})
        if tick % 50 == 0:
            recorded.flush()
    with reading(recorded.close()) as reader:
        numbers = OpenRecording(reader).read_numbers()
    assert [*numbers] == [("a", "x")]
    assert 400 < len(numbers["a", "x"]) <= MAX_POINTS


def test_the_page_shows_a_renderer_in_a_sandbox_only_where_states_can_be_drawn(
    tmp_path: Path, tally: Path
) -> None:
    world = engine_world(tmp_path / "engine")
    record(world, tmp_path / "box" / "run", ("Jump", {}))
    html = "".join(part.body.html for part in make(tmp_path / "box").parts)
    frame = re.search(r"<iframe[^>]*>", html)
    assert frame is not None
    assert 'sandbox="allow-scripts"' in frame[0]
    assert re.search(r'src="/x/[\w-]{22}/"', frame[0])
    assert "<iframe" not in "".join(part.body.html for part in make(tally).parts)
    assert "The world has no renderer" in words(make(tally), "world") or (
        "recorded no states" in words(make(tally), "world")
    )


def test_changed_or_missing_world_of_a_recording_is_named(
    tmp_path: Path,
) -> None:
    tally = record_tally(tmp_path)
    assert "has changed" not in words(make(tally), "world")
    with (tmp_path / "world" / "tally.py").open("a") as program:
        program.write("# changed\n")
    changed, seen = make_afresh(tally), words(make(tally), "seen")
    assert "world has changed since this was recorded: tally.py." in words(changed, "world")
    shutil.rmtree(tmp_path / "world")
    gone = make_afresh(tally)
    assert "is gone" in words(gone, "world")
    assert (words(gone, "seen"), "Rocky" in words(gone, "axis")) == (seen, True)


def make_afresh(root: Path) -> Page:
    """Return the page as in a new process, which has not looked at the world yet."""

    frames.find_world.cache_clear()
    return make(root)


def test_growing_recording_is_read_incrementally(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.add(Track.INPUTS, 1, event="join", agent_id="a", name="Ann")
    recorded.flush()

    kept, found = Recordings(), FoundRecording(recorded.path)
    with kept.opened(found, tmp_path) as first:
        assert (len(first.sent), first.roster(9).name("a")) == (0, "Ann")
    recorded.add(Track.INPUTS, 2, event="input", agent_id="a", action="Go", data=None)
    recorded.flush()
    with kept.opened(found, tmp_path) as second:
        assert second is first
        assert [(sent.name, sent.time) for sent in second.sent] == [("Ann", 0.2)]
    recorded.close()
    shutil.copy(recorded.path, tmp_path / "copy")
    os.replace(tmp_path / "copy", recorded.path)
    with kept.opened(found, tmp_path) as third:
        assert third is not first
        assert len(third.sent) == 1


def test_state_windows_start_with_the_state_at_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, blocks = Recorded(tmp_path), []
    for tick in range(1, 101):
        recorded.frame(tick, frame={"tick": tick, "pad": "x" * 40_000})
    found, read = FoundRecording(recorded.close()), RecordingReader.read_lines
    monkeypatch.setattr(
        RecordingReader,
        "read_lines",
        lambda reader, entry: blocks.append(entry) or read(reader, entry),
    )
    with Recordings().opened(found, tmp_path) as recording:
        blocks.clear()
        short = json.loads(recording.read_states(2.05, 2.3))
        assert len(blocks) <= 3, "what follows the window is not read"
        long = json.loads(recording.read_states(2.0, 100.0))
        assert [state[0] for state in short["states"]] == [2.0, 2.1, 2.2, 2.3]
        assert (short["states"][1][1]["tick"], short["next"]) == (21, None)
        assert len(json.dumps(long)) < 1_300_000
        assert long["next"] == round(long["states"][-1][0] + 0.1, 1)
        assert json.loads(recording.read_states(50.0, 60.0))["states"][0][0] == 10.0
        assert json.loads(recording.read_states(-5.0, 0.05))["states"] == []


@pytest.mark.thorough
def test_the_axis_has_lanes_lost_lives_saves_and_pauses_of_all_recordings(tmp_path: Path) -> None:
    record_descent(tmp_path)
    ask = Ask(Site(tmp_path), ServerLinks("key"))
    page = routes.make_page(ask, f"run/{only_run(tmp_path)}/replay/1")
    axis = next(part.body.html for part in page.parts if part.name == "axis")
    for kind in ("lost", "save", "crash", "fold", "lane"):
        assert f'class="{kind}"' in axis, kind
    assert "Ada" in axis
    assert re.search(r"\b2\b", words(page, "facts")), "the other recordings are linked"


def test_every_differing_path_is_marked_and_hostile_names_escaped() -> None:
    before = {"a": 1, "<b>": {"x": [1]}, "list": [{"id": "m", "n": 1}], "gone": 5, "deep": {}}
    after = {"a": 2, "<b>": {"x": [2]}, "list": [{"id": "m", "n": 2}], "new": {"y": {}}, "deep": {}}
    html = tree("t", after, before).html
    assert html.count("<mark>2</mark>") == 2
    assert "was 1" in html
    assert "<mark>gone</mark> gone, was 5" in html
    assert "<b>&lt;b&gt;</b>" in html
    wide = tree("t", {str(number): {"x": {}} for number in range(5000)}).html
    assert (wide.count("<details") <= 600, "and 4900 more" in wide) == (True, True)
    deep: dict[str, object] = {}
    for _ in range(900):
        deep = {"d": deep}
    assert tree("t", deep).html.count("<details") < 30


def test_unknown_runs_and_recordings_have_no_page(tally: Path) -> None:
    run = only_run(tally)
    paths = (f"run/{run}/replay/2", f"run/{run}/replay/01", "run/0123456789/replay/1",
             f"run/{run}/replay/..", f"run/{run}/replay/1/viewer")  # fmt: skip
    for path in paths:
        with pytest.raises(NoSuchPage):
            make(tally, path)


def test_a_damaged_recording_is_an_error_on_its_page(tally: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(tally, tmp_path / "runs", ignore=shutil.ignore_patterns("*.sock"))
    (found,) = find_recordings(damaged / "run")
    found.path.write_bytes(b"{}" + found.path.read_bytes()[2:])
    assert "recording" in words(make(damaged), "why")
