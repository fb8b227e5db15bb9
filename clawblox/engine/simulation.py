"""An engine world as the server kit runs it: the same calls, with its errors in the kit's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from clawblox.engine.errors import WorldHalted
from clawblox.engine.scheduler import TICK_RATE
from clawblox.engine.settings import EngineSettings, read_skill
from clawblox.engine.world.document import FORMAT
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.engine.world.spectator import make_routes
from clawblox.server import Halted, Json, Simulation, WorldState

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


class EngineSimulation(Simulation):
    """An engine world, with its document for agents and its routes.

    Args:
        settings: The world's settings.
        world: The world, neither started nor restored.
        announce: Called with each line that tells where to look.
        changed: The files whose change began this world in place of another; it then waits, halted,
            for the change that mends what halts it as it loads. Empty for a first start.
    """

    format = FORMAT
    tick_rate = float(TICK_RATE)
    has_observation_header = False

    def __init__(
        self,
        settings: EngineSettings,
        world: EngineWorld,
        announce: Callable[[str], None],
        *,
        changed: str = "",
    ) -> None:
        self.max_agents = settings.max_players
        self._settings = settings
        self._world = world
        self._announce = announce
        self._changed = changed
        self._api_doc = read_skill(settings)

    @property
    def api_doc(self) -> str | None:
        """The document that ``scripts.skill`` names."""
        return self._api_doc

    @property
    def time(self) -> float:
        """Simulation time in seconds."""
        return self._world.time

    def content_hash(self) -> str:
        """Return a digest of the rules and the scripts."""
        return self._world.content_hash()

    def begin(self) -> None:
        """Run the main script.

        Raises:
            Halted: A script does not compile, or the main script fails.
        """
        try:
            with self._running():
                self._world.start()
        except Halted:
            if not self._changed:
                raise
            self._announce(
                f"[Watch] {self._changed} changed, and the world halted as it loaded: "
                "it waits for the next change"
            )

    def restore(self, state: Json) -> None:
        """Take over a state."""
        self._world.restore(state)

    def reseed(self, seed: int) -> None:
        """Begin the random numbers anew."""
        self._world.reseed(seed)

    def join(self, agent_id: str, name: str) -> None:
        """Add a player."""
        with self._running():
            self._world.join(agent_id, name)

    def leave(self, agent_id: str) -> None:
        """Remove a player."""
        with self._running():
            self._world.leave(agent_id)

    def act(self, agent_id: str, action: str, data: Json) -> None:
        """Queue an input for the next tick."""
        with self._running():
            self._world.act(agent_id, action, data)

    def step(self) -> None:
        """Run one tick."""
        with self._running():
            self._world.step()

    def removed(self) -> Sequence[str]:
        """Return the agents that the last tick removed."""
        return self._world.removed()

    def audience(self, agent_id: str) -> Sequence[str] | None:
        """Return the agents that hear what this one says now; None for everyone."""
        return self._world.audience(agent_id)

    def chatted(self, agent_id: str, content: str) -> None:
        """Let scripts hear what an agent has said, in the next tick."""
        with self._running():
            self._world.chatted(agent_id, content)

    def observe(self, agent_id: str) -> Mapping[str, Json]:
        """Return what an agent sees."""
        with self._running():
            return self._world.observe(agent_id)

    def snapshot(self) -> Json:
        """Return the whole state."""
        return self._world.snapshot()

    def rows_copier(self) -> Callable[[Path], None] | None:
        """Return what copies the rows of data stores as they are now; None without a file."""
        return self._world.rows_copier()

    def routes(self, world: WorldState) -> Sequence[BaseRoute]:
        """Return the map, and the routes for people: what a spectator sees, the page and files."""
        return make_routes(self._settings, world, self._world.spectate, self._world.map)

    def serving(self, url: str) -> None:
        """Tell where to look."""
        self._announce(f"Server running on {url.replace('//127.0.0.1:', '//localhost:')}")
        self._announce(f"Spectator frontend: {url}/")

    def close(self) -> None:
        """End the world in order, once it is served no more."""
        self._world.close()

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Let an error of a script stop the world with the text that agents get."""
        try:
            yield
        except WorldHalted as error:
            raise Halted(str(error)) from error
