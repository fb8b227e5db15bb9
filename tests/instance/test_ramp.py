"""The ramp: how many starts at once, in which order, and that a hanging one holds up nobody."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from clawblox.instance import ramp
from clawblox.instance.ramp import Governor, Ramp, Reading, current_ramp, read_stall_s
from tests.support import wait_until_async

HANG_S = 30.0
"""What takes longer than this hangs; nothing here measures time."""


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -------------------------------------------------------------------------------- the governor

FAST, SLOW = [1.0, 1.0], [1.0, 2.1]
"""Seconds that two worlds took to get ready: alike, and the second much longer."""


def decided(
    pressures: list[float | None], ready_s: list[float], cores: int = 1
) -> tuple[int, float | None]:
    """Return limit and pressure after looks a second apart, with these pressures between."""
    governor = Governor(cores)
    for seconds in ready_s:
        governor.note_ready(seconds)
    stall_s = 100.0
    governor.decide(Reading(50.0, None if pressures[0] is None else stall_s))
    for second, pressure in enumerate(pressures, 51):
        stall_s += pressure or 0.0
        governor.decide(Reading(float(second), None if pressure is None else stall_s))
    return governor.limit, governor.pressure


DECISIONS: dict[str, tuple[list[float | None], list[float], int]] = {
    "idle": ([0.0], [], 16),
    "hardly busy": ([0.49], SLOW, 16),
    "busy": ([0.6], SLOW, 8),
    "very busy, as fast as ever": ([0.9], FAST, 8),
    "very busy, nothing ready yet": ([0.9], [], 8),
    "very busy and slower": ([0.9], SLOW, 4),
    "twice as long is not slower": ([0.9], [1.0, 2.0], 8),
    "as fast as the first again": ([0.9], [*SLOW, 1.0], 8),
    "down to the least": ([1.0] * 20, SLOW, 2),
    "up to the most": ([0.1] * 20, [], 4096),
    "up and down": ([0.1, 0.1, 0.9, 0.6, 0.2], SLOW, 32),
}


@pytest.mark.parametrize(("pressures", "ready_s", "limit"), DECISIONS.values(), ids=DECISIONS)
def test_the_limit_follows_the_pressure(
    pressures: list[float | None], ready_s: list[float], limit: int
) -> None:
    found, pressure = decided(pressures, ready_s)
    assert found == limit
    assert pressure == pytest.approx(pressures[-1])


def test_without_a_pressure_the_times_decide() -> None:
    assert decided([None], FAST) == (32, None)
    assert decided([None], SLOW) == (2, None)


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_the_limits_grow_with_the_processors(cores: int) -> None:
    assert Governor(cores).limit == 8 * cores
    assert decided([1.0] * 20, SLOW, cores)[0] == 2 * cores


def test_the_first_look_says_nothing_for_a_pressure_takes_two() -> None:
    governor = Governor(1)
    governor.decide(Reading(1.0, 0.5))
    assert (governor.limit, governor.pressure) == (8, None)


def test_a_pressure_is_a_share_even_where_the_clocks_disagree() -> None:
    assert decided([1.7], []) == (8, 1.0)


def test_the_fastest_is_none_before_there_was_one() -> None:
    governor = Governor(1)
    assert governor.fastest_s == 0.0
    assert not governor.is_slowing_down
    for seconds in (0.5, 0.25, 0.75):
        governor.note_ready(seconds)
    assert governor.fastest_s == 0.25
    assert governor.is_slowing_down


# -------------------------------------------------------------------------------- the pressure

PRESSURE = (
    "some avg10=12.34 avg60=5.00 avg300=1.00 total=123456789\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
)
PRESSURES: dict[str, tuple[str | None, float | None]] = {
    "the kernel's": (PRESSURE, 123.456789),
    "without the second line": (PRESSURE.splitlines()[0], 123.456789),
    "no file": (None, None),
    "an empty file": ("", None),
    "no total": ("some avg10=0.00\n", None),
    "no number": ("some avg10=0.00 total=x\n", None),
    "another first line": ("full avg10=0.00 total=5\n", None),
}


@pytest.mark.parametrize(("text", "stall_s"), PRESSURES.values(), ids=PRESSURES)
def test_the_stall_time_is_read_where_there_is_one(
    text: str | None, stall_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "cpu").write_text(text)
    monkeypatch.setattr(ramp, "_PRESSURE_FILE", tmp_path / "cpu")
    assert read_stall_s() == stall_s


def test_this_kernel_tells_a_stall_time_that_never_falls_or_none_at_all() -> None:
    first, second = read_stall_s(), read_stall_s()
    path = Path("/proc/pressure/cpu")
    if first is None:
        assert not path.exists() or not re.match(r"some .*total=\d+", path.read_text())
    else:
        assert second is not None
        assert second >= first > 0


# ---------------------------------------------------------------------------------- the turns


class Machine:
    """A clock and a pressure that a test sets; a look at it takes a tenth of a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pressure: float | None = 0.6) -> None:
        self.now = 1000.0
        self.pressure = pressure
        self.looks = 0
        self._stall_s = 0.0
        monkeypatch.setattr(ramp, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(ramp, "_LOOK_INTERVAL_S", 0.001)

    def read_stall(self) -> float | None:
        self.looks += 1
        self.now += 0.1
        self._stall_s += 0.1 * (self.pressure or 0.0)
        return None if self.pressure is None else self._stall_s


class Starts:
    """Starts that begin in their turn and end when a test says so."""

    def __init__(self, machine: Machine, group: anyio.abc.TaskGroup) -> None:
        self.turns = Ramp(machine.read_stall, 1)
        self.begun: list[str] = []
        self.begun_at: list[float] = []
        self.told: list[str] = []
        self.gone: list[str] = []
        self.waiting = 0
        self._machine = machine
        self._group = group
        self._ends: dict[str, anyio.Event] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}

    def tell(self, kind: str, **detail: Any) -> None:
        self.told.append(f"{kind} {detail['limit']}")

    async def ask(self, *names: str) -> None:
        """Have starts ask for their turn, one after the other."""
        for name in names:
            self._ends[name], self._scopes[name] = anyio.Event(), anyio.CancelScope()
            self._group.start_soon(self._run, name)
            waiting = self.waiting
            await wait_until_async(lambda: self.waiting > waiting)  # noqa: B023 - called at once

    async def _run(self, name: str) -> None:
        with self._scopes[name]:
            self.waiting += 1
            async with self.turns.turn(self.tell):
                self.begun.append(name)
                self.begun_at.append(self._machine.now)
                await self._ends[name].wait()
        self.gone.append(name)

    def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()

    async def give_up(self, *names: str) -> None:
        for name in names:
            self._scopes[name].cancel()
        await self.until(lambda: set(names) <= set(self.gone))

    async def until(self, condition: Callable[[], object]) -> None:
        await wait_until_async(condition, HANG_S)


EIGHT = [f"held {number}" for number in range(8)]
"""As many as a machine with one processor starts at once, to begin with."""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.anyio
async def test_so_many_begin_at_once_and_the_others_in_the_order_of_their_asking(
    machine: Machine,
) -> None:
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        await starts.ask(*EIGHT, *"abcde")
        await starts.until(lambda: machine.looks > 5)
        assert starts.begun == EIGHT
        for number, name in enumerate("abc", 9):
            starts.end(EIGHT[number - 9])
            await starts.until(lambda: len(starts.begun) == number)  # noqa: B023 - called at once
            assert starts.begun[-1] == name
        starts.end(*EIGHT[3:])
        await starts.ask("late")
        await starts.until(lambda: len(starts.begun) == 14)
        assert starts.begun[11:] == ["d", "e", "late"]
        starts.end(*"abcde", "late")
    assert starts.told == []


@pytest.mark.anyio
async def test_a_turn_that_is_given_back_is_taken_without_another_look(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ramp, "_LOOK_INTERVAL_S", 100 * HANG_S)
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        await starts.ask(*EIGHT, "a", "b")
        starts.end(*EIGHT[:2])
        await starts.until(lambda: starts.begun[8:] == ["a", "b"])
        starts.end(*EIGHT, "a", "b")
    assert machine.looks == 1


@pytest.mark.anyio
async def test_nobody_overtakes_who_waits_already(machine: Machine) -> None:
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        await starts.ask(*EIGHT, "first")
        starts.end(EIGHT[0])
        group.start_soon(starts.ask, "second")
        await starts.until(lambda: len(starts.begun) == 9)
        assert starts.begun[-1] == "first"
        starts.end(*EIGHT)
        await starts.until(lambda: starts.begun[-1] == "second")
        starts.end("first", "second")


@pytest.mark.anyio
@pytest.mark.parametrize("given_up", ["a", "b", "ab"])
async def test_who_gives_up_waiting_gives_the_place_to_the_next(
    machine: Machine, given_up: str
) -> None:
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        await starts.ask(*EIGHT, *"abcd")
        await starts.give_up(*given_up)
        starts.end(*EIGHT)
        left = [name for name in "abcd" if name not in given_up]
        await starts.until(lambda: len(starts.begun) == 8 + len(left))
        assert starts.begun[8:] == left
        starts.end(*left)


@pytest.mark.anyio
async def test_a_start_that_is_given_up_or_fails_gives_its_turn_back_and_counts_for_nothing(
    machine: Machine,
) -> None:
    turns = Ramp(machine.read_stall, 1)
    for _ in range(20):
        with pytest.raises(KeyError):
            async with turns.turn(lambda *_, **__: None):
                raise KeyError
    assert turns.fastest_s == 0.0
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        await starts.ask(*EIGHT, "a")
        await starts.give_up(EIGHT[4])
        await starts.until(lambda: starts.begun[-1] == "a")
        assert starts.turns.fastest_s == 0.0
        machine.now += 2.0
        starts.end(*EIGHT, "a")
    assert 2.0 <= starts.turns.fastest_s == pytest.approx(machine.now - starts.begun_at[-1])


@pytest.mark.anyio
async def test_starts_that_hang_hold_up_the_others_for_five_seconds_and_no_longer(
    machine: Machine,
) -> None:
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        await starts.ask(*EIGHT, *"abcdefghi")
        await starts.until(lambda: len(starts.begun) == 16)
        assert starts.begun[8:] == list("abcdefgh")
        assert 5.0 <= starts.begun_at[8] - starts.begun_at[0] < 5.2
        starts.end(*EIGHT, *"abcdefghi")


@pytest.mark.anyio
async def test_a_change_of_the_pressure_is_told_once(machine: Machine) -> None:
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        for name, seconds in (("quick", 0.1), ("slow", 1.0)):
            await starts.ask(name)
            machine.now += seconds
            starts.end(name)
            await starts.until(lambda: name in starts.gone)  # noqa: B023 - called at once
        machine.pressure = 0.95
        await starts.ask(*EIGHT, "a")
        await starts.until(lambda: starts.turns.limit == 2)
        machine.pressure = 0.6
        looks = machine.looks
        await starts.until(lambda: machine.looks > looks + 3)
        assert starts.told == ["ramp_slowed 4"]
        machine.pressure = 0.1
        await starts.until(lambda: starts.begun[-1] == "a")
        assert starts.told == ["ramp_slowed 4", "ramp_recovered 4"]
        starts.end(*EIGHT, "a")
    assert starts.told == ["ramp_slowed 4", "ramp_recovered 4"]


@pytest.mark.anyio
async def test_a_ramp_that_only_grows_is_not_worth_a_word(machine: Machine) -> None:
    machine.pressure = 0.1
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        await starts.ask(*EIGHT, "a")
        await starts.until(lambda: starts.begun[-1] == "a")
        starts.end(*EIGHT, "a")
    assert starts.told == []


@pytest.mark.anyio
async def test_without_a_pressure_the_starts_begin_all_the_same(machine: Machine) -> None:
    machine.pressure = None
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        await starts.ask(*EIGHT, "a")
        await starts.until(lambda: starts.begun[-1] == "a")
        starts.end(*EIGHT, "a")


@pytest.mark.anyio
async def test_a_machine_with_room_is_not_looked_at(machine: Machine) -> None:
    async with anyio.create_task_group() as group:
        starts = Starts(machine, group)
        await starts.ask(*EIGHT)
        starts.end(*EIGHT)
    assert machine.looks == 0


def test_every_event_loop_has_one_ramp() -> None:
    async def two_of_one_loop() -> tuple[Ramp, Ramp]:
        return current_ramp(), current_ramp()

    (one, same), (other, _) = (anyio.run(two_of_one_loop) for _ in range(2))
    assert one is same
    assert other is not one
