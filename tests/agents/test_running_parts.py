"""The parts of a running agent, separately: states, pauses, output, options."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.agents.options import AgentOptions
from clawblox.agents.running.agenda import Agenda, Hold, Message
from clawblox.agents.running.dialogue import FATAL_KINDS, Dialogue, retry_delay_s
from clawblox.agents.running.preparation import find_number
from clawblox.agents.running.program import LogPoller, exit_code
from clawblox.agents.values import MOVES
from clawblox.errors import AgentError, ConfigError
from clawblox.results import ProcessExit
from clawblox.telemetry import tail
from clawblox.telemetry.tail import FileLine, Tail

LEGAL = {
    "new": {"starting"},
    "starting": {"working", "stopped", "failed"},
    "working": {"idle", "stopped", "failed"},
    "idle": {"working", "stopped", "failed"},
    "stopped": {"starting"},
    "failed": {"starting"},
}
"""The moves of the design, listed a second time."""


def test_only_legal_moves_between_states_are_possible() -> None:
    assert MOVES == LEGAL


def test_retries_of_a_busy_model_wait_longer_than_after_a_crash() -> None:
    assert [retry_delay_s("crash", before) for before in range(3)] == [1.0, 2.0, 4.0]
    assert [retry_delay_s("rate_limit", before) for before in range(3)] == [15.0, 30.0, 60.0]
    assert retry_delay_s("overloaded", 50) == 120.0
    assert [kind for kind in ("auth", "crash", "limit", "stall") if kind in FATAL_KINDS] == [
        "auth",
        "limit",
    ]


def test_short_turns_delay_the_next_nudge_and_long_turns_do_not() -> None:
    agenda = Agenda("Continue.", Hold())

    def delay_after(turn_s: float) -> float:
        agenda.end_turn(turn_s, 0.0)
        return agenda.due_in(0.0)

    delays = [delay_after(0.0) for _ in range(20)]
    assert delays[:4] == [0.0] * 4
    assert delays[4:7] == [0.1, 0.2, 0.4]
    assert delays[-1] == 10.0
    assert delay_after(5.0) == 0.0
    assert delay_after(0.0) == 0.0


@given(
    texts=st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"")), max_size=12),
    chunk=st.integers(1, 17),
    limit=st.integers(1, 30),
    has_end=st.booleans(),
)
def test_lines_are_read_completely_with_their_offsets(
    tmp_path_factory: Any, texts: list[bytes], chunk: int, limit: int, has_end: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.log"
    content = b"before\n" + b"".join(text + b"\n" for text in texts) + b"end" * has_end
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "CHUNK_BYTES", chunk)
        patch.setattr(tail, "MAX_LINE_BYTES", limit)
        reader = Tail(path, 7)
        found: list[FileLine] = []
        while reader.position < len(content):
            found += reader.read()
        found += reader.take_rest()
        reader.close()
    wanted = [*texts, *([b"end"] if has_end else [])]
    assert [line.size for line in found] == [len(text) for text in wanted]
    assert [line.data for line in found] == [
        text if len(text) <= limit else None for text in wanted
    ]
    for line, text in zip(found, wanted, strict=True):
        assert content[line.offset : line.offset + line.size] == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2.1.197 (Claude Code)", "2.1.197"),
        ("codex-cli 0.169.0", "0.169.0"),
        ("codex-cli 0.170.0-alpha.2", "0.170.0-alpha.2"),
        ("kimi", None),
        ("", None),
    ],
)
def test_the_version_number_is_found_in_a_text(text: str, number: str | None) -> None:
    assert find_number(text) == number


def test_excluded_time_does_not_count_as_silence() -> None:
    books: Any = SimpleNamespace(begin_turn=lambda prompt: None)
    agenda: Any = None
    expected: Any = SimpleNamespace(id=None)
    dialogue = Dialogue(books, agenda, Message("x"), stall_timeout=10.0)
    dialogue.begin(expected, 0.0)
    assert dialogue.silence(10.0) == 10.0
    dialogue.forgive(3600.0)
    assert dialogue.silence(3609.0) is None
    assert dialogue.silence(3610.0) == 10.0


def test_polls_become_rarer_and_coincide_between_agents() -> None:
    looks, now, pauses = LogPoller(), 0.013, []
    for _ in range(40):
        pauses.append(looks.next_pause(now, is_quiet=False))
        now += pauses[-1] + 0.001  # each poll takes a while
    assert sum(pauses[:4]) < 0.05
    assert all(pause <= 0.05 for pause in pauses)
    assert pauses[-20:] == [pytest.approx(0.049)] * 20
    assert (now - 0.001) / 0.05 == pytest.approx(round(now / 0.05))
    quiet = [looks.next_pause(now, is_quiet=True) for _ in range(20)]
    assert quiet[:9] == sorted(quiet[:9])
    assert now + quiet[-1] == pytest.approx(round(now + quiet[-1]))  # quiet ones coincide too
    assert quiet[-2:] == [quiet[-1]] * 2
    assert looks.next_pause(now, is_quiet=False) <= 0.05
    looks.reset()
    assert looks.next_pause(now, is_quiet=True) == pauses[0]


def test_a_late_poll_returns_the_seconds_of_the_interruption() -> None:
    looks = LogPoller()
    assert [looks.begin_poll(now) for now in (50.0, 51.0, 4651.0, 4651.2)] == [
        0.0,
        0.0,
        4600.0,
        0.0,
    ]


def test_errors_contain_the_name_and_the_directory_of_the_agent(tmp_path: Path) -> None:
    options = AgentOptions(agent="claude", name="Eko", dir=tmp_path)
    with pytest.raises(AgentError) as caught, options.naming_errors():
        raise AgentError("it failed")
    assert (caught.value.agent, caught.value.agent_dir) == ("Eko", tmp_path)


def test_an_exit_code_is_a_status_or_a_negative_signal() -> None:
    assert exit_code(ProcessExit(status=3)) == 3
    assert exit_code(ProcessExit(signal="SIGKILL")) == -9
    assert exit_code(ProcessExit(signal="signal 35")) == -35
    assert exit_code(ProcessExit()) is None


WRONG: list[tuple[str, Any]] = [
    ("name", ""),
    ("name", "a/b"),
    ("dir", ""),
    ("model", ""),
    ("binary", ""),
    ("tmux", "a\nb"),
    ("sandbox", "no"),
    ("bare", 1),
    ("auto_continue", None),
    ("budget", {"turns": 3}),
    ("max_restarts", -1),
    ("max_restarts", 1.5),
    ("restart_window", 0),
    ("stall_timeout", -1),
    ("request_rate", 0),
    ("request_rate", float("nan")),
]


@pytest.mark.parametrize(("argument", "value"), WRONG)
def test_a_wrong_argument_is_named(argument: str, value: Any) -> None:
    given_ = {"agent": "claude", "name": "Eko", "dir": "Eko", argument: value}
    with pytest.raises(ConfigError) as caught:
        AgentOptions(**given_)
    assert caught.value.key == argument


def test_a_program_is_a_path_or_a_name(tmp_path: Path) -> None:
    def binary(value: str) -> Path | None:
        return AgentOptions(agent="claude", name="Eko", dir=tmp_path, binary=value).binary

    assert binary("claude") == Path("claude")
    assert binary("./claude") == Path(os.getcwd(), "claude")
