"""Names and paths of an experiment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from clawblox import protocol
from clawblox.experiment import layout
from clawblox.experiment.plan.naming import safe_name

AT = datetime(2026, 6, 22, 18, 59, 25, tzinfo=UTC)
STAMP = "20260622T185925Z"
NAMES = st.text(min_size=1, max_size=40)


@given(NAMES, st.integers(1, 999))
def test_the_prefix_of_a_run_is_found_in_its_name(prefix: str, generation: int) -> None:
    name = layout.attempt_name(prefix, generation)
    assert layout.next_prefix(name) == safe_name(prefix)


def test_a_whole_name_with_a_stamp_can_be_a_prefix() -> None:
    name = layout.attempt_name("exp", 1, stamp=STAMP)
    assert name == f"exp-g001-r{STAMP}"
    assert layout.next_prefix(name) == name
    assert layout.attempt_name(name, 2) == f"exp-g001-r{STAMP}-g002"


def test_attempts_never_share_a_name() -> None:
    taken: list[str] = []
    for _ in range(4):
        taken.append(layout.free_attempt_name("exp", 3, AT, taken))
    assert taken == [
        "exp-g003",
        f"exp-g003-r{STAMP}",
        f"exp-g003-r{STAMP}.2",
        f"exp-g003-r{STAMP}.3",
    ]


@given(
    st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,10}", fullmatch=True),
    st.text(st.sampled_from("ag09-r_."), min_size=1, max_size=20),
    st.integers(1, 999),
    st.integers(0, 99),
)
def test_full_name_contains_the_display_name_and_the_index(
    display: str, prefix: str, generation: int, index: int
) -> None:
    name = layout.full_name(display, layout.attempt_name(prefix, generation), index)
    assert protocol.display_name(name) == display
    assert layout.agent_index(name) == index


def test_name_without_an_index_means_the_first_agent() -> None:
    assert layout.agent_index("Eko") == 0


def test_tmux_sessions_have_the_suffixes_of_their_runs() -> None:
    name = layout.attempt_name("exp", 2, stamp=STAMP)
    assert layout.tmux_session("gen", name, "exp") == f"gen-g002-r{STAMP}"
    assert layout.tmux_session("gen", "exp-r1-g002", "exp") == "gen-r1-g002"
    assert layout.tmux_session(None, name, "exp") == ""


def test_each_chain_has_its_own_directory_and_prefix() -> None:
    home = Path("/experiments/pairs")
    assert layout.chain_dir(home, "fable-r1", "chains") == home / "chains" / "fable-r1"
    assert layout.run_prefix("pairs", "fable-r1", "chains") == "pairs-fable-r1"
    assert layout.run_prefix("pairs", "fable-r1", "chains", given="p") == "p-fable-r1"
    assert layout.chain_dir(home, "r1", "flat") == home
    assert layout.run_prefix("two pairs", "r1", "flat") == "two_pairs"


def test_run_directories_have_other_names_while_incomplete_and_after_a_failure() -> None:
    assert layout.partial_name("exp-g001") == ".exp-g001.partial"
    assert layout.failed_name("exp-g001", AT) == f"exp-g001.failed-{STAMP}"
