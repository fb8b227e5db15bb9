"""An agent in an instance that is known only by its record."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from clawblox import StartedWorld, WorldExitedError
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ActionRefusedError, UsageError
from clawblox.rundir.presence import Presence
from clawblox.rundir.records import InstanceRecord, read_record
from clawblox.world.access import join_answer
from clawblox.world.agent_client import join_place
from clawblox.world.recorded import RecordedPlace
from tests.support.running import manifest_of, running
from tests.support.worlds import ask

pytestmark = pytest.mark.anyio


async def find_record(started: StartedWorld) -> InstanceRecord:
    record = await run_blocking(read_record, started.run_dir, started.name)
    assert record is not None
    return record


async def test_an_agent_joins_acts_and_leaves(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, started):
        record = await find_record(started)
        with RecordedPlace(started.run_dir, record) as place:
            async with await join_place(place, "red-r003", timeout=10) as agent:
                assert (agent.name, agent.instance) == ("red", "w000")
                assert (await agent.act("add", 2))["counter"] == 2
                known = join_answer(agent.access)
                again = await join_place(place, "red", known=known, timeout=10)
                assert (await again.observe())["agent_id"] == "agent-1"
                with pytest.raises(UsageError, match="'w001' is not known here, only 'w000' is"):
                    agent.on("w001")
            with pytest.raises(ActionRefusedError):
                await again.observe()
        (entry,) = manifest_of(started.run_dir)["agents"]
        names = entry["name"], entry["world_agent_id"], entry["run_id"]
        assert names == ("red", "agent-1", record.run_id)


async def test_a_call_to_a_dead_world_fails_with_its_last_log_lines(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, started):
        with RecordedPlace(started.run_dir, await find_record(started)) as place:
            agent = await join_place(place, "red", timeout=10)
            await run_blocking(ask, started.port, "POST", "/__die?status=3")
            with pytest.raises(WorldExitedError, match=r"^w000: the world ") as error:
                await agent.act("add")
            assert any("Spectator frontend" in line for line in error.value.log_lines)
            with pytest.raises(WorldExitedError):
                await join_place(place, "blue", timeout=10)


@pytest.mark.thorough
async def test_a_failed_call_to_a_live_world_names_the_instance(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, started):
        with RecordedPlace(started.run_dir, await find_record(started)) as place:
            agent = await join_place(place, "red", timeout=0.2)
            await run_blocking(ask, started.port, "POST", "/__set?mute")
            with pytest.raises(
                Exception, match=r"^w000: GET /observe got no answer within"
            ) as error:
                await agent.observe()
            assert not isinstance(error.value, WorldExitedError)


async def test_a_restarted_instance_is_not_expected_to_restart_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (world, started):
        await world.restart()
        record = await find_record(started)
    assert record.restarts == 1
    for state, policy, is_expected in (
        ("ready", "never", False),
        ("starting", "never", True),
        ("ready", "fresh", True),
    ):
        found = msgspec.structs.replace(record, state=state, options={"restart": policy})
        assert Presence(found, "away").will_restart is is_expected
