"""Any implementation of the protocol can be supervised, also one without processes here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import ProcessExit, StartedWorld, WorldStartError
from clawblox.config.options import StartOptions
from clawblox.config.world_toml import read_world_config
from clawblox.instance.ends import End
from clawblox.instance.health import ProbePacer
from clawblox.instance.launch import Launch, plan_launch
from clawblox.instance.lifecycle import State
from clawblox.instance.supervised import Tell
from clawblox.instance.supervisor import Supervisor
from clawblox.protocol import HealthReport, MaskedEnvironment, ScriptErrors, TickRate
from clawblox.results import EventKind, Labels, RestartMode
from clawblox.rundir.manifest import Update
from clawblox.rundir.records import InstanceRecord, RecordState
from clawblox.snapshot.capture import SnapshotSource
from clawblox.supervision.tree import Grace, TreeEnd
from tests.support import HANG_S, make_world, marked_processes

pytestmark = pytest.mark.anyio


class RemoteInstance:
    """An instance whose world is a few variables; tests make it die."""

    record = past = log_index = None
    is_planned = False
    is_recorded = True
    run_id = "run"
    name = "far"

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.halt: str | None = None
        self.rate: TickRate | None = None
        self.script_errors: ScriptErrors | None = None
        self.exit: ProcessExit | None = None
        self.restarts = 0
        self.is_over = True
        self.is_released = False
        self.refusals: list[Exception] = []
        self.states: list[RecordState] = []
        self._ended = anyio.Event()

    def die(self, exit_: ProcessExit) -> None:
        self.exit, self.is_over = exit_, True
        self._ended.set()

    def error_fields(self) -> dict[str, Any]:
        return {"instance": self.name}

    def masked(self, text: str) -> str:
        return text

    async def start_up(self, move: Callable[[State], None], tell: Tell) -> None:
        if self.refusals:
            raise self.refusals.pop()
        move(State.SPAWNING)
        move(State.PROBING)
        tell("started", port=1)
        self._ended, self.exit, self.is_over = anyio.Event(), None, False
        self.write_record("ready")

    def attach(self, record: InstanceRecord) -> None:
        raise AssertionError("it is never attached")

    def prepare_restart(self, launch: Launch) -> None:
        self.launch = launch
        self.restarts += 1

    def started_world(self, ready_s: float) -> StartedWorld:
        place = self.launch.run_dir
        return StartedWorld(
            name=self.name,
            url="http://127.0.0.1:1",
            host="127.0.0.1",
            port=1,
            pid=0,
            command=[],
            start_command=[],
            delegated=False,
            run_command=None,
            env=MaskedEnvironment({}),
            run_dir=place,
            instance_dir=place,
            command_file=place / "command",
            log_file=place / "log",
            record_dir=None,
            resume_path=None,
            ready_s=ready_s,
        )

    async def wait_exit(self) -> ProcessExit | None:
        await self._ended.wait()
        return self.exit

    async def watch_sidecars(self, on_exit: Callable[[str, ProcessExit], None]) -> None:
        await anyio.sleep_forever()

    async def wait_unresponsive(
        self, pacer: ProbePacer, on_report: Callable[[HealthReport], Awaitable[None]]
    ) -> tuple[str, str | None]:
        await anyio.sleep_forever()
        raise AssertionError

    async def wait_listener_gone(self) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    async def ask_report(self, seconds: float) -> HealthReport | None:
        return None

    async def end(self, grace: Grace) -> TreeEnd:
        if self.is_over:
            return TreeEnd("already_exited")
        self.die(ProcessExit(signal="SIGTERM"))
        return TreeEnd("terminated")

    def kill(self) -> None:
        self.die(ProcessExit(signal="SIGKILL"))

    def release(self) -> None:
        self.is_released = True

    def snapshot_source(self) -> SnapshotSource:
        raise AssertionError("it is never saved")

    def write_record(self, state: RecordState, end: End | None = None) -> None:
        self.states.append(state)


class Fleet:
    """Runs the supervisor of one instance and keeps its events."""

    def __init__(self, directory: Path, restart: RestartMode) -> None:
        options = StartOptions(run_dir=directory / "run", restart=restart, max_restarts=2)
        launch = plan_launch(read_world_config(make_world(directory)), options)
        self.instance = RemoteInstance(launch)
        self.kinds: list[EventKind] = []
        self.supervisor = Supervisor(
            self.instance, self._emit, self._write, on_settled=lambda: None, on_back=self._come_back
        )

    def _emit(self, kind: EventKind, instance: str, labels: Labels, **detail: Any) -> None:
        self.kinds.append(kind)

    def _write(self, update: Update, *, durable: bool = True) -> None:
        pass

    async def _come_back(self) -> Callable[[], None]:
        return lambda: None


async def test_an_instance_without_processes_is_started_restarted_by_policy_and_stopped(
    tmp_path: Path,
) -> None:
    fleet = Fleet(tmp_path, "fresh")
    instance, supervisor = fleet.instance, fleet.supervisor
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            started = await supervisor.wait_started()
            assert (started.name, supervisor.lifecycle.state) == ("far", State.READY)
            instance.die(ProcessExit(status=3))
            assert await supervisor.calls.wait_serving(after=0, until=anyio.current_time() + HANG_S)
            assert instance.restarts == 1
            assert not marked_processes()
            result = await supervisor.stop(5.0, on_purpose=True)
    assert (result.rung, result.exit) == ("terminated", ProcessExit(signal="SIGTERM"))
    once = ["started", "ready"]
    assert fleet.kinds == [*once, "exited", "restarting", *once, "stopped"]
    assert instance.states == ["ready", "ready", "exited"]
    assert instance.is_released


async def test_an_instance_without_processes_that_dies_too_often_is_given_up(
    tmp_path: Path,
) -> None:
    fleet = Fleet(tmp_path, "fresh")
    instance, supervisor = fleet.instance, fleet.supervisor
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await supervisor.wait_started()
            for life in range(3):
                instance.die(ProcessExit(status=life + 1))
                await supervisor.calls.wait_serving(after=life, until=anyio.current_time() + HANG_S)
            assert await supervisor.wait_ended() == ProcessExit(status=3)
    assert fleet.kinds[-1] == "gave_up"
    assert instance.restarts == 2
    assert supervisor.has_died


async def test_a_failed_start_of_an_instance_without_processes_is_the_callers_error(
    tmp_path: Path,
) -> None:
    fleet = Fleet(tmp_path, "never")
    fleet.instance.refusals = [OSError(113, "No route to host")]
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.supervisor.run)
            with pytest.raises(WorldStartError, match="No route to host"):
                await fleet.supervisor.wait_started()
    assert fleet.kinds == ["start_failed"]
    assert fleet.instance.is_released
