"""Finds the sessions of players that were in the save of a restored instance.

A restored world knows the sessions of its save. An agent that joins by a plain name becomes the
player of that name if the player's session is known: to this process, which joined the player
before the save; from the directory of an agent; or to ``clawblox act``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import msgspec

from clawblox.config.options import is_instance_name
from clawblox.errors import ConfigError
from clawblox.protocol import JoinAnswer, display_name
from clawblox.results import SavedSnapshot
from clawblox.rundir.manifest import Manifest, find_checkpoint
from clawblox.rundir.manifest_entries import ManifestEntry
from clawblox.rundir.paths import run_dir_candidates
from clawblox.world.access import WorldMember, read_session
from clawblox.world.kept_sessions import KeptSession

_MAX_SAVES: Final = 256
"""Number of saves whose players this process remembers; the oldest are forgotten first."""

_AGENTS_DIR: Final = "agents"
"""Directory in a run directory that contains the agents' directories."""


class Restored(msgspec.Struct, frozen=True):
    """An instance that was restored from a save.

    Attributes:
        path: The save.
        sha256: Digest of the save; None if not known.
        run_dir: The run directory of the instance.
        instance_dir: Directory of the instance's manifest.
        run_id: Id of the instance's run; empty if it does not matter.
    """

    path: Path
    sha256: str | None
    run_dir: Path
    instance_dir: Path
    run_id: str = ""


@attrs.frozen
class SavedPlayers:
    """The players of one name in a save.

    Attributes:
        answers: The world's answers to the joins of players whose sessions are known.
        agent_ids: The world's ids of the players that a manifest lists.
    """

    answers: Sequence[JoinAnswer] = attrs.field(default=(), repr=False)
    agent_ids: Sequence[str] = ()

    @property
    def is_known(self) -> bool:
        """True if any player is known."""
        return bool(self.answers or self.agent_ids)

    def without(self, sessions: Collection[str], agent_ids: Collection[str | None]) -> SavedPlayers:
        """Return the players without the given sessions and ids, which other agents have."""
        return SavedPlayers(
            [answer for answer in self.answers if answer.session not in sessions],
            [agent_id for agent_id in self.agent_ids if agent_id not in agent_ids],
        )


class _Memory:
    """The players that this process joined before each save, by digest and path of the save."""

    def __init__(self) -> None:
        self._players: OrderedDict[str, Sequence[tuple[str, JoinAnswer]]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, keys: Iterable[str], players: Sequence[tuple[str, JoinAnswer]]) -> None:
        with self._lock:
            self._players.update(dict.fromkeys(keys, players))
            while len(self._players) > 2 * _MAX_SAVES:
                self._players.popitem(last=False)

    def find(self, keys: Iterable[str], name: str) -> list[JoinAnswer]:
        with self._lock:
            players = next((self._players[key] for key in keys if key in self._players), ())
        return [answer for player, answer in players if player == name]


_memory = _Memory()


def remember_players(saved: SavedSnapshot, players: Sequence[tuple[str, JoinAnswer]]) -> None:
    """Remember the players that joined before a save.

    Args:
        saved: The save.
        players: Name and join answer of each player.
    """
    if players:
        _memory.put((saved.sha256, str(saved.path)), players)


def recall(restored: Restored, name: str) -> SavedPlayers:
    """Return the players of a name in the save of an instance. Blocks."""
    keys = [key for key in (restored.sha256, str(restored.path)) if key]
    found = find_checkpoint(restored.path)
    answers = [
        *_memory.find(keys, name),
        *_recorded(restored, found, name),
        *_kept(found, name),
    ]
    unique = {answer.session: answer for answer in reversed(answers)}
    return SavedPlayers(list(unique.values())[::-1], _listed_ids(found, name))


def recall_kept(restored: Restored, name: str) -> SavedPlayers:
    """Return the players of a name whose sessions ``act`` keeps for another run. Blocks."""
    found = find_checkpoint(restored.path)
    is_own = found is not None and found[1].get("run_id") == restored.run_id
    return SavedPlayers([] if is_own else list(_kept(found, name)), _listed_ids(found, name))


def _recorded(
    restored: Restored, found: tuple[Manifest, ManifestEntry] | None, name: str
) -> Iterator[JoinAnswer]:
    """Yield the recorded joins from the directories of agents with a name."""
    directories = [
        path
        for root in dict.fromkeys((restored.instance_dir, restored.run_dir))
        for path in _list_agents(root)
        if display_name(path.name) == name
    ]
    if found is not None:
        manifest = found[0]
        directories += [
            manifest.resolve(entry["dir"])
            for entry in _listed(manifest, name)
            if isinstance(entry.get("dir"), str)
        ]
    for directory in dict.fromkeys(directories):
        with suppress(ConfigError):
            if (answer := read_session(WorldMember(name, directory.name, directory))) is not None:
                yield answer


def _list_agents(root: Path) -> list[Path]:
    try:
        return sorted((root / _AGENTS_DIR).iterdir())
    except OSError:
        return []


def _kept(found: tuple[Manifest, ManifestEntry] | None, name: str) -> Iterator[JoinAnswer]:
    """Yield the joins under a name that ``act`` keeps for the saved instance."""
    if found is None:
        return
    manifest, entry = found
    instance, run_id = entry.get("instance"), entry.get("run_id")
    if not (isinstance(instance, str) and is_instance_name(instance) and isinstance(run_id, str)):
        return
    for run_dir in run_dir_candidates(manifest.state_root):
        with suppress(ConfigError):
            if (answer := KeptSession(run_dir, instance, run_id, name).read()) is not None:
                yield answer


def _listed(manifest: Manifest, name: str) -> list[ManifestEntry]:
    # The world also writes to its manifest, so it may contain any value.
    entries: list[object] = [*manifest.agents]
    known = [entry for entry in entries if isinstance(entry, Mapping)]
    return [entry for entry in known if entry.get("name") == name]


def _listed_ids(found: tuple[Manifest, ManifestEntry] | None, name: str) -> list[str]:
    """Return the world's ids of the agents of a name that the manifest of the save lists."""
    players = [] if found is None else _listed(found[0], name)
    ids = [player.get("world_agent_id") for player in players]
    return [agent_id for agent_id in ids if isinstance(agent_id, str)]
