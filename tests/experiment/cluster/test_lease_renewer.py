"""Leases are renewed in time, and only the lease rule decides that a host is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import attrs
import pytest

from clawblox.experiment.cluster import lease
from clawblox.experiment.cluster.engine import CallLostError, HostEndedError
from clawblox.experiment.cluster.lease import MARGIN_S, Renewer, read_boottime

TIMEOUT_S = 20.0


@attrs.define
class Handle:
    """A host whose renewals the test answers."""

    tokens: list[float | None] = attrs.field(factory=list)
    renewals: list[Future[float]] = attrs.field(factory=list)
    error: Exception | None = None

    def call(self, *_: object) -> Future[object]:
        raise AssertionError("no call is made here")

    def renew(self, token: float | None) -> Future[float]:
        if self.error is not None:
            raise self.error
        self.tokens.append(token)
        self.renewals.append(Future())
        return self.renewals[-1]

    def end(self) -> None: ...


class Leased:
    """A renewer whose clock and checks the test controls; its lease is 30 seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.losses: list[str] = []
        self.handle = Handle()
        self.renewer = Renewer(self.handle, 30.0, now=lambda: self.now)
        self.renewer.lost.add_done_callback(self._note_loss)

    def _note_loss(self, lost: Future[str]) -> None:
        if not lost.cancelled():
            self.losses.append(lost.result())

    def run_due(self, now: float) -> float | None:
        self.now = now
        return self.renewer.run_due()


@pytest.fixture
def leased() -> Leased:
    return Leased()


def test_lease_is_renewed_every_five_seconds_with_the_time_of_the_latest_answer(
    leased: Leased,
) -> None:
    assert leased.run_due(1000) == 5
    leased.handle.renewals[0].set_result(70.0)
    assert leased.run_due(1004) == 1
    assert leased.run_due(1005) == 5
    assert leased.handle.tokens == [None, 70.0]
    assert leased.renewer.bound == 1030


def test_short_lease_is_renewed_six_times_in_its_length() -> None:
    assert Renewer(Handle(), 6.0, now=lambda: 0.0).run_due() == 1


def test_renewal_that_hangs_does_not_stop_the_next_one(leased: Leased) -> None:
    leased.run_due(1000)
    leased.handle.renewals[0].set_result(70.0)
    leased.run_due(1005)
    leased.run_due(1010)
    leased.handle.renewals[2].set_result(80.0)
    assert leased.renewer.bound == 1040


def test_host_waiting_for_room_is_asked_once_and_is_never_lost(leased: Leased) -> None:
    for now in range(1000, 5000, 5):
        assert leased.run_due(now) == 5
    assert leased.handle.tokens == [None]
    assert not leased.renewer.granted.done()
    leased.handle.renewals[0].set_result(70.0)
    assert leased.renewer.granted.done()
    assert leased.losses == []


def test_lost_first_renewal_is_sent_again(leased: Leased) -> None:
    leased.run_due(1000)
    leased.handle.renewals[0].set_exception(CallLostError())
    leased.run_due(1005)
    assert leased.handle.tokens == [None, None]


def test_first_renewal_refused_by_an_engine_is_sent_again(leased: Leased) -> None:
    leased.handle.error = OSError("full")
    leased.run_due(1000)
    leased.handle.error = None
    leased.run_due(1005)
    assert leased.handle.tokens == [None]


def test_host_that_ended_before_its_first_answer_is_lost_at_once(leased: Leased) -> None:
    leased.run_due(1000)
    leased.handle.renewals[0].set_exception(HostEndedError("no such program"))
    assert leased.losses == ["the host ended before it was ready (no such program)"]
    assert leased.renewer.is_lost
    assert not leased.renewer.granted.done()
    assert leased.run_due(1001) is None


@pytest.mark.parametrize("error", [HostEndedError("killed"), CallLostError("cut"), OSError("full")])
@pytest.mark.parametrize("is_raised", [False, True])
def test_engine_error_does_not_shorten_the_lease(
    leased: Leased, error: Exception, is_raised: bool
) -> None:
    leased.run_due(1000)
    leased.handle.renewals[0].set_result(70.0)
    if is_raised:
        leased.handle.error = error
    leased.run_due(1005)
    if not is_raised:
        leased.handle.renewals[1].set_exception(error)
    assert leased.run_due(1030.5) == 0.5
    assert not leased.renewer.is_lost
    assert leased.losses == []
    assert leased.run_due(1031) is None
    assert leased.losses == [f"the host did not renew its lease of 30 s ({error})"]


def test_loss_is_reported_once(leased: Leased) -> None:
    leased.run_due(1000)
    leased.handle.renewals[0].set_result(70.0)
    for now in (1031, 1031, 1100):
        assert leased.run_due(now) is None
    assert leased.losses == ["the host did not renew its lease of 30 s"]
    assert leased.renewer.lost.result() == leased.losses[0]


def test_loss_does_not_name_an_error_from_before_the_latest_answer(leased: Leased) -> None:
    leased.run_due(1000)
    leased.handle.renewals[0].set_exception(CallLostError("cut"))
    leased.run_due(1005)
    leased.handle.renewals[1].set_result(75.0)
    leased.run_due(1036)
    assert leased.losses == ["the host did not renew its lease of 30 s"]


def test_each_answer_is_taken_without_an_error(
    leased: Leased, caplog: pytest.LogCaptureFixture
) -> None:
    for now in (1000, 1005):
        leased.run_due(now)
        leased.handle.renewals[-1].set_result(now - 930.0)
    assert caplog.records == []  # of callbacks that fail


def test_next_look_is_at_the_end_of_the_lease(leased: Leased) -> None:
    leased.run_due(1000)
    leased.handle.renewals[0].set_result(70.0)
    assert leased.run_due(1029) == 2
    assert leased.run_due(1030) == 1


def test_late_answer_after_a_driver_pause_does_not_save_the_host(leased: Leased) -> None:
    leased.run_due(1000)
    leased.handle.renewals[0].set_result(70.0)
    leased.run_due(1005)
    leased.now = 1031.0
    leased.handle.renewals[1].set_result(75.0)
    assert leased.renewer.is_lost
    assert leased.run_due(1031) is None
    assert len(leased.losses) == 1
    assert len(leased.handle.tokens) == 2


def test_stopped_renewer_reports_no_loss(leased: Leased, caplog: pytest.LogCaptureFixture) -> None:
    leased.run_due(1000)
    leased.handle.renewals[0].set_result(70.0)
    leased.renewer.stop()
    leased.renewer.stop()
    leased.run_due(1031)
    assert leased.losses == []
    assert caplog.records == []  # of callbacks that fail


# -- the thread --------------------------------------------------------------------------------


class Answering(Handle):
    """A host that answers at once, once or always."""

    def __init__(self, *, is_silent_after_first: bool = False) -> None:
        super().__init__()
        self.is_silent_after_first = is_silent_after_first
        self.has_three = threading.Event()

    def renew(self, token: float | None) -> Future[float]:
        renewal = super().renew(token)
        if token is None or not self.is_silent_after_first:
            renewal.set_result(read_boottime())
        if len(self.tokens) == 3:
            self.has_three.set()
        return renewal


def lease_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "clawblox-leases"]


StartRenewer = Callable[..., Renewer]


@pytest.fixture
def start() -> Iterator[StartRenewer]:
    """Start renewers, and check that their thread ends with the last renewer."""
    renewers: list[Renewer] = []

    def start(host: Handle, length_s: float = 600.0) -> Renewer:
        renewers.append(Renewer(host, length_s))
        renewers[-1].start()
        return renewers[-1]

    yield start
    for renewer in renewers:
        renewer.stop()
    for thread in lease_threads():
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew every 10 milliseconds, with leases too long to expire on a slow machine."""
    monkeypatch.setattr(lease, "_INTERVAL_S", 0.01)


@pytest.mark.usefixtures("fast")
def test_one_thread_renews_the_leases_of_all_hosts(start: StartRenewer) -> None:
    hosts = [Answering() for _ in range(64)]
    for host in hosts:
        start(host)
    assert len(lease_threads()) == 1
    for host in hosts:
        assert host.has_three.wait(TIMEOUT_S)


@pytest.mark.usefixtures("fast")
def test_leases_are_renewed_while_the_program_is_busy(start: StartRenewer) -> None:
    host = Answering()
    start(host)
    give_up_at = read_boottime() + TIMEOUT_S
    while not host.has_three.is_set():
        assert read_boottime() < give_up_at


def test_loss_of_one_host_leaves_the_others_alone(start: StartRenewer) -> None:
    lost_at: Future[float] = Future()

    def note_loss(lost: Future[str]) -> None:
        lost_at.set_result(read_boottime())
        raise RuntimeError(lost.result())

    silent = start(Answering(is_silent_after_first=True), 0.6)
    silent.lost.add_done_callback(note_loss)
    healthy = start(Answering())
    assert silent.lost.result(TIMEOUT_S) == "the host did not renew its lease of 0.6 s"
    assert silent.bound is not None
    assert lost_at.result(TIMEOUT_S) >= silent.bound + MARGIN_S
    assert not healthy.is_lost
    start(Answering()).granted.result(TIMEOUT_S)


def test_thread_ends_when_its_last_host_is_lost(start: StartRenewer) -> None:
    start(Answering(is_silent_after_first=True), 0.6).lost.result(TIMEOUT_S)
    for thread in lease_threads():
        thread.join(TIMEOUT_S)
    assert lease_threads() == []


def test_new_host_is_renewed_immediately_while_the_thread_waits(
    start: StartRenewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_INTERVAL_S", 1000.0)
    start(Answering(), 60_000.0).granted.result(TIMEOUT_S)
    start(Answering(), 60_000.0).granted.result(TIMEOUT_S)
