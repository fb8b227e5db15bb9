"""The hooks of an experiment: whatever they do, a value or an error can be stored."""

from __future__ import annotations

import math
from typing import Any

import anyio
import pytest

from clawblox.experiment.schedule import callbacks
from clawblox.experiment.schedule.callbacks import Callbacks, HookError
from tests.support import HANG_S

pytestmark = pytest.mark.anyio


class Attempt:
    """An attempt of which hooks see nothing."""

    def view(self) -> None:
        return None


ATTEMPT = Attempt()


@pytest.mark.parametrize(
    "scores",
    [
        None,
        7.0,
        [("cubes", 1.0)],
        {"cubes": "three"},
        {"cubes": None},
        {"cubes": math.nan},
        {"cubes": math.inf},
        {7: 1.0},
        {str(number): 1.0 for number in range(257)},
    ],
)
async def test_what_is_no_score_is_an_error(scores: Any) -> None:
    async def score(_end: Any) -> Any:
        return scores

    scored = await Callbacks(score).score(ATTEMPT)
    assert scored is not None
    assert scored.keys() == {"error"}
    assert scored["error"].startswith("TypeError: score: must return ")


async def test_scores_are_numbers() -> None:
    async def score(_end: Any) -> Any:
        return {"cubes": 3, "time": 1.5}

    assert await Callbacks(score).score(ATTEMPT) == {"scores": {"cubes": 3.0, "time": 1.5}}


async def test_hooks_that_do_not_return_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_live: Any) -> Any:
        await anyio.sleep_forever()

    monkeypatch.setattr(callbacks, "MAX_HOOK_S", 0.0)
    hooks = Callbacks(score=never, stop=never)
    with anyio.fail_after(HANG_S):
        assert await hooks.score(ATTEMPT) == {"error": "TimeoutError: "}
        with pytest.raises(HookError, match="TimeoutError: "):
            await hooks.stop(ATTEMPT)


async def test_texts_of_hooks_can_be_stored() -> None:
    async def fail(_live: Any) -> Any:
        raise ValueError("half \ud800 of a pair")

    async def stop(_live: Any) -> Any:
        return "enough \ud800"

    scored = await Callbacks(fail).score(ATTEMPT)
    with pytest.raises(HookError) as caught:
        await Callbacks(stop=fail).stop(ATTEMPT)
    reason = await Callbacks(stop=stop).stop(ATTEMPT)
    # As ASCII, since a half in the report of a failure would end the report.
    assert [ascii(text) for text in (scored, str(caught.value), reason)] == [
        r"{'error': 'ValueError: half \ufffd of a pair'}",
        r"'ValueError: half \ufffd of a pair'",
        r"'enough \ufffd'",
    ]
