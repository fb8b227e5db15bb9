"""Detection of a history of inputs in snapshots, as opposed to state that inputs add."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox.conformance import CheckResult, check_world
from tests.support.sampling import sampled
from tests.worlds.defects import CLOCKS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("clock", sampled(CLOCKS, every=2))]

GARDEN = Path(__file__).parents[1] / "worlds" / "garden.py"


async def check(parent: Path, clock: str, *types: str, kept: int | None) -> CheckResult:
    """Look for a history in a garden.

    Args:
        parent: Parent of its directory.
        clock: ``lockstep`` or ``realtime``.
        *types: The inputs of its ``world.toml``.
        kept: Number of latest inputs in its snapshots; None means all.
    """
    garden = parent / "garden"
    garden.mkdir()
    text = GARDEN.read_text()
    for old, new in (
        ("Clock.LOCKSTEP", f"Clock.{clock.upper()}"),
        ("= 0\n\n\n", f"= {kept}\n\n\n"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (garden / "world.py").write_text(text)
    actions = ", ".join(f"{{ type = {json.dumps(name)} }}" for name in types)
    command = 'command = ["{python}", "world.py"]\nlisten = "inherit"'
    (garden / "world.toml").write_text(
        f'name = "garden"\n[run]\n{command}\n[conformance]\nactions = [{actions}]\n'
    )
    return (await check_world(garden, ["hygiene.growth"], seed=1)).checks[0]


@pytest.mark.thorough
async def test_growth_of_visible_state_is_not_a_history(tmp_path: Path, clock: str) -> None:
    result = await check(tmp_path, clock, "Plant", "Sow", kept=0)
    assert result.status == "could_not_run"
    assert "agents see more with every input of Plant, Sow:" in result.evidence


@pytest.mark.thorough
async def test_input_type_without_growth_rules_out_a_history(tmp_path: Path, clock: str) -> None:
    result = await check(tmp_path, clock, "Plant", "Plant", "Sow", "Water", kept=0)
    assert result.status == "passed", result
    assert result.evidence.startswith("Water: "), result


async def test_a_history_is_found_beside_state_that_agents_see(tmp_path: Path, clock: str) -> None:
    result = await check(tmp_path, clock, "Plant", "Water", kept=None)
    assert result.status == "failed", result
    assert "Water: " in result.evidence
    assert "Plant" not in result.evidence


@pytest.mark.thorough
async def test_bounded_list_of_latest_inputs_is_not_a_history(tmp_path: Path, clock: str) -> None:
    result = await check(tmp_path, clock, "Water", "Rake", kept=256)
    assert result.status == "passed", result
