"""The check of the sizes of answers; it is one of the area ``contract``."""

from __future__ import annotations

from typing import Final

from clawblox.conformance.lab import Lab
from clawblox.conformance.registry import Checks, CouldNotRun, Failed
from clawblox.system.request import MAX_ANSWER_BYTES

CHECKS: Final = Checks("contract")

_LIMIT: Final = f"{MAX_ANSWER_BYTES >> 20} MiB"


@CHECKS.must(
    "answer_size",
    f"An answer to an agent has at most {_LIMIT}: no more is read, by clawblox or for an agent that"
    " it runs.",
    is_last=True,
)
async def look_at_answer_sizes(lab: Lab) -> str:
    """Observe and listen, and look at the sizes of all answers that the checks got."""
    reason = None
    try:
        async with lab.playing() as players:
            await players[0].observe()
            await players[0].hear()
    except CouldNotRun as failure:
        reason = failure
    for live in lab.lives:
        if live.too_large is not None:
            raise Failed(live.too_large.failure, exchange=live.too_large)
    if reason is not None:
        raise reason
    return f"the largest answer had {max(live.largest_bytes for live in lab.lives)} bytes"
