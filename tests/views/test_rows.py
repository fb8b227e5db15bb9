"""Agents in tables, as descriptions, and in the summary of a run."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from rich.cells import cell_len

from clawblox.agents.status import AgentStatus, StatusState, describe_metrics
from clawblox.agents.values import Usage
from clawblox.columns import fit_columns, format_line
from clawblox.views.board import BoardFrame, render
from clawblox.views.formatting import format_cost, format_count
from clawblox.views.rows import (
    agent_columns,
    describe_agent,
    make_row,
    order_agents,
    plain_facts,
    summarise_agents,
)
from tests.agents.support import USAGE
from tests.views.test_board import plain, status, view


def agent(name: str, state: StatusState = "working", **fields: object) -> AgentStatus:
    known: dict[str, object] = {
        "name": name,
        "state": state,
        "driver": "claude",
        "dir": Path("/r/agents") / name,
        "session_id": "5b5c1e86",
        "turn": 4,
        "usage": USAGE,
        "reason": "",
        "pid": 4242,
        "window": "agent-0-0",
        "sandbox": "bwrap",
        "time": "2026-06-22T18:59:25Z",
        "orchestrator_pid": 1,
    }
    return AgentStatus(**{**known, **fields})  # type: ignore[arg-type]


AGENTS = [
    agent("Ana", "failed", reason="Not logged in · Please run /login", turn=0, pid=None),
    agent("Eko"),
    agent("Rocky", "stopped", driver="codex", usage=Usage(output_tokens=2_100_000, turns=20)),
]


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (20, "AGENT STATE"),
        (60, "AGENT STATE TURN TOKENS COST REASON"),
        (80, "AGENT STATE DRIVER TURN TOKENS COST LATEST SANDBOX REASON"),
        (160, "AGENT STATE DRIVER TURN TOKENS COST LATEST WINDOW PID SANDBOX REASON"),
    ],
)
def test_a_wider_terminal_shows_more_of_the_agents(width: int, headings: str) -> None:
    fitted = fit_columns(agent_columns(AGENTS), width)
    assert format_line(fitted, None).split() == headings.split()
    assert all(cell_len(format_line(fitted, row)) <= width for row in range(3))


def test_the_usage_of_an_agent_is_in_its_row() -> None:
    fitted = fit_columns(agent_columns(AGENTS), None)
    assert format_line(fitted, 1).split()[:6] == ["Eko", "working", "claude", "4", "44k", "$0.42"]
    assert format_line(fitted, 2).split()[:5] == ["Rocky", "stopped", "codex", "4", "2.1M"]


def test_the_live_table_has_the_agents_below_the_instances() -> None:
    rows = [make_row(status(f"w{number}"), "ready") for number in range(3)]
    lines = plain(render(view(rows, agents=AGENTS), BoardFrame(100, 30)))
    assert [line.split()[0] for line in lines[8:12]] == ["AGENT", "Ana", "Eko", "Rocky"]
    assert lines[7] == ""


def test_agents_needing_attention_come_first_and_omitted_agents_are_counted() -> None:
    rows = [make_row(status("w0"), "ready")]
    many = [agent(f"A{number:02}") for number in range(30)]
    lines = plain(render(view(rows, agents=[*many, AGENTS[0]]), BoardFrame(100, 24)))
    table = lines[lines.index(next(line for line in lines if line.startswith("AGENT"))) :]
    assert table[1].split()[:2] == ["Ana", "failed"]
    assert table[6] == "… and 26 more agents: 26 working"


@pytest.mark.thorough
@pytest.mark.parametrize("columns", [1, 20, 80, 160])
@pytest.mark.parametrize("lines", [4, 15, 16, 24, 50])
def test_the_table_with_agents_fits_every_terminal(columns: int, lines: int) -> None:
    rows = [make_row(status(f"w{number:03}"), "ready") for number in range(40)]
    many = [agent(f"世界-{number:02}", reason="x" * 200) for number in range(40)]
    drawn = plain(render(view(rows, agents=many), BoardFrame(columns, lines, notice="n" * 90)))
    assert len(drawn) <= lines
    assert all(cell_len(line) <= columns for line in drawn)
    if columns >= 80 and lines >= 15:
        assert drawn[-1].startswith("n")
        assert any(line.startswith("w000") for line in drawn)


def test_every_agent_state_has_a_sort_position() -> None:
    states = get_args(StatusState.__args__[0]) + StatusState.__args__[1:]  # type: ignore[attr-defined]
    ordered = order_agents(agent(state, state) for state in ("idle", "new", "failed", "working"))
    assert [one.state for one in ordered] == ["failed", "working", "idle", "new"]
    assert len(order_agents(agent("x", state) for state in states)) == len(states)


def test_a_text_from_an_agent_cannot_move_the_cursor() -> None:
    bad = agent("E\x1b[2Jko", reason="a\nb\x1b[31m", window="w\u202e", driver="c\rx")
    fitted = fit_columns(agent_columns([bad]), None)
    for text in (format_line(fitted, 0), describe_agent(bad)):
        assert not {"\x1b", "\r", "\u202e"} & set(text)
    assert "a\nb" not in describe_agent(bad)


def test_agents_are_summarised_in_a_line() -> None:
    assert summarise_agents([]) == []
    assert summarise_agents(AGENTS) == [
        "3 agents: 1 failed, 1 working, 1 stopped; 26 turns, 2.2M tokens, $0.84."
    ]
    assert summarise_agents([agent("x", "idle", usage=Usage())]) == [
        "1 agent: 1 idle; 0 turns, 0 tokens."
    ]


def test_inherited_usage_is_shown_beside_own_usage() -> None:
    inherited = Usage(output_tokens=2_200_000, cost_usd=3.0, turns=9)
    heir = agent("Eko", usage=USAGE.plus(inherited), inherited=inherited)
    fitted = fit_columns(agent_columns([heir]), None)
    headings, cells = (format_line(fitted, row).split() for row in (None, 0))
    shown = dict(zip(headings, cells, strict=False))
    assert (shown["TOKENS"], shown["COST"], shown["INHERITED"]) == ("44k", "$0.42", "2.2M")
    lines = describe_agent(heir).splitlines()
    assert "usage      44k tokens (1.2k input, 40k cached, 2.3k output), $0.42" in lines
    assert "inherited  2.2M tokens (2.2M output), $3.00" in lines
    assert summarise_agents([heir, agent("Ana")]) == [
        "2 agents: 2 working; 6 turns, 87k tokens (+ 2.2M inherited), $0.84."
    ]
    facts = plain_facts(heir)
    assert (facts["own_usage"]["turns"], facts["inherited"]["turns"]) == (USAGE.turns, 9)


def test_counts_and_costs_are_formatted_briefly() -> None:
    counts = (0, 7, 999, 1000, 9_949, 9_951, 43_500, 999_499, 999_500, 2_100_000_000)
    assert [format_count(count) for count in counts] == [
        *("", "7", "999", "1.0k", "9.9k", "10k", "44k", "999k", "1.0M", "2.1G"),
    ]
    assert [format_cost(usd) for usd in (None, 0.0, 0.0042, 0.42, 12.5)] == [
        *("", "$0.00", "$0.0042", "$0.42", "$12.50"),
    ]


def test_usage_that_a_program_does_not_report_is_shown_as_unknown_not_as_0() -> None:
    silent = agent("Moa", driver="command", usage=Usage(turns=3))
    assert "0 tokens" not in describe_agent(silent)
    (summary,) = summarise_agents([silent, agent("Eko")])
    assert summary.endswith(f"; {3 + USAGE.turns} turns.")
    usage = plain_facts(silent)["usage"]
    assert (usage["turns"], usage["output_tokens"], usage["cost_usd"]) == (3, None, None)
    assert plain_facts(agent("Eko"))["usage"]["output_tokens"] == USAGE.output_tokens
    assert describe_metrics(silent).tokens == {}
