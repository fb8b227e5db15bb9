"""``Teams``: teams, their players, and the three team properties of a player.

``Player.Team`` determines the others. ``TeamColor`` is the colour of the team, or without a team
the colour that was set last. ``Neutral`` is true without a team.
"""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.spec import methods_in
from clawblox.engine.values.value import as_list

_LISTED_STEPS: Final = 2  # per player or team examined


def _is_team(value: Any) -> bool:
    return isinstance(value, Instance) and value.spec.name == "Team"


def _list_teams(model: DataModel) -> list[Instance]:
    """Return the teams in the order in which they were added, and charge steps for them."""
    service = model.services.get("Teams")
    teams = [] if service is None else [team for team in service.children if _is_team(team)]
    if teams:
        model.scheduler.charge(len(teams) * _LISTED_STEPS)
    return teams


def _list_players(team: Instance) -> list[Instance]:
    """Return the players of a team, in the order in which they joined the world."""
    players = team.model.services["Players"].children
    team.model.scheduler.charge(len(players) * _LISTED_STEPS)
    return [player for player in players if player.read("Team") is team]


def _set_team(player: Instance, team: Any) -> None:
    """``Team = team``: move the player to a team; store other values unchanged."""
    old = player.read("Team")
    player.change("Team", team)
    if old is team:
        return
    if _is_team(team):
        player.change("TeamColor", team["TeamColor"])
    if _is_team(team) or _is_team(old):
        player.change("Neutral", not _is_team(team))
    if _is_team(old):
        old.fire("PlayerRemoved", player)
    if _is_team(team):
        team.fire("PlayerAdded", player)


def _find_team(player: Instance) -> Instance | None:
    """Return the first team with the colour of a player, or None."""
    color = player["TeamColor"].number
    teams = _list_teams(player.model)
    return next((team for team in teams if team["TeamColor"].number == color), None)


def _set_color(player: Instance, color: Any) -> None:
    """``TeamColor = color``: move the player to the first team with that colour, if any."""
    player.change("TeamColor", color)
    if _is_team(player.read("Team")) or _list_teams(player.model):
        _set_team(player, _find_team(player))


def _set_neutral(player: Instance, neutral: bool) -> None:
    """``Neutral = neutral``: remove the player from the team, or add it to that of its colour."""
    player.change("Neutral", neutral)
    if neutral and _is_team(player.read("Team")):
        _set_team(player, None)
    elif not neutral and not _is_team(player.read("Team")):
        team = _find_team(player)
        if team is not None:
            _set_team(player, team)


def _color_team(team: Instance, color: Any) -> None:
    """``TeamColor = color`` of a team: set the colour for its players too."""
    team.change("TeamColor", color)
    for player in _list_players(team):
        player.change("TeamColor", color)


def get_players(team: Instance) -> Any:
    """``GetPlayers()``, in the order in which the players joined the world."""
    return as_list(_list_players(team))


def get_teams(teams: Instance) -> Any:
    """``GetTeams()``, in the order in which the teams were added."""
    return as_list(_list_teams(teams.model))


def assign_team(player: Instance) -> None:
    """Add a joining player to the smallest team with ``AutoAssignable``, if there is one.

    Raises:
        WorldHalted: The error of a handler halts the world.
    """
    teams = [team for team in _list_teams(player.model) if team.read("AutoAssignable")]
    if teams:
        _set_team(player, min(teams, key=lambda team: len(_list_players(team))))


def leave_team(player: Instance) -> None:
    """Remove a player from the team, if there is one.

    Raises:
        WorldHalted: The error of a handler halts the world.
    """
    if _is_team(player.read("Team")):
        _set_team(player, None)


def add_teams(model: DataModel) -> None:
    """Add the members of players, teams and ``Teams``."""
    model.classes.add("Teams", methods=methods_in(globals(), "teams"))
    model.classes.add(
        "Team", methods=methods_in(globals(), "team"), setters={"TeamColor": _color_team}
    )
    model.classes.add(
        "Player",
        setters={"Team": _set_team, "TeamColor": _set_color, "Neutral": _set_neutral},
    )

    def disband(team: Instance) -> None:
        if team.spec.name == "Team":
            for player in _list_players(team):
                _set_team(player, None)

    model.destroying.append(disband)
