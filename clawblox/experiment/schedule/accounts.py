"""The accounts of the agents' providers, and the chains that wait for them.

A usage limit belongs to an account, so no chain that uses the account is started while it is
limited. When the limit should have lifted, one chain tries; the others start when that chain has
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
    """An account that is limited.

    Attributes:
        reason: ``limit`` or ``auth``.
        since: When it began, by the clock.
        retry_at: When the next try may begin, by the clock.
        tries: Number of tries that have failed.
        probing_chain: The chain that tries now; None if none does.
    """

    reason: PauseReason
    since: float
    retry_at: float
    tries: int = 0
    probing_chain: str | None = None


class LongPauseError(Exception):
    """An account stays limited for longer than a chain waits."""


class Accounts:
    """The accounts of an experiment.

    Args:
        clock: The clock.
        longest_pause: Seconds for which an account may be limited.
    """

    def __init__(self, clock: TimeSource, longest_pause: float) -> None:
        self._clock = clock
        self._longest_s = longest_pause
        self._limited: dict[str, _Limited] = {}
        self._changed = anyio.Event()

    def limit(
        self, account: str, reason: PauseReason, until: datetime | None, *, chain: str
    ) -> None:
        """Note that an account is limited.

        Args:
            account: The account.
            reason: ``limit`` or ``auth``.
            until: UTC time at which the limit lifts, as its provider reports it; None if it does
                not. A time in the past tells nothing: one of the two clocks is wrong.
            chain: The chain that has met the limit; its try is over.
        """
        now = self._clock.monotonic()
        before = self._limited.get(account) or _Limited(reason, now, now)
        has_tried = before.probing_chain == chain
        tries = before.tries + has_tried
        wait_s = _PROBE_LOGIN_S if reason == "auth" else self._time_left(until)
        if wait_s <= 0.0:
            wait_s = _BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)]
        elif tries:  # the end that was reported before was wrong, and so may this one be
            wait_s = max(wait_s, _BACKOFF_S[0])
        probing_chain = None if has_tried else before.probing_chain
        self._limited[account] = _Limited(reason, before.since, now + wait_s, tries, probing_chain)
        self._notify()

    def recall(self, account: str, reason: PauseReason, until: datetime | None) -> None:
        """Note a limit that an earlier run has met; one chain tries when it should be over.

        Args:
            account: The account.
            reason: ``limit`` or ``auth``; a login may have been renewed, so it is tried now.
            until: UTC time at which the limit lifts; None tries now.
        """
        now = self._clock.monotonic()
        wait_s = 0.0 if reason == "auth" else max(0.0, self._time_left(until))
        self._limited[account] = _Limited(reason, now, now + wait_s)

    def _time_left(self, until: datetime | None) -> float:
        """Return the seconds until a time, negative for the past; 0 if it is not known."""
        return 0.0 if until is None else (until - self._clock.utc()).total_seconds()

    def clear(self, account: str) -> bool:
        """Note that an account works; return whether it was limited."""
        was_limited = self._limited.pop(account, None) is not None
        if was_limited:
            self._notify()
        return was_limited

    def release(self, chain: str) -> None:
        """Note that a chain does not try any longer."""
        for limited in self._limited.values():
            if limited.probing_chain == chain:
                limited.probing_chain = None
                self._notify()

    def is_probing(self, chain: str) -> bool:
        """Return whether a chain is the one that tries."""
        return any(limited.probing_chain == chain for limited in self._limited.values())

    def blocking(self, accounts: Sequence[str], chain: str) -> PauseReason | None:
        """Return why a chain cannot start now; None if it can.

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
        """Wait until a chain can start; then it may be the one that tries.

        Args:
            accounts: The accounts that it uses.
            chain: The chain.
            check_login: Returns whether the programs are logged in.

        Raises:
            LongPauseError: An account stays limited for too long.

        Cancellation: the chain does not wait any longer.
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
        """Return until when a chain must wait, by the clock; None if it can start."""
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
