"""Messages of checks about documented inputs that cannot be sent unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.conformance import Report, check_world
from tests.replay.lives import dice_world

pytestmark = pytest.mark.anyio

TABLE = "| Input | Data |\\n|---|---|\\n| Bet | `[the number of your die]` |\\n"
LINE = '{ type = "Bet", data = 0 },'


async def check(tmp_path: Path, document: str) -> Report:
    world = dice_world(tmp_path, ("Send Bet, Kick or Break.\\n", document))
    return await check_world(world, ["static.actions", "hygiene.growth"], seed=1)


async def test_checks_suggest_world_toml_lines_when_no_input_can_be_sent(tmp_path: Path) -> None:
    report = await check(tmp_path, TABLE)
    actions, growth = report.checks
    assert (actions.status, growth.status) == ("failed", "could_not_run")
    for result in report.checks:
        assert "Bet [the number of your die]" in result.evidence
        assert '[conformance]\nactions = [\n    { type = "Bet", data = ' in result.evidence


@pytest.mark.thorough
async def test_unsendable_input_types_are_not_verified(tmp_path: Path) -> None:
    report = await check(tmp_path, TABLE + "| Kick | none |\\n")
    actions = report.checks[0]
    assert (actions.id, actions.status) == ("static.actions", "could_not_run")
    assert actions.evidence.startswith("only Kick can be sent; ")
    assert '{ type = "Bet", data = ' in actions.evidence
