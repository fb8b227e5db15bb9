"""Scenarios of a driver with a ``RayEngine``, each in its own process, run by ``test_ray_engine``.

python -c "from tests.experiment.cluster.ray_scenarios import run; run()" SCENARIO ADDRESS …
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import exceptions

from clawblox.errors import ConfigError
from clawblox.experiment.cluster.engine import CallLostError, HostEndedError
from clawblox.experiment.cluster.ray_engine import RayEngine, RayHost, translate
from clawblox.experiment.plan.cluster import Cluster
from tests.support.processes import is_alive
from tests.support.waiting import HANG_S, wait_until

SMALL = Cluster(cpus=0.1)
MEGABYTES = bytes(5_000_000)
ORPHAN = "import os, time; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True);"


class OwnError(Exception):
    """An error with an attribute whose name Ray also uses."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnError, (self.cause, str(self))


class OddError(Exception):
    """An error that can be pickled but not unpickled."""

    def __init__(self, text: str, more: str) -> None:
        super().__init__(text + more)


class LockedError(Exception):
    """An error that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


class StubHost:
    """Has the interface of a host; its methods are called by name."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.calls: list[tuple[int, int]] = []

    async def call(self, number: int, done: int, name: str, arguments: tuple[Any, ...]) -> Any:
        self.calls.append((number, done))
        return await getattr(self, name)(*arguments)

    def renew(self, token: float | None) -> float:
        return (token or 0.0) + 1.0

    async def describe(self) -> dict[str, Any]:
        words = ["grep", "SigBlk", "/proc/self/status"]
        return {
            "node": self.node,
            "calls": self.calls,
            "variables": [name for name in os.environ if name.startswith("RAY_")],
            "blocked": subprocess.run(words, stdout=subprocess.PIPE, text=True).stdout.split()[1],
            "pid": os.getpid(),
        }

    async def echo(self, value: Any) -> Any:
        return value

    async def block(self, busy: Path) -> str:
        busy.touch()
        while busy.exists():
            time.sleep(0.01)
        return "free"

    async def wait(self) -> None:
        await asyncio.sleep(HANG_S)

    async def fail(self, error: str) -> None:
        errors = {
            "own": lambda: OwnError("world", "it ended"),
            "odd": lambda: OddError("one", "two"),
            "locked": LockedError,
            "config": lambda: ConfigError("must be less", key="a.b", value=1),
        }
        raise errors[error]()

    async def start_programs(self) -> tuple[int, int]:
        """Start a child in its own session, and an orphaned program."""
        child = subprocess.Popen(["sleep", str(HANG_S)], start_new_session=True)
        program = [sys.executable, "-c", f"{ORPHAN} time.sleep({HANG_S})"]
        orphan = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        assert orphan.stdout is not None
        return child.pid, int(orphan.stdout.readline())


def find_raylet() -> int:
    """Return the parent of this process; on a node that is its raylet."""
    return os.getppid()


@contextlib.contextmanager
def connected(address: str) -> Iterator[RayEngine]:
    engine = RayEngine(address, StubHost)
    try:
        yield engine
    finally:
        engine.close()


def ask(host: RayHost, name: str, *arguments: Any) -> Any:
    return host.call(1, 0, name, arguments).result(HANG_S)


def find_error(future: Future[Any]) -> BaseException:
    error = future.exception(HANG_S)
    assert error is not None
    return error


def hosts_are_called_by_number_and_know_their_node(address: str) -> None:
    with connected(address) as engine:
        for host in (engine.start_host(SMALL), engine.start_host(SMALL)):
            facts = host.call(7, 5, "describe", ()).result(HANG_S)
            assert facts["calls"] == [(7, 5)]
            assert facts["node"] in ("alpha", "beta")
            assert host.renew(None).result(HANG_S) == 1.0
            assert host.renew(4.0).result(HANG_S) == 5.0


def nobody_waits_for_a_head_that_is_stopped(address: str, head: str) -> None:
    with connected(address) as engine:
        os.kill(int(head), signal.SIGSTOP)
        try:
            first, second = engine.start_host(SMALL), engine.start_host(SMALL)
            answer = first.call(1, 0, "echo", (1,))
            second.end()
            lost = second.call(1, 0, "echo", (2,))
            assert not answer.done()
        finally:
            os.kill(int(head), signal.SIGCONT)
        assert answer.result(HANG_S) == 1
        assert isinstance(find_error(lost), HostEndedError)


def large_arguments_and_answers_travel(address: str) -> None:
    with connected(address) as engine:
        assert ask(engine.start_host(SMALL), "echo", MEGABYTES) == MEGABYTES


def programs_of_a_host_get_no_variable_of_ray_and_no_blocked_signal(address: str) -> None:
    with connected(address) as engine:
        facts = ask(engine.start_host(SMALL), "describe")
    assert facts["variables"] == []
    assert int(facts["blocked"], 16) == 0


def errors_are_those_of_the_method(address: str) -> None:
    with connected(address) as engine:
        host = engine.start_host(SMALL)
        names = ("own", "config", "odd", "locked")
        own, config, odd, locked = (find_error(host.call(1, 0, "fail", (name,))) for name in names)
    assert isinstance(own, OwnError)
    assert (type(own), own.cause, str(own)) == (OwnError, "world", "it ended")
    assert isinstance(config, ConfigError)
    assert (type(config), config.key) == (ConfigError, "a.b")
    assert type(odd) is RuntimeError
    assert "OddError: onetwo" in str(odd)
    assert type(locked) is RuntimeError
    assert "LockedError: locked" in str(locked)


def errors_of_ray_are_lost_calls_or_ended_hosts(address: str) -> None:
    lost = [
        exceptions.ActorUnavailableError("the connection broke", None),
        exceptions.ObjectLostError("00", "", ""),
        exceptions.RaySystemError("the raylet was killed"),
    ]
    ended = [
        exceptions.ActorDiedError(),
        exceptions.WorkerCrashedError(),
        exceptions.TaskUnschedulableError("its node is dead"),
    ]
    assert {type(translate(error)) for error in lost} == {CallLostError}
    assert {type(translate(error)) for error in ended} == {HostEndedError}


def a_lease_is_renewed_while_the_host_is_busy(address: str) -> None:
    with connected(address) as engine:
        host = engine.start_host(SMALL)
        busy = Path.cwd() / "busy"
        answer = host.call(1, 0, "block", (busy,))
        wait_until(busy.exists)
        renewal = host.renew(1.0)
        try:
            assert renewal.result(HANG_S / 4) == 2.0
            assert not answer.done()
        finally:
            busy.unlink()
        assert answer.result(HANG_S) == "free"


def a_host_waits_for_room(address: str) -> None:
    seat = Cluster(cpus=0, resources={"seat": 1})
    with connected(address) as engine:
        first, second = engine.start_host(seat), engine.start_host(seat, {"alpha"})
        assert ask(first, "describe")["node"] == "alpha"  # the only node with a seat
        answer = second.call(1, 0, "echo", (2,))
        assert not answer.done()
        first.end()
        assert answer.result(HANG_S) == 2


def a_host_is_on_a_node_to_avoid_only_if_no_other_has_room(address: str) -> None:
    half = Cluster(cpus=2)
    with connected(address) as engine:
        hosts = [engine.start_host(half, {"alpha"}) for _ in range(3)]
        assert [ask(host, "describe")["node"] for host in hosts] == ["beta", "beta", "alpha"]


def a_host_that_waits_for_room_is_withdrawn(address: str) -> None:
    seat = Cluster(cpus=0, resources={"seat": 1})
    with connected(address) as engine:
        first = engine.start_host(seat)
        ask(first, "echo", 1)
        waiting = [engine.start_host(seat) for _ in range(5)]
        answers = [host.call(1, 0, "echo", (2,)) for host in waiting]
        for host in waiting:
            host.end()
        assert {type(find_error(answer)) for answer in answers} == {HostEndedError}
        for _ in range(5):  # before Ray registers the hosts
            engine.start_host(seat).end()
        first.end()
        assert ask(engine.start_host(seat), "echo", 3) == 3


def the_end_kills_a_host_and_its_children_but_no_orphan(address: str) -> None:
    with connected(address) as engine:
        host = engine.start_host(SMALL)
        pid, (child, orphan) = ask(host, "describe")["pid"], ask(host, "start_programs")
        waiting = host.call(2, 0, "wait", ())
        try:
            host.end()
            host.end()
            assert isinstance(find_error(waiting), HostEndedError)
            assert isinstance(find_error(host.call(3, 0, "echo", (1,))), HostEndedError)
            wait_until(lambda: not is_alive(pid) and not is_alive(child))
            assert is_alive(orphan)  # the guard ends such programs
        finally:
            os.kill(orphan, signal.SIGKILL)


def a_killed_host_is_reported(address: str) -> None:
    with connected(address) as engine:
        host = engine.start_host(SMALL)
        waiting = host.call(1, 0, "wait", ())
        os.kill(ask(host, "describe")["pid"], signal.SIGKILL)
        assert isinstance(find_error(waiting), HostEndedError)
        assert isinstance(find_error(host.renew(1.0)), HostEndedError)


def a_host_that_cannot_start_has_ended(address: str) -> None:
    engine = RayEngine(address, int)  # a number is not the name of a node
    error = find_error(engine.start_host(SMALL).call(1, 0, "echo", (1,)))
    assert isinstance(error, HostEndedError)
    assert "invalid literal for int()" in str(error)
    engine.close()


def a_killed_raylet_ends_only_its_hosts(address: str, raylet: str) -> None:
    with connected(address) as engine:
        victim = engine.start_host(Cluster(cpus=0, resources={"victim": 1}))
        other = engine.start_host(Cluster(cpus=0, resources={"seat": 1}))
        ask(victim, "echo", 1)
        ask(other, "echo", 1)
        os.kill(int(raylet), signal.SIGKILL)
        waiting = victim.call(2, 0, "wait", ())
        assert isinstance(find_error(waiting), CallLostError | HostEndedError)
        assert ask(other, "echo", 2) == 2
        wait_until(lambda: isinstance(find_error(victim.renew(1.0)), HostEndedError))
        assert engine.ask_nodes(os.path.basename, "/a/b").keys() == {"alpha", "beta"}


def each_node_is_asked_once(address: str) -> None:
    with connected(address) as engine:
        answers = engine.ask_nodes(os.path.basename, "/a/b")
        assert {name: answer.result(HANG_S) for name, answer in answers.items()} == {
            "alpha": "b",
            "beta": "b",
        }
        raylets = {answer.result(HANG_S) for answer in engine.ask_nodes(find_raylet).values()}
        assert len(raylets) == 2
        errors = engine.ask_nodes(os.path.basename, 1).values()
        assert {type(find_error(answer)) for answer in errors} == {TypeError}


def signal_handlers_and_existing_connections_stay(address: str) -> None:
    handlers = {number: signal.getsignal(number) for number in signal.Signals}
    with connected(address) as engine:
        host = engine.start_host(SMALL)
        pid = ask(host, "describe")["pid"]
        with connected("auto") as second, connected(address) as third:
            assert ask(second.start_host(SMALL), "echo", 1) == 1
            assert third.is_loopback
        assert ask(host, "echo", 1) == 1
        with pytest.raises(ConfigError, match=f"^cluster.address: must be auto or {address}"):
            RayEngine("127.0.0.1:1", StubHost)
    assert not ray.is_initialized()
    assert {number: signal.getsignal(number) for number in signal.Signals} == handlers
    wait_until(lambda: not is_alive(pid))
    engine.close()
    assert isinstance(find_error(host.call(2, 1, "echo", (1,))), HostEndedError)
    assert not ray.is_initialized()
    assert threading.enumerate() == [threading.main_thread()]


def an_actor_may_be_the_driver(address: str) -> None:
    ray.init(address=address, log_to_driver=False, logging_level="error")

    @ray.remote(num_cpus=0)
    class Driver:
        def drive(self) -> tuple[int, bool]:
            with connected("auto") as engine:
                value = ask(engine.start_host(SMALL), "echo", 5)
            return value, ray.is_initialized()

        async def drive_in_a_loop(self) -> tuple[int, bool]:
            return await asyncio.to_thread(self.drive)

    class Sync(Driver.__ray_metadata__.modified_class):  # type: ignore[misc,name-defined]
        drive_in_a_loop = None

    for driver in (ray.remote(num_cpus=0)(Sync).remote().drive, Driver.remote().drive_in_a_loop):
        assert ray.get(driver.remote(), timeout=HANG_S) == (5, True)
    ray.shutdown()


def a_wrong_address_is_named(address: str) -> None:
    closed = "127.0.0.1:1"
    for wrong, text in ((closed, "Connection refused"), ("nonsense", "Invalid address format")):
        with pytest.raises(ConfigError, match=text) as raised:
            RayEngine(wrong, StubHost)
        assert (raised.value.key, raised.value.value) == ("cluster.address", wrong)
        assert "ray start --head" in str(raised.value)
    assert not ray.is_initialized()
    assert threading.enumerate() == [threading.main_thread()]


def a_cluster_without_token_is_warned_about(address: str) -> None:
    with connected(address) as engine:
        assert (engine.has_token, engine.is_encrypted, engine.is_loopback) == (False, False, True)
        (warning,) = engine.describe()
    assert "RAY_AUTH_MODE=token" in warning


def a_token_is_enough_on_one_machine(address: str) -> None:
    with connected(address) as engine:
        assert engine.has_token
        assert engine.describe() == []
        assert ask(engine.start_host(SMALL), "echo", MEGABYTES) == MEGABYTES
        assert ask(engine.start_host(SMALL), "describe")["variables"] == []


def a_driver_without_token_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE=token"):
        RayEngine(address, StubHost)


def run() -> None:
    """Run the scenario named in the arguments."""
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except NoAnswerError as error:
        raise AssertionError("no answer in time") from error
