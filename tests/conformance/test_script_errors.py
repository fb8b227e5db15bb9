"""``clawblox check`` names an error of a script after which an engine world went on."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.conformance import CheckResult, check_world

pytestmark = pytest.mark.anyio

MAIN = """
game:GetService("AgentInputService").InputReceived:Connect(function(player, action, data)
    local function step() workspace:SetAttribute("at", data.place + 1) end
    %s
end)
"""


async def check(directory: Path, body: str) -> CheckResult:
    (directory / "world.toml").write_text(
        'name = "steps"\ngame_type = "lua"\n[conformance]\n'
        'actions = [{ type = "Step", data = { place = 1 } }, { type = "Jump", data = {} }]\n'
    )
    (directory / "main.lua").write_text(MAIN % body)
    report = await check_world(directory, ["hygiene.script_errors"], seed=1)
    (result,) = report.checks
    return result


async def test_a_handler_that_fails_for_an_input_is_found(tmp_path: Path) -> None:
    result = await check(tmp_path, "step()")
    assert (result.status, result.level) == ("failed", "must")
    assert "main.lua:3: attempt to perform arithmetic (add) on nil and number" in result.evidence


async def test_a_script_that_catches_its_errors_passes(tmp_path: Path) -> None:
    result = await check(tmp_path, "pcall(step)")
    assert result.status == "passed", result.evidence
