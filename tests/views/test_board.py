"""The live table, the states behind it, and event lines."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from clawblox.cli.running.instance_states import InstanceStates
from clawblox.cli.running.run_scenes import Look, make_rows, pressure_between
from clawblox.errors import ClawbloxError, WorldStartError
from clawblox.results import EventKind, ProcessExit, WorldEvent
from clawblox.rundir.status import InstanceState, InstanceStatus
from clawblox.views.board import BoardFrame, BoardView, render
from clawblox.views.event_lines import (
    EventLine,
    RecentEvents,
    changes_between,
    describe_event,
    select_events,
)
from clawblox.views.rows import InstanceRow, make_row
from clawblox.views.steering import Steering

AT = "2026-06-22T18:59:25Z"


@pytest.fixture(autouse=True)
def _on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def status(name: str, state: InstanceState = "ready", **fields: object) -> InstanceStatus:
    known: dict[str, object] = {
        "name": name,
        "state": state,
        "world": "counter",
        "world_dir": Path("/w"),
        "instance_dir": Path("/r/worlds") / name,
        "run_dir": Path("/r"),
        "pid": 4242,
        "host": "127.0.0.1",
        "port": 20001,
        "url": "http://127.0.0.1:20001",
        "uptime_s": 192.0,
        "started_at": AT,
        "ended_at": None,
        "exit": None,
        "restarts": 0,
        "rss_bytes": 48_000_000,
        "cpu_s": 1.0,
        "saved_at": None,
        "saved_path": None,
        "saved_sha256": None,
        "sim_time": None,
        "is_detached": False,
        "orchestrator_pid": 1,
        "resume_path": None,
        "command_file": Path("/r/w.sh"),
        "log_file": Path("/nowhere/w.log"),
    }
    return InstanceStatus(**{**known, **fields})  # type: ignore[arg-type]


def view(rows: list[InstanceRow], **fields: object) -> BoardView:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.state] = counts.get(row.state, 0) + 1
    known: dict[str, object] = {"title": "counter · runs/r001", "elapsed_s": 133.0}
    return BoardView(**{**known, "counts": counts, "rows": rows, **fields})  # type: ignore[arg-type]


def plain(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines]


# --------------------------------------------------------------------------------- the table


def test_instance_row_has_a_value_in_every_column() -> None:
    row = make_row(status("w003", restarts=2, sim_time=123.45, saved_at=AT), "ready", 0.5)
    heading, line = plain(render(view([row]), BoardFrame(160, 30)))[3:5]
    headings = "NAME STATE PID UPTIME RSS CPU CPU TIME SAVED SIM TIME RESTARTS URL"
    assert " ".join(heading.split()) == headings
    name, state, pid, uptime, *rss, cpu, cpu_time, _, sim_time, restarts, url = line.split()
    assert (name, state, pid, url) == ("w003", "ready", "4242", "http://127.0.0.1:20001")
    assert (uptime, rss, cpu, cpu_time) == ("3m12s", ["48", "MB"], "50%", "1.0s")
    assert (sim_time, restarts) == ("123.5", "2")


def test_the_state_column_shows_how_an_instance_ended() -> None:
    ended = [
        status("a", "exited", exit=ProcessExit(status=9), pid=None),
        status("b", "exited", exit=ProcessExit(signal="SIGKILL"), pid=None),
        status("c", "failed", exit=ProcessExit(status=4), pid=None),
        status("d", "halted", exit=ProcessExit(status=0), pid=None, halt="ValueError:"),
    ]
    rows = [make_row(one, one.state, None) for one in ended]
    assert all(row.is_bad for row in rows)
    lines = plain(render(view(rows), BoardFrame(100, 30)))[4:8]
    assert [line.split()[1:3] for line in lines] == [
        ["exited", "9"],
        ["exited", "SIGKILL"],
        ["failed", "4"],
        ["halted:", "ValueError:"],
    ]


def test_a_long_reason_does_not_push_out_the_other_columns() -> None:
    halt = "ValueError: \x1b[2J" + "x" * 500 + "\nsecond line"
    rows = [
        make_row(one, one.state, None)
        for one in (status("a", "halted", pid=None, halt=halt), status("b"))
    ]
    headings, *lines = plain(render(view(rows), BoardFrame(79, 30)))[3:6]
    assert lines[0].startswith(r"a     halted: ValueError: \x1b[2Jxx")
    assert "…" in lines[0]
    assert all(len(line) <= 79 and "20001" in line for line in lines)
    assert headings.endswith("PORT")


def test_every_state_is_counted() -> None:
    rows = [InstanceRow("a", "ready"), InstanceRow("b", "ready"), InstanceRow("c", "failed")]
    counts = {"ready": 2, "failed": 1, "waiting": 7}
    line = plain(
        render(view(rows, counts=counts, ramp="the machine is busy"), BoardFrame(100, 30))
    )[1]
    assert line == "1 failed · 7 waiting · 2 ready  the machine is busy"


def test_instances_that_fit_are_sorted_by_name() -> None:
    rows = [InstanceRow("w2", "failed"), InstanceRow("w0", "ready"), InstanceRow("w1", "starting")]
    lines = plain(render(view(rows), BoardFrame(100, 30)))
    assert [line.split()[0] for line in lines[4:7]] == ["w0", "w1", "w2"]


def test_rows_needing_attention_come_first_and_omitted_rows_are_counted() -> None:
    states = {"w05": "failed", "w61": "restarting", "w40": "starting", "w50": "exited"}
    rows = [InstanceRow(f"w{i:02}", states.get(f"w{i:02}", "ready")) for i in range(98)]
    rows.append(InstanceRow("w98", "exited", "exited 9", is_bad=True))
    lines = plain(render(view(rows), BoardFrame(100, 14, notice="Ctrl-C")))
    shown = [line.split()[0] for line in lines[4:-3]]
    assert shown == ["w05", "w98", "w61", "w40", "w00", "w01", "w02"]
    assert lines[-3:] == ["… and 92 more: 91 ready, 1 exited", "", "Ctrl-C"]


def test_note_about_a_slow_start_is_below_its_row_if_there_is_room() -> None:
    rows = [InstanceRow(f"w{i:02}", "starting", note=f"note {i}") for i in range(3)]
    rows += [InstanceRow(f"w{i:02}", "ready") for i in range(3, 9)]
    whole = plain(render(view(rows), BoardFrame(100, 30)))
    assert whole[4:8] == ["w00   starting", "      note 0", "w01   starting", "      note 1"]
    assert [line for line in whole if line.startswith("w08")]
    # Not all rows fit: starting instances come first, and a quarter of the room is for their notes.
    small = plain(render(view(rows), BoardFrame(100, 14)))[4:]
    assert small == [*whole[4:9], "w03   ready", "w04   ready", "… and 4 more: 4 ready"]


def test_events_leave_room_for_rows_and_the_last_line_is_not_cut() -> None:
    rows = [InstanceRow(f"w{i:02}", "ready") for i in range(9)]
    events = [EventLine(AT, "w003", f"event {number}") for number in range(9)]
    notice = "9 instances ready after 4.2s. " + "Ctrl-C stops all; " * 5
    tall = plain(render(view(rows), BoardFrame(79, 30, events, notice)))
    assert [line.split()[-1] for line in tall if "event" in line] == list("345678")
    assert " ".join(tall[-2:]).split() == notice.split()
    flat = plain(render(view(rows), BoardFrame(79, 9, events, notice)))
    assert [line.split()[0] for line in flat[4:7]] == ["w00", "w01", "…"]
    assert not [line for line in flat if "event" in line]


@pytest.mark.parametrize("lines", [1, 2, 5, 8, 14, 30, 200])
@pytest.mark.parametrize("columns", [1, 12, 40, 79, 100, 300])
def test_the_table_fits_every_terminal(columns: int, lines: int) -> None:
    rows = [make_row(status(f"w{i:03}", saved_at=AT), "ready", 1.0) for i in range(130)]
    troubles = [EventLine(AT, "w003", "failed: " + "x" * 400, needs_attention=True)] * 20
    drawn = plain(
        render(
            view(rows, ramp="busy " * 30),
            BoardFrame(columns, lines, troubles, notice="Ctrl-C " * 30),
        )
    )
    assert len(drawn) <= lines
    assert max(map(len, drawn)) <= columns


def test_no_color_variable_disables_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [InstanceRow("w000", "failed")]
    assert "\x1b[1;31m" in "".join(render(view(rows), BoardFrame(100, 30)))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in "".join(render(view(rows), BoardFrame(100, 30)))


def test_cpu_share_is_measured_between_two_looks_at_the_same_process() -> None:
    old = [status("a", cpu_s=1.0), status("b", cpu_s=1.0, pid=1)]
    before = Look(old, at=10.0, stall_s=1.0)
    now = Look([status("a", cpu_s=2.0), status("b", cpu_s=9.0, pid=2)], at=12.0, stall_s=2.0)
    assert [row.cpu_share for row in make_rows(before, now, {})] == [0.5, None]
    assert pressure_between(before, now) == 0.5
    assert pressure_between(None, now) is None


def test_states_from_events_override_states_on_disk() -> None:
    rows = make_rows(None, Look([status("a")]), {"a": "stopping", "b": "failed"})
    assert [(row.name, row.state) for row in rows] == [("a", "stopping"), ("b", "failed")]


# ---------------------------------------------------------------------------------- the states


def event(kind: EventKind, name: str = "w000", **detail: object) -> WorldEvent:
    return WorldEvent(time=AT, kind=kind, subject=name, data=detail)


def died(
    status: int, restart: str = "never", *, unresponsive: bool = False, halt: str | None = None
) -> WorldEvent:
    found = ProcessExit(status=status)
    return event("exited", exit=found, restart=restart, unresponsive=unresponsive, halt=halt)


def states_after(*events: WorldEvent, planned: int = 1) -> InstanceStates:
    states = InstanceStates(planned)
    for one in events:
        states.take(one)
    return states


def test_instances_that_have_not_started_are_waiting() -> None:
    states = states_after(event("started"), event("ready"), event("started", "w001"), planned=5)
    assert states.counts() == {"waiting": 3, "ready": 1, "starting": 1}
    assert not states.is_over


def test_a_stopped_instance_has_not_failed() -> None:
    states = states_after(event("started"), event("ready"), event("stopped"))
    assert not states.is_over  # the start of the others may continue
    states.finish_start({}, ["w000"])
    assert states.is_over
    assert states.failures == {}


@pytest.mark.parametrize(("code", "failed"), [(0, []), (9, ["w000"])])
def test_an_instance_that_exits_has_failed_unless_its_status_is_zero(
    code: int, failed: list[str]
) -> None:
    states = states_after(event("started"), event("ready"), died(code))
    assert states.by_name == {"w000": "exited"}
    assert list(states.failures) == failed


def test_unresponsive_instance_has_failed_with_any_exit_status() -> None:
    states = states_after(event("started"), event("ready"), died(0, unresponsive=True))
    assert states.by_name == {"w000": "exited"}
    assert str(states.failures["w000"]).startswith("w000: was stopped because it did not respond")


def test_a_halted_instance_has_failed_with_its_reason() -> None:
    halted = event("halted", reason="ValueError: x\x1b[2J")
    states = states_after(event("started"), event("ready"), halted, died(0, halt="ValueError: x"))
    states.finish_start({}, ["w000"])
    assert states.by_name == {"w000": "halted"}
    assert states.is_over
    assert str(states.failures["w000"]).startswith("w000: halted: ValueError: x")


def test_an_instance_that_halts_until_restarts_are_used_up_is_halted() -> None:
    states = states_after(
        event("ready"), died(0, "fresh", halt="ValueError: x"), event("gave_up", reason="too often")
    )
    assert states.by_name == {"w000": "halted"}
    words = "w000: halted: ValueError: x; not restarted: too often"
    assert str(states.failures["w000"]).startswith(words)


def test_the_reason_of_a_halt_is_not_repeated_when_the_instance_ends() -> None:
    told = [describe_event(event("halted", reason="ValueError: x\nTraceback"))]
    told.append(describe_event(died(0, halt="ValueError: x")))
    assert [one.text for one in told] == [
        "halted: ValueError: x",
        "was stopped because it had halted",
    ]
    assert told[0].needs_attention


def test_a_restarted_instance_has_not_failed() -> None:
    states = states_after(event("started"), event("ready"), died(9, "fresh"))
    assert states.by_name == {"w000": "restarting"}
    for one in (event("restarting"), event("started"), event("start_failed", error=OSError())):
        states.take(one)
        assert states.by_name == {"w000": "restarting"}
    states.take(event("ready"))
    assert (states.by_name, states.failures) == ({"w000": "ready"}, {})


def test_an_instance_that_is_not_restarted_has_failed_with_a_reason() -> None:
    states = states_after(event("ready"), died(9, "fresh"), event("gave_up", reason="too often"))
    states.finish_start({}, ["w000"])
    assert states.is_over
    (error,) = states.failures.values()
    assert str(error).startswith("w000: ended by itself: exit status 9; not restarted: too often")


def test_instance_with_a_failed_requested_restart_has_failed_with_its_reason() -> None:
    refused = event("start_failed", error=WorldStartError("refused", log_lines=("no such map",)))
    gave_up = event("gave_up", reason="its restart failed")
    states = states_after(event("ready"), event("restarting"), event("started"), refused, gave_up)
    states.finish_start({}, ["w000"])
    assert states.by_name == {"w000": "exited"}
    (error,) = states.failures.values()
    words = "w000: refused | no such map; not restarted: its restart failed"
    assert str(error).startswith(words)


def test_an_instance_that_is_given_up_without_an_end_has_failed() -> None:
    died_before = [died(9, "fresh"), event("restarting"), event("started"), event("ready")]
    gave_up = event("gave_up", reason="its processes do not end")
    states = states_after(event("ready"), *died_before, gave_up)
    states.finish_start({}, ["w000"])
    assert states.is_over
    words = "w000: not restarted: its processes do not end"
    assert str(states.failures["w000"]).startswith(words)


def test_a_failed_start_counts_once_even_without_an_event() -> None:
    error = WorldStartError("no")
    states = states_after(event("start_failed", error=error), planned=2)
    states.finish_start({"w000": ClawbloxError("later"), "w001": ClawbloxError("silent")}, [])
    assert states.is_over
    assert [str(one) for one in states.failures.values()] == ["no", "silent"]


def test_a_start_that_was_stopped_has_not_failed() -> None:
    states = states_after(event("started"), event("stopped"))
    states.finish_start({"w000": WorldStartError("the start was stopped")}, [])
    assert (states.is_over, states.failures) == (True, {})


# -------------------------------------------------------------------------------------- events


def test_a_failed_start_shows_its_reason_and_the_last_line_of_its_log() -> None:
    error = WorldStartError("it ended\nsecond line", log_lines=("first", "no module\x1b[2J x"))
    line = describe_event(event("start_failed", error=error))
    assert str(line) == f"{AT} w000 failed: it ended | no module\\x1b[2J x"
    assert line.needs_attention


def test_events_of_the_machine_name_no_instance() -> None:
    slowed = describe_event(event("ramp_slowed", limit=8, pressure=0.91))
    assert str(slowed) == f"{AT} machine is busy: 8 starts at a time (CPU pressure 91%)"


def test_many_events_do_not_displace_problems() -> None:
    recent = RecentEvents(8)
    recent.add(EventLine(AT, "w003", "failed", needs_attention=True))
    for number in range(100):
        recent.add(EventLine(AT, "", f"saved {number}"))
    assert [one.text for one in recent.last(3)] == ["failed", "saved 98", "saved 99"]
    assert [one.text for one in recent.last(1)] == ["failed"]
    assert recent.last(0) == []
    drawn = plain(
        render(view([InstanceRow("w003", "failed")]), BoardFrame(100, 30, recent.last(9)))
    )
    assert any(line.endswith("w003  failed") for line in drawn)
    assert sum(" saved 9" in line for line in drawn) == 5


@pytest.mark.parametrize("size", range(8))
@pytest.mark.parametrize(
    "order", ["T" * 9, "o" * 9, "ToTooToTo", "TTTTToooo", "ooooTTTTT", "T", ""]
)
def test_selected_events_are_in_order_and_more_than_half_are_problems(
    order: str, size: int
) -> None:
    lines = [
        EventLine(AT, "", str(place), needs_attention=c == "T") for place, c in enumerate(order)
    ]
    chosen = select_events(lines, size)
    places = [int(line.text) for line in chosen]
    assert places == sorted(places)
    assert len(chosen) == min(size, len(lines))
    troubles = sum(line.needs_attention for line in chosen)
    assert troubles >= min(order.count("T"), size // 2 + 1 if size else 0)


def test_changes_are_found_between_two_looks(tmp_path: Path) -> None:
    log = tmp_path / "w.log"
    log.write_text("fine\nKeyError: 'x'\n")
    before = [status("a"), status("b"), status("c")]
    now = [
        status("a"),
        status(
            "b", "exited", exit=ProcessExit(status=1), ended_at=AT, log_file=log, run_dir=tmp_path
        ),
        status("c", restarts=1),
        status("d", "starting"),
    ]
    told = [(one.instance, one.text, one.needs_attention) for one in changes_between(before, now)]
    stranger = attrs.evolve(now[1], run_dir=tmp_path / "sent")
    assert [one.text for one in changes_between(before[1:2], [stranger])] == ["exited 1"]
    assert told == [
        ("b", "exited 1 | KeyError: 'x'", True),
        ("c", "ready at http://127.0.0.1:20001", False),
        ("d", "starting", False),
    ]


# ------------------------------------------------------------------------------------- the steering


def steered(count: int, lines: int = 24, **steering: object) -> list[str]:
    rows = [make_row(status(f"w{number:03}"), "ready") for number in range(count)]
    frame = BoardFrame(60, lines, steering=Steering(**steering))  # type: ignore[arg-type]
    return plain(render(view(rows), frame))


def test_the_selected_row_is_marked() -> None:
    lines = steered(3, selected="w001")
    names = [line[:6] for line in lines if "ready " in line]
    assert names == ["  w000", "▸ w001", "  w002"]
    assert next(line for line in lines if "STATE" in line).startswith("  NAME")


def test_the_selected_row_is_shown_even_if_not_all_fit() -> None:
    for selected in range(40):
        lines = steered(40, selected=f"w{selected:03}")
        names = [line[2:6] for line in lines if "ready  " in line]
        assert f"▸ w{selected:03}" in {line[:6] for line in lines}
        assert names == sorted(names)
        assert f"… and {40 - len(names)} more: {40 - len(names)} ready" in lines


def test_filter_hides_rows_but_keeps_counts() -> None:
    lines = steered(12, pattern="W01")
    assert [line.split()[0] for line in lines if "ready  " in line] == ["w010", "w011"]
    assert lines[1] == "12 ready"


@pytest.mark.parametrize("lines", range(4, 30))
def test_a_pane_leaves_room_for_the_table_and_the_last_line(lines: int) -> None:
    rows = [make_row(status(f"w{number:03}"), "ready") for number in range(40)]
    pane = ["w007: w007.log", *(f"line {number} {'x' * 90}\x1b[2J" for number in range(50))]
    events = [EventLine(AT, "w000", "ready")] * 9
    steering = Steering(selected="w007", pane="log")
    frame = BoardFrame(60, lines, events, "the last line", steering, pane)
    shown = plain(render(view(rows), frame))
    assert len(shown) <= lines
    assert max(map(len, shown)) <= 60
    assert "\x1b" not in "".join(shown)
    if lines >= 16:
        assert shown[-1] == "the last line"
        assert any(line.startswith("▸ w007") for line in shown)
        assert "w007: w007.log" in shown
        assert any(line.startswith("line 49 ") for line in shown)
