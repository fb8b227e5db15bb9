"""Determines from the lines of a journal which notices are due. Pure.

An event is due once. Its line ``hook.called`` has keys that name the event, and later lines decide
whether the same problem is a new event: if an account has worked in between, its next limit is new,
and so is the next pause of a chain that has worked in between. A resume that only finds a pause is
not an event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.experiment.history.lines import ENDINGS, JournalLine
from clawblox.experiment.history.machine import Finished, next_step
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan.plan import Chain

NoticeEvent: TypeAlias = Literal["pause", "failure", "done"]
"""Subject of a notice."""

_OF_CHAIN: Final = frozenset({"secret", "checkpoint"})
"""Reasons of pauses that concern one chain only."""
_OF_RUN: Final = frozenset({"disk", "dollars", "wall", "auth", "limit"})
"""Reasons of pauses that end a run."""
_TRIGGERS: Final = frozenset({"failed", "paused", "account.limited", "session.ended"})
"""Types of the lines after which an event may be due."""


@attrs.frozen(kw_only=True)
class Notice:
    """An event for which a command or an address is notified.

    Attributes:
        event: The event.
        reason: Reason of the pause, or cause of the failure; empty when all is done.
        is_running: Whether the experiment kept running after the event.
        chains: Why each chain is paused or has failed, by its name.
        keys: Names that identify the event in the journal.
    """

    event: NoticeEvent
    reason: str = ""
    is_running: bool = False
    chains: Mapping[str, str] = attrs.field(factory=dict)
    keys: tuple[str, ...] = ()

    @property
    def hook(self) -> str:
        """Name of the hook that is called."""
        return f"on_{self.event}"


class NoticeBook:
    """The announced events of an experiment, and the due events.

    Args:
        lines: The lines of its journal so far.
    """

    def __init__(self, lines: Collection[JournalLine] = ()) -> None:
        self._announced: set[str] = set()
        self._told: dict[tuple[str, bool], int] = {}
        self._amended: list[int] = []
        self._limited: dict[str, int] = {}
        self._working = self._run_seq = self._ending = 0
        self._ended: JournalLine | None = None
        for line in lines:
            self.note(line)

    def note(self, line: JournalLine) -> bool:
        """Process the next line; return whether an event may be due after it."""
        if line.type in ENDINGS or line.type == "imported":
            self._ending = line.seq
        match line.type:
            case "hook.called":
                data = line.data
                self._announce(data["keys"], str(data["reason"]), line.seq, data["running"])
            case "plan.amended":
                self._amended.append(line.seq)
            case "account.limited":
                self._limited.setdefault(str(line.data["account"]), line.seq)
            case "account.cleared":
                self._limited.pop(str(line.data["account"]), None)
            case "session.begun":
                self._run_seq, self._ended = line.seq, None
            case "session.ended":
                self._ended = line
            case "working":
                self._working = line.seq
        return line.type in _TRIGGERS

    def _announce(self, keys: Collection[str], reason: str, seq: int, is_running: bool) -> None:
        self._announced.update(keys)
        self._told[reason, is_running] = seq

    def _is_told(self, reason: str) -> bool:
        """Return whether a pause of the experiment was the last one to be announced.

        A usage limit is announced again when it ends the run.
        """
        states = (False,) if reason == "limit" else (False, True)
        told = max(self._told.get((reason, state), 0) for state in states)
        return told > min(self._run_seq, self._working)

    def take_due(self, plans: Plans, chain: str | None = None) -> list[Notice]:
        """Return the due events, and mark them as announced.

        An event is due if the plan has a hook for it, and had one when the event happened.

        Args:
            plans: The plans of the experiment.
            chain: Name of the only chain that may have changed; None for all.
        """
        hooks = ("on_pause", "on_failure", "on_done")
        if all(getattr(plans.present, hook) is None for hook in hooks):
            return []
        due = []
        for seq, notice in self._find(plans, chain):
            then = plans.revisions[sum(amended < seq for amended in self._amended)]
            is_wanted = None not in [getattr(p, notice.hook) for p in (plans.present, then)]
            if is_wanted and self._announced.isdisjoint(notice.keys):
                self._announce(notice.keys, notice.reason, plans.state.seq, notice.is_running)
                due.append(notice)
        return due

    def _find(self, plans: Plans, only: str | None) -> Iterator[tuple[int, Notice]]:
        """Yield all events of the state, each with the number of its line."""
        chains, state = plans.chains, plans.state
        is_running = state.current_run is not None
        failed = dict(_find_failed(plans))
        for name, ending in failed.items():
            if only in (None, name):
                cause, key = str(ending.data.get("cause", "")), f"failure:{ending.seq}"
                yield ending.seq, _notice("failure", cause, is_running, {name: ending}, key)
        names = chains if only is None or only not in chains else [only]
        for name in names:
            paused = _find_pause(state, name)
            if paused is None:
                continue
            reason, key = str(paused.data["reason"]), f"pause:{paused.seq}"
            if reason in _OF_CHAIN or (reason == "disk" and not self._is_told(reason)):
                yield paused.seq, _notice("pause", reason, is_running, {name: paused}, key)
        for account, facts in state.accounts.items():
            reason = str(facts["reason"])
            waiting = dict(_find_limited(chains, state, account))
            seq = self._limited[account]
            key = f"{reason}:{seq}"
            yield seq, _notice("pause", reason, is_running, waiting, key)
        if self._ended is not None:
            yield from self._find_ends(self._ended, plans, failed)

    def _find_ends(
        self, ended: JournalLine, plans: Plans, failed: Mapping[str, JournalLine]
    ) -> Iterator[tuple[int, Notice]]:
        """Yield the events at the end of a run, with the number of its line."""
        status = ended.data.get("reason")
        if status == "done" and all(
            next_step(plans, chain) == Finished(status="done") for chain in plans.chains.values()
        ):
            yield ended.seq, _notice("done", "", False, {}, f"done:{self._ending}")
        if status == "failed":
            causes = [str(ending.data.get("cause", "")) for ending in failed.values()] or ["defect"]
            key = f"failure:{self._ending}"
            yield ended.seq, _notice("failure", causes[0], False, failed, key)
        waits = ended.data.get("waits", ()) if status != "stopped" else ()
        for wait in waits:
            reason = str(wait["reason"])
            if reason in _OF_RUN and not self._is_told(reason):
                texts = dict.fromkeys(map(str, wait["chains"]), str(wait.get("text", "")))
                key = f"pause:{ended.seq}:{reason}"
                notice = Notice(event="pause", reason=reason, chains=texts, keys=(key,))
                yield ended.seq, notice


def merge(notices: Collection[Notice]) -> list[Notice]:
    """Return the notices with events of the same kind, reason and time merged."""
    groups: dict[Any, list[Notice]] = {}
    for notice in notices:
        groups.setdefault((notice.event, notice.reason, notice.is_running), []).append(notice)
    return [
        attrs.evolve(
            group[0],
            chains={name: text for notice in group for name, text in notice.chains.items()},
            keys=tuple(key for notice in group for key in notice.keys),
        )
        for group in groups.values()
    ]


def _notice(
    event: NoticeEvent, reason: str, is_running: bool, endings: Mapping[str, JournalLine], key: str
) -> Notice:
    texts = {name: str(ending.data.get("text", "")) for name, ending in endings.items()}
    return Notice(event=event, reason=reason, is_running=is_running, chains=texts, keys=(key,))


def _find_failed(plans: Plans) -> Iterator[tuple[str, JournalLine]]:
    for name, chain in plans.chains.items():
        ending = plans.state.chain(name).last_ending
        is_failed = ending is not None and ending.type == "failed"
        if is_failed and next_step(plans, chain) == Finished(status="failed"):
            assert ending is not None
            yield name, ending


def _find_pause(state: ExperimentState, name: str) -> JournalLine | None:
    """Return the line that paused a chain, unless its account is the reason."""
    ending = state.chain(name).last_ending
    if ending is None or ending.type != "paused" or "reason" not in ending.data:
        return None
    return ending


def _find_limited(
    chains: Mapping[str, Chain], state: ExperimentState, account: str
) -> Iterator[tuple[str, JournalLine]]:
    for name in chains:
        ending = state.chain(name).last_ending
        if ending is not None and ending.data.get("account") == account:
            yield name, ending
