"""``Players``: the players, their removal, and bots.

Characters are created elsewhere: `spawn` gives a new player a character.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.errors import to_luau_text, to_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import number_argument, text_argument
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.instances.tree_changes import destroy, set_parent
from clawblox.engine.saved_state import Layouts, SavedState, Stored, object_slot
from clawblox.engine.scheduler import TICK_RATE
from clawblox.engine.services.teams import assign_team, leave_team
from clawblox.engine.slots import Slots
from clawblox.engine.values.value import as_list
from clawblox.luau import LuaTable, RuntimeFault

_USER_ID_BITS: Final = (1 << 53) - 1
_TICKS_BETWEEN_CHECKS: Final = 60


@attrs.define(eq=False)
class PlayerRecord:
    """The engine's state of a player.

    Attributes:
        agent_id: The id of the player for agents and spectators.
        active_at: The tick of the last input, or of joining.
        is_bot: Whether scripts have added the player.
    """

    agent_id: str
    active_at: int
    is_bot: bool


def _read_players(slots: Slots, saved: list[list[Any]]) -> dict[str, Instance]:
    players = {}
    for number, *fields in saved:
        player = slots.take_as(number, Instance)
        player.extra = PlayerRecord(*fields)
        players[player.extra.agent_id] = player
    return players


_PLAYERS: Final = Stored(
    [(shapes.whole, shapes.text, shapes.whole, shapes.flag)],
    lambda slots, players: [
        [slots.put(player), *attrs.astuple(player.extra)] for player in players.values()
    ],
    _read_players,
)


@attrs.define(eq=False)
class Players(SavedState):
    """The players of a world, in the order in which they joined.

    Args:
        model: The data model; the methods of ``Players`` and ``Player`` are added to it.
        max_players: Maximum number of players, including bots.
        afk_timeout_s: Simulation time after which a player without input is removed; 0 means
            never.
        spawn: Gives a new player a character, before ``PlayerAdded``.
        leave: Called with a player who is being removed, after ``PlayerRemoving``.
        log: Called with each line about a removed player.
    """

    layouts: ClassVar[Layouts] = {
        "_players": _PLAYERS,
        "_kicks": [(object_slot(Instance), shapes.text)],
        "_bots": [shapes.text],
        "_bots_made": shapes.whole,
    }

    _model: DataModel
    max_players: int
    _afk_timeout_s: float
    _spawn: Callable[[Instance], None]
    _leave: Callable[[Instance], None]
    _log: Callable[[str], None]
    _players: dict[str, Instance] = attrs.field(init=False, factory=dict)
    _kicks: list[tuple[Instance, str]] = attrs.field(init=False, factory=list)
    _bots: list[str] = attrs.field(init=False, factory=list)
    _bots_made: int = attrs.field(init=False, default=0)
    _removed: list[str] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        for name, receiver in (("Players", "service"), ("Player", "player")):
            self._model.classes.add(name, methods=bind_methods(self, receiver))
        self._model.classes.add(
            "Players",
            getters={
                "NumPlayers": lambda service: float(len(service.children)),
                "PreferredPlayers": lambda service: service.read("MaxPlayers"),
            },
        )

    @property
    def service(self) -> Instance:
        """The service, with the players as children."""
        return self._model.services["Players"]

    def listed(self) -> list[tuple[str, Instance]]:
        """Return the ids and players in the order in which they joined, including bots."""
        return list(self._players.items())

    def find(self, agent_id: str) -> Instance | None:
        """Return the player of an agent, or None."""
        return self._players.get(agent_id)

    # Joining and leaving

    def add(self, agent_id: str, name: str) -> Instance:
        """Add the player of an agent; fire ``PlayerAdded`` after creating the character.

        Args:
            agent_id: The agent's id, a UUID.
            name: The player's name, as text.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        user_id = uuid.UUID(agent_id).int & _USER_ID_BITS or 1
        return self._add(agent_id, to_luau_text(name), float(user_id), is_bot=False)

    def _add(self, agent_id: str, name: str, user_id: float, *, is_bot: bool) -> Instance:
        player = self._model.make("Player")
        player.name = name
        player.store("UserId", user_id)
        player.store("DisplayName", name)
        gui = self._model.make("PlayerGui")
        gui.link(player)
        player.store("PlayerGui", gui)
        player.extra = PlayerRecord(agent_id, self._model.scheduler.tick, is_bot)
        self._players[agent_id] = player
        with self._model.scheduler.phase("Failed to fire PlayerAdded"):
            set_parent(player, self.service)
            assign_team(player)
            self._spawn(player)
            self.service.fire("PlayerAdded", player)
        return player

    def remove(self, agent_id: str) -> None:
        """Remove a player, after firing ``PlayerRemoving``.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        player = self._players.get(agent_id)
        if player is None:
            return
        with self._model.scheduler.phase("Failed to fire PlayerRemoving"):
            self.service.fire("PlayerRemoving", player)
            leave_team(player)
            self._leave(player)
            character = player.read("Character")
            if character is not None:
                set_parent(character, None)
            destroy(player)
        self._players.pop(agent_id, None)

    def touch(self, agent_id: str) -> None:
        """Register an input of an agent, to restart the time without input."""
        player = self._players.get(agent_id)
        if player is not None:
            player.extra.active_at = self._model.scheduler.tick

    def removed(self) -> list[str]:
        """Return the agents removed since the last call, to end their sessions."""
        removed, self._removed = self._removed, []
        return removed

    # The start of a tick

    def begin_tick(self) -> None:
        """Remove kicked and idle players; then let bots join.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        kicks, self._kicks = self._kicks, []
        for player, reason in kicks:
            shown = f"{to_text(player.name)} (user_id={int(player.read('UserId'))})"
            self._drop(player, f"[Kick] Removing player {shown} - Reason: {reason}")
        if self._afk_timeout_s and self._model.scheduler.tick % _TICKS_BETWEEN_CHECKS == 0:
            self._remove_idle()
        bots, self._bots = self._bots, []
        for name in bots:
            if self._has_room(name, 0):
                self._bots_made += 1
                self._add(f"bot-{self._bots_made}", name, -float(self._bots_made), is_bot=True)

    def _drop(self, player: Instance, line: str) -> None:
        record: PlayerRecord | None = player.extra
        if record is None or self._players.get(record.agent_id) is not player:
            return  # kicked twice, or already gone
        self._log(line)
        self.remove(record.agent_id)
        if not record.is_bot:
            self._removed.append(record.agent_id)

    def _remove_idle(self) -> None:
        for _, player in self.listed():
            record: PlayerRecord = player.extra
            idle = self._model.scheduler.tick - record.active_at
            if idle > self._afk_timeout_s * TICK_RATE and not record.is_bot:
                name = to_text(player.name)
                self._drop(
                    player, f"[AFK] Kicking player {name} (idle for {idle / TICK_RATE:.1f}s)"
                )

    def _has_room(self, name: str, expected: int) -> bool:
        if len(self._players) + expected < self.max_players:
            return True
        self._log(f"[Bot] {to_text(name)} cannot join: the world has {self.max_players} players")
        return False

    # Methods of the service and of players

    def get_players(self, service: Instance) -> Any:
        """``GetPlayers()``, in the order in which the players joined."""
        return as_list(service.children)

    def get_player_by_user_id(self, service: Instance, user_id: Any) -> Any:
        """``GetPlayerByUserId(id)``: return a present player, or nil."""
        players = service.children
        return next((player for player in players if player.read("UserId") == user_id), None)

    def get_name_from_user_id_async(self, service: Instance, user_id: Any) -> Any:
        """``GetNameFromUserIdAsync(id)``, or an error if the player is not in the world."""
        number = number_argument(user_id, 1, "GetNameFromUserIdAsync")
        player = self.get_player_by_user_id(service, number)
        if player is None:
            raise RuntimeFault(f"GetNameFromUserIdAsync: no player has the id {number:.0f}")
        return player.name

    def get_user_id_from_name_async(self, service: Instance, name: Any) -> Any:
        """``GetUserIdFromNameAsync(name)``, or an error if the player is not in the world."""
        wanted = text_argument(name, 1, "GetUserIdFromNameAsync")
        player = service.find_child(wanted)
        if player is None:
            raise RuntimeFault(f"GetUserIdFromNameAsync: no player is called '{wanted}'")
        return player.read("UserId")

    def get_player_from_character(self, service: Instance, character: Any) -> Any:
        """``GetPlayerFromCharacter(character)``: return the player of a character, or nil."""
        if character is None:
            return None
        players = service.children
        return next((player for player in players if player.read("Character") is character), None)

    def add_bot(self, service: Instance, name: Any) -> Any:
        """``AddBot(name)``: let a player controlled by scripts join in the next tick."""
        shown = text_argument(name, 1, "AddBot")
        if self._has_room(shown, len(self._bots)):
            self._bots.append(shown)
        return ()

    def get_join_data(self, player: Instance) -> Any:
        """``GetJoinData()``, without launch data, since players never come from another place."""
        return LuaTable({"LaunchData": "", "GameJoinContext": LuaTable()})

    def has_appearance_loaded(self, player: Instance) -> Any:
        """``HasAppearanceLoaded()``: return whether the player has a character."""
        return player.read("Character") is not None

    def get_network_ping(self, player: Instance) -> Any:
        """``GetNetworkPing()``: return 0."""
        return 0.0

    def request_stream_around_async(self, player: Instance, position: Any, timeout: Any) -> Any:
        """``RequestStreamAroundAsync(position, timeout)``, without effect."""
        return ()

    def is_in_group(self, player: Instance, group: Any) -> Any:
        """``IsInGroup(group)``: return false."""
        number_argument(group, 1, "IsInGroup")
        return False

    def get_rank_in_group(self, player: Instance, group: Any) -> Any:
        """``GetRankInGroup(group)``: return 0."""
        number_argument(group, 1, "GetRankInGroup")
        return 0.0

    def get_role_in_group(self, player: Instance, group: Any) -> Any:
        """``GetRoleInGroup(group)``: return Guest."""
        number_argument(group, 1, "GetRoleInGroup")
        return "Guest"

    def is_friends_with(self, player: Instance, user_id: Any) -> Any:
        """``IsFriendsWith(userId)``: return false."""
        number_argument(user_id, 1, "IsFriendsWith")
        return False

    def kick(self, player: Instance, message: Any) -> Any:
        """``Kick(message)``, effective at the start of the next tick."""
        if not any(kicked is player for kicked, _ in self._kicks):
            self._kicks.append((player, to_text(message) if isinstance(message, str) else ""))
        return ()
