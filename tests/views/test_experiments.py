"""The table of an experiment at several terminal widths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from rich.cells import cell_len

from clawblox.agents.values import Usage
from clawblox.experiment.schedule.ports import AgentActivity
from clawblox.experiment.tables.status import ChainStatus, ExperimentStatus
from clawblox.views.board import BoardFrame
from clawblox.views.event_lines import EventLine
from clawblox.views.experiments import (
    chain_rows,
    describe_status,
    describe_waits,
    render_experiment,
    summarise_experiment,
)
from clawblox.views.steering import Steering

HOSTILE = "\x1b[2J\u202e\nEko"
UNTIL = "2026-06-22T21:40:00Z"


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")


def agent(name: str = "Eko", **fields: Any) -> AgentActivity:
    return AgentActivity(**{"name": name, "is_over": False, "is_working": True, **fields})


def chain(name: str, generation: int, state: Any, minutes: float = 0, **fields: Any) -> ChainStatus:
    known: dict[str, Any] = {"generations": 10, "duration_s": 3600.0, "active_s": minutes * 60.0}
    return ChainStatus(name=name, generation=generation, state=state, **{**known, **fields})


CHAINS = (
    chain(
        *("fable-r1", 4, "working", 22), world_time=1320.0, agents=(agent(),),
        usage=Usage(output_tokens=181_000), cost_usd=2.1, last_checkpoint_age_s=430.0,
        scores={"cubes": 6.0}, last="curl /input", attempts=1,
    ),
    chain("opus-r3", 3, "waiting", reason="for the claude account"),
    chain(
        *("opus-r1", 3, "paused", 41), world_time=2460.0, cause="limit", until=UNTIL, attempts=1,
        usage=Usage(output_tokens=160_000), cost_usd=5.1, last_checkpoint_age_s=240.0,
    ),
    chain(
        *("fable-r3", 3, "working", 3), agents=(agent(provider_wait_s=9.0),), attempts=1,
        usage=Usage(output_tokens=12_000), cost_usd=0.11, scores={"cubes": 4.0},
    ),
    chain(
        *("fable-r2", 3, "saving", 58), world_time=3480.0, agents=(agent(),), attempts=2,
        usage=Usage(output_tokens=212_000), cost_usd=2.44, last="save prompt sent",
        last_checkpoint_age_s=55.0,
    ),
    chain(
        *("opus-r2", 2, "failed", 12), world_time=720.0, cause="world", reason="died at 720 s",
        usage=Usage(output_tokens=41_000), cost_usd=0.92, last_checkpoint_age_s=720.0, attempts=4,
    ),
)  # fmt: skip


def rename(short: ChainStatus) -> ChainStatus:
    """Return a chain with a long name that differs from the others in the middle."""
    name = short.name.replace("-", "-no_workspace-")
    return attrs.evolve(short, name=f"temperature0.7-{name}")


COUNTS = {"committed": 12, "running": 3, "paused": 1, "failed": 1, "blocked": 8, "waiting": 35}


def status(chains: tuple[ChainStatus, ...] = CHAINS, **fields: Any) -> ExperimentStatus:
    known: dict[str, Any] = {
        "name": "panda-memory",
        "dir": Path("experiments/panda-memory"),
        "pid": 7,
        "chains": chains,
        "counts": COUNTS,
        "generations": 60,
        "spent_usd": 41.2,
        "is_estimated": False,
        "limit_usd": 200.0,
        "elapsed_s": 14100.0,
        "forecast_s": 43200.0,
    }
    return ExperimentStatus(**{**known, **fields})


def draw(shown: ExperimentStatus, columns: int, lines: int = 40, **more: Any) -> list[str]:
    """Return the lines of the table without colours."""
    drawn = render_experiment(shown, BoardFrame(columns, lines, **more))
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in drawn]


def table(chains: tuple[ChainStatus, ...] = CHAINS, columns: int = 100) -> list[str]:
    """Return the headings and rows of the table, and the line about further chains."""
    lines = describe_status(status(chains), columns)[3:]
    return lines[: lines.index("")] if "" in lines else lines


def headings(columns: int, chains: tuple[ChainStatus, ...] = CHAINS) -> list[str]:
    return table(chains, columns)[0].split()


def test_score_mark_is_explained_below_the_table() -> None:
    kept = attrs.evolve(CHAINS[0], kept_scores=("cubes",))
    assert "*" not in "".join(table(CHAINS))
    rows = table((kept, *CHAINS[1:]))
    assert any(" 6* " in row for row in rows)
    assert rows[-2].startswith("* scores of another version of their function")
    narrow = table((kept, *CHAINS[1:]), columns=50)
    assert "SCORE" not in narrow[0]
    assert "*" not in "".join(narrow)


def test_experiment_header_has_cost_time_and_counts() -> None:
    title, counts, *_ = describe_status(status())
    assert title.startswith("panda-memory · experiments/panda-memory ")
    assert title.endswith(" $41.20 of $200 · 3h55m gone, about 12h to go")
    assert counts == "12 of 60 committed · 1 failed · 8 blocked · 1 paused · 3 running · 35 waiting"


def test_chains_that_need_a_person_are_on_top() -> None:
    rows = [line.split()[0] for line in table()[1:-1]]
    assert rows == ["opus-r2", "opus-r1", "fable-r2", "fable-r3", "fable-r1"]


def test_chains_are_in_the_order_of_their_numbers() -> None:
    chains = tuple(chain(f"r{number}", 1, "working") for number in (10, 9, 1))
    rows = [line.split()[0] for line in table(chains)[1:]]
    assert rows == ["r1", "r9", "r10"]


def test_waiting_chains_are_counted_with_their_reason() -> None:
    assert table()[-1] == "… and 1 more: waiting for the claude account"
    chains = (*CHAINS, chain("s1", 1, "waiting"), chain("s2", 1, "waiting"))
    assert table(chains)[-1] == "… and 3 more: 2 waiting, 1 waiting for the claude account"


def test_row_shows_the_state_of_its_chain() -> None:
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in table()}
    assert lines["CHAIN"] == "GEN STATE ACTIVE WORLD AGENTS OUTPUT $ SAVED SCORE LAST"
    assert lines["fable-r1"] == "4/10 working 22m of 1h 1320s Eko ● 181k 2.10 7m 6 curl /input"
    assert lines["fable-r3"] == "3/10 working 3m of 1h Eko ◌ 12k 0.11 4 waits for model"
    assert lines["fable-r2"] == "3/10 saving 58m of 1h 3480s Eko ● 212k 2.44 55s save prompt sent"
    assert lines["opus-r2"].startswith("2/10 failed 12m of 1h 720s 41k 0.92 12m world: died")
    assert re.search(r"160k 5.10 4m limit until \d\d:\d\d$", lines["opus-r1"])


def test_node_column_is_shown_for_nodes_with_the_age_of_old_mirrors() -> None:
    assert "NODE" not in headings(100)
    chains = tuple(
        chain(f"r{number}", 1, "working", node=node, mirror_age_s=age)
        for number, (node, age) in enumerate([("n1", 1.0), ("n2", 7.0), ("", None), (HOSTILE, 0.0)])
    )
    assert headings(100, chains)[:4] == ["CHAIN", "GEN", "STATE", "NODE"]
    rows = [re.split("  +", line) for line in table(chains)[1:]]
    assert [row[3] for row in rows[:2]] == ["n1", "n2, 7s ago"]
    assert rows[3][3].isprintable()
    long = tuple(chain(f"r{n}", 1, "working", node=f"gpu-node-{n:030}") for n in (1, 2))
    assert [line.split()[3][-1] for line in table(long, 60)[1:]] == ["1", "2"]
    assert "…" in table(long, 60)[1]


@pytest.mark.parametrize("columns", [70, 80, 100])
def test_wait_for_nodes_is_shown_at_every_width(columns: int) -> None:
    until = "until 06:51:10 for the end of exp-r1-g003 on node n1"
    (one, two) = (
        chain(f"r{n}", 3, "waiting", attempts=n, cause="node", reason=reason, node="n1")
        for n, reason in enumerate(["for a node", until])
    )
    lines = draw(status((*CHAINS, one)), columns)
    assert any(line.endswith("1 waiting for a node") for line in lines)
    assert "… and 1 more: waiting for a node" in draw(status((one,)), columns)
    drawn = draw(status((two,)), columns)
    assert any(line.startswith("… and 1 more: waiting until 06:51:10 for") for line in drawn)
    below = describe_status(status((one, two)), columns)[-2:]
    assert below == ["r0  waits for a node", f"r1  waits {until}"]


def test_lost_nodes_are_counted() -> None:
    lost = status(lost={"n1": 2, HOSTILE: 1})
    assert "3 lost with n1, " in describe_status(lost)[1]
    assert describe_status(lost)[1].isprintable()
    assert "lost" not in describe_status(status())[1]


def test_ended_agent_has_a_tick_and_idle_agent_no_mark() -> None:
    agents = (agent(is_over=True), agent("Moa", is_working=False))
    assert "Eko ✓ Moa" in table((chain("r1", 1, "working", agents=agents),))[1]


def test_narrow_table_omits_last_then_world_then_cost() -> None:
    everything = ["CHAIN", "GEN", "STATE", "ACTIVE", "WORLD", "AGENTS", "OUTPUT", "$"]
    everything += ["SAVED", "SCORE", "LAST"]
    lost = {
        name: max(w for w in range(40, 101) if name not in headings(w)) for name in everything[4:]
    }
    assert headings(100) == everything
    assert lost["LAST"] > lost["WORLD"] > lost["$"] > lost["SCORE"]


@pytest.mark.parametrize("chains", [CHAINS, tuple(map(rename, CHAINS))], ids=["short", "long"])
def test_latest_action_is_left_out_if_too_narrow(chains: tuple[ChainStatus, ...]) -> None:
    for columns in range(40, 101):
        heading, _, paused, *_ = table(chains, columns)
        if "LAST" in heading:
            assert re.search(r"limit until \d\d:\d\d$", paused)


def test_shortened_names_of_chains_remain_distinct() -> None:
    chains = tuple(map(rename, CHAINS))
    for columns in range(60, 101):
        names = [line.split()[0] for line in table(chains, columns)[1:-1]]
        assert len(set(names)) == len(names) == 5


def test_cut_reason_is_repeated_below_the_table() -> None:
    *_, empty, failed, paused = describe_status(status(), 80)
    assert (empty, failed) == ("", "opus-r2  world: died at 720 s (4 attempts)")
    assert re.fullmatch(r"opus-r1  limit until \d\d:\d\d", paused)
    assert describe_status(status(), 100)[-2:] == [
        "",
        "opus-r2  world: died at 720 s (4 attempts)",
    ]
    assert describe_status(status(CHAINS[:1]), 80)[-1] == table(CHAINS[:1], 80)[-1]


def test_only_the_first_reasons_are_shown() -> None:
    failed = [chain(f"r{n}", 1, "failed", cause="world", reason="died " * 20) for n in range(1, 9)]
    lines = describe_status(status(tuple(failed)))
    assert [line.split()[0] for line in lines[-6:-1]] == ["r1", "r2", "r3", "r4", "r5"]
    assert lines[-1] == "… and 3 more: failed"


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_no_line_is_longer_than_the_terminal_or_100_columns(columns: int) -> None:
    events = [EventLine(UNTIL, "r1", "paused " * 40)]
    drawn = draw(status(), columns, event_lines=events, notice="Ctrl-C " * 40)
    for lines in (drawn, table(columns=columns)):
        assert max(map(cell_len, lines)) <= min(columns, 100)


@pytest.mark.parametrize("lines", [8, 10, 16, 24, 80])
def test_the_table_fits_the_terminal_and_keeps_the_notice(lines: int) -> None:
    chains = (*(chain(f"r{number}", 1, "working", attempts=1) for number in range(70)), *CHAINS)
    events = [EventLine(UNTIL, "r1", f"event {number}") for number in range(9)]
    notice = "Ctrl-C saves and stops"
    shown = draw(status(chains), 80, lines, event_lines=events, notice=notice)
    assert len(shown) <= lines
    assert shown[-1] == notice
    if lines > 8:
        assert shown[4].split()[0] == "opus-r2"
    rows = [line for line in shown if " of 1h" in line]
    (hidden,) = [line for line in shown if line.startswith("… and ")]
    assert int(hidden.split()[2]) + len(rows) == len(chains)


def test_hostile_text_is_escaped() -> None:
    bad = chain(HOSTILE, 1, "failed", cause=HOSTILE, reason=HOSTILE, agents=(agent(HOSTILE),))
    waiting = chain("r9", 1, "waiting", reason=HOSTILE)
    shown = status((bad, waiting), name=HOSTILE, dir=Path(HOSTILE))
    frame = BoardFrame(100, 40, [EventLine(UNTIL, HOSTILE, HOSTILE)], HOSTILE)
    drawn = [
        *render_experiment(shown, frame),
        *describe_status(shown),
        *summarise_experiment(shown),
    ]
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in drawn]
    assert not any(re.search("[\x00-\x1f\u202e]", line) for line in plain)


def test_status_shows_that_no_process_runs_the_experiment() -> None:
    title = describe_status(status(pid=None))[0]
    assert title.endswith("$41.20 of $200 · not running · 3h55m gone, about 12h to go")


def test_chains_that_wait_without_an_attempt_are_counted_with_their_reason() -> None:
    chains = [
        chain(f"r{number}", 1, "waiting", cause="disk", reason="1 GB is free")
        for number in range(1, 8)
    ]
    assert "… and 7 more: waiting, disk: 1 GB is free" in describe_status(status(chains))
    *lines, last = describe_waits(status(chains))
    assert lines == [f"r{number}: disk: 1 GB is free" for number in range(1, 6)]
    assert last == "… and 2 more: waiting, disk: 1 GB is free"
    assert describe_waits(status()) == ["opus-r1: limit until 21:40"]


def test_costs_that_are_estimated_or_unknown_are_marked() -> None:
    estimated = chain("r1", 1, "working", cost_usd=2.0, is_estimated=True)
    lines = describe_status(status((estimated,), is_estimated=True))
    assert " about $41.20 of $200 " in lines[0]
    assert " ~2.00" in lines[4]
    killed = chain("r1", 1, "working", cost_usd=2.0, usage=Usage(cost_usd=2.0, missing_costs=1))
    assert " ≥2.00" in describe_status(status((killed,)))[4]
    assert " cost unknown of $200 " in describe_status(status(spent_usd=None))[0]


def test_the_summary_has_failures_and_the_next_commands() -> None:
    assert summarise_experiment(status()) == [
        f"{describe_status(status())[1]}; $41.20 of $200.",
        "opus-r2  world: died at 720 s (4 attempts)",
        "resume:   clawblox experiment resume experiments/panda-memory --retry-failed",
        "results:  clawblox experiment results experiments/panda-memory",
    ]
    done = status((), counts={"committed": 60}, limit_usd=None, spent_usd=0.0)
    assert summarise_experiment(done) == [
        "60 of 60 committed.",
        "results:  clawblox experiment results experiments/panda-memory",
    ]


def test_the_selected_chain_is_marked_and_shown_even_if_not_all_fit() -> None:
    chains = tuple(chain(f"r{number}", 1, "working", 1, attempts=1) for number in range(40))
    for name in chain_rows(status(chains)):
        drawn = draw(status(chains), 100, 20, steering=Steering(selected=name))
        (marked,) = [line for line in drawn if line.startswith("▸ ")]
        assert marked.split()[1] == name


def test_a_filter_hides_chains() -> None:
    drawn = draw(status(), 100, steering=Steering(pattern="OPUS"))
    names = [line.split()[0] for line in drawn if line.startswith(("opus", "fable"))]
    assert names == ["opus-r2", "opus-r1"]


@pytest.mark.parametrize("lines", range(16, 30))
def test_a_pane_leaves_room_for_the_table(lines: int) -> None:
    pane = ["agents of opus-r1", *(f"line {number} {HOSTILE}" for number in range(50))]
    steering = Steering(selected="opus-r1", pane="agents")
    notice = "the last line"
    shown = draw(status(), 100, lines, notice=notice, steering=steering, pane=pane)
    assert len(shown) <= lines
    assert shown[-1] == notice
    assert any(line.startswith("▸ opus-r1") for line in shown)
    assert any(line.startswith("line 49 ") for line in shown)
