"""Only a save with a waiting input shows whether waiting inputs survive a save."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio.lowlevel
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance import CheckResult, check_world, input_timing
from clawblox.conformance.checks.restore import check_landings
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.input_timing import InputArrival, InputTiming
from clawblox.conformance.live import AgentInput
from clawblox.conformance.polling import LEAST_COMMON
from clawblox.conformance.registry import NotMet, TooLittleSeen
from clawblox.system.request import Answer
from tests.support.provable import make_provable_world

pytestmark = pytest.mark.anyio


async def check(parent: Path, defect: str | None = None) -> CheckResult:
    def make() -> Path:
        return make_provable_world(parent, clock="realtime", defect=defect)

    return (await check_world(await run_blocking(make), ["restore.pending"], seed=1)).checks[0]


@pytest.mark.thorough
async def test_runs_are_repeated_until_a_save_contains_the_waiting_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_timing, "_RESTORES", 0)
    monkeypatch.setattr(input_timing, "_WAITING_S", 60.0)
    result = await check(tmp_path, "loses-pending")
    assert result.status == "failed"
    assert "a save made while the input waited differs" in result.evidence


@pytest.mark.thorough
async def test_check_could_not_run_without_a_save_of_a_waiting_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_none(*_: object) -> None:
        return None

    monkeypatch.setattr(input_timing, "_find_queued_input_in", find_none)
    monkeypatch.setattr(input_timing, "_WAITING_S", 0.0)
    result = await check(tmp_path, "loses-pending")
    assert result.status == "could_not_run"
    assert result.evidence == "no save had an input waiting"


def make_documents(begin: float, tired: int) -> Mapping[float, Exchange]:
    times = [begin + number for number in range(LEAST_COMMON)]
    bodies = [json.dumps({"time": time, "place": time * tired}).encode() for time in times]
    answers = [Exchange("GET", "/", {}, None, None, Answer(200, body)) for body in bodies]
    return dict(zip(times, answers, strict=True))


async def look(original: InputArrival, *restored: InputArrival) -> str:
    lived = InputTiming((), None, AgentInput("Push"), original, restored, False)  # type: ignore[arg-type]

    async def live_them(*_: object) -> Any:
        await anyio.lowlevel.checkpoint()
        return lived

    findings = await check_landings(SimpleNamespace(input_timing=live_them))  # type: ignore[arg-type]
    return findings.evidence


async def test_restored_runs_equal_only_to_each_other_prove_nothing() -> None:
    original = InputArrival(1.0, make_documents(1.0, tired=2), {}, "the original", 1.0)
    restored = [
        InputArrival(2.0, make_documents(2.0, tired=1), {}, f"restore {number}", 1.0)
        for number in (1, 2)
    ]
    with pytest.raises(TooLittleSeen, match="landed at the time of the original: 1, 2, 2"):
        await look(original, *restored)
    together = InputArrival(1.0, make_documents(1.0, tired=1), {}, "restore 3", 1.0)
    with pytest.raises(NotMet, match="like that of the original, differs at simulated time 1"):
        await look(original, *restored, together)
    equal = InputArrival(1.0, make_documents(1.0, tired=2), {}, "restore 3", 1.0)
    evidence = await look(original, *restored, equal)
    assert evidence.startswith("2 pairs of 4 runs landed together (1 with the original)")


ROWS = """
local board = game:GetService("DataStoreService"):GetOrderedDataStore("board")
local log = Instance.new("Folder", workspace)
task.spawn(function()
    for at = 1, 9 do board:SetAsync("p" .. at, at * 7 % 10) end
    while true do
        for _, entry in board:GetSortedAsync(false, 9) do
            log:SetAttribute("seen", (log:GetAttribute("seen") or 0) + entry.value)
        end
        task.wait(0.3)
    end
end)
game:GetService("AgentInputService").InputReceived:Connect(function(player, kind, data)
    log:SetAttribute("asked", (log:GetAttribute("asked") or 0) + data.number)
end)
"""


@pytest.mark.thorough
async def test_a_save_with_a_waiting_input_is_restored_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.lua").write_text(ROWS)
    (tmp_path / "world.toml").write_text(
        'name = "rows"\n[conformance]\nactions = [{ type = "Ask", data = { number = 4 } }]\n'
    )
    monkeypatch.setattr(input_timing, "_WAITING_S", 60.0)
    (result,) = (await check_world(tmp_path, ["restore.pending"], seed=1)).checks
    assert result.status == "passed", result.evidence
