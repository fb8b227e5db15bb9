"""The accounts of the agents' providers, and the chains that wait for them.

A usage limit applies to an account, so chains that use a limited account are not started.
When the limit should have lifted, one chain tries; the others start when that chain has
made progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

import anyio
import attrs

from clawblox.experiment.history.lines import PauseReason
from clawblox.experiment.schedule.timing import wait_until
from clawblox.system.clock import TimeSource

_BACKOFF_S: Final = (60.0, 120.0, 300.0, 600.0, 900.0)
_PROBE_LOGIN_S: Final = 60.0


@attrs.define
class _Limited:
    """A limited account.

    Attributes:
        reason: ``limit`` or ``auth``.
        since: Start of the limit, by the clock.
        retry_at: Earliest time of the next try, by the clock.
        tries: Number of failed tries.
        probing_chain: The chain that is trying now, or None.
    """

    reason: PauseReason
    since: float
    retry_at: float
    tries: int = 0
    probing_chain: str | None = None


class LongPauseError(Exception):
    """An account will stay limited for longer than chains wait."""


class Accounts:
    """The accounts of an experiment.

    Args:
        clock: The clock.
        longest_pause: Maximum seconds that chains wait for an account.
    """

    def __init__(self, clock: TimeSource, longest_pause: float) -> None:
        self._clock = clock
        self._longest_s = longest_pause
        self._limited: dict[str, _Limited] = {}
        self._changed = anyio.Event()

    def limit(
        self, account: str, reason: PauseReason, until: datetime | None, *, chain: str
    ) -> None:
        """Record that an account is limited.

        Args:
            account: The account.
            reason: ``limit`` or ``auth``.
            until: UTC time at which the limit lifts, as reported by the provider; None if not
                reported. A past time is ignored, because one of the two clocks must be wrong.
            chain: The chain that has met the limit; its try is over.
        """
        now = self._clock.monotonic()
        before = self._limited.get(account) or _Limited(reason, now, now)
        has_tried = before.probing_chain == chain
        tries = before.tries + has_tried
        wait_s = _PROBE_LOGIN_S if reason == "auth" else self._time_left(until)
        if wait_s <= 0.0:
            wait_s = _BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)]
        elif tries:  # the previously reported end was wrong, so this one may be wrong too
            wait_s = max(wait_s, _BACKOFF_S[0])
        probing_chain = None if has_tried else before.probing_chain
        self._limited[account] = _Limited(reason, before.since, now + wait_s, tries, probing_chain)
        self._notify()

    def recall(self, account: str, reason: PauseReason, until: datetime | None) -> None:
        """Note a limit of an earlier run; one chain tries when the limit should have lifted.

        Args:
            account: The account.
            reason: ``limit`` or ``auth``; a login is tried now, because it may have been renewed.
            until: UTC time at which the limit lifts; None tries now.
        """
        now = self._clock.monotonic()
        wait_s = 0.0 if reason == "auth" else max(0.0, self._time_left(until))
        self._limited[account] = _Limited(reason, now, now + wait_s)

    def _time_left(self, until: datetime | None) -> float:
        """Return the seconds until a time, negative for the past; 0 if the time is unknown."""
        return 0.0 if until is None else (until - self._clock.utc()).total_seconds()

    def clear(self, account: str) -> bool:
        """Record that an account works; return whether it was limited."""
        was_limited = self._limited.pop(account, None) is not None
        if was_limited:
            self._notify()
        return was_limited

    def release(self, chain: str) -> None:
        """Note that a chain has stopped trying."""
        for limited in self._limited.values():
            if limited.probing_chain == chain:
                limited.probing_chain = None
                self._notify()

    def is_probing(self, chain: str) -> bool:
        """Return whether a chain is trying."""
        return any(limited.probing_chain == chain for limited in self._limited.values())

    def blocking(self, accounts: Sequence[str], chain: str) -> PauseReason | None:
        """Return the reason for which a chain cannot start now; None if it can.

        Args:
            accounts: The accounts that it uses.
            chain: The chain.
        """
        now = self._clock.monotonic()
        for account in accounts:
            limited = self._limited.get(account)
            if limited is None or limited.probing_chain == chain:
                continue
            if limited.probing_chain is not None or now < limited.retry_at:
                return limited.reason
        return None

    async def wait(
        self, accounts: Sequence[str], chain: str, check_login: Callable[[], Awaitable[bool]]
    ) -> None:
        """Wait until a chain can start; it may then be the chain that tries.

        Args:
            accounts: The accounts that it uses.
            chain: The chain.
            check_login: Returns whether the programs are logged in.

        Raises:
            LongPauseError: An account will stay limited for too long.

        Cancellation: the chain stops waiting.
        """
        while True:
            while (look_at := self._next_look(accounts, chain)) is not None:
                await wait_until(self._clock, self._changed, look_at)
            limited = [self._limited[name] for name in accounts if name in self._limited]
            for account in limited:
                account.probing_chain = chain
            if not any(account.reason == "auth" for account in limited) or await check_login():
                return
            for name in set(accounts) & self._limited.keys():
                self.limit(name, self._limited[name].reason, None, chain=chain)

    def _next_look(self, accounts: Sequence[str], chain: str) -> float | None:
        """Return the time until which a chain must wait, by the clock; None if it can start."""
        if self.blocking(accounts, chain) is None:
            return None
        limited = [self._limited[account] for account in accounts if account in self._limited]
        now = self._clock.monotonic()
        gives_up_at = min(account.since for account in limited) + self._longest_s
        if now >= gives_up_at:
            raise LongPauseError
        soonest = max(account.retry_at for account in limited)
        return min(gives_up_at, soonest if soonest > now else gives_up_at)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
