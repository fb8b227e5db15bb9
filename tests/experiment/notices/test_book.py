"""The notices that are due after the lines of a journal."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from clawblox.experiment.history.lines import LineType
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.notices.book import Notice, NoticeBook, merge
from clawblox.experiment.plan import Plan
from tests.experiment.journals import Journal, make_plan

RETRY = {"attempts": 0}


def make_hooked_plan(**hooks: Any) -> Plan:
    return make_plan(repeats=3, retry=RETRY, **(hooks or {"on_pause": "https://example.org"}))


def find(journal: Journal, *plans: Plan) -> list[Notice]:
    return NoticeBook(journal.lines).take_due(Plans(plans or [make_hooked_plan()], journal.state))


def begin() -> Journal:
    journal = Journal()
    journal.write("session.begun")
    return journal


def limit(journal: Journal, *chains: str) -> None:
    for chain in chains:
        journal.open(chain, 1).work().end("paused", reason="limit", text="no", account="a")
        facts = {"account": "a", "reason": "limit", "until": None}
        journal.write("account.limited", facts)


def test_limit_of_an_account_is_a_single_event_for_all_its_chains() -> None:
    journal = begin()
    limit(journal, "r1", "r2")
    (notice,) = find(journal)
    assert (notice.reason, notice.chains) == ("limit", {"r1": "no", "r2": "no"})


def test_late_line_of_an_ended_event_hides_no_later_event() -> None:
    journal = begin()
    limit(journal, "r1")
    (notice,) = find(journal)
    journal.write("account.cleared", {"account": "a"})
    called = {"hook": "on_pause", "reason": "limit", "running": True, "keys": list(notice.keys)}
    journal.write("hook.called", called)
    limit(journal, "r2")
    assert len(find(journal)) == 1


def test_an_event_before_the_plan_had_the_hook_is_not_due() -> None:
    journal = begin()
    limit(journal, "r1")
    journal.write("plan.amended", {"revision": 1, "plan": "plan-1.toml"})
    assert find(journal, make_plan(repeats=3), make_hooked_plan()) == []
    assert find(journal, make_hooked_plan(), make_plan(repeats=3)) == []
    assert len(find(journal, make_hooked_plan(), make_hooked_plan())) == 1


def test_events_waiting_for_each_other_share_a_notice() -> None:
    journal = begin()
    for chain in ("r1", "r2"):
        journal.open(chain, 1).work().end("failed", cause="world", text=f"{chain} is gone")
    journal.open("r3", 1).work().end("failed", cause="agent", text="crashed")
    due = find(journal, make_hooked_plan(on_failure=["tell"]))
    assert [notice.reason for notice in due] == ["world", "world", "agent"]
    world, agent = merge(due)
    assert world.chains == {"r1": "r1 is gone", "r2": "r2 is gone"}
    assert (agent.reason, len(world.keys)) == ("agent", 2)


@pytest.mark.parametrize("type_", ["failed", "paused"])
def test_each_event_is_due_once_before_any_next_line(type_: LineType) -> None:
    facts: Any = {"failed": {"cause": "world"}, "paused": {"reason": "secret"}}[type_]
    journal = begin()
    journal.open("r1", 1).work().end(type_, text="no", **facts)
    plan = make_hooked_plan(on_failure=["tell"], on_pause=["tell"])
    book, due = NoticeBook(), []
    for count, line in enumerate(journal.lines, 1):
        book.note(line)
        lines = Journal()
        lines.lines = list(itertools.islice(journal.lines, count))
        due += book.take_due(Plans([plan], lines.state))
    assert len(due) == 1
    assert book.take_due(journal.plans(plan)) == []


def test_the_limits_of_a_run_stopped_by_a_person_are_not_due() -> None:
    for reason, count in (("stopped", 0), ("paused", 1)):
        journal = begin()
        waits = [{"reason": "dollars", "text": "spent", "chains": ["r1"]}]
        journal.write("session.ended", {"reason": reason, "waits": waits})
        assert len(find(journal)) == count
