"""Calls the hooks of an experiment: whatever they do, a generation is committed."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import anyio

from clawblox.foreign_values import clean_text, finite_number
from clawblox.telemetry.own_log import OwnLog

MAX_HOOK_S: Final = 300.0
"""Maximum seconds for a call of a hook."""
_MAX_ERRORS: Final = 3
_MAX_SCORES: Final = 256

_log = OwnLog(__name__)

Score: TypeAlias = Callable[[Any], Awaitable[Mapping[str, float]]]
"""Returns the scores of a generation by name; its agents have been stopped, its world runs."""

StopHook: TypeAlias = Callable[[Any], Awaitable[str | None]]
"""Returns why a generation should close now; None if it should not."""


class _Viewed(Protocol):
    def view(self) -> Any: ...  # noqa: ANN401 - the hooks' own view


class HookError(Exception):
    """A hook has failed, or returned something that it must not."""


class Callbacks:
    """The hooks that are asked about a running generation.

    Args:
        score: Scores a generation at its end; None for no scores.
        stop: Asked at the end of turns and every 30 seconds; None never closes a generation.
    """

    def __init__(self, score: Score | None = None, stop: StopHook | None = None) -> None:
        self._score = score
        self._stop = stop
        self._errors = 0

    @property
    def has_score(self) -> bool:
        """Whether generations are scored."""
        return self._score is not None

    @property
    def has_stop(self) -> bool:
        """Whether the stop hook is asked."""
        return self._stop is not None

    def describe(self) -> Mapping[str, Mapping[str, str | None]]:
        """Return the name of each hook, and the digest of its source, by the hook's argument.

        Blocks: reads the source.
        """
        hooks: dict[str, Callable[..., object] | None] = {"score": self._score, "stop": self._stop}
        return {name: _describe_hook(hook) for name, hook in hooks.items() if hook is not None}

    async def score(self, attempt: _Viewed) -> Mapping[str, Any] | None:
        """Return the data of the line ``scored``; None without a hook.

        Args:
            attempt: The attempt, whose world runs.

        Cancellation: the hook is cancelled.
        """
        if self._score is None:
            return None
        try:
            with anyio.fail_after(MAX_HOOK_S):
                return {"scores": _check_scores(await self._score(attempt.view()))}
        except Exception as error:  # noqa: BLE001 - a hook's error belongs to the row
            _log.warning("score hook failed", error=repr(error))
            return {"error": clean_text(f"{type(error).__name__}: {error}")}

    async def stop(self, attempt: _Viewed) -> str | None:
        """Return why the generation should close; None if it should not.

        A hook that has failed three times is not asked again.

        Args:
            attempt: The attempt.

        Raises:
            HookError: The hook has failed.

        Cancellation: the hook is cancelled.
        """
        if self._stop is None:
            return None
        try:
            with anyio.fail_after(MAX_HOOK_S):
                reason = await self._stop(attempt.view())
            return None if reason is None else clean_text(str(reason))
        except Exception as error:
            self._errors += 1
            _log.warning("stop hook failed", error=repr(error), errors=self._errors)
            text = clean_text(f"{type(error).__name__}: {error}")
            if self._errors >= _MAX_ERRORS:
                self._stop = None
                text += "; it is not asked again"
            raise HookError(text) from error


def _describe_hook(hook: Callable[..., object]) -> Mapping[str, str | None]:
    while isinstance(hook, partial):
        hook = hook.func
    code = hook if inspect.isroutine(hook) else type(hook)
    try:
        source = inspect.getsource(code)
    except (OSError, TypeError):  # typed at a prompt, or not written in Python
        digest = None
    else:
        digest = hashlib.sha256(source.encode()).hexdigest()
    return {"name": f"{code.__module__}:{code.__qualname__}", "digest": digest}


def _check_scores(scores: object) -> dict[str, float]:
    if not isinstance(scores, Mapping) or len(scores) > _MAX_SCORES:
        raise TypeError(f"score: must return at most {_MAX_SCORES} numbers by name, not {scores!r}")
    checked = {}
    for name, value in scores.items():
        number = finite_number(value, low=-1e300, high=1e300)
        if not isinstance(name, str) or number is None:
            raise TypeError(f"score: must return numbers by name, not {name!r}: {value!r}")
        checked[name] = number
    return checked
