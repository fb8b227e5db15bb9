"""The library's own log: structlog's loggers, with structlog imported at the first line.

It takes longer to load than the rest of the package, and most processes never log a line. The
application chooses the format and the destination of lines; the library never configures structlog.
If the application has not configured it, lines go to standard error, since standard output belongs
to the application.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from pathlib import PurePath
from traceback import walk_tb
from typing import Any, Final

import attrs

from clawblox.foreign_values import clean_text
from clawblox.printable import printable_name

_MAX_FRAMES: Final = 6
"""Number of innermost frames that a line about a defect names."""


class OwnLog:
    """A logger with methods of structlog's, each of which writes one line.

    Logging never fails: a line is dropped when structlog cannot be loaded, for lack of descriptors
    for example, or when it cannot be written. There is no ``exception``: the tracebacks that
    structlog prints show local variables, and with them the tokens of worlds and agents; see
    :meth:`defect`.

    Args:
        name: The module that logs.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **fields: object) -> None:
        """Write what only developers of this package read."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Write what happened in the ordinary course of things."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write what a user may have to act on."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Write what failed."""
        self._write("error", event, fields)

    def _write(self, method: str, event: str, fields: Mapping[str, object]) -> None:
        try:
            texts = {key: clean_text(text) for key, text in fields.items() if isinstance(text, str)}
            getattr(self._logger(), method)(event, **{**fields, **texts})
        except Exception:  # noqa: BLE001 - an application may configure structlog in any way
            return

    def _logger(self) -> Any:  # noqa: ANN401 - a logger of structlog's
        from structlog import PrintLogger, get_config, get_logger, is_configured, wrap_logger

        if is_configured():
            return get_logger(self._name)
        processors = [escape_entry, *get_config()["processors"]]
        return wrap_logger(PrintLogger(sys.stderr), processors)

    def defect(self, event: str, error: Exception, **fields: Any) -> None:
        """Report an unexpected exception, which is a bug of this package.

        The line names the innermost frames, without their variables. No file is opened, as for a
        printed traceback, so this can be called in an event loop.

        Args:
            event: What failed.
            error: The exception.
            **fields: Further fields of the line.
        """
        self.error(event, error=repr(error), at=_place(error), **fields)

    def contain(
        self,
        event: str,
        *,
        expected: tuple[type[Exception], ...] = (),
        on_defect: Callable[[Exception], object] | None = None,
        **fields: Any,
    ) -> AbstractContextManager[None, bool]:
        """Return a context manager that reports an exception of its block and suppresses it.

        Args:
            event: What failed.
            expected: Failures that are no defects of this package: each is a warning.
            on_defect: Called with any other exception before that is reported as a defect.
            **fields: Further fields of the line.
        """
        return _Containment(self, event, expected, on_defect, fields)


@attrs.define
class _Containment:
    """See :meth:`OwnLog.contain`."""

    log: OwnLog
    event: str
    expected: tuple[type[Exception], ...]
    on_defect: Callable[[Exception], object] | None
    fields: Mapping[str, Any]

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        if isinstance(error, self.expected):
            self.log.warning(self.event, error=str(error), **self.fields)
            return True
        if self.on_defect is not None:
            self.on_defect(error)
        self.log.defect(self.event, error, **self.fields)
        return True


def escape_entry(
    _logger: object, _method: str, entry: MutableMapping[str, Any]
) -> Mapping[str, Any]:
    """Return a line's fields with control characters as escapes: a processor of structlog's."""
    return {
        name: printable_name(value) if isinstance(value, str) else value
        for name, value in entry.items()
    }


def _place(error: Exception) -> str:
    """Return the frames of an exception in one line, the innermost first."""
    frames = [
        f"{PurePath(frame.f_code.co_filename).name}:{line} {frame.f_code.co_qualname}"
        for frame, line in walk_tb(error.__traceback__)
    ]
    return " < ".join(frames[: -_MAX_FRAMES - 1 : -1])
