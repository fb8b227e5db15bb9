"""The total usage of an agent, for all ways in which programs count."""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import hypothesis
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.agents.usage import Budget, Ledger, read_usage
from clawblox.agents.values import Usage, UsageScope, sum_usage
from clawblox.errors import AgentError, ConfigError

SCOPES: tuple[UsageScope, ...] = ("turn", "process", "session", "cumulative")
ONE = "5b5c1e86-6c7c-4f0e-9d6c-0c58bfc5a0f1"
OTHER = "0d0f7f3e-2a60-4a43-8a1b-7f3b4f6f1c11"


def read(ledger: Ledger, tokens: int, scope: UsageScope, **more) -> Usage:
    """Count a reading of that many output tokens."""
    cost = more.pop("cost", None)
    reading = Usage(output_tokens=tokens, cost_usd=cost)
    return ledger.count(
        reading,
        conversation_id=more.pop("conversation_id", ONE),
        version=more.pop("version", "1.0"),
        scope=scope,
        **more,
    )


def test_readings_of_turns_are_added() -> None:
    ledger = Ledger.empty()
    for tokens in (5, 3, 5):
        read(ledger, tokens, "turn")
    assert ledger.usage.output_tokens == 13


def test_a_reading_of_a_process_counts_the_growth_since_the_previous_one() -> None:
    ledger = Ledger.empty()
    ledger.begin_process()
    assert read(ledger, 5, "process").output_tokens == 5
    assert read(ledger, 8, "process").output_tokens == 3
    ledger.begin_process()
    assert read(ledger, 9, "process").output_tokens == 9  # higher than before, and all of it new
    assert ledger.usage.output_tokens == 17


def test_a_reading_of_a_conversation_counts_across_resumes(tmp_path: Path) -> None:
    ledger = Ledger.empty()
    ledger.begin_process()
    read(ledger, 5, "session")
    ledger.write(tmp_path / "usage.json")
    resumed = Ledger.load(tmp_path / "usage.json")
    resumed.begin_process()
    assert read(resumed, 12, "session").output_tokens == 7
    assert resumed.usage.output_tokens == 12


def test_conversations_are_counted_separately() -> None:
    ledger = Ledger.empty()
    read(ledger, 5, "session")
    assert read(ledger, 6, "session", conversation_id=OTHER).output_tokens == 6
    assert read(ledger, 7, "session").output_tokens == 2
    assert ledger.usage.output_tokens == 13


@pytest.mark.parametrize("scope", ["process", "session"])
def test_a_decreasing_reading_starts_a_new_count(scope: UsageScope) -> None:
    ledger = Ledger.empty()
    for tokens in (10, 4, 6):
        read(ledger, tokens, scope)
    assert ledger.usage == Usage(output_tokens=16)


@pytest.mark.parametrize("scope", ["process", "cumulative"])
def test_a_decreasing_cost_of_a_possible_process_scope_starts_a_new_count(
    scope: UsageScope,
) -> None:
    ledger = Ledger.empty()
    for cost in (10.0, 4.0, 6.0):
        read(ledger, 1, "turn", cost=cost, cost_scope=scope)
    assert ledger.usage == Usage(output_tokens=3, cost_usd=16.0)


def test_a_cost_of_an_unknown_scope_continues_the_last_one_if_it_is_higher() -> None:
    ledger = Ledger.empty()
    for cost in (0.25, 0.5):
        ledger.begin_process(ONE)
        read(ledger, 1, "turn", cost=cost, cost_scope="cumulative")
    assert ledger.usage.cost_usd == 0.5


def test_a_decreasing_cost_of_a_conversation_is_a_base_and_counts_as_missing() -> None:
    ledger = Ledger.empty()
    for cost in (2.0, 5.0, 3.0, 4.0):  # killed after 5.0, when 2.0 was saved; then two turns
        read(ledger, 1, "turn", cost=cost, cost_scope="session")
    assert ledger.usage == Usage(output_tokens=4, cost_usd=6.0, missing_costs=1)


def test_no_cost_is_missing_if_a_decreasing_reading_has_no_tokens() -> None:
    ledger = Ledger.empty()
    for tokens, cost in ((1, 5.0), (0, 2.0), (1, 3.0)):
        read(ledger, tokens, "turn", cost=cost, cost_scope="session")
    assert ledger.usage == Usage(output_tokens=2, cost_usd=6.0)


def test_a_conversation_without_a_last_cost_starts_with_a_base(tmp_path: Path) -> None:
    # Its costs were counted per process, although 2.1.300 reports the cost of the conversation.
    counted = {"output_tokens": 8, "cost_usd": 1.5}
    conversations = {ONE: {"version": "2.1.300", "last_cost": None, "counted": counted}}
    record = {"schema_version": 1, "usage": counted, "conversations": conversations}
    (tmp_path / "usage.json").write_bytes(msgspec.json.encode(record))
    ledger = Ledger.load(tmp_path / "usage.json")
    ledger.begin_process(ONE)
    assert read(ledger, 1, "turn", cost=1.25, cost_scope="session").cost_usd is None
    read(ledger, 1, "turn", cost=1.75, cost_scope="session")
    assert ledger.usage == Usage(output_tokens=10, cost_usd=2.0, missing_costs=1)


def test_the_first_cost_of_a_resumed_conversation_without_a_record_is_a_base() -> None:
    ledger = Ledger.empty()
    ledger.begin_process(ONE)
    for cost in (7.0, 7.5):
        read(ledger, 1, "turn", cost=cost, cost_scope="session")
    assert ledger.usage == Usage(output_tokens=2, cost_usd=0.5, missing_costs=1)


def test_the_scope_of_the_cost_may_differ_from_the_tokens() -> None:
    # Claude Code 2.1.197: tokens by turn, cost by process; since 2.1.277: cost by conversation,
    # without the cost that older versions had.
    ledger = Ledger.empty()
    ledger.begin_process()
    read(ledger, 10, "turn", cost=0.5, cost_scope="process", version="2.1.197")
    read(ledger, 10, "turn", cost=0.75, cost_scope="process", version="2.1.197")
    ledger.begin_process(ONE)
    read(ledger, 10, "turn", cost=0.25, cost_scope="process", version="2.1.197")
    assert ledger.usage == Usage(output_tokens=30, cost_usd=1.0)
    ledger.begin_process(ONE)
    more = {"cost_scope": "session", "past_cost_scope": "process", "version": "2.1.330"}
    read(ledger, 10, "turn", cost=1.5, **more)
    more["past_cost_scope"] = "session"
    read(ledger, 10, "turn", cost=2.0, **more)
    assert ledger.usage == Usage(output_tokens=50, cost_usd=3.0)


def test_no_cost_is_invented() -> None:
    ledger = Ledger.empty()
    read(ledger, 10, "session")
    assert ledger.usage.cost_usd is None
    read(ledger, 20, "session", cost=0.0)
    assert ledger.usage.cost_usd == 0.0
    read(ledger, 30, "session")
    assert ledger.usage.cost_usd == 0.0


def test_every_kind_of_tokens_is_counted() -> None:
    kinds = {
        "input_tokens": 1,
        "cached_tokens": 2,
        "cache_write_tokens": 4,
        "output_tokens": 8,
        "reasoning_tokens": 16,
    }
    ledger = Ledger.empty()
    for times in (1, 3):
        reading = Usage(**{kind: times * tokens for kind, tokens in kinds.items()})
        ledger.count(reading, conversation_id=ONE, version=None, scope="session")
    assert ledger.usage == Usage(**{kind: 3 * tokens for kind, tokens in kinds.items()})
    assert ledger.usage.tokens == 45  # output includes reasoning


def test_turns_are_counted_at_their_ends() -> None:
    ledger = Ledger.empty()
    ledger.end_turn()
    ledger.count(Usage(turns=9), conversation_id=ONE, version=None, scope="turn")
    ledger.end_turn()
    assert ledger.usage == Usage(turns=2)


def members(usage: Usage) -> list[float]:
    return [value or 0 for value in attrs.astuple(usage)]


numbers = st.integers(-5, 100)
readings = st.builds(
    Usage,
    input_tokens=numbers,
    cached_tokens=numbers,
    cache_write_tokens=numbers,
    output_tokens=numbers,
    reasoning_tokens=numbers,
    cost_usd=st.none() | st.floats(-1, 10) | st.sampled_from([math.nan, math.inf]),
)


@hypothesis.settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            readings,
            st.sampled_from(SCOPES),
            st.sampled_from([None, *SCOPES]),
            st.sampled_from([ONE, OTHER]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_usage_never_decreases_and_is_the_sum_of_all_additions(told) -> None:
    ledger = Ledger.empty()
    added = Usage()
    for reading, scope, cost_scope, conversation_id, is_new_process in told:
        before = ledger.usage
        if is_new_process:
            ledger.begin_process()
        part = ledger.count(
            reading,
            conversation_id=conversation_id,
            version=None,
            scope=scope,
            cost_scope=cost_scope,
        )
        added = Usage(output_tokens=added.output_tokens + part.output_tokens)
        after = members(ledger.usage)
        assert all(now >= then for now, then in zip(after, members(before), strict=True))
        assert all(math.isfinite(value) for value in after)
    assert ledger.usage.output_tokens == added.output_tokens


# -- the file -----------------------------------------------------------------------------------


def test_a_ledger_is_restored_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    ledger = Ledger.empty()
    read(ledger, 5, "session", cost=0.25, version="0.169.0")
    ledger.end_turn()
    ledger.write(path)
    assert Ledger.load(path).usage == ledger.usage
    written = msgspec.json.decode(path.read_bytes())
    assert written["conversations"][ONE]["version"] == "0.169.0"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["usage.json"]


def test_without_a_file_the_count_starts_at_zero(tmp_path: Path) -> None:
    assert Ledger.load(tmp_path / "usage.json").usage == Usage()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"schema_version": 1, "usage": {"turns"',
        b"[]",
        b'{"schema_version": 1, "usage": {"turns": "many"}, "conversations": {}}',
        b"\xff\xfe",
    ],
)
def test_a_torn_or_foreign_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "usage.json"
    path.write_bytes(content)
    with pytest.raises(AgentError, match="is not a record of usage") as raised:
        Ledger.load(path)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "usage.json").mkdir()
    with pytest.raises(AgentError, match="cannot be read: is not a regular file"):
        Ledger.load(tmp_path / "usage.json")


def test_the_usage_of_a_directory_is_read_from_its_record(tmp_path: Path) -> None:
    assert read_usage(tmp_path) == Usage()
    ledger = Ledger.empty()
    ledger.end_turn()
    ledger.write(tmp_path / "usage.json")
    assert read_usage(tmp_path) == Usage(turns=1)


COUNTS = st.integers(0, 1 << 40)
USAGES = st.builds(
    Usage,
    input_tokens=COUNTS,
    cached_tokens=COUNTS,
    cache_write_tokens=COUNTS,
    output_tokens=COUNTS,
    reasoning_tokens=COUNTS,
    cost_usd=st.none() | st.integers(0, 1 << 20).map(float),
    turns=COUNTS,
)


@given(USAGES, USAGES)
def test_a_sum_minus_a_part_is_the_other_part(usage: Usage, other: Usage) -> None:
    total = usage.plus(other)
    assert total == other.plus(usage)
    rest = total.minus(other)
    assert attrs.evolve(rest, cost_usd=None) == attrs.evolve(usage, cost_usd=None)
    assert (rest.cost_usd or 0.0) == (usage.cost_usd or 0.0)
    assert (total.cost_usd is None) == (usage.cost_usd is None and other.cost_usd is None)


@given(USAGES, USAGES)
def test_a_difference_has_no_member_below_0(usage: Usage, other: Usage) -> None:
    rest = usage.minus(other)
    assert all(value is None or value >= 0 for value in attrs.astuple(rest))
    assert usage.minus(usage).tokens == 0
    assert usage.plus(Usage()) == usage.minus(Usage()) == usage


def test_usage_is_unreported_after_turns_without_tokens_and_cost() -> None:
    assert Usage(turns=1).is_unreported
    known = (Usage(), Usage(turns=1, output_tokens=1), Usage(turns=1, cost_usd=0.0))
    assert not any(usage.is_unreported for usage in known)
    assert sum_usage(known) == Usage(turns=2, output_tokens=1, cost_usd=0.0)
    assert sum_usage([*known, Usage(turns=1)]) == Usage(turns=3)
    assert sum_usage([]) == Usage()


# -- budgets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "usage", "minutes", "reason"),
    [
        (Budget(), Usage(output_tokens=10**9, cost_usd=1e9, turns=10**9), 1e9, None),
        (Budget(tokens=10), Usage(output_tokens=9), 0, None),
        (
            Budget(tokens=10),
            Usage(input_tokens=4, cached_tokens=3, output_tokens=3),
            0,
            "budget of 10 tokens used up",
        ),
        (Budget(output_tokens=10), Usage(input_tokens=99, output_tokens=9), 0, None),
        (
            Budget(output_tokens=10),
            Usage(output_tokens=10),
            0,
            "budget of 10 output tokens used up",
        ),
        (Budget(usd=0.5), Usage(cost_usd=None), 0, None),
        (Budget(usd=0.5), Usage(cost_usd=0.49), 0, None),
        (Budget(usd=0.5), Usage(cost_usd=0.5), 0, "budget of 0.5 USD used up"),
        (Budget(turns=20), Usage(turns=19), 0, None),
        (Budget(turns=20), Usage(turns=20), 0, "budget of 20 turns used up"),
        (Budget(turns=1), Usage(turns=1), 0, "budget of 1 turn used up"),
        (Budget(minutes=1.5), Usage(), 1.4, None),
        (Budget(minutes=90), Usage(), 90.0, "budget of 90 minutes used up"),
        (Budget(turns=1, minutes=5), Usage(), 6.0, "budget of 5 minutes used up"),
    ],
)
def test_a_budget_names_the_limit_that_is_used_up(
    budget: Budget, usage: Usage, minutes: float, reason: str | None
) -> None:
    assert budget.exceeded(usage, minutes) == reason


@pytest.mark.parametrize("limit", ["tokens", "output_tokens", "usd", "turns", "minutes"])
@pytest.mark.parametrize("value", [0, -1, "2M", True, math.nan, math.inf])
def test_a_limit_that_is_not_a_number_above_0_is_an_error(limit: str, value: object) -> None:
    with pytest.raises(ConfigError) as raised:
        Budget(**{limit: value})
    assert raised.value.key == f"budget.{limit}"
    assert repr(value) in str(raised.value)
