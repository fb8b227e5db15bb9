"""Players: listed, kicked, idle, and bots."""

from __future__ import annotations

import pytest

from clawblox.engine.errors import WorldHalted
from tests.engine.services.bench import ANN, BOB, Bench, bench


def test_players_are_listed_and_found() -> None:
    world = bench(
        """
        Players.PlayerAdded:Connect(function(player)
            print(player.Name, player.DisplayName, player.Character, player.PlayerGui)
            print(#Players:GetPlayers(), Players:GetPlayerByUserId(player.UserId) == player)
            print(Players:GetPlayerFromCharacter(player.Character) == player)
        end)
        print(Players.LocalPlayer, Players.MaxPlayers, Players:GetPlayerFromCharacter(nil))
        """,
        players=["Ann", "B\N{SNOWMAN}"],
    )
    assert world.printed() == [
        "nil\t3\tnil",
        *("Ann\tAnn\tAnn\tPlayerGui", "1\ttrue", "true"),
        *("B\xe2\x98\x83\tB\xe2\x98\x83\tB\xe2\x98\x83\tPlayerGui", "2\ttrue", "true"),
    ]


def test_the_user_id_is_the_lowest_53_bits_of_the_agents_uuid() -> None:
    players = Bench().begin().services.players
    assert players.add("ffffffff-ffff-4fff-bfff-ffffffffffff", "a")["UserId"] == 2**53 - 1
    assert players.add("ffffffff-ffff-4fff-8000-000000000000", "b")["UserId"] == 1
    assert players.add("00000000-0000-4000-8020-000000000005", "c")["UserId"] == 5


LEAVING = """
Players.PlayerRemoving:Connect(function(player)
    print('leaves', player.Name, #Players:GetPlayers(), player.Character.Parent, player.Parent)
end)
RunService.Stepped:Connect(function(time) if time > 0 then print(#Players:GetPlayers()) end end)
"""


def test_kick_takes_effect_at_the_next_ticks_start() -> None:
    world = bench(
        LEAVING + "RunService.Heartbeat:Once(function() Players.Ann:Kick('too loud')"
        " Players.Ann:Kick() print('kicked') end)",
        players=["Ann", "Bob"],
    )
    world.tick(2)
    assert world.printed() == [
        "kicked",
        "[Kick] Removing player Ann (user_id=1) - Reason: too loud",
        "leaves\tAnn\t2\tWorkspace\tPlayers",
        "1",
    ]
    assert world.services.players.removed() == [ANN]
    assert world.services.players.removed() == []
    assert world.services.players.find(ANN) is None


def test_idle_player_is_removed_at_the_first_check_after_the_timeout() -> None:
    world = bench(LEAVING, players=["Ann", "Bob"], afk_timeout_s=2.0)
    world.tick(90)
    world.services.players.touch(BOB)
    world.tick(90)
    assert world.services.players.removed() == []
    world.printed()
    world.tick()  # tick 180 is the first check after 120 ticks
    assert world.printed() == [
        "[AFK] Kicking player Ann (idle for 3.0s)",
        "leaves\tAnn\t2\tWorkspace\tPlayers",
        "1",
    ]
    world.tick(59)
    assert world.services.players.removed() == [ANN]
    world.tick()
    assert world.services.players.removed() == [BOB]


def test_bots_join_in_the_next_tick_up_to_max_players() -> None:
    world = bench(
        "for i = 1, 3 do Players:AddBot(`bot {i}`) end\n"
        "Players.PlayerAdded:Connect(function(p) print(p.Name, p.UserId, p.Character) end)",
        afk_timeout_s=1.0,
    )
    world.run("Players:AddBot('bot 4')")
    full = "cannot join: the world has 3 players"
    assert world.printed() == [f"[Bot] bot 4 {full}"]
    world.services.players.add(ANN, "Ann")  # takes the last place
    assert world.printed() == ["Ann\t1\tAnn"]
    world.tick()
    assert world.printed() == ["bot 1\t-1\tbot 1", "bot 2\t-2\tbot 2", f"[Bot] bot 3 {full}"]
    world.tick(200)
    assert [agent_id for agent_id, _ in world.services.players.listed()] == ["bot-1", "bot-2"]
    assert world.services.players.removed() == [ANN]
    world.run("Players['bot 1']:Kick()")
    world.tick()
    assert world.services.players.removed() == []  # a bot has no session
    assert [agent_id for agent_id, _ in world.services.players.listed()] == ["bot-2"]


@pytest.mark.parametrize(
    ("event", "where"),
    [
        ("PlayerAdded", "Failed to fire PlayerAdded"),
        ("PlayerRemoving", "Failed to fire PlayerRemoving"),
    ],
)
def test_failing_player_handler_halts_the_world_with_a_clear_message(
    event: str, where: str
) -> None:
    world = bench(f"Players.{event}:Connect(function() error('no', 0) end)")

    def join_and_leave() -> None:
        world.services.players.add(ANN, "Ann")
        world.services.players.remove(ANN)

    with pytest.raises(WorldHalted) as caught:
        join_and_leave()
    assert str(caught.value) == f"{where}: no"


def test_player_has_no_join_data_and_a_loaded_appearance() -> None:
    world = bench(
        """
        Players.PlayerAdded:Connect(function(player)
            print(HttpService:JSONEncode(player:GetJoinData()))
            print(player.AccountAge, player:HasAppearanceLoaded())
        end)
        """,
        players=["Ann"],
    )
    assert world.printed() == ['{"GameJoinContext":{},"LaunchData":""}', "0\ttrue"]


def test_num_players_is_the_number_of_players() -> None:
    world = bench("", players=["Ann", "Bob"])
    world.run("print(Players.NumPlayers, Players.PreferredPlayers, Players.MaxPlayers)")
    assert world.printed() == ["2\t3\t3"]


def test_players_have_no_groups_and_no_friends() -> None:
    world = bench("", players=["Ann", "Bob"])
    world.run(
        """
        local ann, bob = unpack(Players:GetPlayers())
        print(ann:IsInGroup(7), ann:GetRankInGroup(7), ann:GetRoleInGroup(7))
        print(ann:IsFriendsWith(bob.UserId), ann:GetNetworkPing())
        print(pcall(ann.IsInGroup, ann))
        """
    )
    assert world.printed() == [
        "false\t0\tGuest",
        "false\t0",
        "false\tinvalid argument #1 to 'IsInGroup' (number expected, got nil)",
    ]


def test_names_and_ids_are_found_only_for_present_players() -> None:
    world = bench("", players=["Ann"])
    world.run(
        """
        local id = Players:GetUserIdFromNameAsync('Ann')
        print(id == Players.Ann.UserId, Players:GetNameFromUserIdAsync(id))
        print(pcall(Players.GetNameFromUserIdAsync, Players, 12))
        print(pcall(Players.GetNameFromUserIdAsync, Players, 0/0))
        print(pcall(Players.GetUserIdFromNameAsync, Players, 'Zoe'))
        """
    )
    assert world.printed() == [
        "true\tAnn",
        "false\tGetNameFromUserIdAsync: no player has the id 12",
        "false\tGetNameFromUserIdAsync: no player has the id nan",
        "false\tGetUserIdFromNameAsync: no player is called 'Zoe'",
    ]
