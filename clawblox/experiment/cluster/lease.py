"""The lease between driver and host: its rule, and the thread that renews it.

A renewal carries the node's time from the previous answer, so a late renewal extends the lease by
less, and the driver knows the latest end: the time at which it received that answer, plus the
length. Only durations are compared between machines, never clocks.

All times are seconds of CLOCK_BOOTTIME, which counts while a process is stopped or its machine
sleeps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Final

import attrs

from clawblox.experiment.cluster.engine import HostEndedError, HostHandle

MARGIN_S: Final = 1.0
"""Seconds after the end of its lease until a host has certainly ended: clock drift and the kill.

They cover clock rates that differ by 1 % for leases of up to 100 seconds.
"""

_INTERVAL_S: Final = 5.0


def read_boottime() -> float:
    """Return the seconds since this machine was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@attrs.define
class HostLease:
    """The driver's side of a lease. Pure.

    Attributes:
        length_s: Its length in seconds.
        token: The node's time to send with the next renewal; None for the first one.
        bound: The driver's time until which the host may run; None before the first answer.
    """

    length_s: float
    token: float | None = attrs.field(init=False, default=None)
    bound: float | None = attrs.field(init=False, default=None)

    def answered(self, token: float, at: float) -> None:
        """Apply the answer to a renewal; ignore answers that are late or were overtaken.

        Args:
            token: The node's time in the answer.
            at: The driver's time at which it was received, or a later time.
        """
        if not self.is_over(at) and (self.token is None or token > self.token):
            self.token, self.bound = token, at + self.length_s

    def is_over(self, now: float) -> bool:
        """Return whether the host has ended for certain; once true, it stays true."""
        return self.bound is not None and now >= self.bound + MARGIN_S


@attrs.define
class Tenancy:
    """The node's side of a lease. Pure.

    Attributes:
        length_s: Its length in seconds.
        deadline: The node's time at which the host has to end; None before the first renewal.
    """

    length_s: float
    deadline: float | None = attrs.field(init=False, default=None)

    def renew(self, token: float | None, now: float) -> float:
        """Extend the lease, and return its deadline, which never moves back.

        Args:
            token: The node's time in an earlier answer. None starts the lease; if it has already
                started because that answer was lost, None does not extend it.
            now: The node's time.

        Raises:
            ValueError: The lease is over, or this host never gave that token.
        """
        if self.is_over(now):
            raise ValueError("the lease of this host has expired")
        if token is None:
            self.deadline = now + self.length_s if self.deadline is None else self.deadline
        elif self.deadline is None or token > now:
            raise ValueError(f"token: must be a time issued by this host, not {token}")
        else:
            self.deadline = max(self.deadline, token + self.length_s)
        return self.deadline

    def is_over(self, now: float) -> bool:
        """Return whether the host has to end; once true, it stays true."""
        return self.deadline is not None and now >= self.deadline


class Renewer:
    """Renews the lease of a host in a thread, so a busy event loop cannot lose a host.

    All renewers of a process share one thread. An engine's report never shortens a lease, because a
    host whose process has ended may have left agents running.

    Args:
        handle: The host.
        length_s: The length of the lease in seconds.
        now: The clock.

    Attributes:
        granted: Done when the host has a lease. Until then it accepts no requests.
        lost: Completed in the thread of the renewers when the host is lost, with the reason as
            text. A host that ended before its first renewal has run nothing and is lost
            immediately. :meth:`stop` cancels the future.
    """

    def __init__(
        self,
        handle: HostHandle,
        length_s: float,
        *,
        now: Callable[[], float] = read_boottime,
    ) -> None:
        self.granted: Future[None] = Future()
        self.lost: Future[str] = Future()
        self._handle = handle
        self._lease = HostLease(length_s)
        self._now = now
        self._lock = threading.Lock()
        self._interval_s = min(_INTERVAL_S, length_s / 6)
        self._next_at = now()
        self._is_asked = False
        self._error: Exception | None = None

    @property
    def bound(self) -> float | None:
        """The driver's time until which the host may run; None before its first answer."""
        return self._lease.bound

    @property
    def is_lost(self) -> bool:
        """True once the host has certainly ended; its messages are ignored from then on."""
        is_told = self.lost.done() and not self.lost.cancelled()
        return is_told or self._lease.is_over(self._now())

    def start(self) -> None:
        """Start renewing."""
        _thread.add(self)

    def stop(self) -> None:
        """Stop renewing; the host ends with its lease and is not reported lost. Idempotent.

        Calls that still wait fail with ``concurrent.futures.CancelledError``.
        """
        self.lost.cancel()
        _thread.has_news.set()

    def run_due(self) -> float | None:
        """Perform due actions; return the seconds until the next action, or None.

        The thread calls this.
        """
        now = self._now()
        if self._lease.is_over(now):
            self._lose(f"the host did not renew its lease of {self._lease.length_s:g} s")
        if self.lost.done():
            return None
        if now >= self._next_at:
            self._next_at = now + self._interval_s
            self._renew()
        bound = self._lease.bound
        over_at = self._next_at if bound is None else bound + MARGIN_S
        return max(0.0, min(self._next_at, over_at) - now)

    def _renew(self) -> None:
        """Send a renewal even if earlier ones hang, but only one while the host waits for room."""
        token = self._lease.token
        if token is not None or not self._is_asked:
            self._is_asked = True
            try:
                self._handle.renew(token).add_done_callback(self._note)
            except Exception as error:  # noqa: BLE001 - must not stop the thread of all hosts
                self._error, self._is_asked = error, False

    def _note(self, renewal: Future[float]) -> None:
        """Apply the answer to a renewal, in a thread of the engine."""
        at = self._now()
        try:
            token = renewal.result()
        except Exception as error:  # noqa: BLE001 - the lease decides
            self._error, self._is_asked = error, False
            if isinstance(error, HostEndedError) and self._lease.bound is None:
                self._lose("the host ended before it was ready")
            return
        with self._lock:
            self._error = None
            self._lease.answered(token, at)
            if not self.granted.done():
                self.granted.set_result(None)

    def _lose(self, text: str) -> None:
        with suppress(InvalidStateError):  # the host was already lost, or the renewer stopped
            self.lost.set_result(text if self._error is None else f"{text} ({self._error})")


class _RenewalThread:
    """The thread of all renewers; it runs while there are any."""

    def __init__(self) -> None:
        self.has_news = threading.Event()
        self._lock = threading.Lock()
        self._renewers: set[Renewer] = set()
        self._is_running = False

    def add(self, renewer: Renewer) -> None:
        with self._lock:
            self._renewers.add(renewer)
            self.has_news.set()
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="clawblox-leases", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.has_news.clear()
            with self._lock:
                renewers = tuple(self._renewers)
                self._is_running = bool(renewers)
            if not renewers:
                return
            waits_s = {renewer: renewer.run_due() for renewer in renewers}
            with self._lock:
                self._renewers -= {renewer for renewer in renewers if waits_s[renewer] is None}
            self.has_news.wait(min((s for s in waits_s.values() if s is not None), default=0.0))


_thread = _RenewalThread()
