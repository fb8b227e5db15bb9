"""The program in an agent's tmux window, which shows the agent's activity from its log and events.

``python -m clawblox.agents.screen DIR DRIVER PID START_TIME LOG_BYTES EVENTS_BYTES`` shows
additions to both files until the orchestrator with this pid ends. It writes no file and has no
secrets. While the agent is quiet, it checks the lengths of the two files three times a second.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from clawblox.agents.drivers import find_driver
from clawblox.agents.drivers.driver import Driver
from clawblox.agents.drivers.output import parse_record, record_in
from clawblox.agents.layout import AgentDir
from clawblox.agents.narration import NarrationLine, Tone, narrate
from clawblox.system.files import write_all
from clawblox.system.process_tree import is_same_process
from clawblox.telemetry.tail import Tail

_INTERVAL_MS: Final = 300
_CHUNK_BYTES: Final = 1 << 18
_MAX_BACKLOG_BYTES: Final = 1 << 20
"""Maximum backlog to read; the screen skips the older part of a longer backlog."""
_COLOURS: Final[Mapping[Tone, bytes]] = {
    "faint": b"\x1b[2m",
    "action": b"\x1b[36m",
    "error": b"\x1b[31m",
}
_SHOWN_EVENTS: Final = frozenset(
    {"process.started", "process.exited", "turn.started", "limit", "stalled", "oversized"}
)
"""Event types that are only in ``events.jsonl``; the log contains the others."""


class ActivityScreen:
    """An agent's activity as text for a terminal.

    Args:
        directory: The agent's directory.
        driver: The driver of its program.
        log_start: Offset in the log of the first byte to show.
        events_start: Offset in ``events.jsonl`` of the first byte to show.
    """

    def __init__(
        self, directory: AgentDir, driver: Driver, *, log_start: int, events_start: int
    ) -> None:
        self._directory = directory
        self._driver = driver
        self._conversation = self._driver.read_along(self._directory)
        self._log = Tail(directory.log_file, log_start)
        self._events = Tail(directory.events_file, events_start)

    def news(self) -> bytes:
        """Return the new text since the last call. Blocks."""
        events, output = [*_news(self._events)], [*_news(self._log)]
        return b"".join(map(_coloured, [*self._show_events(events), *self._show_log(output)]))

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        self._events.close()

    def _show_events(self, lines: Iterable[bytes]) -> Iterator[NarrationLine]:
        for text in lines:
            record = parse_record(text) or {}
            kind = record.get("type")
            if kind == "process.started":
                self._conversation = self._driver.read_along(self._directory)
            if kind in _SHOWN_EVENTS:
                yield from narrate(kind, {**record, **record_in(record, "data")})

    def _show_log(self, lines: Iterable[bytes]) -> Iterator[NarrationLine]:
        for text in lines:
            try:
                reports = self._conversation.read(text)
            except Exception:  # noqa: BLE001 - an unreadable line must not end the window
                reports = ()
            for report in reports:
                yield from narrate(report.type, report.data)


def _news(tail: Tail) -> Iterator[bytes]:
    """Yield the lines since the last call, or the latest lines of a long backlog. Blocks."""
    with contextlib.suppress(OSError):
        yield from _read_latest(tail)
        if tail.follow():  # the rest of the previous segment was read
            yield from _read_latest(tail)


def _read_latest(tail: Tail) -> Iterator[bytes]:
    size = tail.log_size()
    if size - tail.position > _MAX_BACKLOG_BYTES:
        tail.seek(size - _CHUNK_BYTES)
    yield from (line.data for line in tail.read_on() if line.data is not None)


def main(arguments: list[str]) -> None:
    """Show an agent's activity until its orchestrator ends."""
    path, driver, *numbers = arguments
    pid, start_time, log_start, events_start = map(int, numbers)
    screen = ActivityScreen(
        AgentDir(Path(path)), find_driver(driver), log_start=log_start, events_start=events_start
    )
    poller = select.poll()
    with contextlib.suppress(ProcessLookupError):
        poller.register(os.pidfd_open(pid), select.POLLIN)
        while is_same_process(pid, start_time) and not poller.poll(_INTERVAL_MS):
            write_all(sys.stdout.fileno(), screen.news())
    write_all(sys.stdout.fileno(), screen.news())


def _coloured(line: NarrationLine) -> bytes:
    colour = _COLOURS.get(line.tone, b"")
    return colour + line.text.encode(errors="replace") + (b"\x1b[m" if colour else b"") + b"\r\n"


if __name__ == "__main__":
    main(sys.argv[1:])
