"""A host: the process on a node that runs one attempt, in a scratch directory of its own.

It has a ``LiveWorkshop`` there. It knows no engine: ``calls.Caller`` calls it, whatever carries the
calls. It runs in asyncio's event loop, since that is what Ray gives to its processes. What one task
enters, the same task leaves: the attempt is open in a task of its own, and calls only use it.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - the host's own loop, in which nothing else waits for its tasks
import os
import pickle
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, Final

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import UsageError
from clawblox.experiment import layout
from clawblox.experiment.cluster import scratch
from clawblox.experiment.cluster.calls import Answers
from clawblox.experiment.cluster.chunks import IncomingFile, read_chunk
from clawblox.experiment.cluster.host_process import NodeLog
from clawblox.experiment.cluster.lease import Tenancy
from clawblox.experiment.cluster.messages import (
    Changes,
    News,
    Opening,
    Reply,
    State,
    pack_event,
)
from clawblox.experiment.cluster.mirror import Mark, is_mirrored, read_growth
from clawblox.experiment.cluster.node import describe_node
from clawblox.experiment.cluster.trees import difference, list_tree, pack, unpack
from clawblox.experiment.history.lines import CheckpointKind
from clawblox.experiment.live.attempt_files import require_record
from clawblox.experiment.live.credentials import Credentials
from clawblox.experiment.live.live_attempt import LiveAttempt
from clawblox.experiment.live.live_workshop import LiveWorkshop
from clawblox.experiment.live.survey import check_program_here
from clawblox.experiment.plan.parts import AgentSpec
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.ports import Attempt, Order, Room, SavedAttempt, Signal
from clawblox.results import Event, SavedSnapshot
from clawblox.snapshot.rows import ROWS_SUFFIX
from clawblox.system.files import digest_file
from clawblox.system.guard import guard
from clawblox.telemetry.own_log import OwnLog

NEWS_WAIT_S: Final = 1.0
"""Seconds for which a question for news waits for some."""
_MAX_EVENTS: Final = 1000
_LAYOUT: Final = "chains"
_CALLS: Final = frozenset(
    {
        *("describe", "check", "check_program", "has", "expect", "put"),
        *("open", "start", "news", "close"),
        *("set_budgets", "send", "stop_agents", "world_time"),
        *("observe", "snapshot", "simulation_time"),
        *("checkpoint", "remove_checkpoint", "changes", "read"),
    }
)
"""The methods of a host that the driver may call."""

_log = OwnLog(__name__)


class Host:
    """Runs one attempt; see :class:`clawblox.experiment.cluster.remote_attempt.RemoteAttempt`.

    Args:
        lease_s: Seconds for which it lives after a renewal of its lease.
        node: Name of its node.
    """

    def __init__(self, lease_s: float, node: str) -> None:
        self._own_log = NodeLog()
        self._node = node
        self._tenancy = Tenancy(lease_s)
        self._tasks: Tasks
        self._answers: Answers
        self._serving: asyncio.Task[None] | None = None
        self._is_ready = anyio.Event()
        self._place: Path
        self._workshop: LiveWorkshop | None = None
        self._attempt: Attempt | None = None
        self._order: Order
        self._closing = anyio.Event()
        self._is_closed = anyio.Event()
        self._is_open = anyio.Event()
        self._error: Exception | None = None
        self._has_news = anyio.Event()
        self._signals: list[Signal] = []
        self._events: list[Event] = []
        self._state_number = 0
        self._sent: dict[int, Mapping[str, Any]] = {}
        self._readable: dict[str, Path] = {}
        self._incoming: dict[str, IncomingFile] = {}

    # -- from the engine --------------------------------------------------------------------------

    def renew(self, token: float | None) -> float:
        """Renew the lease; the guard keeps it, and ends this process and its agents after it.

        Args:
            token: The node's time in the answer before; None for the first renewal.

        Returns:
            The node's time now.

        Raises:
            ValueError: The lease cannot be renewed with this token.
        """
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        guard.lease(self._tenancy.renew(token, now))
        return now

    async def call(
        self, number: int, pending: tuple[int, ...], name: str, arguments: tuple[Any, ...]
    ) -> Reply:
        """Call a method by its name; the same number is answered once.

        Args:
            number: Number of the call, from 1.
            pending: The calls whose answers the driver waits for.
            name: The method.
            arguments: Its arguments.

        Cancellation: the method runs on, for the next call with this number.
        """
        if self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._serve())
        await self._is_ready.wait()
        run = partial(self._reply, name, arguments)
        return await self._answers.answer(number, pending, run)  # type: ignore[no-any-return]

    async def _serve(self) -> None:
        async with Tasks(on_error=partial(_log.defect, "task of a host failed")) as self._tasks:
            self._answers = Answers(self._tasks.start_soon)
            self._place = await scratch.make_place()
            self._is_ready.set()
            await anyio.sleep_forever()

    async def _reply(self, name: str, arguments: tuple[Any, ...]) -> Reply:
        try:
            if name not in _CALLS:
                raise UsageError(f"a host has no method {name!r}")
            value = await getattr(self, name)(*arguments)
            if name != "news":
                self._has_news.set()  # whatever it has done: files may have grown
        except Exception as error:  # noqa: BLE001 - it travels to the caller
            return Reply(error=_portable(error), state=self._state())
        return Reply(value=value, state=self._state())

    def _state(self) -> State | None:
        if self._attempt is None:
            return None
        self._state_number += 1
        return State(
            number=self._state_number,
            activity=tuple(self._attempt.activity()),
            usage=tuple(self._attempt.usage()),
        )

    # -- before an attempt ------------------------------------------------------------------------

    async def describe(self) -> Mapping[str, Any]:
        """Return the facts of this node, with its name.

        Cancellation: has no effect.
        """
        return {"name": self._node, **await run_blocking(describe_node)}

    async def check(self, chain: Chain, env: Mapping[str, str] | None) -> None:
        """Check that the programs of a chain's agents can work here; nothing is started.

        Raises:
            AttemptError: A program is missing, or something else that does not pass.
            ProviderError: A login has expired.

        Cancellation: has no effect.
        """
        await self._make_workshop(env).check(chain)

    async def check_program(
        self, chain: Chain, spec: AgentSpec, env: Mapping[str, str] | None
    ) -> str | None:
        """Return the version of an agent's program here; None if it is not known.

        Raises:
            AgentError: It cannot work.
            ConfigError: It cannot be run.

        Cancellation: has no effect.
        """
        credentials = Credentials(dict(os.environ if env is None else env))
        return await check_program_here(credentials, chain, spec)

    async def has(self, world: str) -> bool:
        """Return whether this node has the files of a world.

        Cancellation: has no effect.
        """
        return await run_blocking(scratch.has_world, world)

    async def expect(self, name: str, size: int, sha256: str) -> None:
        """Expect a bundle from the driver.

        Args:
            name: ``run``, ``agents`` or ``world``.
            size: Its size in bytes.
            sha256: Its digest.

        Cancellation: has no effect.
        """
        if name not in ("run", "agents", "world"):
            raise UsageError(f"a host takes no bundle {name!r}")
        file = partial(IncomingFile, self._place / name, size, sha256)
        self._incoming[name] = await run_blocking(file)

    async def put(self, name: str, offset: int, data: bytes) -> None:
        """Take a chunk of an expected bundle.

        Cancellation: has no effect.
        """
        await run_blocking(self._incoming[name].write, offset, data)

    # -- the attempt ------------------------------------------------------------------------------

    async def open(self, opening: Opening) -> None:
        """Open an attempt, whose files were sent.

        Raises:
            AttemptError: It cannot be opened.
            ClawbloxError: A file that was sent cannot be used.

        Cancellation: it is opened nevertheless.
        """
        await run_blocking(self._unpack, opening)
        self._order = await run_blocking(self._localize, opening)
        self._workshop = self._make_workshop(opening.env, opening.grace_s)
        self._sent[0] = await run_blocking(list_tree, self._run_dir)
        self._tasks.start_soon(self._workshop.serve)
        self._tasks.start_soon(self._live)
        await self._is_open.wait()
        if self._error is not None:
            raise self._error

    def _make_workshop(
        self, env: Mapping[str, str] | None, grace_s: float = DEFAULT_GRACE_S
    ) -> LiveWorkshop:
        values = dict(os.environ if env is None else env)
        return LiveWorkshop(
            self._place, _LAYOUT, values, grace_s=grace_s, on_event=self._note_event
        )

    def _unpack(self, opening: Opening) -> None:
        order = opening.order
        runs = layout.runs_dir(layout.chain_dir(self._place, order.chain.name, _LAYOUT))
        runs.mkdir(parents=True)
        run_dir = runs / order.run_id
        targets = {"run": lambda: run_dir, "agents": lambda: runs / _home_of(run_dir)}
        for name, file in self._incoming.items():
            file.publish()
            if name in targets:
                unpack(self._place / name, targets[name]())
            elif opening.world is not None:
                scratch.keep_world(self._place / name, opening.world)
            (self._place / name).unlink()

    def _localize(self, opening: Opening) -> Order:
        """Return the order with the paths that it has here."""
        plan = opening.order.chain.plan
        world = plan.world
        if opening.world is not None:
            world = attrs.evolve(world, dir=scratch.world_path(opening.world))
        agents = []
        for index, (spec, text) in enumerate(zip(plan.agents, opening.prompts, strict=True)):
            prompt = None
            if text is not None:
                prompt = self._place / f"system-prompt-{index}.md"
                prompt.write_bytes(text)
            agents.append(spec.but(system_prompt=prompt, template=None))
        chain = attrs.evolve(opening.order.chain, plan=plan.but(world=world, agents=agents))
        return attrs.evolve(opening.order, chain=chain)

    @property
    def _run_dir(self) -> Path:
        chain = layout.chain_dir(self._place, self._order.chain.name, _LAYOUT)
        return layout.attempt_dir(chain, self._order.run_id)

    async def _live(self) -> None:
        assert self._workshop is not None
        try:
            async with self._workshop.open(self._order, self._note_signal, Room()) as self._attempt:
                self._is_open.set()
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - raised by the calls that wait for it
            self._error = error
        finally:
            self._is_open.set()
            self._is_closed.set()

    async def close(self) -> None:
        """End everything that the attempt has started; idempotent.

        Raises:
            AttemptError: A defect in the bookkeeping of the attempt.

        Cancellation: it is ended nevertheless.
        """
        self._closing.set()
        if self._workshop is not None:
            await self._is_closed.wait()
        if self._error is not None:
            raise self._error

    def _note_signal(self, signal: Signal) -> None:
        self._signals.append(signal)
        self._has_news.set()

    def _note_event(self, _order: Order, event: Event) -> None:
        if len(self._events) < _MAX_EVENTS:  # they are in the files too
            self._events.append(event)
        self._has_news.set()

    @property
    def _opened(self) -> LiveAttempt:
        if not isinstance(self._attempt, LiveAttempt):
            raise UsageError("the host has no attempt")
        return self._attempt

    async def start(self) -> Mapping[str, Any]:
        """Start world and agents; see :class:`~clawblox.experiment.schedule.ports.Attempt`.

        Raises:
            AttemptError: Something could not be started.
            ProviderError: A limit or an expired login.

        Cancellation: they are started nevertheless.
        """
        return await self._opened.start()

    async def set_budgets(self, used: Sequence[Any], is_saving: bool) -> None:
        """Set what each agent may still use.

        Cancellation: has no effect.
        """
        await self._opened.set_budgets(used, is_saving=is_saving)

    async def send(self, text: str) -> None:
        """Send each agent a message.

        Raises:
            AttemptError: An agent could not be started.
            ProviderError: A limit or an expired login.

        Cancellation: has no effect.
        """
        await self._opened.send(text)

    async def stop_agents(self) -> None:
        """Stop the agents. Idempotent.

        Cancellation: they are stopped nevertheless.
        """
        await self._opened.stop_agents()

    async def world_time(self) -> float | None:
        """Return the world's simulation time; None if it reports none.

        Cancellation: has no effect.
        """
        return await self._opened.world_time()

    async def simulation_time(self) -> float | None:
        """Return the world's simulation time for a hook.

        Raises:
            WorldError: The world gave no usable answer.

        Cancellation: has no effect.
        """
        return await self._opened.view().world_time()

    async def observe(self, agent: str) -> Any:  # noqa: ANN401 - the world decides
        """Return what an agent would observe now.

        Raises:
            UsageError: It has not joined the world.
            WorldError: The world did not answer.

        Cancellation: has no effect.
        """
        return await self._opened.view().observe(agent)

    # -- files ------------------------------------------------------------------------------------

    async def snapshot(self) -> SavedSnapshot:
        """Save a snapshot of the world, which can be read then.

        Raises:
            WorldError: The world gave no usable snapshot.

        Cancellation: has no effect.
        """
        saved = await self._opened.view().snapshot()
        for name in (saved.path.name, f"{saved.path.name}{ROWS_SUFFIX}"):
            self._readable[name] = saved.path.with_name(name)
        return saved

    async def checkpoint(
        self, kind: CheckpointKind, elapsed_s: float, idle_wait: float
    ) -> SavedAttempt:
        """Make a checkpoint, which can be read then.

        Args:
            kind: Why it is made.
            elapsed_s: Active seconds of the generation now; only before a periodic one they grow.
            idle_wait: Maximum seconds to wait for a moment between turns.

        Raises:
            ClawbloxError: It failed.

        Cancellation: has no effect.
        """
        begun_at = anyio.current_time()

        def elapsed() -> float:
            return elapsed_s + (anyio.current_time() - begun_at if kind == "periodic" else 0.0)

        saved = await self._opened.checkpoint(kind, elapsed, idle_wait=idle_wait)
        self._readable[saved.file] = self._run_dir / "checkpoints" / saved.file
        return saved

    async def remove_checkpoint(self, file: str) -> None:
        """Remove an archive of this attempt.

        Cancellation: it is removed or not.
        """
        self._readable.pop(file, None)
        await self._opened.remove_checkpoint(file)

    async def changes(self, part: str, token: int) -> Changes:
        """Pack what has changed in a part of the run directory, to be read as ``changes``.

        Growing files travel with the news, and archives alone.

        Args:
            part: Beginning of the names of its files; empty for all files.
            token: State of the files that the driver has, from the answer before; 0 at first.

        Cancellation: has no effect.
        """
        return await run_blocking(self._pack_changes, part, token)

    def _pack_changes(self, part: str, token: int) -> Changes:
        before, now = (
            {name: stamp for name, stamp in listed.items() if self._travels(name, part)}
            for listed in (self._sent[token], list_tree(self._run_dir))
        )
        rest = {name: stamp for name, stamp in self._sent[token].items() if name not in before}
        self._sent = {token: self._sent[token], token + 1: {**rest, **now}}
        names, gone = difference(before, now)
        parents = {str(parent) for name in names for parent in PurePath(name).parents}
        file = self._readable["changes"] = self._place / "changes"
        pack(self._run_dir, file, names | parents)
        size, sha256 = file.stat().st_size, digest_file(file)
        return Changes(token=token + 1, size=size, sha256=sha256, gone=gone)

    def _travels(self, name: str, part: str) -> bool:
        is_archive = name.startswith("checkpoints/") and Path(name).name in self._readable
        return name.startswith(part) and not is_archive and not is_mirrored(name)

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """Return a chunk of a file: of an archive, a snapshot, or ``changes``.

        Cancellation: has no effect.
        """
        if (path := self._readable.get(name)) is None:
            raise UsageError(f"a host gives no file {name!r}")
        return await run_blocking(read_chunk, path, offset, size)

    async def news(self, marks: Mapping[str, Mark], wait_s: float) -> News:
        """Return what is new; wait for something, but not for long.

        Args:
            marks: What the driver has of the growing files.
            wait_s: Maximum seconds to wait for a signal or an event.

        Cancellation: nothing is lost.
        """
        with anyio.move_on_after(wait_s):
            await self._has_news.wait()
        self._has_news = anyio.Event()
        growths = await run_blocking(read_growth, self._run_dir, marks)
        signals, self._signals = self._signals, []
        events, self._events = self._events, []
        return News(
            growths=growths,
            signals=signals,
            events=[pack_event(event) for event in events],
            log=self._own_log.take(),
        )


def _home_of(run_dir: Path) -> str:
    """Return the attempt that has the agents of another, which is scored."""
    home = require_record(run_dir).agents_of
    if home is None:
        raise UsageError("the attempt has agents of its own")
    return home


def _portable(error: Exception) -> Exception:
    """Return an error that can be unpickled, or else one with its text."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - whatever its class does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
