"""Warnings that the library logs, shown apart from the output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import NoReturn

import structlog

from clawblox.telemetry.own_log import escape_entry


def configure_logging(warn: Callable[[str], None] | None = None) -> None:
    """Show log entries of the library from warning level up.

    Args:
        warn: Called with each message, in any thread; None writes them to standard error.
    """
    structlog.reset_defaults()  # an earlier call may have passed the entries elsewhere
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
