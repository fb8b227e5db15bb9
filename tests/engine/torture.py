"""Runs a directory as a world without HTTP, and checks that restored worlds continue exactly.

A `Plan` contains the actions of agents by tick. `torture` runs the world once, saves it at some
ticks, restores these snapshots in a process of its own and compares everything at every following
tick: the document of the world, the observations of agents and spectators, and its output.

    plan = Plan().join(0, "Rocky").act(5, "Rocky", "MoveTo", {"position": [4, 0, 4]})
    torture(Path("tests/engine/worlds/race"), plan, ticks=120, saves=(1, 30, 77))

To look at a world by hand: ``python -m tests.engine.torture DIR [TICKS]``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from clawblox.engine.errors import WorldHalted
from clawblox.engine.runner import Backend, open_store
from clawblox.engine.settings import EngineSettings, read_settings
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep
from tests.support.template import Template

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300.0

template: Template | None = None
"""The process that is forked for each check of restored worlds."""


def agent_id(name: str) -> str:
    """Return the id of an agent, the same for the same name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


@attrs.define
class Plan:
    """The actions of agents, by the tick that they precede.

    Attributes:
        steps: ``[tick, verb, name, *more]``, in chronological order.
    """

    steps: list[list[Any]] = attrs.field(factory=list)

    def join(self, tick: int, name: str) -> Plan:
        """Let an agent join."""
        self.steps.append([tick, "join", name])
        return self

    def leave(self, tick: int, name: str) -> Plan:
        """Let an agent leave."""
        self.steps.append([tick, "leave", name])
        return self

    def say(self, tick: int, name: str, content: str) -> Plan:
        """Let an agent say something."""
        self.steps.append([tick, "say", name, content])
        return self

    def act(self, tick: int, name: str, action: str, data: Any = None) -> Plan:
        """Let an agent send an input."""
        self.steps.append([tick, "act", name, action, data])
        return self


class Run:
    """A world under a plan.

    Attributes:
        world: The world.
        lines: The lines it has written, each prefixed with the stream.
        names: The agents in the world.
        fingerprint: Fingerprint of the last tick; a restored world gets that of the original.
    """

    def __init__(
        self, settings: EngineSettings, plan: Plan, datastore: Backend = Backend.NONE
    ) -> None:
        self.lines: list[str] = []
        self.names: list[str] = []
        self.fingerprint: int | None = None
        store = open_store(datastore, settings.directory, 0)
        console = Console(
            lambda line: self.lines.append(f"out {line}"),
            lambda line: self.lines.append(f"err {line}"),
        )
        self.world = EngineWorld(settings, console, store=store)
        self._plan = plan

    def start(self) -> Run:
        """Start the world."""
        self.world.begin()
        return self

    def restore(self, state: Any, names: Iterable[str]) -> Run:
        """Continue from a snapshot, with its agents."""
        self.world.restore(state)
        self.names = list(names)
        return self

    def step(self) -> None:
        """Carry out the plan for a tick and run the tick; no effect on a halted world."""
        try:
            for tick, verb, name, *more in self._plan.steps:
                if tick == self.world.tick:
                    self._do(verb, name, more)
            self.world.step()
        except WorldHalted:
            return
        self.fingerprint = self.world.fingerprint()
        gone = self.world.removed()
        self.names = [name for name in self.names if agent_id(name) not in gone]

    def close(self) -> None:
        """End the world; a test must do that if it has a data store."""
        self.world.close()

    def _do(self, verb: str, name: str, more: list[Any]) -> None:
        ident = agent_id(name)
        if verb == "join":
            self.names.append(name)
            self.world.join(ident, name)
        elif name in self.names and verb == "leave":
            self.names.remove(name)
            self.world.leave(ident)
        elif name in self.names and verb == "say":
            self.world.chatted(ident, *more)
        elif name in self.names:
            self.world.act(ident, *more)

    def record(self) -> dict[str, Any]:
        """Return all state that must be equal in a world that continues exactly."""
        if self.world.failure is not None:
            return {"halted": self.world.failure, "lines": self.lines}
        return {
            "document": self.world.snapshot(),
            "agents": {name: self.world.observe(agent_id(name)) for name in self.names},
            "spectator": self.world.spectate(),
            "fingerprint": self.fingerprint,
            "lines": self.lines,
        }


def digest(record: dict[str, Any]) -> str:
    """Return a fingerprint of a record."""
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def torture(
    directory: Path,
    plan: Plan,
    *,
    ticks: int,
    saves: Iterable[int],
    on: int | None = None,
    datastore: Backend = Backend.NONE,
) -> Run:
    """Check that the snapshots of a world continue exactly in a new process.

    Args:
        directory: The world.
        plan: The actions of its agents.
        ticks: Number of ticks to run.
        saves: The ticks before which it is saved.
        on: Maximum number of ticks of a restored world; None to run to the end.
        datastore: File for the rows of data stores.

    Returns:
        The run that was never interrupted.
    """
    job = {
        "directory": str(directory),
        "datastore": str(datastore),
        "plan": plan.steps,
        "ticks": ticks,
        "on": ticks if on is None else on,
    }
    return run_deep(lambda: _torture(job, sorted(set(saves))))


def _torture(job: dict[str, Any], saves: list[int]) -> Run:
    untouched = _make_run(job, _copy(job, "untouched")).start()
    run = _make_run(job, _copy(job, "run")).start()
    states: list[dict[str, Any]] = []
    digests = [digest(run.record())]
    for tick in range(job["ticks"]):
        if tick in saves and run.world.failure is None:
            states.append({"tick": tick, "state": run.world.snapshot(), "names": run.names[:]})
            states[-1]["lines"] = len(run.lines)
            states[-1]["fingerprint"] = run.fingerprint
            states[-1]["directory"] = str(_copy(job, f"save-{tick}", "run"))
        run.step()
        untouched.step()
        digests.append(digest(run.record()))
    assert untouched.record() == run.record(), "saving has changed what happened after"
    run.close()
    untouched.close()
    for state in states:
        state["expected"] = digests[state["tick"] : state["tick"] + job["on"] + 1]
    job |= {"states": states, "lines": run.lines}
    for state, differing in zip(states, _ask(job), strict=True):
        if differing is not None:
            _explain(job, state, *differing)
    return run


def _copy(job: dict[str, Any], name: str, of: str | None = None) -> Path:
    """Return a copy of the world with its own rows."""
    directory = Path(job["directory"])
    if job["datastore"] == Backend.NONE:
        return directory
    source = directory if of is None else directory.with_name(f"{directory.name}-{of}")
    copy = directory.with_name(f"{directory.name}-{name}")
    shutil.copytree(source, copy)
    return copy


def _make_run(job: dict[str, Any], directory: Path) -> Run:
    return Run(read_settings(directory), Plan(job["plan"]), Backend(job["datastore"]))


def _ask(job: dict[str, Any]) -> Any:
    assert template is not None, "conftest.py starts it"
    with (
        tempfile.TemporaryFile("w+") as question,
        tempfile.TemporaryFile("w+") as answer,
        tempfile.TemporaryFile("w+") as errors,
    ):
        json.dump(job, question)
        question.seek(0)
        streams = [question.fileno(), answer.fileno(), errors.fileno()]
        program = template.start(__file__, [], streams, os.environ)
        try:
            status = program.wait(TIMEOUT_S)
        finally:
            program.kill()
        errors.seek(0)
        assert status == 0, errors.read()
        answer.seek(0)
        return json.loads(answer.read())


def _explain(job: dict[str, Any], state: dict[str, Any], at: int, restored: Any) -> None:
    """Fail with the first differences between a restored world and the original."""
    run = _make_run(job, _copy(job, "explained")).start()
    for _ in range(state["tick"] + at):
        run.step()
    expected = json.loads(json.dumps(run.record()))
    run.close()
    found = [line for _, line in zip(range(20), differences(expected, restored), strict=False)]
    raise AssertionError(
        f"saved at tick {state['tick']}, the restored world differs {at} ticks on:\n"
        + "\n".join(found or ["(the difference went away when it was looked for)"])
    )


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    """Iterate over the places at which two JSON values differ."""
    if type(expected) is not type(found):
        yield f"{path}: {expected!r} became {found!r}"
    elif isinstance(expected, dict):
        if list(expected) != list(found):
            yield f"{path}: keys {list(expected)} became {list(found)}"
        for key in expected:
            if key in found:
                yield from differences(expected[key], found[key], f"{path}.{key}")
    elif isinstance(expected, list):
        if len(expected) != len(found):
            yield f"{path}: {len(expected)} entries became {len(found)}"
        for at, pair in enumerate(zip(expected, found, strict=False)):
            yield from differences(*pair, f"{path}[{at}]")
    elif repr(expected) != repr(found):  # distinguishes -0.0 from 0.0
        yield f"{path}: {expected!r} became {found!r}"


def _continue(job: dict[str, Any]) -> list[Any]:
    """Return the first difference of each restored world with its tick, or None."""
    return [_find_difference(job, state) for state in job["states"]]


def _find_difference(job: dict[str, Any], state: dict[str, Any]) -> tuple[int, Any] | None:
    run = _make_run(job, Path(state["directory"]))
    run.restore(state["state"], state["names"])
    run.lines[:] = job["lines"][: state["lines"]]
    run.fingerprint = state["fingerprint"]
    try:
        for at, expected in enumerate(state["expected"]):
            if at:
                run.step()
            record = run.record()
            if digest(record) != expected:
                return at, record
    finally:
        run.close()
    return None


def _look(directory: Path, ticks: int) -> None:
    """Run a world by hand, with one agent."""
    run = Run(read_settings(directory), Plan().join(0, "Rocky")).start()
    for _ in range(ticks):
        run.step()
    print("\n".join(run.lines))
    record = run.record()
    print(json.dumps({**record.get("agents", {}), "halted": record.get("halted")}, indent=1))


def main() -> None:
    """Continue the snapshots of a job, or run a world by hand."""
    if len(sys.argv) > 1:
        ticks = int(sys.argv[2]) if len(sys.argv) > 2 else 60
        run_deep(lambda: _look(Path(sys.argv[1]), ticks))
    else:
        job = json.load(sys.stdin)
        json.dump(run_deep(lambda: _continue(job)), sys.stdout)


if __name__ == "__main__":
    main()
