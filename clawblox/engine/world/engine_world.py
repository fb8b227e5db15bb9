"""An engine world: the simulation that the server runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from zlib import crc32

from clawblox.engine.datastore.store import Store
from clawblox.engine.errors import SnapshotMismatch, WorldHalted
from clawblox.engine.instances.instance import Instance
from clawblox.engine.scheduler import TICK_RATE
from clawblox.engine.services.agent_inputs import check_input
from clawblox.engine.services.sounds import spectate_sounds
from clawblox.engine.services.speech import within_hearing
from clawblox.engine.settings import EngineSettings, read_skill
from clawblox.engine.watchdog.client import Watchdog
from clawblox.engine.world.assembly import Assembly, run_tick
from clawblox.engine.world.console import Console
from clawblox.engine.world.observation import (
    observe_entities,
    observe_map,
    observe_others,
    observe_player,
    player_position,
    view_radius,
)
from clawblox.engine.world.spectator import make_routes, spectate_entities, spectate_player
from clawblox.engine.world.world_state import (
    FORMAT,
    REVISION,
    SCHEMA_VERSION,
    check_identity,
    write_world,
)
from clawblox.luau import LuaError, VMSnapshotError, run_deep
from clawblox.protocol import ScriptErrors
from clawblox.server import Json, Simulation, WorldState

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

_REBUILT: Final = (
    "[Snapshot] The physics was saved by another version of its library, or on another kind of "
    "processor. It has been rebuilt from poses, velocities and shapes: the world does not continue "
    "exactly."
)
Result = TypeVar("Result")


class EngineWorld(Simulation):
    """A world of scripts, run in this process.

    Call `begin` or `restore` first. Calls that run scripts start a thread with a deep stack, unless
    they are made within `clawblox.luau.run_deep`.

    Args:
        settings: The settings in the world's files.
        console: The output of the world; None means standard output and standard error.
        store: The database of data stores, or None.
        logical_restore: Whether to restore positions and velocities if the exact state of the
            physics cannot be restored; the world then continues slightly differently.
        watchdog: Watches the calls that run scripts, or None.
        changed: The changed files for which this world replaces another. A world that halts while
            loading then stays halted until another change. Empty for a first start.

    Raises:
        SettingsError: A script or the document for agents cannot be read.

    Attributes:
        failure: The error that halted the world; None while it is running.
    """

    format = FORMAT
    revision = REVISION
    tick_rate = float(TICK_RATE)
    has_observation_header = False

    def __init__(
        self,
        settings: EngineSettings,
        console: Console | None = None,
        *,
        store: Store | None = None,
        logical_restore: bool = False,
        watchdog: Watchdog | None = None,
        changed: str = "",
    ) -> None:
        self.settings = settings
        self.max_agents = settings.max_players
        self._api_doc = read_skill(settings)
        self._changed = changed
        self._console = Console() if console is None else console
        self._parts = Assembly(settings, self._console, store, logical_restore=logical_restore)
        self.has_shared_rows = self._parts.services.data_stores.is_shared
        has_file = store is not None and not self.has_shared_rows
        self.datastore = "sqlite" if has_file else "none" if store is None else "postgres"
        self._console.tick = lambda: self.tick
        self.failure: str | None = None
        self._watchdog = watchdog
        self._show_vm_to_watchdog()

    def _show_vm_to_watchdog(self) -> None:
        if self._watchdog is not None:
            self._parts.vm.observer = self._watchdog.note_place
            self._watchdog.guard(self._parts.vm.interrupt)

    @property
    def tick(self) -> int:
        """Number of ticks since the world started."""
        return self._parts.scheduler.tick

    @property
    def time(self) -> float:
        """Simulation time, in seconds."""
        return self._parts.scheduler.time

    @property
    def script_errors(self) -> ScriptErrors | None:
        """The errors that have ended threads, or None."""
        errors = self._parts.scheduler.errors
        return ScriptErrors(errors.count, errors.last) if errors.count else None

    @property
    def api_doc(self) -> str | None:
        """The document that ``scripts.skill`` names."""
        return self._api_doc

    @property
    def _game_id(self) -> str:
        return self._parts.services.data_stores.game_id

    def content_hash(self) -> str:
        """Return a hash of the scripts and of the settings that affect the simulation."""
        return self._parts.content_hash

    def check_scripts(self, changed: Collection[str] = ()) -> None:
        """Compile the scripts without running them.

        Args:
            changed: Paths of modules to compile too; other modules may never be required.

        Raises:
            SettingsError: A script does not compile; the message quotes it.
        """
        run_deep(lambda: self._parts.check_scripts(changed))

    # Running

    def begin(self) -> None:
        """Create the tree and run the main script.

        Raises:
            WorldHalted: A script does not compile, or the main script fails.
        """
        try:
            self._run(self._parts.begin)
        except WorldHalted:
            if not self._changed:
                raise
            self._console.announce(
                f"[Watch] {self._changed} changed, and the world halted as it loaded: "
                "it waits for the next change"
            )

    def join(self, agent_id: str, name: str) -> None:
        """Let an agent join, between two ticks.

        Raises:
            WorldHalted: A script of the tree that starts now fails, or the error of a handler of
                ``PlayerAdded`` halts the world.
        """
        self._run(lambda: self._join(agent_id, name))

    def _join(self, agent_id: str, name: str) -> None:
        parts = self._parts
        if self.tick == 0:  # scripts of the tree start in the first tick, but must get all joins
            with parts.scheduler.phase("Begin frame error"):
                parts.scripts.begin_tick()
        parts.services.players.add(agent_id, name)

    def leave(self, agent_id: str) -> None:
        """Let an agent leave, between two ticks.

        Raises:
            WorldHalted: The error of a handler of ``PlayerRemoving`` halts the world.
        """
        self._run(lambda: self._parts.services.players.remove(agent_id))

    def act(self, agent_id: str, action: str, data: Json) -> None:
        """Queue an input for the next tick.

        Raises:
            InputError: The input is malformed, or not allowed.
            KeyError: The agent is not in the world.
        """
        services = self._parts.services
        player = self._player(agent_id)
        check_input(action, data, allow_reset=self.settings.allow_reset)
        services.players.touch(agent_id)
        services.inputs.add(player, action, data)

    def _player(self, agent_id: str) -> Instance:
        player = self._parts.services.players.find(agent_id)
        if player is None:
            raise KeyError(agent_id)
        return player

    def removed(self) -> Sequence[str]:
        """Return the agents removed since the last call, because they were kicked or idle."""
        return self._parts.services.players.removed()

    def audience(self, agent_id: str) -> Sequence[str] | None:
        """Return the agents within hearing of this agent; None for everyone.

        Raises:
            KeyError: The agent is not in the world.
        """
        if not self.settings.speech_is_near:
            return None
        players = [
            (listener, player_position(player))
            for listener, player in self._parts.services.players.listed()
        ]
        speaker = player_position(self._player(agent_id))
        return within_hearing(speaker, players, self.settings.hearing_radius)

    def chatted(self, agent_id: str, content: str) -> None:
        """Schedule ``Chatted`` for the next tick.

        Raises:
            KeyError: The agent is not in the world.
        """
        self._parts.services.speech.add(self._player(agent_id), content)

    def step(self) -> None:
        """Run a tick.

        Raises:
            WorldHalted: The error of a script halts the world.
        """
        self._run(lambda: run_tick(self._parts))

    def close(self) -> None:
        """Close the world: call the functions that scripts have bound, and close the database.

        A halted world does not call functions. Waits for the database, possibly for seconds.
        """
        services = self._parts.services
        if self.failure is None:
            for failure in self._run(services.at_close.close):
                self._console.fail(failure, 0, self._parts.sources())
            self._console.end_tick()
        services.data_stores.close()

    def _run(self, function: Callable[[], Result]) -> Result:
        return run_deep(lambda: self._enter(function))

    def _enter(self, function: Callable[[], Result]) -> Result:
        if self.failure is not None:
            raise WorldHalted(*self.failure.split(": ", 1))
        try:
            with self._parts.vm.entered(), self._parts.scheduler.phase("Failed to load script"):
                result = function() if self._watchdog is None else self._watch(function)
                self._parts.scheduler.warn_of_lost_threads()
                return result
        except WorldHalted as halted:
            if self._watchdog is not None:
                self._watchdog.close()  # scripts no longer run
            self.failure = str(halted)
            self._console.halt(halted, self._parts.sources())
            raise

    def _watch(self, function: Callable[[], Result]) -> Result:
        """Make a call under the watchdog."""
        assert self._watchdog is not None
        self._watchdog.begin_call()
        try:
            result = function()
        finally:
            self._watchdog.end_call()
        try:
            self._parts.vm.check_interrupt()  # it came after the call's last charge point
        except LuaError as error:
            raise LuaError(f"{self._watchdog.place}: {error}") from None
        return result

    # Observations

    def observe(self, agent_id: str) -> dict[str, Json]:
        """Return the observation of an agent.

        Raises:
            KeyError: The agent is not in the world.
        """
        return self._run(lambda: self._observe(agent_id))

    def _observe(self, agent_id: str) -> dict[str, Json]:
        player = self._player(agent_id)
        radius = view_radius(player, self.settings.observation_radius)
        others = self._parts.services.players.listed()
        entities = observe_entities(self._parts.model.workspace, player_position(player), radius)
        return {
            "tick": self.tick,
            "game_status": "active" if self.failure is None else "failed",
            "player": observe_player(player, agent_id),
            "other_players": observe_others(player, others, radius, self._parts.parts.sees),
            "world": {
                "name": self.settings.name,
                "tick_rate": TICK_RATE,
                "entities": list(entities),
            },
            "events": [],
            "recent_events": self._parts.services.remote_events.latest_for(agent_id),
        }

    def routes(self, world: WorldState) -> Sequence[BaseRoute]:
        """Return the routes of the map and for people: the state for spectators, page and files."""
        return make_routes(self.settings, world, self.spectate, self.map)

    def serving(self, url: str) -> None:
        """Announce where the world can be reached."""
        self._console.announce(f"Server running on {url.replace('//127.0.0.1:', '//localhost:')}")
        self._console.announce(f"Spectator frontend: {url}/")

    def map(self) -> dict[str, Json]:
        """Return the parts with the tag ``Static``; observations omit these parts."""
        return self._look(lambda: {"entities": observe_map(self._parts.model.workspace)})

    def _look(self, function: Callable[[], Result]) -> Result:
        """Make a call that does not run scripts."""

        def enter() -> Result:
            with self._parts.vm.entered():
                return function()

        return run_deep(enter)

    def fingerprint(self) -> int:
        """Return a checksum of the steps that the last tick took, and of the random generators.

        All actions of scripts take steps, so most differences show here first.
        """
        vm = self._parts.vm
        return crc32(b"%d %d %d" % (vm.steps_taken(), vm.random.state, vm.draws))

    def spectate(self) -> dict[str, Json]:
        """Return the view of a spectator."""
        parts = self._parts
        return self._look(
            lambda: {
                "instance_id": self._game_id,
                "tick": self.tick,
                "server_time_ms": self.tick * 1000 // TICK_RATE,
                "game_status": "playing" if self.failure is None else "failed",
                "players": [
                    spectate_player(player, agent_id, parts.animations)
                    for agent_id, player in parts.services.players.listed()
                ],
                "entities": spectate_entities(parts.model.workspace),
                "sounds": spectate_sounds(parts.model.game),
                "recent_events": parts.services.remote_events.latest(),
            }
        )

    # Snapshots

    def snapshot(self) -> dict[str, Json]:
        """Return the whole state as a JSON document, between two ticks."""
        parts = self._parts
        return {
            "schema_version": SCHEMA_VERSION,
            "format": FORMAT,
            "time": self.time,
            "game_id": self._game_id,
            "content_hash": self.content_hash(),
            **run_deep(lambda: write_world(parts.model, parts.vm, parts.systems)),
        }

    def rows_copier(self) -> Callable[[Path], None] | None:
        """Return a function that copies the current rows of data stores; None without a file.

        Raises:
            StoreError: The database cannot be read.
        """
        return self._parts.services.data_stores.copier()

    def restore(self, state: Json) -> None:
        """Restore a snapshot.

        Raises:
            SnapshotMismatch: This world cannot continue from the snapshot; the message states why.
        """
        check_identity(state, self.content_hash())
        try:
            run_deep(lambda: self._parts.restore(state))
        except (VMSnapshotError, ValueError) as error:
            raise SnapshotMismatch(f"the snapshot cannot be restored: {error}") from error
        except Exception as error:
            raise SnapshotMismatch(
                f"the snapshot is damaged: {type(error).__name__}: {error}"
            ) from error
        self._show_vm_to_watchdog()
        if self._parts.parts.is_rebuilt:
            self._console.error(_REBUILT)

    def reseed(self, seed: int) -> None:
        """Reset the random generators to a new seed."""
        self._parts.vm.random.seed(seed)
