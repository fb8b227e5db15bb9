"""Warnings of the library and defects of displays, shown apart from the output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import anyio
import structlog

from clawblox.cli.terminal.output import OutputGone
from clawblox.telemetry.own_log import OwnLog, escape_entry

_REPORT: Final = "display failed; what it shows continues"
_REST_S: Final = 1.0

_log = OwnLog(__name__)


class DisplayContainment:
    """A reusable context manager that keeps defects of a display from the work that it shows.

    Exceptions of the block are suppressed, and the first one is reported. :class:`OutputGone`
    passes through, because the command decides what to do without its output.

    Attributes:
        has_failed: Whether the block has raised such an exception.
    """

    def __init__(self) -> None:
        self.has_failed = False

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, OutputGone):
            return False
        if not self.has_failed:
            self.has_failed = True
            configure_logging()  # a display that has failed may not show warnings
            if isinstance(error, OSError):
                _log.warning(_REPORT, error=str(error))
            else:
                _log.defect(_REPORT, error)
        return True

    async def keep_showing(self, show: Callable[[], Awaitable[None]]) -> None:
        """Run a display until it returns; restart it a second after each failure.

        Args:
            show: Runs the display.

        Raises:
            OutputGone: The reader of the output is gone.

        Cancellation: as for ``show``.
        """
        while True:
            with self:
                return await show()
            await anyio.sleep(_REST_S)


def configure_logging(warn: Callable[[str], None] | None = None) -> None:
    """Show the library's log entries of level warning and above.

    Args:
        warn: Called with each message, from any thread; None writes them to standard error.
    """
    structlog.reset_defaults()  # undoes the configuration of an earlier call
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=[
            escape_entry,
            *(structlog.get_config()["processors"] if warn is None else [_pass_to(warn)]),
        ],
    )


def _pass_to(warn: Callable[[str], None]) -> structlog.typing.Processor:
    def process(_logger: object, _method: str, entry: structlog.typing.EventDict) -> NoReturn:
        fields = (f"{key}={value}" for key, value in entry.items() if key != "event")
        warn(" ".join((str(entry["event"]), *fields)))
        raise structlog.DropEvent

    return process
