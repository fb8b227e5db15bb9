"""The sync facade: the same API without an event loop, in one, and with Ctrl-C."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import attrs
import pytest

from clawblox import (
    Agent,
    AgentClient,
    AsyncAgentClient,
    AsyncCheckpointer,
    AsyncStartedInstance,
    AsyncTeam,
    AsyncWorld,
    Checkpointer,
    StartedInstance,
    Team,
    UsageError,
    World,
    WorldExitedBeforeReadyError,
    read_manifest,
)
from clawblox.concurrency.synchronous import call_as
from tests.support.processes import is_alive, marked_processes
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world

ROOT = Path(__file__).parents[2]


RETURNS_OTHERWISE = {
    "on": ("AsyncAgentClient", "AgentClient"),
    "logs": ("LogReader", "Stream[LogLine]"),
    "events": ("EventStream", "Stream[WorldEvent]"),
    "join": ("AsyncAgentClient", "AgentClient"),
    "http": ("AsyncHttpClient", "HttpClient"),
    "save_all": ("BatchOperation[SavedSnapshot]", "Batch[SavedSnapshot]"),
    "start": ("AsyncStartedInstance", "StartedInstance"),
    "restart": ("AsyncStartedInstance", "StartedInstance"),
    **dict.fromkeys(
        ("start_many", "fork", "resume_all"),
        ("Batch[AsyncStartedInstance]", "Batch[StartedInstance]"),
    ),
}
"""Annotations that differ between the async and the sync API."""


TWINS = pytest.mark.parametrize(
    ("sync", "async_"),
    [
        (World, AsyncWorld),
        (AgentClient, AsyncAgentClient),
        (StartedInstance, AsyncStartedInstance),
        (Checkpointer, AsyncCheckpointer),
        (Team, AsyncTeam),
    ],
)


def public_members(of: type) -> dict[str, object]:
    return {name: getattr(of, name) for name in dir(of) if not name.startswith("_")}


@TWINS
def test_both_classes_have_the_same_public_names(sync: type, async_: type) -> None:
    only_sync = {"open", "close"}  # an AsyncWorld is opened and closed by its block
    assert public_members(sync).keys() - only_sync == public_members(async_).keys()


@TWINS
def test_methods_have_the_same_parameters_defaults_and_annotations(
    sync: type, async_: type
) -> None:
    for name, method in public_members(async_).items():
        if not inspect.isfunction(method):
            continue
        expected, found = inspect.signature(method), inspect.signature(getattr(sync, name))
        assert found.parameters == expected.parameters, name
        if name not in RETURNS_OTHERWISE or async_ is AsyncTeam:
            assert found.return_annotation == expected.return_annotation, name
        else:
            returned = expected.return_annotation, found.return_annotation
            assert returned == RETURNS_OTHERWISE[name]


def test_both_worlds_have_the_same_constructor_arguments() -> None:
    assert inspect.signature(World).parameters == inspect.signature(AsyncWorld).parameters


@pytest.mark.parametrize(("sync", "async_"), [(Checkpointer, AsyncCheckpointer), (Team, AsyncTeam)])
def test_both_agent_classes_have_the_same_constructor_arguments(sync: type, async_: type) -> None:
    ours = dict(inspect.signature(sync).parameters)
    theirs = dict(inspect.signature(async_).parameters)
    assert [(name, ours[name].default) for name in ours] == [
        (name, theirs[name].default) for name in theirs
    ]


@TWINS
def test_every_method_of_the_facade_is_documented(sync: type, async_: type) -> None:
    for members in (public_members(sync), public_members(async_)):
        for name, member in members.items():
            if not inspect.ismemberdescriptor(member):  # a field
                assert inspect.getdoc(member), name


def test_a_script_starts_saves_stops_and_resumes(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    world = World(dir=make_world(tmp_path))
    started = world.start(record=True, record_dir=run_dir / "recordings")
    assert world.url == started.url
    access = world.connect(agent="Rocky")
    assert world.api_path(path="/api.md", access=access) == f"{started.url}/api.md"
    saved = world.save(dir=run_dir / "checkpoints")
    assert saved["path"].parent == run_dir / "checkpoints"
    assert world.stop(grace_seconds=HANG_S).rung == "terminated"
    assert world.stop(grace_seconds=1).rung == "not_running"
    again = world.start(port=started.port, resume=saved["path"], run_dir=run_dir)
    assert again.port == started.port
    world.record_run(id="r001", index=1, status="complete", resume_from=saved)
    world.stop(grace_seconds=1)
    world.close()
    manifest = read_manifest(run_dir)
    assert manifest.run["status"] == "complete"
    assert [entry["sha256"] for entry in manifest.checkpoints] == [saved["sha256"]]


def test_a_script_starts_saves_forks_and_drains_many_instances(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with World(dir=make_world(tmp_path)) as world:
        batch = world.start_many([{"name": "left"}, {}], run_dir=run_dir, restart="fresh")
        assert list(batch.done) == list(world.instances) == ["left", "w000"]
        saves = world.save_all(instances=["left"])
        (fork,) = world.fork(saves["left"], run_dir=run_dir)
        assert (fork.name, fork.resume_path) == ("w001", saves["left"].path)
        world.autosave(every=1000.0)
        world.autosave(every=None)
        assert world.stop(instance="left", grace_seconds=HANG_S).rung == "terminated"
        drained = world.drain(grace_seconds=1)
        assert list(drained.done) == ["w000", "w001"]
        assert world.stop_all().done == {}
        assert world.instances == ()
        assert (world.metrics.starts, world.metrics.stops) == (3, 3)
        with pytest.raises(UsageError, match="no instance 'left'"):
            world.save_all(instances=["left"])
    with pytest.raises(UsageError, match="not open"):
        world.metrics  # noqa: B018 - it is a property


def test_the_main_argument_can_be_positional(tmp_path: Path) -> None:
    with World(dir=make_world(tmp_path)) as world:
        world.start_many(2, run_dir=tmp_path / "run")
        world.autosave(1000.0)
        assert world.stop("w000", grace_seconds=HANG_S).rung == "terminated"
        assert [*world.logs("w001", tail=0)] == []
        assert world.instances == ("w001",)


def test_the_error_for_an_unknown_argument_names_the_sync_class_and_nearest_name(
    tmp_path: Path,
) -> None:
    def complaint(call: Callable[[], object]) -> str:
        with pytest.raises(TypeError) as caught:
            call()
        return str(caught.value).replace("got an unexpected keyword argument", "got")

    agent = Agent(agent="claude", name="a", dir=tmp_path / "a")
    with World(dir=make_world(tmp_path)) as world, agent:
        world.start(run_dir=tmp_path / "run")
        red = world.join("Red")
        wrong: dict[str, Callable[[], object]] = {
            "World.start() got 'portt'. Did you mean 'port'?": lambda: world.start(portt=1),
            "World.logs() got 'tial'. Did you mean 'tail'?": lambda: world.logs(tial=1),
            "World.save() got 'everything'": lambda: world.save(everything=1),
            "World.start() takes 1 positional argument but 2 were given": lambda: world.start(1),
            "AgentClient.act() got 'dta'. Did you mean 'data'?": lambda: red.act("Add", dta=1),
            "Agent.send() got 'promt'. Did you mean 'prompt'?": lambda: agent.send(promt="m"),
            "World.__init__() got 'rundir'. Did you mean 'run_dir'?": lambda: World("w", rundir=1),
            "Agent.__init__() got 'modle'. Did you mean 'model'?": lambda: Agent(modle="m"),
            "Checkpointer.__init__() got 'evry'. Did you mean 'every'?": lambda: Checkpointer(
                world, {}, dir="c", evry=3
            ),
        }
        assert {expected: complaint(call) for expected, call in wrong.items()} == {
            expected: expected for expected in wrong
        }


def test_class_methods_of_a_twin_have_its_own_name() -> None:
    assert Team.resume.__qualname__ == "Team.resume"
    with pytest.raises(TypeError, match=r"^Team\.resume\(\) got .* 'envi'. Did you mean 'env'\?"):
        Team.resume("run", envi={})  # type: ignore[call-arg]


def test_a_type_error_inside_the_function_is_unchanged() -> None:
    def fail(count: int) -> None:
        raise TypeError(f"{count} is too much")

    with pytest.raises(TypeError, match=r"^3 is too much$"):
        call_as("World.fail", fail, 3)


def test_stop_is_safe_after_a_failed_start_and_without_a_start(tmp_path: Path) -> None:
    with World(dir=make_world(tmp_path, "--exit-at-once", "4")) as world:
        assert world.stop().rung == "not_running"
        with pytest.raises(WorldExitedBeforeReadyError):
            world.start(run_dir=tmp_path / "run")
        assert world.stop(grace_seconds=1).rung == "not_running"


def test_reading_metadata_starts_no_thread(tmp_path: Path) -> None:
    threads = {thread.name for thread in threading.enumerate()}
    world = World(dir=make_world(tmp_path))
    assert world.name == "counter"
    assert world.url is None
    assert world.instances == ()
    assert {thread.name for thread in threading.enumerate()} == threads


def test_logs_and_events_are_plain_iterators(tmp_path: Path) -> None:
    with World(dir=make_world(tmp_path)) as world, world.events() as events:
        world.start(run_dir=tmp_path / "run")
        with world.logs(tail=1) as lines:
            assert ["Spectator frontend" in line.text for line in lines] == [True]
        world.stop()
        assert [next(events).kind for _ in range(3)] == ["started", "ready", "stopped"]
        world.close()
        assert list(events) == []


def test_world_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def notebook_cell() -> str:
        with World(dir=make_world(tmp_path)) as world:
            return world.start(run_dir=tmp_path / "run").url

    assert anyio.run(notebook_cell).startswith("http://127.0.0.1:")


def test_threads_share_one_world(tmp_path: Path) -> None:
    names: list[str] = []
    with World(dir=make_world(tmp_path)) as world:
        starts = [
            threading.Thread(target=lambda: names.append(world.start(run_dir=tmp_path / "r").name))
            for _ in range(3)
        ]
        for thread in starts:
            thread.start()
        for thread in starts:
            thread.join()
        assert sorted(names) == ["w000", "w001", "w002"]
        with pytest.raises(UsageError, match=r"w00., w00., w00."):
            world.save()


def test_a_detached_instance_is_attached_again(tmp_path: Path) -> None:
    with World(dir=make_world(tmp_path)) as world:
        started = world.start(run_dir=tmp_path / "run", detach=True)
    assert is_alive(started.pid)
    world = World.attach(tmp_path / "run")
    assert world.instances == (started.name,)
    assert world.save()["format"] == "counter-v1"
    world.close()
    assert is_alive(started.pid)
    world = World.attach(tmp_path / "run")
    assert world.stop().rung == "terminated"
    world.close()
    assert not is_alive(started.pid)


# --------------------------------------------------------------------------- other processes


@attrs.frozen
class Script:
    """A running script that has started a world and printed its pid."""

    process: subprocess.Popen[str]
    world_pid: int

    def interrupt(self) -> None:
        os.kill(self.process.pid, signal.SIGINT)

    def wait(self) -> int:
        errors = self.process.communicate(timeout=HANG_S)[1]
        sys.stderr.write(errors)
        return self.process.returncode


def run_script(tmp_path: Path, body: str, *flags: str) -> Script:
    """Run a script that starts a world, prints its pid, and continues with ``body``."""
    directory = make_world(tmp_path, *flags)
    text = "\n".join(
        [
            "import os, sys, time",
            "from clawblox import World",
            f"world = World(dir={str(directory)!r})",
            f"started = world.start(run_dir={str(tmp_path / 'run')!r})",
            "print(started.pid, flush=True)",
            body,
        ]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first_line = process.stdout.readline()
    assert first_line, process.communicate(timeout=HANG_S)[1]
    return Script(process, int(first_line))


@pytest.mark.thorough
def test_the_end_of_a_script_stops_its_world(tmp_path: Path) -> None:
    script = run_script(tmp_path, "")
    assert script.wait() == 0
    assert not is_alive(script.world_pid)


@pytest.mark.thorough
def test_an_unhandled_exception_stops_the_world(tmp_path: Path) -> None:
    script = run_script(tmp_path, "raise ZeroDivisionError")
    assert script.wait() == 1
    assert not is_alive(script.world_pid)


@pytest.mark.parametrize("waiting", ["time.sleep(60)", "world.save()"], ids=["script", "call"])
def test_ctrl_c_stops_the_world_cleanly(tmp_path: Path, waiting: str) -> None:
    flags = ["--snapshot", "hang-before-headers"] if "save" in waiting else []
    script = run_script(tmp_path, waiting, *flags)
    script.interrupt()
    assert script.wait() == -signal.SIGINT
    assert not marked_processes()


@pytest.mark.thorough
def test_a_second_ctrl_c_kills_immediately(tmp_path: Path) -> None:
    body = (
        "import atexit\n"
        "atexit.register(lambda: print('leaving', flush=True))\n"
        "print('armed', flush=True)\n"
        "time.sleep(60)\n"
    )
    script = run_script(tmp_path, body, "--ignore-sigterm")
    assert script.process.stdout is not None
    assert script.process.stdout.readline() == "armed\n"
    script.interrupt()
    assert script.process.stdout.readline() == "leaving\n"
    pending = True

    def interrupted_again() -> bool:
        nonlocal pending
        if pending and script.process.poll() is None:
            script.interrupt()
        return script.process.poll() is not None

    wait_until(interrupted_again)
    script.wait()
    wait_until(lambda: not is_alive(script.world_pid))


@pytest.mark.thorough
def test_a_forked_script_has_its_own_portal_and_guard(tmp_path: Path) -> None:
    body = (
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    other = World(dir={str(tmp_path / 'counter')!r})\n"
        f"    other.start(run_dir={str(tmp_path / 'other')!r})\n"
        "    other.close()\n"
        "    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "assert world.instances == ('w000',)\n"
        "world.save()\n"
    )
    script = run_script(tmp_path, body)
    assert script.wait() == 0
