"""Access to an instance of any process through its record in the run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn, Self

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import read_world_config
from clawblox.errors import UsageError, WorldCallError, WorldExitedError, WorldSessionError
from clawblox.protocol import JoinAnswer
from clawblox.results import Access, SavedSnapshot
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.rundir.operations import save_one
from clawblox.rundir.presence import Presence, exited_error, read_presence
from clawblox.rundir.records import InstanceRecord
from clawblox.system.connection import Connections
from clawblox.system.request import Answer, Request
from clawblox.world.access import WorldMember, join, join_answer
from clawblox.world.agent_client import AsyncAgentClient, join_place
from clawblox.world.http_clients import HttpClients
from clawblox.world.places import Waits, require_usable
from clawblox.world.players import Restored, SavedPlayers, recall_kept
from clawblox.world.settling import list_agent

_NOTICE_INTERVAL_S = 0.05
_NOTICE_TIMEOUT_S = 0.5
"""Longest wait for the end of a world after a call to it failed, in seconds."""


class RecordedPlace:
    """An instance known by its record; a context manager that closes the connections.

    Calls fail during a restart instead of waiting for it. The constructor blocks.

    Args:
        run_dir: The run directory.
        record: The record of the instance.

    Raises:
        ConfigError: The ``world.toml`` of the world is missing or has become invalid.
    """

    def __init__(self, run_dir: Path, record: InstanceRecord) -> None:
        self.run_dir = run_dir
        self.name = record.name
        self.url = record.url
        self.restarts = record.restarts
        self.connections = Connections(record.url)
        self.routes = read_world_config(Path(record.world_dir)).api
        self.http_clients = HttpClients()  # never opened: for library users only
        self._record = record

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connections.close()

    async def read_presence(self) -> Presence:
        """Return whether the instance is serving, according to its latest record.

        Cancellation: has no effect.
        """
        return await run_blocking(read_presence, self.run_dir, self._record)

    def find(self, instance: str) -> NoReturn:
        """Raise an error, because no other instance is known here.

        Raises:
            UsageError: Always.
        """
        raise UsageError(f"instance {instance!r} is not known here, only {self.name!r} is")

    async def recall(self, member: WorldMember) -> SavedPlayers:
        """Return the players of a name in the save that the instance was restored from.

        Only sessions of ``act`` in another run are returned, because a running program may have the
        others.

        Cancellation: has no effect.
        """
        record = self._record
        if record.resume_path is None:
            return SavedPlayers()
        restored = Restored(
            Path(record.resume_path), None, self.run_dir, Path(record.instance_dir), record.run_id
        )
        return await run_blocking(recall_kept, restored, member.name)

    async def admit(
        self,
        member: WorldMember,
        known: JoinAnswer | None,
        players: SavedPlayers,
        *,
        timeout: float,
    ) -> Access:
        """Let an agent join, and list it in the manifest of the instance.

        Raises:
            WorldExitedError: The instance has ended.
            ManifestError: The agent cannot be listed in the manifest.
            ConfigError: The agent's directory cannot be used.
            ClawbloxError: As :func:`clawblox.world.access.join`.

        Cancellation: the agent may have joined the world.
        """
        try:
            access = await join(
                self.connections,
                member,
                known=known,
                candidates=players.answers,
                observe=self.routes["observe"],
                url=self.url,
                timeout=timeout,
            )
        except WorldCallError as error:
            raise await self._explained(error) from error.__cause__
        if isinstance(access.agent_id, str):
            async with ManifestWriters() as writers:
                writer = writers.of(Path(self._record.instance_dir))
                await list_agent(writer, self._record.run_id, member, access.agent_id)
        return access

    def note_left(self, access: Access) -> None:
        """Ignore the leave, because only the owner of the instance keeps a roster."""

    async def exchange(
        self, request: Request, body: bytes | None, waits: Waits, *, access: Access
    ) -> Answer:
        """Return the answer to a request if it means success or a refusal.

        Raises:
            WorldCallError: There was no usable answer in time.
            WorldExitedError: The instance is not serving.

        Cancellation: the request may have been received.
        """
        try:
            answer = await self.connections.send(request, body, timeout=waits.timeout)
            return require_usable(request, answer)
        except WorldCallError as error:
            raise await self._explained(error) from error.__cause__

    async def _explained(self, error: WorldCallError) -> WorldCallError | WorldExitedError:
        """Return the error of a failed call: WorldExitedError if the world has ended."""
        if error.status is None:
            with anyio.move_on_after(_NOTICE_TIMEOUT_S):
                while True:
                    now = await self.read_presence()
                    if now.state != "serving":
                        return await run_blocking(
                            exited_error, self.run_dir, now, self._record.log_start
                        )
                    await anyio.sleep(_NOTICE_INTERVAL_S)
        error.locate(instance=self.name, url=self.url, log_file=Path(self._record.log_file))
        return error


TIMEOUT_S = 30.0
"""Seconds for the answer to a call."""


class RecordedPlayer:
    """An agent that continues after a restart of its world; a context manager that leaves it.

    Args:
        place: The instance.
        agent: Client of the agent.
        life: State of the instance when the agent joined.

    Attributes:
        agent: Client of the agent; replaced if the agent had to join as a new agent.
        life: State of the instance when the agent joined.
    """

    def __init__(self, place: RecordedPlace, agent: AsyncAgentClient, life: Presence) -> None:
        self._place = place
        self.agent = agent
        self.life = life

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        """Leave the world if it is still serving.

        Cancellation: the world is still asked, and has 2 s to answer.
        """
        await self.agent.__aexit__(*exc_info)

    async def read_presence(self) -> Presence:
        """Return whether the world is serving.

        Cancellation: has no effect.
        """
        return await self._place.read_presence()

    async def exited_error(self, before: Presence, now: Presence) -> WorldExitedError:
        """Return the error for a world that has stopped serving.

        Cancellation: has no effect.
        """
        run_dir, log_start = self._place.run_dir, before.record.log_start
        return await run_blocking(exited_error, run_dir, now, log_start)

    async def save_instance(self) -> SavedSnapshot:
        """Save the instance, as ``clawblox save`` does.

        Raises:
            ClawbloxError: The instance could not be saved.

        Cancellation: leaves both the file and its manifest entry, or neither.
        """
        return await save_one(self._place.run_dir, self._place.name)

    async def rejoin(self) -> bool:
        """Join again after a restart; return whether the world knew the session.

        Raises:
            ClawbloxError: As :meth:`AsyncWorld.join`.

        Cancellation: the agent may have joined.
        """
        self.agent, is_known = await join_again(
            self._place, self.agent.name, join_answer(self.agent.access)
        )
        return is_known


async def join_again(
    place: RecordedPlace, name: str, known: JoinAnswer
) -> tuple[AsyncAgentClient, bool]:
    """Rejoin with a session; join with a new one if the world does not know it.

    Returns:
        The client, and whether the world knew the session.

    Raises:
        ClawbloxError: As :meth:`AsyncWorld.join`.

    Cancellation: the agent may have joined.
    """
    try:
        return await join_place(place, name, known=known, timeout=TIMEOUT_S), True
    except WorldSessionError:
        return await join_place(place, name, timeout=TIMEOUT_S), False
