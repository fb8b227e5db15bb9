"""The rule of the lease: no host runs after the driver has declared it lost."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import attrs
import hypothesis
import hypothesis.strategies as st
import pytest

from clawblox.experiment.cluster import lease as lease_module
from clawblox.experiment.cluster.lease import MARGIN_S, HostLease, Tenancy

# -- both sides, messages and clocks -----------------------------------------------------------


@attrs.frozen
class Clock:
    """A clock that starts at any value and runs too fast or too slow."""

    offset: float
    rate: float

    def read(self, time: float) -> float:
        return self.offset + self.rate * time

    def when(self, reading: float) -> float:
        """Return the time at which the clock shows a reading."""
        return (reading - self.offset) / self.rate


@attrs.frozen
class Message:
    """A renewal: the delay before it is sent, and the travel times of the request and the answer.

    Two requests arrive if the transport sends it twice, and none if it is lost.
    """

    gap_s: float
    requests_s: tuple[float, ...]
    answers_s: tuple[float, ...]


@attrs.frozen
class Pause:
    """A period in which a side is paused while its clock continues."""

    start: float
    length: float


@attrs.frozen
class World:
    length_s: float
    driver: Clock
    node: Clock
    messages: list[Message]
    driver_pauses: list[Pause]
    node_pauses: list[Pause]


def end_of_pauses(pauses: list[Pause], time: float) -> float:
    """Return when a side handles an event that reaches it at some time."""
    for pause in sorted(pauses, key=lambda pause: pause.start):
        if pause.start <= time < pause.start + pause.length:
            time = pause.start + pause.length
    return time


class Simulation:
    """Runs both rules; the driver may check its lease at any moment, even in its pauses."""

    def __init__(
        self,
        world: World,
        lease_type: type[HostLease] = HostLease,
        tenancy_type: type[Tenancy] = Tenancy,
    ) -> None:
        self.world = world
        self.lease = lease_type(world.length_s)
        self.tenancy = tenancy_type(world.length_s)
        self.time = 0.0
        self.is_lost = False
        self.answers = 0
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def run(self, check: Callable[[Simulation], None]) -> None:
        """Run to the end, and call ``check`` after each event."""
        sent_at = 0.0
        for message in self.world.messages:
            sent_at += message.gap_s
            self._at(self.world.driver_pauses, sent_at, lambda message=message: self._send(message))
        while self._events:
            self.time, _, event = heapq.heappop(self._events)
            event()
            check(self)

    def _at(self, pauses: list[Pause], time: float, event: Callable[[], None]) -> None:
        event_at = end_of_pauses(pauses, time)
        heapq.heappush(self._events, (event_at, next(self._numbers), event))

    def _send(self, message: Message) -> None:
        if self.lease.is_over(self.world.driver.read(self.time)):
            return
        token, sent_at = self.lease.token, self.world.driver.read(self.time)
        for request_s in message.requests_s:
            self._at(
                self.world.node_pauses,
                self.time + request_s,
                lambda: self._renew(token, sent_at, message),
            )

    def _renew(self, token: float | None, sent_at: float, message: Message) -> None:
        now = self.world.node.read(self.time)
        try:
            self.tenancy.renew(token, now)
        except ValueError:
            return
        for answer_s in message.answers_s:
            self._at(
                self.world.driver_pauses, self.time + answer_s, lambda: self._take(now, sent_at)
            )

    def _take(self, token: float, sent_at: float) -> None:
        self.answers += 1
        if isinstance(self.lease, SentLease):
            self.lease.sent_at = sent_at
        self.lease.answered(token, self.world.driver.read(self.time))

    @property
    def ends_at(self) -> float:
        """When the host ends, unless it gets another renewal; 0 before its first."""
        deadline = self.tenancy.deadline
        return 0.0 if deadline is None else self.world.node.when(deadline)

    @property
    def lost_at(self) -> float:
        """When the driver declares the host lost, unless it gets another answer."""
        bound = self.lease.bound
        if bound is None:
            return float("inf")
        return self.world.driver.when(bound + lease_module.MARGIN_S)


def no_double_life(simulation: Simulation) -> None:
    """Check that the host never runs while the driver considers it lost.

    Nothing changes before the next event, so both times hold until then, or for ever if there is
    no further event.
    """
    first_loss = max(simulation.time, simulation.lost_at)
    assert first_loss >= simulation.ends_at - 1e-6, "the host lives after it was called lost"
    is_over = simulation.lease.is_over(simulation.world.driver.read(simulation.time))
    assert is_over or not simulation.is_lost, "a lost host came back"
    simulation.is_lost = is_over


def no_loss(simulation: Simulation) -> None:
    assert simulation.time < simulation.lost_at
    if simulation.tenancy.deadline is not None:
        assert simulation.time < simulation.ends_at


delays = st.one_of(st.just(0.0), st.floats(0, 5), st.floats(0, 100))
pauses = st.lists(st.builds(Pause, st.floats(0, 200), st.floats(0, 200)), max_size=3)
clocks = st.builds(Clock, st.floats(0, 1e6), st.floats(0.995, 1.005))
any_messages = st.lists(
    st.builds(
        Message,
        st.one_of(st.floats(0, 5), st.floats(0, 60)),
        st.lists(delays, max_size=2).map(tuple),
        st.lists(delays, max_size=2).map(tuple),
    ),
    max_size=12,
)
worlds = st.builds(World, st.floats(4, 95), clocks, clocks, any_messages, pauses, pauses)


@hypothesis.settings(max_examples=100)
@hypothesis.given(worlds)
def test_host_has_ended_when_the_driver_declares_it_lost(world: World) -> None:
    Simulation(world).run(no_double_life)


@st.composite
def healthy_worlds(draw: st.DrawFn) -> World:
    length_s = draw(st.floats(1, 95))
    interval_s = min(5.0, length_s / 6)
    travel = st.lists(st.floats(0, 0.15 * length_s), min_size=1, max_size=2).map(tuple)
    messages = st.lists(st.builds(Message, st.just(interval_s), travel, travel), max_size=30)
    return World(length_s, draw(clocks), draw(clocks), draw(messages), [], [])


@hypothesis.given(healthy_worlds())
def test_healthy_host_is_never_lost(world: World) -> None:
    simulation = Simulation(world)

    def until_last_renewal(simulation: Simulation) -> None:
        if simulation.time <= len(world.messages) * world.messages[0].gap_s:
            no_loss(simulation)

    simulation.run(until_last_renewal)
    assert simulation.answers >= len(world.messages)


# -- wrong rules that the simulation must catch ------------------------------------------------


@attrs.define
class SentLease(HostLease):
    """Counts from the time at which the renewal was sent."""

    sent_at: float = attrs.field(init=False, default=0.0)

    def answered(self, token: float, at: float) -> None:
        super().answered(token, self.sent_at)


class ComparedLease(HostLease):
    """Mistakes the clock of the node for its own clock."""

    def answered(self, token: float, at: float) -> None:
        super().answered(token, at)
        if self.bound is not None:
            self.bound = token + self.length_s


class RevivedLease(HostLease):
    """Accepts answers that arrive too late."""

    def answered(self, token: float, at: float) -> None:
        self.token, self.bound = token, at + self.length_s


class ArrivalTenancy(Tenancy):
    """Grants the whole lease to a renewal that arrives late."""

    def renew(self, token: float | None, now: float) -> float:
        self.deadline = now + self.length_s
        return self.deadline


class RestartedTenancy(Tenancy):
    """Restarts the lease at each renewal without a token."""

    def renew(self, token: float | None, now: float) -> float:
        if token is None:
            self.deadline = now + self.length_s
            return self.deadline
        return super().renew(token, now)


@pytest.mark.parametrize(
    ("lease_type", "tenancy_type", "margin_s"),
    [
        (HostLease, Tenancy, 0.0),
        (SentLease, Tenancy, MARGIN_S),
        (ComparedLease, Tenancy, MARGIN_S),
        (RevivedLease, Tenancy, MARGIN_S),
        (HostLease, ArrivalTenancy, MARGIN_S),
        (HostLease, RestartedTenancy, MARGIN_S),
    ],
)
def test_simulation_catches_a_wrong_rule(
    monkeypatch: pytest.MonkeyPatch, lease_type: Any, tenancy_type: Any, margin_s: float
) -> None:
    monkeypatch.setattr(lease_module, "MARGIN_S", margin_s)

    def is_caught(world: World) -> bool:
        try:
            Simulation(world, lease_type, tenancy_type).run(no_double_life)
        except AssertionError:
            return True
        return False

    assert hypothesis.find(
        worlds,
        is_caught,
        settings=hypothesis.settings(
            max_examples=5000, derandomize=True, database=None, phases=[hypothesis.Phase.generate]
        ),
    )


# -- each side alone ---------------------------------------------------------------------------


def test_host_ends_with_the_lease_of_its_latest_token() -> None:
    tenancy = Tenancy(30)
    assert tenancy.renew(None, 100) == 130
    assert tenancy.renew(100, 112) == 130
    assert tenancy.renew(112, 125) == 142


def test_overtaken_renewal_does_not_shorten_the_lease() -> None:
    tenancy = Tenancy(30)
    tenancy.renew(None, 100)
    tenancy.renew(110, 111)
    assert tenancy.renew(100, 112) == 140


def test_repeated_first_renewal_does_not_extend_the_lease() -> None:
    tenancy = Tenancy(30)
    tenancy.renew(None, 100)
    assert tenancy.renew(None, 110) == 130


@pytest.mark.parametrize("token", [110.1, float("inf")])
def test_token_from_the_future_is_refused(token: float) -> None:
    tenancy = Tenancy(30)
    tenancy.renew(None, 100)
    with pytest.raises(ValueError, match="token: must be a time issued by this host"):
        tenancy.renew(token, 110)
    assert tenancy.deadline == 130


def test_token_of_another_host_is_refused() -> None:
    tenancy = Tenancy(30)
    with pytest.raises(ValueError, match="token: must be a time issued by this host"):
        tenancy.renew(90, 100)
    assert tenancy.deadline is None


def test_expired_lease_cannot_be_renewed() -> None:
    tenancy = Tenancy(30)
    tenancy.renew(None, 100)
    assert not tenancy.is_over(129.9)
    assert tenancy.is_over(130)
    for token in (None, 129.0):
        with pytest.raises(ValueError, match="the lease of this host has expired"):
            tenancy.renew(token, 130)
    assert tenancy.is_over(131)


def test_driver_knows_no_bound_before_the_first_answer() -> None:
    lease = HostLease(30)
    assert (lease.token, lease.bound) == (None, None)
    assert not lease.is_over(1e9)


def test_host_is_lost_a_second_after_the_bound() -> None:
    lease = HostLease(30)
    lease.answered(5000, at=100)
    assert (lease.token, lease.bound) == (5000, 130)
    assert not lease.is_over(130.9)
    assert lease.is_over(131)


def test_overtaken_answer_is_ignored() -> None:
    lease = HostLease(30)
    lease.answered(5000, at=100)
    lease.answered(4990, at=110)
    assert (lease.token, lease.bound) == (5000, 130)


def test_answer_after_the_loss_is_ignored() -> None:
    lease = HostLease(30)
    lease.answered(5000, at=100)
    lease.answered(5010, at=131)
    assert lease.is_over(131)
