"""Running orchestrators that cannot be reached, because their control socket is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox.concurrency.batch import Outcome
from clawblox.config.options import RestartOptions
from clawblox.errors import ControlError, OrchestratorSuspendedError
from clawblox.rundir import claims
from clawblox.rundir.operations import restart_instances, stop_instances
from clawblox.rundir.requests import Restarted
from tests.rundir.support import records_on_disk
from tests.support.orchestrators import Orchestrator, orchestrator
from tests.support.processes import is_alive, marked_processes
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

_RESTARTING = """
async def main():
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=run_dir, restart="fresh", detach=False)
        tell(started.pid)
        await world.wait(started.name)
        tell("ended")
        await hear_async()

anyio.run(main)
"""


def hear_end(owner: Orchestrator) -> None:
    while owner.hear() != "ended":
        pass  # warnings that it logs


def lose_sockets(run_dir: Path) -> Callable[[], bool]:
    """Remove the control sockets; return a function that returns whether they exist again."""
    sockets = [*(run_dir / ".clawblox" / "control").glob("*.sock")]
    assert sockets
    for path in sockets:
        path.unlink()
    return lambda: all(path.exists() for path in sockets)


@pytest.mark.thorough
async def test_a_stop_waits_until_the_orchestrator_is_reachable_again(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with orchestrator(_RESTARTING, make_world(tmp_path), run_dir) as owner:
        pid = int(owner.hear())
        lose_sockets(run_dir)
        (result,) = await stop_instances(run_dir, grace_seconds=HANG_S)
        assert (result.instance, result.rung) == ("w000", "terminated")
        hear_end(owner)
        assert not is_alive(pid)
        assert records_on_disk(run_dir)["w000"]["state"] == "exited"
        assert not marked_processes()


@pytest.mark.thorough
@pytest.mark.parametrize("names", [(), ("w000",)])
async def test_an_instance_that_its_orchestrator_would_restart_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(claims, "_PATIENCE_S", 0.1)
    run_dir = tmp_path / "run"
    with orchestrator(_RESTARTING, make_world(tmp_path), run_dir) as owner:
        pid = int(owner.hear())
        _block_sockets(run_dir)
        with pytest.raises(ControlError, match="is running but cannot be reached") as caught:
            await stop_instances(run_dir, names, grace_seconds=5)
        assert caught.value.hint == f"to end it with all its instances: kill {owner.pid}"
        assert str(run_dir) in str(caught.value)
        assert is_alive(pid)
        outcomes: list[Outcome[Restarted]] = []
        await restart_instances(
            run_dir, names, RestartOptions(fresh=True), on_restarted=outcomes.append
        )
        assert [str(one.error).splitlines()[0] for one in outcomes] == [
            str(caught.value).splitlines()[0]
        ]
        assert is_alive(pid)
        assert records_on_disk(run_dir)["w000"]["restarts"] == 0
        owner.process.terminate()
        owner.process.wait(HANG_S)
    wait_until(lambda: not marked_processes())


def _block_sockets(run_dir: Path) -> None:
    """Prevent the creation of control sockets."""
    control = run_dir / ".clawblox" / "control"
    for path in control.iterdir():
        path.unlink()
    control.rmdir()
    control.write_text("no directory")


@pytest.mark.thorough
async def test_a_stop_leaves_the_instances_of_a_suspended_orchestrator_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_PATIENCE_S", 0.1)
    run_dir = tmp_path / "run"
    with orchestrator(_RESTARTING, make_world(tmp_path), run_dir) as owner:
        pid = int(owner.hear())
        is_back = _lose_while_suspended(owner, run_dir)
        try:
            with pytest.raises(OrchestratorSuspendedError, match="kill -CONT"):
                await stop_instances(run_dir, grace_seconds=HANG_S)
        finally:
            os.kill(owner.pid, signal.SIGCONT)
        assert is_alive(pid)
        await wait_until_async(is_back)
        await stop_instances(run_dir, grace_seconds=HANG_S)
        hear_end(owner)


def _lose_while_suspended(owner: Orchestrator, run_dir: Path) -> Callable[[], bool]:
    os.kill(owner.pid, signal.SIGSTOP)
    stat = Path(f"/proc/{owner.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    return lose_sockets(run_dir)


@pytest.mark.thorough
async def test_an_instance_without_a_restart_policy_is_stopped_despite_a_lost_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_PATIENCE_S", 0.1)
    run_dir = tmp_path / "run"
    body = _RESTARTING.replace('"fresh"', '"never"')
    with orchestrator(body, make_world(tmp_path), run_dir) as owner:
        owner.hear()
        _block_sockets(run_dir)
        (result,) = await stop_instances(run_dir, grace_seconds=HANG_S)
        assert result.rung == "terminated"
        hear_end(owner)
        assert not marked_processes()
