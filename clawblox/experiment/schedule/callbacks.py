"""Calls the hooks of an experiment; a failing hook does not prevent a commit."""

from __future__ import annotations

import hashlib
import inspect
import linecache
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import anyio

from clawblox.concurrency.threads import run_abandonable
from clawblox.config.arguments import mismatch
from clawblox.errors.general import VALUE_CHARS, shorten
from clawblox.experiment.history.scores import read_score
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.plan.values import is_function
from clawblox.experiment.schedule.score_functions import (
    describe_error,
    find_places,
    load_score,
    original_module,
)
from clawblox.foreign_values import clean_text
from clawblox.telemetry.own_log import OwnLog

MAX_HOOK_S: Final = 300.0
"""Maximum seconds for a call of a hook."""
ONLY_SCORE: Final = "score"
"""Name of the score if a function returns a single number."""
_MAX_ERRORS: Final = 3
_MAX_SCORES: Final = 256
_MAX_NAME_CHARS: Final = 256

_log = OwnLog(__name__)

ScoreValue: TypeAlias = Mapping[str, float] | float
"""Scores by name, or a single number, named ``score``."""

Score: TypeAlias = Callable[[Any], Awaitable[ScoreValue] | ScoreValue]
"""Returns the scores of a generation, whose agents have stopped and whose world runs. A plain
function is called in its own thread."""

StopHook: TypeAlias = Callable[[Any], Awaitable[str | None] | str | None]
"""Returns why a generation should close now, or None. A plain function is
called in its own thread."""


class _Viewed(Protocol):
    def view(self) -> Any: ...  # noqa: ANN401 - the hooks' own view


class HookError(Exception):
    """A hook has failed, or returned an invalid value."""


class Callbacks:
    """The hooks of running generations.

    Args:
        score: Scores a generation at its end; None for the score of the plan, or else no scores.
        stop: Called at the end of turns and every 30 seconds; None for no hook.
    """

    def __init__(self, score: Score | None = None, stop: StopHook | None = None) -> None:
        check_hooks(score=score, stop=stop)
        self._score = score
        self._stop = stop
        self._errors = 0
        self._last_error = ""
        self.has_own_score = score is not None
        """True if a score function was given; it replaces the plan's."""

    @property
    def has_score(self) -> bool:
        """True if generations are scored."""
        return self._score is not None

    @property
    def has_stop(self) -> bool:
        """True if there is a stop hook."""
        return self._stop is not None

    def without_replaced(self, plan: Plan) -> Plan:
        """Return a plan without its score if a score function was given."""
        return plan.but(score=None) if self.has_own_score else plan

    def load(self, plan: Plan) -> Mapping[str, Mapping[str, str | None]]:
        """Import the score function of a plan, unless one was given. Blocks.

        Args:
            plan: The plan.

        Returns:
            All hooks, as from :meth:`describe`.

        Raises:
            ConfigError: The function cannot be imported.
        """
        if not self.has_own_score:
            self._score = None if plan.score is None else load_score(plan.score)
        return self.describe()

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

        Cancellation: an async hook is cancelled; a thread is left behind.
        """
        score = self._score
        if score is None:
            return None
        try:
            with anyio.move_on_after(MAX_HOOK_S):
                view = attempt.view()
                scored = _read_scored(await call_hook(score, view, view.blocking))
                if "error" in scored:
                    scored["error"] += _find_place(None, score)
                return scored
            place = _find_place(None, score)
            error_text = f"TimeoutError: it did not return within {MAX_HOOK_S:g} s{place}"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - its error belongs to the row
            text = str(error) if isinstance(error, HookError) else describe_error(error)
            error_text = f"{text}{_find_place(error, score)}"
        if error_text != self._last_error:  # a repeated error is logged once
            self._last_error = error_text
            _log.info("score hook failed", error=error_text)  # the row and an event have it
        return {"error": error_text}

    async def stop(self, attempt: _Viewed) -> str | None:
        """Return why the generation should close, or None.

        A hook that has failed three times is no longer called.

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
                view = attempt.view()
                reason = await call_hook(self._stop, view, view.blocking)
            return None if reason is None else clean_text(str(reason))
        except Exception as error:
            self._errors += 1
            text = describe_error(error)
            _log.warning("stop hook failed", error=text, errors=self._errors)
            if self._errors >= _MAX_ERRORS:
                self._stop = None
                text += "; it will not be called again"
            raise HookError(text) from error


def check_hooks(**hooks: object) -> None:
    """Check that hooks are callable or None.

    Args:
        **hooks: The hooks by argument.

    Raises:
        ConfigError: A hook is not callable.
    """
    for name, hook in hooks.items():
        if hook is not None and not callable(hook):
            is_name = name == "score" and is_function(hook)
            hint = f"the plan can name it: plan.but(score={hook!r})" if is_name else None
            raise mismatch(name, "a function", hook, hint=hint)


async def call_hook(
    hook: Callable[[Any], object],
    view: Any,  # noqa: ANN401 - the hooks' own view
    view_in_thread: Callable[[Callable[..., Any]], object],
) -> object:
    """Call a hook: async functions in the event loop, plain functions in their own thread.

    Args:
        hook: The hook.
        view: The argument of an async hook.
        view_in_thread: Returns the argument of a plain hook, given a function that runs another
            function in the event loop and returns its result.

    Cancellation: an async hook is cancelled; a thread is left behind.
    """
    if _is_async(hook):
        return await hook(view)  # type: ignore[misc] # it returns an awaitable
    returned = await run_abandonable(lambda call: hook(view_in_thread(call)))
    if not inspect.isawaitable(returned):
        return returned
    if inspect.iscoroutine(returned):
        returned.close()
    return await hook(view)  # type: ignore[misc] # a lambda that calls an async function


def _is_async(hook: Callable[..., object]) -> bool:
    code = _unwrap(hook)
    return inspect.iscoroutinefunction(code) or inspect.iscoroutinefunction(
        getattr(type(code), "__call__", None)  # noqa: B004 - of an object whose class defines it
    )


def _unwrap(hook: Callable[..., object]) -> Callable[..., object]:
    while isinstance(hook, partial):
        hook = hook.func
    return hook


def _describe_hook(hook: Callable[..., object]) -> Mapping[str, str | None]:
    hook = _unwrap(hook)
    code = hook if inspect.isroutine(hook) else type(hook)
    try:
        linecache.checkcache(inspect.getsourcefile(code))
        source = inspect.getsource(code)
    except (OSError, TypeError):  # defined at a prompt, or not written in Python
        digest = None
    else:
        digest = hashlib.sha256(source.encode()).hexdigest()
    module = original_module(str(code.__module__))
    return {"name": f"{module}:{code.__qualname__}", "digest": digest}


def _find_place(error: BaseException | None, hook: Callable[..., object]) -> str:
    """Return the file and line of an error in a hook's module.

    If the traceback does not contain the hook, as after a wrong call, this is the start of the
    hook.

    Args:
        error: The error; None if the hook raised none.
        hook: The hook.
    """
    hook = _unwrap(hook)
    function = hook if inspect.isroutine(hook) else getattr(hook, "__call__", None)  # noqa: B004
    code = getattr(function, "__code__", None)
    if code is None:  # without code, the hook is not written in Python
        return ""
    file, lines = Path(code.co_filename), [code.co_firstlineno]
    if error is not None:
        lines += [line for path, line in find_places(error.__traceback__) if path == file]
    return f" ({file}:{lines[-1]})"


# -- results of score functions --------------------------------------------------------------


def _read_scored(returned: object) -> dict[str, Any]:
    """Return the data of the line ``scored``; it records values that cannot be scores as an error.

    Raises:
        HookError: The result is neither a number nor a mapping of names to numbers.
    """
    if isinstance(returned, Mapping) and len(returned) <= _MAX_SCORES:
        given = dict(returned)
    elif not isinstance(returned, bool) and isinstance(returned, Real):
        given = {ONLY_SCORE: returned}
    else:
        expected = f'a number such as 5, or at most {_MAX_SCORES} by name such as {{"points": 5}}'
        raise HookError(f"score: must return {expected}, not {_show(returned)}{_advise(returned)}")
    scores = {name: read_score(_to_number(value)) for name, value in given.items()}
    faults = list(_find_faults(given, scores))
    numbers = {
        clean_text(name): number
        for name, number in scores.items()
        if number is not None and _is_name(name)
    }
    error = {"error": clean_text("; ".join(faults))} if faults else {}
    return {"scores": numbers, **error} if numbers or not faults else error


def _find_faults(given: Mapping[Any, object], scores: Mapping[Any, float | None]) -> Iterator[str]:
    for name, value in given.items():
        if not _is_name(name):
            chars = f"a text of 1 to {_MAX_NAME_CHARS} characters"
            yield f"score: the name of a score must be {chars}, not {_show(name)}"
        elif scores[name] is None:
            yield f"score.{name}: must be a finite number, not {_show(value)}{_advise(value)}"


def _advise(value: object) -> str:
    """Return advice for converting a value to a number."""
    if isinstance(value, bool):
        return f"; write int(…), which makes it {int(value)}"
    return "; write float(…)" if isinstance(value, str) else ""


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARS


def _to_number(value: object) -> object:
    """Return another library's number, such as ``numpy.float32``, as float."""
    if isinstance(value, int | float) or not isinstance(value, Real):
        return value
    try:
        return float(value)
    except (OverflowError, ValueError):
        return None


def _show(value: object) -> str:
    try:
        return shorten(repr(value), VALUE_CHARS)
    except Exception:  # noqa: BLE001 - a foreign `__repr__` may raise anything
        return f"<{type(value).__name__}>"
