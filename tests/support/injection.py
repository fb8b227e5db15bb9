"""A program that injects a defect into the task of an instance or agent next to another one.

The task of the instance's supervisor, or of the agent's owner, goes through all possible events.
Every function of the package that is entered in the task, or in a thread or task on its behalf, is
noted, or one of these functions raises. The program runs in a separate process, because the faults
that it looks for can stop an event loop forever.
``python -m tests.support.injection instance|agent DIRECTORY`` first prints the entered functions as
JSON; then it reads points, one per line, injects each, and prints the result.
"""

from __future__ import annotations

import contextlib
import contextvars
import dis
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import attrs
import structlog

import clawblox
from clawblox import AsyncAgent, AsyncWorld, Batch
from clawblox.agents import drivers
from clawblox.agents.running import owner as agent_owner
from clawblox.agents.running.owner import Owner
from clawblox.concurrency import threads
from clawblox.instance.launcher import Launcher
from clawblox.instance.supervisor import Supervisor
from tests.agents.small import SmallDriver, make_agent
from tests.support.processes import name_session, processes_in
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask, make_world

PACKAGE = str(Path(clawblox.__file__).parent) + os.sep

LIVENESS = '[run.liveness]\npath = "/api.md"\nperiod = 0.03\ntimeout = 20\n'
GENERATOR = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR

is_victim = contextvars.ContextVar("is_victim", default=False)


class InjectedError(Exception):
    """The injected exception."""


@attrs.frozen
class Point:
    """A function and the call at which it raises: the ``call``-th within a phase."""

    name: str
    phase: str
    call: int = 1

    def __str__(self) -> str:
        return f"{self.name} ({self.phase}, call {self.call})"


@attrs.define
class Injector:
    """Observes each function that is entered on behalf of the victim, and raises in one."""

    target: Point | None = None
    phase: str = ""
    entered: dict[str, dict[str, int]] = attrs.field(factory=dict)
    is_injected: bool = False

    def trace(self, frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE) or not is_victim.get():
            return
        if code.co_flags & GENERATOR and not is_at_start(frame):
            return
        module = code.co_filename[len(PACKAGE) : -len(".py")].replace(os.sep, ".")
        name = f"{module}:{code.co_qualname}"
        if code.co_name.startswith("<"):
            return
        calls = self.entered.setdefault(name, {})
        calls[self.phase] = calls.get(self.phase, 0) + 1
        if self.target == Point(name, self.phase, calls[self.phase]):
            self.is_injected = True
            raise InjectedError(f"injected into {name}")

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        threading.settrace(self.trace)
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]


def is_at_start(frame: FrameType) -> bool:
    """Return whether a generator or coroutine starts rather than continues."""
    instruction, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return instruction == dis.opmap["RESUME"] and argument & 3 == 0


@attrs.define
class Report:
    """The observed effects of a defect."""

    said: list[str] = attrs.field(factory=list)

    def log(self, _logger: object, _method: str, fields: Any) -> Any:
        self.said.append(f"{fields} {sys.exc_info()[1]!r}")
        raise structlog.DropEvent

    def hear(self, error: BaseException) -> None:
        seen: BaseException | None = error
        while seen is not None:
            self.said.append(repr(seen))
            seen = seen.__cause__ or seen.__context__

    async def take(self, step: Callable[[], Awaitable[object]], name: str) -> None:
        """Run a step, which may fail but must end."""
        try:
            with anyio.fail_after(HANG_S):
                found = await step()
        except TimeoutError as error:
            raise AssertionError(f"{name} does not end") from error
        except Exception as error:
            self.hear(error)
        else:
            if isinstance(found, Batch):
                for failure in found.failed.values():
                    self.hear(failure)


# -- work on behalf of the victim ---------------------------------------------------------------


victims: list[Any] = []
"""The supervisors, or owners, into whose tasks defects are injected; the latest is the last."""


def follow_the_victim(kind: type[Any], is_meant: Callable[[Any], bool]) -> None:
    """Mark the task of each victim.

    Args:
        kind: Class of the object that runs in the task: a supervisor or an owner.
        is_meant: Returns whether such an object is a victim.
    """
    original = kind.run

    async def run(self: Any) -> None:
        if is_meant(self):
            victims.append(self)
            is_victim.set(True)
        await original(self)

    kind.run = run


def follow_into_threads() -> None:
    """Run work that others do on behalf of a task in the task's context."""
    batched, launched, work = threads.Batcher.run, Launcher.run, Launcher._work

    async def run_batched(self: Any, function: Any, *args: Any) -> Any:
        context = contextvars.copy_context()
        return await batched(self, partial(context.run, function, *args))

    async def run_launched(self: Any, instance: Any, **calls: Any) -> Any:
        self.is_for_victim = is_victim.get()
        contexts = {name: contextvars.copy_context() for name in calls}
        return await launched(
            self, instance, **{name: partial(contexts[name].run, calls[name]) for name in calls}
        )

    def run_work(self: Any) -> None:
        is_victim.set(self.is_for_victim)
        work(self)

    threads.Batcher.run = run_batched  # type: ignore[method-assign]
    Launcher.run = run_launched  # type: ignore[method-assign, assignment]
    Launcher._work = run_work  # type: ignore[method-assign]


# -- an instance --------------------------------------------------------------------------------


async def live_as_an_instance(directory: Path, injector: Injector, report: Report) -> None:
    world_dir = make_world(directory, toml_extra=LIVENESS, sidecars={"aide": []})
    name = "w000"
    async with AsyncWorld(dir=world_dir) as world, world.events() as events:
        sibling = await world.start(run_dir=directory / "run", name="sibling")
        phases: dict[str, Callable[[], Awaitable[object]]] = {
            "start": lambda: world.start_many(1, run_dir=directory / "many", restart="checkpoint"),
            "save": lambda: world.save(instance=name),
            "crash": partial(crash_instance, world, name),
            "restart": lambda: world.restart(instance=name, grace_seconds=2),
            "stop": lambda: world.stop(instance=name, grace_seconds=2),
        }
        await live(phases, injector, report)
        assert "sibling" in world.instances, "the sibling has ended"
        assert ask(sibling.port, "GET", "/api.md").status == 200
        assert (await world.stop(instance="sibling")).rung == "terminated"
    report.said += [repr(event) for event in list(events._events)]


async def crash_instance(world: AsyncWorld, name: str) -> None:
    supervisor = victims[-1]
    before = supervisor.instance.restarts
    process = supervisor.instance.running.processes.world
    os.kill(process.pid, signal.SIGKILL)
    await wait_until_async(
        lambda: (
            supervisor.lifecycle.is_over
            or (supervisor.lifecycle.state == "ready" and supervisor.instance.restarts > before)
        ),
        timeout=HANG_S,
        what="the instance is back or has ended",
    )


# -- an agent -----------------------------------------------------------------------------------


async def live_as_an_agent(directory: Path, injector: Injector, report: Report) -> None:
    async with (
        opened(directory, "sibling") as sibling,
        opened(directory, "victim") as agent,
        agent.events() as events,
    ):
        await sibling.start(initial_prompt="work")
        phases: dict[str, Callable[[], Awaitable[object]]] = {
            "start": lambda: agent.start(initial_prompt="work use 3"),
            "idle": agent.wait,
            "send": lambda: agent.send(prompt="crash-once 3 work"),
            "crash": agent.wait,
            "stop": lambda: agent.stop(grace_seconds=2),
            "resume": lambda: agent.send(prompt="use 5 work"),
            "rest": agent.wait,
            "end": lambda: agent.stop(grace_seconds=2),
        }
        await live(phases, injector, report)
        assert agent.state in ("new", "stopped", "failed"), agent.state
        assert (await sibling.wait()).state == "idle", "the sibling has ended"
        await sibling.send(prompt="work")
        assert (await sibling.stop()).state == "stopped"
    report.said += [repr(event) for event in list(events._events)]
    if agent.failure is not None:
        report.hear(agent.failure)


@asynccontextmanager
async def opened(directory: Path, name: str) -> AsyncIterator[AsyncAgent]:
    (directory / name).mkdir()
    async with make_agent(directory / name, "loop", name=name) as agent:
        yield agent


# -- both ---------------------------------------------------------------------------------------


async def live(
    phases: dict[str, Callable[[], Awaitable[object]]], injector: Injector, report: Report
) -> None:
    for phase, step in phases.items():
        injector.phase = phase
        await report.take(step, phase)
    injector.phase = "after"


LIVES = {"instance": live_as_an_instance, "agent": live_as_an_agent}


def run_once(kind: str, directory: Path, target: Point | None) -> tuple[Injector, str]:
    """Go through all events; return the entered functions, and a fault if there is one."""
    injector, report = Injector(target), Report()
    structlog.configure(processors=[report.log])
    directory.mkdir()

    async def main() -> None:
        await LIVES[kind](directory, injector, report)
        await wait_until_async(lambda: not processes_in(directory), what="nothing is left")

    fault = ""
    try:
        with injector.tracing():
            anyio.run(main)
    except BaseException as error:
        leaves = [error]
        while isinstance(leaves[0], BaseExceptionGroup):
            leaves[:1] = leaves[0].exceptions
        fault = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves)
    if injector.is_injected and not fault:
        is_told = any("injected into" in said for said in report.said)
        fault = "" if is_told else "nothing tells of the defect"
    shutil.rmtree(directory, ignore_errors=True)
    return injector, fault


def main(kind: str, where: str) -> None:
    directory = Path(where)
    name_session(directory)
    follow_into_threads()
    if kind == "instance":
        follow_the_victim(Supervisor, lambda one: one.instance.launch.options.name != "sibling")
    else:
        drivers.DRIVERS = {"small": SmallDriver()}  # type: ignore[dict-item, assignment]
        agent_owner.retry_delay_s = lambda *_: 0.0  # type: ignore[assignment]
        follow_the_victim(Owner, lambda one: one._order.options.name == "victim")
    injector, fault = run_once(kind, directory / "reference", None)
    print(json.dumps({"entered": injector.entered, "fault": fault}), flush=True)
    for number, line in enumerate(sys.stdin):
        injector, fault = run_once(kind, directory / str(number), Point(**json.loads(line)))
        print(json.dumps({"is_injected": injector.is_injected, "fault": fault}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
