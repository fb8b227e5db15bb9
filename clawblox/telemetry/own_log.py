"""The library's own log: structlog's loggers, which import structlog at the first line.

structlog takes longer to load than the rest of the package, and most processes never log a line.
The application chooses the format and the destination of lines; the library never configures
structlog. By default, lines go to standard error, because standard output belongs to the
application.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import Any, Final

import msgspec

from clawblox.foreign_values import clean_text
from clawblox.printable import printable_name

_MAX_FRAMES: Final = 6
"""Maximum number of innermost frames in a line about a defect."""


class OwnLog:
    """A logger with structlog's methods, each of which writes one line.

    Logging never fails: a line is dropped if structlog cannot be loaded, for example for lack of
    descriptors, or if the line cannot be written. There is no method ``exception``, because
    structlog's tracebacks show local variables, including tokens of worlds and agents; see
    :meth:`defect`.

    Args:
        name: The module that logs.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **fields: object) -> None:
        """Log details for developers of this package."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log an ordinary event."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a condition that may need action by the user."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log a failure."""
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

        The line names the innermost frames, without their variables. Unlike a printed traceback, it
        opens no file, so this can be called in an event loop.

        Args:
            event: The failed operation.
            error: The exception.
            **fields: Additional fields of the line.
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
            event: The failed operation.
            expected: Exceptions that are not defects of this package; they are logged as warnings.
            on_defect: Called with any other exception before it is reported as a defect.
            **fields: Additional fields of the line.
        """
        return _Containment(self, event, expected, on_defect, fields)


class _Containment(msgspec.Struct):
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
    """Return a line's fields with control characters escaped. A structlog processor."""
    return {
        name: printable_name(value) if isinstance(value, str) else value
        for name, value in entry.items()
    }


def _place(error: Exception) -> str:
    """Return the frames of an exception on one line, the innermost first."""
    frames, traceback = list[str](), error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        place = f"{PurePath(code.co_filename).name}:{traceback.tb_lineno}"
        frames.append(f"{place} {code.co_qualname}")
        traceback = traceback.tb_next
    return " < ".join(frames[: -_MAX_FRAMES - 1 : -1])
