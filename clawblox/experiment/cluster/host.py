"""A host: the process on a node that runs one attempt, in its own scratch directory.

It has its own ``LiveBackend`` and is independent of the engine: ``calls.HostCaller`` calls it
through any engine. It runs in asyncio's event loop because Ray's processes do. A context must be
left by the task that entered it, so a separate task holds the attempt open, and calls only use it.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - the host's own loop, in which nothing else waits for its tasks
import os
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import UsageError
from clawblox.experiment.cluster.calls import Answers
from clawblox.experiment.cluster.host_files import LAYOUT, HostFiles
from clawblox.experiment.cluster.lease import Tenancy, read_boottime
from clawblox.experiment.cluster.messages import (
    AttemptAgents,
    AttemptOpening,
    News,
    Reply,
    pack_event,
)
from clawblox.experiment.cluster.mirror import ReadMark, read_growth
from clawblox.experiment.cluster.node import NodeLog, describe_node
from clawblox.experiment.cluster.scratch import make_place
from clawblox.experiment.history.lines import CheckpointKind
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.credentials import Credentials
from clawblox.experiment.live.live_attempt import LiveAttempt
from clawblox.experiment.live.live_backend import LiveBackend
from clawblox.experiment.live.survey import check_program_here
from clawblox.experiment.plan.parts import AgentSpec
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.ports import Attempt, Room, SavedCheckpointFile, Signal
from clawblox.results import Event, SavedSnapshot
from clawblox.snapshot.rows import ROWS_SUFFIX
from clawblox.system.guard import guard
from clawblox.telemetry.own_log import OwnLog

NEWS_WAIT_S: Final = 1.0
"""Seconds for which a request for news waits."""
_MAX_EVENTS: Final = 1000
_CALLS: Final = frozenset(
    {
        *("describe", "check", "check_program"),
        *("open", "news", "close", "set_budgets"),
        *("observe", "snapshot", "simulation_time"),
        *("checkpoint", "remove_checkpoint"),
    }
)
"""The methods of a host that the driver may call."""
_ATTEMPT_CALLS: Final = frozenset({"start", "send", "stop_agents", "world_time"})
"""Methods of the attempt that the driver may call."""
_FILE_CALLS: Final = frozenset({"has", "expect", "put", "changes", "read", "remove"})
"""Methods of the files that the driver may call."""

_log = OwnLog(__name__)


class AttemptHost:
    """Runs one attempt; see :class:`clawblox.experiment.cluster.remote_attempt.RemoteAttempt`.

    Args:
        lease_s: Length of its lease in seconds: it ends this long after the last renewal.
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
        self._files: HostFiles
        self._backend: LiveBackend | None = None
        self._attempt: Attempt | None = None
        self._order: AttemptOrder
        self._closing = anyio.Event()
        self._is_closed = anyio.Event()
        self._is_open = anyio.Event()
        self._error: Exception | None = None
        self._has_news = anyio.Event()
        self._signals: list[Signal] = []
        self._events: list[Event] = []
        self._state_number = 0

    # -- from the engine --------------------------------------------------------------------------

    def renew(self, token: float | None) -> float:
        """Renew the lease; when it expires, the guard ends this process and its agents.

        Args:
            token: The node's time in the answer before; None for the first renewal.

        Returns:
            The node's time now.

        Raises:
            ValueError: The lease cannot be renewed with this token.
        """
        now = read_boottime()
        guard.lease(self._tenancy.renew(token, now))
        return now

    async def call(
        self, number: int, pending: tuple[int, ...], name: str, arguments: tuple[Any, ...]
    ) -> Reply:
        """Call a method by its name; a repeated number runs only once.

        Args:
            number: Number of the call, from 1.
            pending: The calls whose answers the driver waits for.
            name: The method.
            arguments: Its arguments.

        Cancellation: the method continues, for the next call with this number.
        """
        if self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._serve())
        await self._is_ready.wait()
        run = partial(self._reply, name, arguments)
        return await self._answers.answer(number, pending, run)  # type: ignore[no-any-return]

    async def _serve(self) -> None:
        async with Tasks(on_error=partial(_log.defect, "task of a host failed")) as self._tasks:
            self._answers = Answers(self._tasks.start_soon)
            self._is_ready.set()
            await anyio.sleep_forever()

    async def _reply(self, name: str, arguments: tuple[Any, ...]) -> Reply:
        try:
            if name in _FILE_CALLS:
                value = await run_blocking(getattr(self._files, name), *arguments)
            elif name in _ATTEMPT_CALLS:
                value = await getattr(self._opened, name)(*arguments)
            elif name in _CALLS:
                value = await getattr(self, name)(*arguments)
            else:
                raise UsageError(f"a host has no method {name!r}")
            if name != "news":
                self._has_news.set()  # files may have grown, whatever the outcome
        except Exception as error:  # noqa: BLE001 - it travels to the caller
            return Reply(error=_portable(error), state=self._state())
        return Reply(value=value, state=self._state())

    def _state(self) -> AttemptAgents | None:
        if self._attempt is None:
            return None
        self._state_number += 1
        return AttemptAgents(
            number=self._state_number,
            activity=tuple(self._attempt.activity()),
            usage=tuple(self._attempt.usage()),
        )

    # -- before an attempt ------------------------------------------------------------------------

    async def describe(self) -> Mapping[str, Any]:
        """Make a directory for files, and return the facts of this node, with its name.

        Raises:
            ClawbloxError: The directory for the files of hosts is unusable.
            OSError: The directory cannot be made.

        Cancellation: has no effect.
        """
        self._files = HostFiles(await make_place())
        return {"name": self._node, **await run_blocking(describe_node)}

    async def check(self, chain: Chain, env: Mapping[str, str] | None) -> None:
        """Check that the programs of a chain's agents can run here, without starting them.

        Raises:
            AttemptError: A program is missing, or another check fails.
            ProviderError: A login has expired.

        Cancellation: has no effect.
        """
        await self._make_backend(env).check(chain)

    async def check_program(
        self, chain: Chain, spec: AgentSpec, env: Mapping[str, str] | None
    ) -> str | None:
        """Return the version of an agent's program on this node, or None if unknown.

        Raises:
            AgentError: The agent cannot work, for example without a login.
            ConfigError: It cannot be run.

        Cancellation: has no effect.
        """
        credentials = Credentials(os.environ if env is None else env)
        return await check_program_here(credentials, chain, spec)

    # -- the attempt ------------------------------------------------------------------------------

    async def open(self, opening: AttemptOpening) -> None:
        """Open an attempt; its files were sent before.

        Raises:
            AttemptError: It cannot be opened.
            ClawbloxError: A file that was sent is unusable.

        Cancellation: the attempt is opened regardless.
        """
        self._order = await run_blocking(self._files.unpack, opening)
        self._backend = self._make_backend(opening.env, opening.grace_s)
        self._tasks.start_soon(self._backend.serve)
        self._tasks.start_soon(self._live)
        await self._is_open.wait()
        if self._error is not None:
            raise self._error

    def _make_backend(
        self, env: Mapping[str, str] | None, grace_s: float = DEFAULT_GRACE_S
    ) -> LiveBackend:
        values = dict(os.environ if env is None else env)
        return LiveBackend(
            self._files.place, LAYOUT, values, grace_s=grace_s, on_event=self._note_event
        )

    async def _live(self) -> None:
        assert self._backend is not None
        try:
            async with self._backend.open(self._order, self._note_signal, Room()) as self._attempt:
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
            AttemptError: The attempt's bookkeeping has a defect.

        Cancellation: everything is ended regardless.
        """
        self._closing.set()
        if self._backend is not None:
            await self._is_closed.wait()
        if self._error is not None:
            raise self._error

    def _note_signal(self, signal: Signal) -> None:
        self._signals.append(signal)
        self._has_news.set()

    def _note_event(self, _order: AttemptOrder, event: Event) -> None:
        if len(self._events) < _MAX_EVENTS:  # the files contain them too
            self._events.append(event)
        self._has_news.set()

    @property
    def _opened(self) -> LiveAttempt:
        if not isinstance(self._attempt, LiveAttempt):
            raise UsageError("the host has no attempt")
        return self._attempt

    async def set_budgets(self, used: Sequence[Any], is_saving: bool) -> None:
        """Set the remaining budget of each agent.

        Cancellation: has no effect.
        """
        await self._opened.set_budgets(used, is_saving=is_saving)

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
        """Save a snapshot of the world, which the driver can then read.

        Raises:
            WorldError: The world gave no usable snapshot.

        Cancellation: has no effect.
        """
        saved = await self._opened.view().snapshot()
        self._files.give(saved.path)
        self._files.give(saved.path.with_name(f"{saved.path.name}{ROWS_SUFFIX}"))
        return saved

    async def checkpoint(
        self, kind: CheckpointKind, active_s: float, idle_wait: float
    ) -> SavedCheckpointFile:
        """Make a checkpoint, which the driver can then read.

        Args:
            kind: Why it is made.
            active_s: Active seconds of the generation now; they grow only before a periodic
                checkpoint.
            idle_wait: Maximum seconds to wait for a moment between turns.

        Raises:
            ClawbloxError: It failed.

        Cancellation: has no effect.
        """
        begun_at = anyio.current_time()

        def elapsed() -> float:
            return active_s + (anyio.current_time() - begun_at if kind == "periodic" else 0.0)

        saved = await self._opened.checkpoint(kind, elapsed, idle_wait=idle_wait)
        self._files.give(self._files.run_dir / "checkpoints" / saved.file)
        return saved

    async def remove_checkpoint(self, file: str) -> None:
        """Remove an archive of this attempt.

        Cancellation: it is removed or not.
        """
        self._files.take_back(file)
        await self._opened.remove_checkpoint(file)

    async def news(self, marks: Mapping[str, ReadMark], wait_s: float) -> News:
        """Return the news, after a short wait for some.

        Args:
            marks: How far the driver has copied each growing file.
            wait_s: Maximum seconds to wait for a signal or an event.

        Cancellation: nothing is lost.
        """
        with anyio.move_on_after(wait_s):
            await self._has_news.wait()
        self._has_news = anyio.Event()
        growths = await run_blocking(read_growth, self._files.run_dir, marks)
        signals, self._signals = self._signals, []
        events, self._events = self._events, []
        return News(
            growths=growths,
            signals=signals,
            events=[pack_event(event) for event in events],
            log=self._own_log.take(),
        )


def _portable(error: Exception) -> Exception:
    """Return the error if it can be pickled and unpickled, else a portable error with its text."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - whatever its class does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
