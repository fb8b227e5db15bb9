"""Two branches from their fork on: the first action and the first observation that differ."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clawblox.recording.blocks import Track
from clawblox.rundir.lineage import read_lineage
from clawblox.rundir.listed_saves import LineageSave
from clawblox.views.axis import make_axis
from clawblox.views.descent import find_descent
from clawblox.web.first_differences import (
    FirstDifference,
    Side,
    align,
    find_first_differences,
)
from clawblox.web.recordings import OpenRecording, Recordings, read_lanes
from tests.recording.files import Recorded, reading
from tests.support.lineages import run_of, write_run
from tests.web.descents import record_descent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_descent(tmp_path_factory.mktemp("descent"))


@contextlib.contextmanager
def compared(run: Path, *names: str) -> Iterator[tuple[LineageSave | None, Sequence[Side]]]:
    lineages = [read_lineage(run)]
    with contextlib.ExitStack() as stack:
        lines = [find_descent(lineages, run, name) for name in names]
        yield align([Side(*stack.enter_context(Recordings().opened_axis(one))) for one in lines])


@pytest.mark.thorough
def test_a_fork_and_its_parent_are_compared_from_the_save_on(run: Path) -> None:
    with compared(run, "alpha", "w000") as (save, sides):
        assert save is not None
        assert sides[0].span[0] == save.time
        assert sides[0].span == sides[1].span
        assert [piece.begin for piece in sides[0].axis.pieces] == [save.time]
        assert [point.kind for point in sides[1].axis.points] == ["save", "fork", "end"]
        sent = [read_lanes(side.axis, side.recorded) for side in sides]
        assert [len([p for p in lanes["Ada"] if not p.is_message]) for lanes in sent] == [6, 7]
        found = find_first_differences(sides)
    action, observation = found
    assert (action.kind, agent_of(action), action.path) == ("action", "Ada", "data")
    assert action.values in ([3, 99], [4, 99])
    assert action.events[0].at == action.events[1].at
    assert (observation.kind, observation.path) == ("observation", "bets")
    ticks = [round(event.at * 60) for event in (*action.events, *observation.events)]
    assert ticks == [ticks[0], ticks[0], ticks[0] + 6, ticks[0] + 6]


def agent_of(found: FirstDifference) -> str:
    return found.events[0].agent


@pytest.mark.thorough
def test_run_has_no_differences_from_itself(run: Path) -> None:
    with compared(run, "w000", "w000") as (save, sides):
        assert find_first_differences(sides) == []
        assert save is None


# -- written recordings ------------------------------------------------------------------------

Write = Callable[[Recorded], None]


def differences(tmp_path: Path, *writes: Write) -> list[FirstDifference]:
    """Compare two runs without a common life."""
    run = write_run(tmp_path / "run", {name: {"run": run_of(name)} for name in ("a", "b")})
    sides: list[Side] = []
    with contextlib.ExitStack() as stack:
        for name, write in zip("ab", writes, strict=True):
            directory = tmp_path / name
            directory.mkdir()
            recording = Recorded(directory)
            write(recording)
            reader = stack.enter_context(reading(recording.close()))
            axis = make_axis(find_descent([read_lineage(run)], run, name), {0: [reader]})
            sides.append(Side(axis, {0: [OpenRecording(reader)]}))
        return find_first_differences(align(sides)[1])


def recording(names: dict[str, str], observations: list[Any], actions: list[Any]) -> Write:
    """Return the writer of a recording in which all agents see and do the same at each tick."""

    def write(recorded: Recorded) -> None:
        for agent_id, name in names.items():
            recorded.add(Track.INPUTS, 0, event="join", agent_id=agent_id, name=name)
        for tick in range(1, 1 + max(len(observations), len(actions))):
            for agent_id in names:
                for seen in observations[tick - 1 : tick]:
                    recorded.observe(tick, agent_id, seen)
                for data in actions[tick - 1 : tick]:
                    more = {"agent_id": agent_id, "action": "Go", "data": data}
                    recorded.add(Track.INPUTS, tick, event="input", **more)
        recorded.add(Track.INPUTS, 90, event="end")

    return write


def test_values_that_differ_by_design_are_ignored(tmp_path: Path) -> None:
    def seen(agent_id: str, name: str, port: int, second: int) -> dict[str, Any]:
        return {
            "tick": second,
            "time": second / 10,
            "session": f"of {agent_id}",
            "me": agent_id,
            "players": [{"id": agent_id, "name": name, "home": f"http://127.0.0.1:{port}/x"}],
            "seen_at": f"2026-06-22T18:00:{second:02}Z",
        }

    first = recording({"id-1": "Ada"}, [seen("id-1", "Ada", 20001, 3)], [{"to": "id-1"}])
    second = recording({"id-2": "Bo"}, [seen("id-2", "Bo", 20002, 5)], [{"to": "id-2"}])
    assert differences(tmp_path, first, second) == []


def inputs(*sent: tuple[int, str, int], names: tuple[str, ...] = ("Ada", "Bo")) -> Write:
    """Return the writer of a recording with these inputs: tick, agent, data."""

    def write(recorded: Recorded) -> None:
        for number, name in enumerate(names):
            recorded.add(Track.INPUTS, 0, event="join", agent_id=f"{number} {names}", name=name)
        for tick, name, data in sent:
            more = {"agent_id": f"{names.index(name)} {names}", "action": "Go", "data": data}
            recorded.add(Track.INPUTS, tick, event="input", **more)
        recorded.add(Track.INPUTS, 90, event="end")

    return write


def test_agents_are_matched_by_name_before_position(tmp_path: Path) -> None:
    first = inputs((1, "Ada", 1), (2, "Bo", 2))
    second = inputs((1, "Bo", 2), (3, "Ada", 5), names=("Bo", "Ada"))
    (found,) = differences(tmp_path, first, second)
    assert (agent_of(found), found.path, found.values) == ("Ada", "data", [1, 5])
    assert [event.at for event in found.events] == [0.1, 0.3]


def test_agents_with_other_names_are_matched_by_position(tmp_path: Path) -> None:
    first = inputs((1, "Ada", 1), (2, "Bo", 2))
    second = inputs((1, "Ada", 1), (2, "Cy", 3), names=("Cy", "Ada"))
    (found,) = differences(tmp_path, first, second)
    assert (agent_of(found), found.values) == ("Bo", [2, 3])


def test_earliest_difference_is_found_with_another_order_of_agents(
    tmp_path: Path,
) -> None:
    first = inputs((1, "Bo", 1), (2, "Ada", 1), (3, "Ada", 1))
    second = inputs((1, "Ada", 2), (2, "Ada", 1), (4, "Bo", 7))
    (found,) = differences(tmp_path, first, second)
    assert (agent_of(found), found.values) == ("Bo", [1, 7])


@pytest.mark.parametrize(("first", "second"), [([1, 2], [1]), ([1], [1, 2])])
def test_a_branch_that_ended_earlier_does_not_differ(
    tmp_path: Path, first: list[int], second: list[int]
) -> None:
    writes = (recording({"1": "Ada"}, [], data) for data in (first, second))
    assert differences(tmp_path, *writes) == []


def test_observation_difference_has_the_path_and_the_missing_side(tmp_path: Path) -> None:
    first = recording({"1": "Ada"}, [{"world": {"a": 1}}, {"world": {"a": 1, "b": 2}}], [])
    second = recording({"1": "Ada"}, [{"world": {"a": 1}}, {"world": {"a": 1}}], [])
    (found,) = differences(tmp_path, first, second)
    assert (found.kind, found.path) == ("observation", "world.b")
    assert found.values == [2, None]
