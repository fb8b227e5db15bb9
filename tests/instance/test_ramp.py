"""The ramp: number and order of concurrent starts; a hanging start does not block the others."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest

from clawblox.instance import ramp
from clawblox.instance.ramp import Ramp, current_ramp, read_stall_s

# -------------------------------------------------------------------------------- the controller

FAST, SLOW = [1.0, 1.0], [1.0, 2.1]
"""Readiness times of two worlds in seconds: equal, and the second much longer."""


def decided(
    pressures: list[float | None], ready_s: list[float], cores: int = 1
) -> tuple[int, float | None]:
    """Return limit and pressure after checks a second apart, with these pressures in between."""
    controller = Ramp(lambda: None, cores)
    for seconds in ready_s:
        controller.note_ready(seconds)
    stall_s = 100.0
    controller.decide(50.0, None if pressures[0] is None else stall_s)
    for second, pressure in enumerate(pressures, 51):
        stall_s += pressure or 0.0
        controller.decide(float(second), None if pressure is None else stall_s)
    return controller.limit, controller.pressure


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


def test_limit_follows_readiness_times_without_a_pressure() -> None:
    assert decided([None], FAST) == (32, None)
    assert decided([None], SLOW) == (2, None)


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_the_limits_grow_with_the_processors(cores: int) -> None:
    assert Ramp(lambda: None, cores).limit == 8 * cores
    assert decided([1.0] * 20, SLOW, cores)[0] == 2 * cores


def test_a_pressure_needs_two_readings() -> None:
    controller = Ramp(lambda: None, 1)
    controller.decide(1.0, 0.5)
    assert (controller.limit, controller.pressure) == (8, None)


def test_pressure_stays_between_0_and_1_if_clocks_disagree() -> None:
    assert decided([1.7], []) == (8, 1.0)


def test_fastest_readiness_time_is_0_before_the_first_world() -> None:
    controller = Ramp(lambda: None, 1)
    assert controller.fastest_s == 0.0
    for seconds in (0.5, 0.25, 0.75):
        controller.note_ready(seconds)
    assert controller.fastest_s == 0.25


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
def test_stall_time_is_read_if_the_kernel_provides_it(
    text: str | None, stall_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "cpu").write_text(text)
    monkeypatch.setattr(ramp, "_PRESSURE_FILE", tmp_path / "cpu")
    assert read_stall_s() == stall_s


def test_stall_time_of_this_kernel_never_decreases() -> None:
    first, second = read_stall_s(), read_stall_s()
    path = Path("/proc/pressure/cpu")
    if first is None:
        assert not path.exists() or not re.match(r"some .*total=\d+", path.read_text())
    else:
        assert second is not None
        assert second >= first > 0


# --------------------------------------------------------------------------------- the places


class Machine:
    """A clock and a pressure set by a test; reading the pressure takes a tenth of a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pressure: float | None = 0.6) -> None:
        self.now = 1000.0
        self.pressure = pressure
        self.looks = 0
        self._stall_s = 0.0
        monkeypatch.setattr(ramp, "time", SimpleNamespace(monotonic=lambda: self.now))

    def read_stall(self) -> float | None:
        self.looks += 1
        self.now += 0.1
        self._stall_s += 0.1 * (self.pressure or 0.0)
        return None if self.pressure is None else self._stall_s


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def begun(held: Ramp, count: int) -> list[int]:
    """Return the starts out of ``count`` that have begun."""
    return [start for start in range(count) if held.begin(start)]


def test_ramp_on_one_processor_starts_with_a_limit_of_eight(machine: Machine) -> None:
    held = Ramp(machine.read_stall, 1)
    assert begun(held, 12) == list(range(8))
    held.end(3, is_ready=False)
    assert held.begin("another")
    assert not held.begin("one more")
    assert machine.looks == 0  # a machine with free slots is not read


def test_only_successful_starts_count_for_the_fastest_time(machine: Machine) -> None:
    held = Ramp(machine.read_stall, 1)
    for is_ready, fastest_s in ((False, 0.0), (True, 2.0)):
        assert held.begin("start")
        machine.now += 2.0
        held.end("start", is_ready=is_ready)
        assert held.fastest_s == fastest_s


def test_hanging_starts_delay_others_for_at_most_five_seconds(machine: Machine) -> None:
    held = Ramp(machine.read_stall, 1)
    begun(held, 8)
    machine.now += 4.9
    assert not held.begin("next")
    machine.now += 0.2
    assert held.begin("next")


def test_the_machine_is_read_once_per_interval(machine: Machine) -> None:
    looks: list[float] = []
    held = Ramp(lambda: looks.append(machine.now), 1)
    for _ in range(3):
        held.update()
    assert looks == [1000.0]
    machine.now += 2 * ramp.LOOK_INTERVAL_S
    held.update()
    assert len(looks) == 2


def test_a_change_of_pace_is_reported_once(machine: Machine) -> None:
    held = Ramp(machine.read_stall, 1)
    for name, seconds in (("quick", 0.1), ("slow", 1.0)):
        held.begin(name)
        machine.now += seconds
        held.end(name, is_ready=True)
    told = []
    for pressure in (0.95, 0.95, 0.95, 0.6, 0.6, 0.1, 0.1):
        machine.pressure = pressure
        if (pace := held.update()) is not None:
            told.append((pace.is_slow, pace.limit))
    assert told == [(True, 4), (False, 4)]


def test_growing_limit_is_not_reported(machine: Machine) -> None:
    held = Ramp(machine.read_stall, 1)
    machine.pressure = 0.1
    assert [held.update() for _ in range(4)] == [None] * 4
    assert held.limit > 8


def test_number_of_concurrent_starts_grows_without_a_pressure(machine: Machine) -> None:
    held = Ramp(machine.read_stall, 1)
    machine.pressure = None
    begun(held, 8)
    held.update()
    assert held.begin("next")


def test_every_event_loop_has_one_ramp() -> None:
    async def two_of_one_loop() -> tuple[Ramp, Ramp]:
        return current_ramp(), current_ramp()

    (one, same), (other, _) = (anyio.run(two_of_one_loop) for _ in range(2))
    assert one is same
    assert other is not one
