"""Records each notice in the journal, and then delivers it.

The line ``hook.called`` comes first, so no notice is delivered twice. If the process is
killed before that line, the event is announced when the experiment is opened again; if it is killed
between the line and the delivery, the notice is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.notices.book import Notice, NoticeBook, merge
from clawblox.experiment.notices.delivery import DeliveryError, post, run_command
from clawblox.experiment.tables.status import ExperimentStatus
from clawblox.foreign_values import clean_text, encode_line
from clawblox.telemetry.own_log import OwnLog

_MAX_CHAINS: Final = 100
_MAX_TEXT_CHARS: Final = 1000

_log = OwnLog(__name__)


@attrs.define(eq=False)
class Notifier:
    """Calls the hooks of a plan for events of its experiment.

    Args:
        directory: The directory of the experiment.
        plans: The plans of the experiment.
        lines: The lines of the journal so far.
        recorder: Writes the lines.
        status: Returns the status of the experiment.
    """

    _directory: Path
    _plans: Plans
    _lines: Sequence[JournalLine]
    _recorder: JournalRecorder
    _status: Callable[[], ExperimentStatus]
    _book: NoticeBook = attrs.field(init=False)
    _pending: list[Notice] = attrs.field(init=False)
    _news: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _delivering: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._book = NoticeBook(self._lines)
        self._pending = self._book.take_due(self._plans)

    def note(self, line: JournalLine) -> None:
        """Process a written line."""
        if not self._book.note(line):
            return
        due = self._book.take_due(self._plans, line.chain)
        if due:
            self._pending += due
            self._news.set()

    async def run(self) -> None:
        """Deliver notices as they become due.

        Cancellation: takes effect after the notice that is being delivered.
        """
        while True:
            await self.flush()
            await self._news.wait()
            self._news = anyio.Event()

    async def flush(self) -> None:
        """Deliver all due notices.

        Cancellation: takes effect after the notice that is being delivered.
        """
        async with self._delivering:
            while self._pending:
                first, *others = merge(self._pending)
                self._pending = others
                with anyio.CancelScope(shield=True):
                    await self._deliver(first)
                await anyio.lowlevel.checkpoint()

    async def _deliver(self, notice: Notice) -> None:
        target = getattr(self._plans.present, notice.hook)
        facts = {
            "hook": notice.hook,
            "reason": notice.reason,
            "running": notice.is_running,
            "keys": list(notice.keys),
        }
        try:
            await self._recorder.write("hook.called", facts)
            try:
                if isinstance(target, str):
                    await post(target, encode_line(self._describe_shortly(notice)))
                else:
                    text = encode_line(self._describe(notice))
                    await run_command(target, notice.hook, text, self._directory)
            except DeliveryError as error:
                _log.warning("hook failed", hook=notice.hook, error=str(error))
                failure = {"hook": notice.hook, "error": clean_text(str(error))}
                await self._recorder.write("hook.failed", failure)
        except OSError as error:  # without its line, it is due at the next open
            _log.warning("hook not recorded", hook=notice.hook, error=str(error))

    # -- the notice -----------------------------------------------------------------------------

    def _describe(self, notice: Notice) -> Mapping[str, Any]:
        """Return the notice for a command."""
        status = self._status()
        chains = list(notice.chains.items())[:_MAX_CHAINS]
        return {
            **self._describe_shortly(notice),
            "directory": str(self._directory),
            "chains": {name: clean_text(text, max_chars=_MAX_TEXT_CHARS) for name, text in chains},
            "counts": dict(status.counts),
            "generations": status.generations,
            "spent_usd": status.spent_usd,
        }

    def _describe_shortly(self, notice: Notice) -> Mapping[str, Any]:
        """Return the notice for an address: names and the reason."""
        return {
            "event": notice.event,
            "experiment": self._plans.present.name,
            "reason": notice.reason,
            "running": notice.is_running,
            "text": self._summarise(notice),
            "chains": list(notice.chains)[:_MAX_CHAINS],
            "chain_count": len(notice.chains),
        }

    def _summarise(self, notice: Notice) -> str:
        """Return a sentence with names and the reason."""
        names = ", ".join([*notice.chains][:3]) + (", …" if len(notice.chains) > 3 else "")
        what = {"pause": "paused", "failure": "failed", "done": "done"}[notice.event]
        reason = f" ({notice.reason})" if notice.reason else ""
        return f"{self._plans.present.name}: {what}{reason}" + (f": {names}" if names else "")
