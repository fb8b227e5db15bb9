"""``clawblox check`` names a script error after which an engine world continued."""

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


async def check(directory: Path, main: str, *more: str) -> CheckResult:
    (directory / "world.toml").write_text(
        'name = "steps"\ngame_type = "lua"\n[conformance]\n'
        'actions = [{ type = "Step", data = { place = 1 } }, { type = "Jump", data = {} }]\n'
    )
    (directory / "main.lua").write_text(main)
    report = await check_world(directory, ["hygiene.script_errors", *more], seed=1)
    return report.checks[-1]


async def test_failing_input_handler_fails_the_check(tmp_path: Path) -> None:
    result = await check(tmp_path, MAIN % "step()")
    assert (result.status, result.level) == ("failed", "must")
    assert "main.lua:3: attempt to perform arithmetic (add) on nil and number" in result.evidence


@pytest.mark.thorough
async def test_script_error_in_the_probe_instance_fails_the_check(tmp_path: Path) -> None:
    main = 'game:GetService("Players").PlayerRemoving:Connect(function() error("stay") end)'
    assert (await check(tmp_path, main)).status == "passed", "only one check lets an agent leave"
    result = await check(tmp_path, main, "contract.leave")
    assert result.status == "failed"
    assert "1 script error, the last: " in result.evidence
    assert "main.lua:1: stay" in result.evidence


@pytest.mark.thorough
async def test_a_script_that_catches_its_errors_passes(tmp_path: Path) -> None:
    result = await check(tmp_path, MAIN % "pcall(step)")
    assert result.status == "passed", result.evidence
