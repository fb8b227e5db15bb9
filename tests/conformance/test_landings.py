"""Whether inputs that wait survive a save is shown by a save that has one, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance import CheckResult, check_world, landings
from tests.provable import make_provable_world

pytestmark = pytest.mark.anyio


async def check(parent: Path, defect: str | None = None) -> CheckResult:
    def make() -> Path:
        return make_provable_world(parent, clock="realtime", defect=defect)

    return (await check_world(await run_blocking(make), ["restore.pending"], seed=1)).checks[0]


@pytest.mark.thorough
async def test_a_waiting_input_is_sought_until_a_save_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landings, "_RESTORES", 0)
    monkeypatch.setattr(landings, "_WAITING_S", 60.0)
    result = await check(tmp_path, "loses-pending")
    assert result.status == "failed"
    assert "a save that was made while the input waited differs" in result.evidence


@pytest.mark.thorough
async def test_without_a_save_that_has_one_nothing_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_none(*_: object) -> None:
        return None

    monkeypatch.setattr(landings, "_find_waiting_in", find_none)
    monkeypatch.setattr(landings, "_WAITING_S", 0.0)
    result = await check(tmp_path, "loses-pending")
    assert result.status == "could_not_run"
    assert result.evidence == "no save had an input waiting"
