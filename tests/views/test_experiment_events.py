"""Events of an experiment as lines of text."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from clawblox.agents.values import Usage
from clawblox.experiment.history.lines import LineType, usage_data
from clawblox.experiment.running.events import ExperimentEvent, describe_line
from clawblox.results import ProcessExit
from clawblox.views.event_lines import EventLine
from clawblox.views.experiment_events import describe_experiment_event
from tests.experiment.journals import SHA, Journal

SILENT = {"experiment.begun", "opened", "prepared", "checkpoint.removed", "saved"}
SOURCE = {"chain": "r1", "generation": 3, "attempt": "a", "file": "c.ckpt", "sha256": SHA}
HOSTILE = "\x1b[2J\u202e\nnext"
TEXTS: list[tuple[Any, dict[str, Any], str]] = [
    ("session.begun", {"pid": 7}, "the experiment runs as process 7"),
    ("session.ended", {"reason": "request"}, "the experiment ended: request"),
    (
        "plan.amended",
        {"changes": [{"field": "save"}, {"field": "stop"}]},
        "plan amended: save, stop",
    ),
    ("account.limited", {"account": "claude", "reason": "limit"}, "account claude: usage limit"),
    ("account.cleared", {"account": "claude"}, "account claude works again"),
    ("chain.forked", {"source": SOURCE, "label": "storm"}, "forked from r1, generation 3: storm"),
    ("chain.retried", {}, "will be tried again"),
    ("opened", {"host": {"node": "n1"}}, "on node n1"),
    (
        "opened",
        {"host": {"node": "n2"}, "differs": "libc: b, before a"},
        "on node n2, on another libc: b, before a",
    ),
    ("working", {"agents": [{"name": "Eko"}, {"name": "Moa"}]}, "works: Eko, Moa"),
    (
        "checkpoint",
        {"file": "c.ckpt", "size_bytes": 1_200_000, "mid_turn": ["Eko"]},
        "saved c.ckpt (1.2 MB), in the middle of a turn of Eko",
    ),
    ("checkpoint.failed", {"error": "no space"}, "not saved: no space"),
    ("closing", {"reason": "duration"}, "closes: duration"),
    ("scored", {"scores": {"cubes": 4.0, "time": 12.25}}, "scored: cubes 4, time 12.25"),
    ("rescored", {"error": "KeyError"}, "has no scores: KeyError"),
    ("scored", {"scores": {"cubes": 4.0}, "error": "x"}, "scored: cubes 4; x"),
    (
        "committed",
        {"ended_by": "budget", "used": usage_data([Usage(output_tokens=41_000, cost_usd=0.92)])},
        "committed: budget, 41k output tokens, $0.92",
    ),
    ("paused", {"reason": "limit", "text": "Eko: usage limit"}, "paused: Eko: usage limit"),
    ("failed", {"cause": "world", "text": "died"}, "failed (world): died"),
    ("interrupted", {}, "was interrupted"),
    ("imported", {"rows": []}, "imported"),
    ("hook.called", {"hook": "on_pause", "reason": "limit"}, "hook on_pause called: limit"),
    ("hook.called", {"hook": "on_done", "reason": ""}, "hook on_done called"),
    ("hook.failed", {"hook": "score", "error": "KeyError"}, "hook score failed: KeyError"),
]


def describe(kind: Any, data: dict[str, Any], **place: Any) -> EventLine | None:
    journal = Journal()
    journal.write(kind, data, **place)
    return describe_experiment_event(describe_line(journal.lines[0]))


@pytest.mark.parametrize(("kind", "data", "text"), TEXTS)
def test_a_line_of_the_journal_has_a_text(kind: Any, data: dict[str, Any], text: str) -> None:
    line = describe(kind, data, chain="r1")
    assert line is not None
    assert (line.instance, line.text, line.at) == ("r1", text, "2026-06-22T18:01:00.000Z")


def test_every_journal_line_type_has_a_text_or_is_hidden() -> None:
    assert {kind for kind, _, _ in TEXTS} | SILENT == {*get_args(LineType)}
    assert [describe(kind, {}) for kind in SILENT] == [None] * len(SILENT)


@pytest.mark.parametrize(
    "kind", ["budget.warning", "disk.low", "hook.changed", "machine.changed", "node.lost"]
)
def test_a_warning_is_a_problem_with_a_text(kind: str) -> None:
    line = describe_experiment_event(event(kind, text="80 % of $5 are spent"))
    assert line is not None
    assert (line.text, line.needs_attention) == ("80 % of $5 are spent", True)


def test_event_line_names_its_generation() -> None:
    line = describe("closing", {"reason": "duration"}, chain="r1", generation=3)
    assert str(line) == "2026-06-22T18:01:00.000Z r1 generation 3 closes: duration"


def test_the_end_of_a_pause_is_named() -> None:
    line = describe("paused", {"text": "limit", "until": "2026-06-22T21:40:00Z"})
    assert line is not None
    assert line.text.startswith("paused: limit, until ")


def test_a_continuation_on_another_machine_is_a_problem() -> None:
    lines = [describe(*facts) for *facts, _ in TEXTS if facts[0] == "opened"]
    assert [line.needs_attention for line in lines if line is not None] == [False, True]


def test_failures_and_pauses_are_problems() -> None:
    lines = {kind: describe(kind, data) for kind, data, _ in TEXTS if kind != "opened"}
    assert {kind for kind, line in lines.items() if line is not None and line.needs_attention} == {
        *("account.limited", "checkpoint.failed", "failed", "hook.failed", "interrupted", "paused")
    }


@pytest.mark.parametrize("kind", ["failed", "paused", "committed", "checkpoint.failed", "opened"])
def test_hostile_text_stays_on_its_line(kind: Any) -> None:
    data = {"text": HOSTILE, "cause": HOSTILE, "ended_by": HOSTILE, "error": HOSTILE}
    data |= {"host": {"node": HOSTILE}, "differs": HOSTILE}
    line = describe(kind, data, chain=HOSTILE)
    assert line is not None
    assert line.text.isprintable()
    assert line.instance.isprintable()


def event(kind: str, **data: Any) -> ExperimentEvent:
    return ExperimentEvent(time="2026-06-22T18:00:00Z", kind=kind, subject="r1", data=data)


def test_only_problems_of_worlds_are_shown() -> None:
    exit_ = {"exit": ProcessExit(status=4), "unresponsive": False}
    line = describe_experiment_event(event("world.exited", **exit_))
    assert line is not None
    assert (line.instance, line.needs_attention) == ("r1", True)
    assert "ended by itself" in line.text
    assert describe_experiment_event(event("world.started", port=20001)) is None
    assert describe_experiment_event(event("agent.tool_called", name="Bash")) is None
