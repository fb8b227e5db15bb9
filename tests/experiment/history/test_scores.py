"""Scores of a generation, merged by name: a line replaces only the scores that it names."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clawblox.experiment.history.scores import Scores, format_version, is_same_version
from tests.experiment.journals import Journal

POINTS = {"name": "scores:points", "digest": "1f2e3d4c5b6a" + "0" * 52}
VERSION = "scores:points@1f2e3d4c5b6a"


def test_a_later_line_replaces_the_scores_of_its_names_and_keeps_the_others() -> None:
    scores = Scores().merge({"scores": {"cubes": 1.0, "speed": 2.0}}, "first")
    scores = scores.merge({"scores": {"cubes": 3.0, "size": 4}}, "second")
    assert scores.values == {"cubes": 3.0, "speed": 2.0, "size": 4.0}
    assert scores.versions == {"cubes": "second", "speed": "first", "size": "second"}


def test_error_does_not_replace_a_score() -> None:
    scores = Scores().merge({"scores": {"cubes": 1.0}}, "first")
    failed = scores.merge({"error": "KeyError: 'cubes'"}, "second")
    assert (failed.values, failed.versions) == (scores.values, scores.versions)


def test_latest_score_decides_the_error() -> None:
    journal = Journal()
    journal.open("r1", 1).work().write("scored", {"error": "KeyError: 'cubes'"}).commit([])
    assert journal.state.chain("r1").generations[1].score_error == "KeyError: 'cubes'"
    journal.write("rescored", {"scores": {}}, chain="r1", generation=1)
    assert journal.state.chain("r1").generations[1].score_error == ""


@pytest.mark.parametrize("value", [None, "3", True, math.nan, -math.inf, [1.0], 10**400])
def test_a_recorded_value_that_is_not_a_number_is_left_out(value: Any) -> None:
    scores = Scores().merge({"scores": {"cubes": 1.0}}, "first")
    scores = scores.merge({"scores": {"cubes": value, "speed": 2.0}}, "second")
    assert scores.values == {"cubes": 1.0, "speed": 2.0}
    assert scores.versions == {"cubes": "first", "speed": "second"}


@pytest.mark.parametrize("data", [{}, {"scores": None}, {"scores": [1.0]}, {"scores": "cubes"}])
def test_line_without_scores_leaves_the_scores_unchanged(data: Any) -> None:
    assert Scores().merge(data, "first") == Scores()


def test_version_is_the_name_and_the_first_digits_of_the_digest() -> None:
    assert format_version(POINTS) == VERSION
    assert format_version({**POINTS, "digest": None}) == "scores:points"
    assert [format_version(other) for other in (None, {}, "scores:points")] == ["", "", ""]


def test_versions_with_the_same_source_are_the_same() -> None:
    assert is_same_version(VERSION, "memory.scores:points@1f2e3d4c5b6a")
    assert not is_same_version(VERSION, "scores:points@ffffffffffff")
    assert not is_same_version(VERSION, "scores:points")
    assert not is_same_version(VERSION, "")


def test_the_scores_of_a_generation_name_the_function_of_their_run() -> None:
    journal = Journal()
    journal.write("session.begun", {"hooks": {"score": POINTS}})
    attempt = journal.open("r1", 1).work().write("scored", {"scores": {"cubes": 1.0}})
    journal.write("session.begun", {"hooks": {}})
    attempt.commit([])
    journal.write("rescored", {"scores": {"speed": 2.0}}, chain="r1", generation=1)
    state = journal.state
    assert state.chain("r1").generations[1].scores.versions == {"cubes": VERSION, "speed": ""}
    assert state.score_versions == {"cubes": VERSION, "speed": ""}


def test_the_scores_of_a_lost_attempt_do_not_count() -> None:
    journal = Journal()
    journal.open("r1", 1).work().write("scored", {"scores": {"cubes": 1.0}}).end("failed")
    journal.open("r1", 1).work().commit([])
    assert journal.state.chain("r1").generations[1].scores == Scores()


def test_score_counts_as_outdated_once_the_changed_function_has_failed() -> None:
    journal = Journal()
    journal.write("session.begun", {"hooks": {"score": POINTS}})
    journal.open("r1", 1).work().write("scored", {"scores": {"cubes": 1.0}}).commit([])
    for function, latest in (
        ({"name": "scores:speed", "digest": "0" * 64}, VERSION),
        ({**POINTS, "digest": "f" * 64}, "scores:points@ffffffffffff"),
    ):
        facts = {"error": "KeyError: 'cubes'", "function": function}
        journal.write("rescored", facts, chain="r1", generation=1)
        assert journal.state.score_versions == {"cubes": latest}
