"""The hooks of an experiment always give a value or an error that can be stored."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import anyio
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError
from clawblox.experiment.schedule import callbacks
from clawblox.experiment.schedule.callbacks import Callbacks, HookError
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio


class View:
    """View of an attempt for hooks."""

    async def observe(self) -> str:
        return "seen"

    def blocking(self, call: Callable[..., Any]) -> BlockingView:
        return BlockingView(self, call)


class BlockingView:
    """View of an attempt for hooks that are not async."""

    def __init__(self, view: View, call: Callable[..., Any]) -> None:
        self._view = view
        self._call = call

    def observe(self) -> Any:
        return self._call(self._view.observe)


class Attempt:
    """A minimal attempt for hooks."""

    def view(self) -> View:
        return View()


ATTEMPT = Attempt()


@pytest.mark.parametrize(
    "scores",
    [
        None,
        "7.0",
        True,
        1j,
        [("cubes", 1.0)],
        {str(number): 1.0 for number in range(257)},
    ],
)
async def test_invalid_score_is_an_error(scores: Any) -> None:
    async def score(_end: Any) -> Any:
        return scores

    scored = await Callbacks(score).score(ATTEMPT)
    assert scored is not None
    assert scored.keys() == {"error"}
    assert scored["error"].startswith("score: must return a number such as 5, ")


async def test_numbers_of_any_kind_are_scores() -> None:
    async def score(_end: Any) -> Any:
        return {"cubes": 3, "time": 1.5, "share": Fraction(1, 4)}

    scored = await Callbacks(score).score(ATTEMPT)
    assert scored == {"scores": {"cubes": 3.0, "time": 1.5, "share": 0.25}}


@pytest.mark.parametrize("number", [7, 7.0, Fraction(7)])
async def test_a_single_number_is_called_score(number: Any) -> None:
    assert await Callbacks(lambda _end: number).score(ATTEMPT) == {"scores": {"score": 7.0}}


@pytest.mark.parametrize(
    ("score", "error"),
    [
        (lambda: 1, "TypeError: "),
        (lambda _end: sys.exit(3), "RuntimeError: it raised SystemExit(3) ("),
        (lambda _end: "text", "score: must return a number such as 5, "),
        (lambda _end: [][0], "IndexError: "),
        (lambda _end: json.loads("\n["), "JSONDecodeError: "),
        (lambda _end: os.open("/no\nfile", 0), "FileNotFoundError: "),
        (lambda _end: exec("raise ValueError('one\\ntwo')"), "ValueError: one two ("),
    ],
)
async def test_an_error_of_a_score_is_one_line_with_file_and_line(score: Any, error: str) -> None:
    scored = await Callbacks(score).score(ATTEMPT)
    assert scored is not None
    assert scored["error"].startswith(error)
    assert scored["error"].endswith(f" ({__file__}:{score.__code__.co_firstlineno})")
    assert "\n" not in scored["error"]


class Unprintable:
    """A value whose ``repr`` fails."""

    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("size", math.nan, "score.size: must be a finite number, not nan"),
        ("size", -math.inf, "score.size: must be a finite number, not -inf"),
        ("size", 10**400, "score.size: must be a finite number, not 1000"),
        ("size", Fraction(10**400), "score.size: must be a finite number, not Fraction(1000"),
        ("size", None, "score.size: must be a finite number, not None"),
        ("size", "three", "score.size: must be a finite number, not 'three'"),
        ("size", False, "score.size: must be a finite number, not False"),
        ("size", Unprintable(), "score.size: must be a finite number, not <Unprintable>"),
        (7, 1.0, "score: the name of a score must be a text of 1 to 256 characters, not 7"),
        ("", 1.0, "score: the name of a score must be a text of 1 to 256 characters, not ''"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
async def test_invalid_score_value_drops_only_its_own_name(
    name: Any, value: Any, text: str
) -> None:
    def score(_end: Any) -> Any:
        return dict(scores)

    scores = {"cubes": 3.0, name: value}
    scored = await Callbacks(score).score(ATTEMPT)
    assert scored is not None
    assert scored["scores"] == {"cubes": 3.0}
    assert scored["error"].startswith(text)
    assert scored["error"].endswith(f" ({__file__}:{score.__code__.co_firstlineno})")
    del scores["cubes"]
    assert await Callbacks(score).score(ATTEMPT) == {"error": scored["error"]}


async def test_hooks_that_never_return_are_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_live: Any) -> Any:
        await anyio.sleep_forever()

    monkeypatch.setattr(callbacks, "MAX_HOOK_S", 0.0)
    hooks = Callbacks(score=never, stop=never)
    with anyio.fail_after(HANG_S):
        place = f"{__file__}:{never.__code__.co_firstlineno}"
        expected = {"error": f"TimeoutError: it did not return within 0 s ({place})"}
        assert await hooks.score(ATTEMPT) == expected
        with pytest.raises(HookError, match="TimeoutError: "):
            await hooks.stop(ATTEMPT)


async def test_invalid_characters_in_texts_of_hooks_are_replaced() -> None:
    async def fail(_live: Any) -> Any:
        raise ValueError("half \ud800 of a pair")

    async def stop(_live: Any) -> Any:
        return "enough \ud800"

    line = fail.__code__.co_firstlineno + 1
    scored = await Callbacks(fail).score(ATTEMPT)
    with pytest.raises(HookError) as caught:
        await Callbacks(stop=fail).stop(ATTEMPT)
    reason = await Callbacks(stop=stop).stop(ATTEMPT)
    # Compare as ASCII, since a lone surrogate would break the report of a failure.
    assert [ascii(text) for text in (scored, str(caught.value), reason)] == [
        rf"{{'error': 'ValueError: half \ufffd of a pair ({__file__}:{line})'}}",
        r"'ValueError: half \ufffd of a pair'",
        r"'enough \ufffd'",
    ]


async def test_a_stop_hook_that_is_not_async_is_called_in_a_thread() -> None:
    def stop(live: Any) -> str:
        return f"{live.observe()} beside {threading.current_thread() is threading.main_thread()}"

    assert await Callbacks(stop=stop).stop(ATTEMPT) == "seen beside False"
    assert await Callbacks(stop=lambda _live: None).stop(ATTEMPT) is None


# -- functions that are not async -----------------------------------------------------------------


async def test_a_function_that_is_not_async_runs_in_a_thread_with_a_blocking_view() -> None:
    def score(end: Any, threads: list[str]) -> float:
        threads.append(threading.current_thread().name)
        return {"seen": 4.0}[end.observe()]

    threads: list[str] = []
    assert await Callbacks(partial(score, threads=threads)).score(ATTEMPT) == {
        "scores": {"score": 4.0}
    }
    assert threads != [threading.current_thread().name]


async def test_an_async_function_in_a_lambda_or_an_object_sees_the_async_view() -> None:
    async def score(end: Any) -> Any:
        return {"seen": len(await end.observe())}

    class Scorer:
        async def __call__(self, end: Any) -> Any:
            return await score(end)

    for hook in (lambda end: score(end), Scorer(), partial(score)):
        assert await Callbacks(hook).score(ATTEMPT) == {"scores": {"seen": 4.0}}


async def test_a_thread_function_that_never_returns_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released, calls = threading.Event(), []

    def never(end: Any) -> float:
        released.wait()
        try:
            return float(end.observe())
        except BaseException as error:
            calls.append(type(error))
            raise
        finally:
            is_over.set()

    is_over = threading.Event()
    monkeypatch.setattr(callbacks, "MAX_HOOK_S", 0.0)
    with anyio.fail_after(HANG_S):
        scored = await Callbacks(never).score(ATTEMPT)
    assert scored is not None
    assert scored["error"].startswith("TimeoutError: it did not return within 0 s")
    released.set()
    await run_blocking(is_over.wait, HANG_S)
    assert calls == [RuntimeError]  # its view no longer works


@pytest.mark.parametrize("error", [SystemExit("enough"), KeyboardInterrupt()])
async def test_function_that_exits_ends_only_itself(error: BaseException) -> None:
    def score(_end: Any) -> float:
        raise error

    scored = await Callbacks(score).score(ATTEMPT)
    assert scored is not None
    assert scored["error"].startswith("RuntimeError: it raised ")


async def test_error_names_the_line_of_the_hook_function() -> None:
    def score(_end: Any) -> float:
        return float("three")

    line = score.__code__.co_firstlineno + 1
    assert await Callbacks(score).score(ATTEMPT) == {
        "error": f"ValueError: could not convert string to float: 'three' ({__file__}:{line})"
    }


@pytest.mark.parametrize(
    ("returned", "advice"),
    [
        (True, "not True; write int(…), which makes it 1"),
        ("5", "not '5'; write float(…)"),
        ({"won": False}, "score.won: must be a finite number, not False; write int(…), which"),
        (None, 'by name such as {"points": 5}, not None'),
    ],
)
async def test_a_value_that_is_not_a_score_is_reported_with_a_correction(
    returned: Any, advice: str
) -> None:
    scored = await Callbacks(lambda _end: returned).score(Attempt())
    assert scored is not None
    assert advice in scored["error"]
    assert "TypeError" not in scored["error"]


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match="score: must be a function, not 5"):
        Callbacks(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        Callbacks("scores:gold")  # type: ignore[arg-type]
    assert caught.value.hint == "the plan can name it: plan.but(score='scores:gold')"
