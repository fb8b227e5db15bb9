"""The status of an experiment: the state of each chain and the forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawblox.experiment.schedule.ports import AgentActivity
from clawblox.experiment.tables.status import (
    ChainStatus,
    ExperimentStatus,
    LiveChain,
    decode_live,
    encode_live,
    make_status,
)
from clawblox.views.experiments import describe_status
from clawblox.views.rows import plain_facts
from tests.experiment.journals import Journal, make_plan, used

USAGE = [used(100, 1.0), used(50, 0.5)]
HOUR = 3600.0


@pytest.fixture
def journal() -> Journal:
    journal = Journal()
    journal.write("session.begun", {"pid": 7})
    return journal


def make_status_from(
    journal: Journal, *, pid: int | None = 7, live: Any = None, **fields: Any
) -> ExperimentStatus:
    plan = make_plan(**fields)
    return make_status(Path("/e"), journal.plans(plan), now=journal.now, pid=pid, live=live)


def first_chain(journal: Journal, **options: Any) -> ChainStatus:
    return make_status_from(journal, **options).chains[0]


def test_unstarted_chain_is_waiting(journal: Journal) -> None:
    chain = first_chain(journal)
    assert (chain.name, chain.generation, chain.generations) == ("r1", 1, 3)
    assert (chain.state, chain.reason, chain.remaining_s) == ("waiting", "", 3 * HOUR)


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ([], "preparing"),
        (["prepared"], "starting"),
        (["prepared", "working"], "working"),
        (["prepared", "working", "closing"], "saving"),
        (["prepared", "working", "closing", "saved"], "scoring"),
        (["prepared", "working", "closing", "saved", "scored"], "scoring"),
    ],
)
def test_running_chain_has_the_step_of_its_attempt(
    journal: Journal, steps: list[str], state: str
) -> None:
    attempt = journal.open("r1", 1)
    for step in steps:
        attempt.write(step, {"reason": "duration"})
    assert first_chain(journal).state == state
    assert first_chain(journal, pid=None).state == "waiting"


def test_the_usage_of_an_imported_generation_is_unknown_not_0(journal: Journal) -> None:
    journal.write("imported", {"run_id": "gen-g001", "rows": []}, chain="r1", generation=1)
    status = make_status_from(journal, pid=None, generations=1, layout="flat", repeats=1)
    (chain,) = status.chains
    assert (chain.state, chain.usage, chain.cost_usd) == ("done", None, None)
    assert plain_facts(status)["chains"][0]["usage"] is None
    assert describe_status(status)[-1].split() == ["r1", "1/1", "done", "0s", "of", "1h"]


def test_attempt_started_with_the_save_prompt_is_saving(journal: Journal) -> None:
    journal.open("r1", 1, phase="save").work()
    assert first_chain(journal).state == "saving"


def test_an_attempt_of_a_process_that_was_killed_waits_to_be_resumed(journal: Journal) -> None:
    journal.open("r1", 1).work()
    journal.write("session.begun", {"pid": 8})
    chain = first_chain(journal)
    assert (chain.state, chain.reason) == ("waiting", "to be resumed")


def test_a_pause_has_its_reason_and_its_end(journal: Journal) -> None:
    until = "2026-06-22T21:40:00Z"
    journal.open("r1", 1).work().end("paused", reason="limit", text="Eko: limit", until=until)
    chain = first_chain(journal)
    assert (chain.state, chain.cause, chain.reason) == ("paused", "limit", "Eko: limit")
    assert chain.until == until
    assert first_chain(journal, pid=None).state == "paused"
    journal.write("session.begun", {"pid": 8})
    assert first_chain(journal).state == "waiting"


@pytest.mark.parametrize("ending", [None, "paused", "failed", "interrupted"])
def test_chain_waiting_for_a_node_reports_it_regardless_of_earlier_pauses(
    journal: Journal, ending: str | None
) -> None:
    if ending is not None:
        journal.open("r1", 1).work().end(ending, cause="node", reason="limit", text="Eko: limit")
    chain = first_chain(journal, live={"r1": LiveChain(reason="for a node")})
    assert (chain.state, chain.cause, chain.reason) == ("waiting", "node", "for a node")


def test_a_chain_has_its_node_and_the_age_of_its_mirror(journal: Journal) -> None:
    host = {"node": "n1", "lease_s": 30.0, "bound_s": 31.0, "machine": {}}
    journal.open("r1", 1, host=host).work()
    journal.open("r2", 1).work()
    live = {"r1": LiveChain(mirror_age_s=7.0), "r2": LiveChain()}
    chains = make_status_from(journal, live=decode_live(encode_live(live))).chains
    assert [(chain.node, chain.mirror_age_s) for chain in chains] == [("n1", 7.0), ("", None)]


def test_lost_attempts_are_counted_by_node(journal: Journal) -> None:
    for node, cause in (("n1", "node"), ("n2", "world"), ("n3", "node"), ("n1", "node")):
        host = {"node": node, "lease_s": 30.0, "bound_s": 31.0, "machine": {}}
        journal.open("r1", 1, host=host).work().end("failed", cause=cause, text="lost")
    assert make_status_from(journal).lost == {"n1": 2, "n3": 1}


def test_ended_run_records_why_chains_wait(journal: Journal) -> None:
    until = "2026-06-22T21:40:00Z"
    journal.open("r1", 1).work().end("paused", reason="limit", text="Eko: limit", until=until)
    journal.open("r2", 1).work().end("interrupted")
    wait = {"reason": "dollars", "text": "$1 is spent", "chains": ["r1", "r2", "r3"]}
    journal.write("session.ended", {"reason": "paused", "elapsed_s": 1.0, "waits": [wait]})
    chains = make_status_from(journal, pid=None, repeats=4).chains
    assert [(chain.state, chain.cause, chain.reason) for chain in chains] == [
        ("paused", "limit", "Eko: limit"),
        ("paused", "dollars", "$1 is spent"),
        ("waiting", "dollars", "$1 is spent"),
        ("waiting", "", ""),
    ]
    journal.write("session.begun", {"pid": 8})
    assert {chain.cause for chain in make_status_from(journal, repeats=4).chains} == {""}


def test_a_chain_fails_when_its_retries_are_used_up(journal: Journal) -> None:
    for tries in (1, 2):
        journal.open("r1", 1).work().end("failed", cause="world", text="died", moved_to="x")
        chain = first_chain(journal, retry={"attempts": 1})
        assert chain.attempts == tries
        assert chain.state == ("waiting", "failed")[tries - 1]
    assert (chain.cause, chain.reason, chain.remaining_s) == ("world", "died", 0.0)


def test_a_chain_that_has_committed_all_generations_is_done(journal: Journal) -> None:
    for number in (1, 2, 3):
        attempt = journal.open("r1", number).work()
        attempt.write(
            "scored", {"scores": {"cubes": float(number)}} if number < 3 else {"error": "x"}
        )
        attempt.commit(USAGE)
    chain = first_chain(journal)
    assert (chain.state, chain.generation, chain.remaining_s) == ("done", 3, 0.0)
    assert (chain.scores, chain.kept_scores) == ({"cubes": 2.0}, ())
    function = {"name": "scores:cubes", "digest": "ab" * 32}
    facts = {"scores": {"cubes": 5.0}, "function": function}
    journal.write("rescored", facts, chain="r1", generation=1)
    chain = first_chain(journal)
    assert (chain.scores, chain.kept_scores) == ({"cubes": 2.0}, ("cubes",))


def test_complete_generations_whose_latest_score_failed_are_named(journal: Journal) -> None:
    for number in (1, 2):
        attempt = journal.open("r1", number).work()
        attempt.write("scored", {"error": "x"})
        assert make_status_from(journal).failed_scores == tuple(["r1/g001"][: number - 1])
        attempt.commit(USAGE)
    journal.write("rescored", {"scores": {"cubes": 1.0}}, chain="r1", generation=1)
    assert make_status_from(journal).failed_scores == ("r1/g002",)


def test_next_generation_starts_at_zero(journal: Journal) -> None:
    journal.open("r1", 1).work().commit(USAGE)
    chain = first_chain(journal)
    assert (chain.generation, chain.active_s, chain.usage.output_tokens) == (2, 0.0, 0)


def test_live_facts_are_newer_than_the_last_checkpoint(journal: Journal) -> None:
    journal.open("r1", 1).work().checkpoint(usage=USAGE, world_time=1800.0)
    journal.wait(2)
    chain = first_chain(journal)
    assert (chain.active_s, chain.world_time, chain.usage.output_tokens) == (900.0, 1800.0, 150)
    assert chain.last_checkpoint_age_s == 120.0
    agents = (AgentActivity(name="Eko", is_over=False, is_working=True),)
    facts = LiveChain(
        active_s=1000.0,
        world_time=2000.0,
        agents=agents,
        used=(used(300, 2.0),),
        last="curl /input",
    )
    chain = first_chain(
        journal, live=decode_live(json.loads(json.dumps(encode_live({"r1": facts}))))
    )
    assert (chain.active_s, chain.world_time, chain.usage.output_tokens) == (1000.0, 2000.0, 300)
    assert (chain.cost_usd, chain.agents, chain.last) == (2.0, agents, "curl /input")


@pytest.mark.parametrize("data", [[], {"r1": 3}, {"r1": {"agents": "Eko"}}])
def test_invalid_live_facts_are_refused(data: object) -> None:
    with pytest.raises(ValueError, match="Expected"):
        decode_live(data)


def test_generations_are_counted_by_state(journal: Journal) -> None:
    journal.open("r1", 1).work().commit(USAGE)
    journal.open("r1", 2).work()
    journal.open("r2", 1).work().end("failed", cause="setup", text="no program")
    journal.open("r3", 1).work().end("paused", reason="limit", text="limit")
    status = make_status_from(journal, repeats=4)
    assert status.counts == {
        "committed": 1,
        "running": 1,
        "failed": 1,
        "blocked": 2,
        "paused": 1,
        "waiting": 6,
    }
    assert status.generations == 12


def test_generations_before_the_first_of_a_chain_are_not_awaited(journal: Journal) -> None:
    journal.open("r1", 3).work().commit(USAGE)  # continued from an archive of another experiment
    status = make_status_from(journal, repeats=1)
    assert (status.counts, status.generations) == ({"committed": 1}, 1)


def test_all_attempts_count_as_spent_including_the_running_attempt(journal: Journal) -> None:
    journal.open("r1", 1).work().end("failed", USAGE, cause="world", text="died")
    journal.open("r1", 1).work()
    live = {"r1": LiveChain(spent=(used(1, 0.25),))}
    status = make_status_from(journal, live=live, limits={"dollars": 20})
    assert (status.spent_usd, status.limit_usd, status.is_estimated) == (1.75, 20.0, False)


def test_elapsed_time_is_the_sum_of_all_runs(journal: Journal) -> None:
    journal.write("session.ended", {"reason": "request", "elapsed_s": 100.0})
    journal.write("session.begun", {"pid": 8})
    journal.wait(3)
    assert make_status_from(journal).elapsed_s == 280.0
    assert make_status_from(journal, pid=None).elapsed_s == 100.0


@pytest.mark.parametrize(
    ("limits", "repeats", "hours"),
    [({"worlds": 4}, 6, 4.5), ({"worlds": 4}, 1, 3.0), ({"worlds": 9, "agents": 4}, 6, 9.0)],
)
def test_forecast_divides_the_remaining_time_by_the_slots(
    limits: dict[str, int], repeats: int, hours: float
) -> None:
    assert make_status_from(Journal(), limits=limits, repeats=repeats).forecast_s == hours * HOUR


def test_a_branch_has_its_own_generations_and_duration(journal: Journal) -> None:
    journal.open("r1", 1).work().commit(USAGE)
    source = journal.open("r1", 2).work().checkpoint()
    fork = {"source": source, "group": 1, "number": 1, "duration_s": 60.0}
    journal.write("chain.forked", fork, chain="r1-b1")
    *_, branch = make_status_from(journal).chains
    assert (branch.name, branch.generation, branch.generations) == ("r1-b1", 2, 2)
    assert (branch.state, branch.remaining_s) == ("waiting", 60.0)
    assert make_status_from(journal).generations == 7


def test_cleared_accounts_are_not_limited(journal: Journal) -> None:
    for account in ("claude", "codex"):
        journal.write("account.limited", {"account": account, "reason": "limit", "until": None})
    journal.write("account.cleared", {"account": "claude"})
    (account,) = make_status_from(journal).accounts
    assert (account.name, account.reason, account.until) == ("codex", "limit", None)
