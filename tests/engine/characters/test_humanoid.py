import json

import pytest

from clawblox.engine.world.observation import shown_health
from tests.engine.characters.support import SmallWorld


@pytest.fixture
def world():
    made = SmallWorld()
    made.join("ann")
    made.run("""
        root = ann.Character.HumanoidRootPart
        humanoid = ann.Character.Humanoid
    """)
    return made


def stand(world):
    world.run("root.Position = Vector3.new(0, 2.55, 0)")
    world.tick(4)
    world.run("take()")


# Spawning


def test_character_is_a_model_of_a_cylinder_and_a_humanoid_named_after_the_player(world):
    assert world.ask("""table.concat({
        ann.Character.Name, ann.Character.ClassName, tostring(ann.Character.Parent),
        tostring(ann.Character.PrimaryPart), tostring(root.Size), tostring(root.Shape),
        tostring(root.Anchored), tostring(root.CanCollide), root:GetAttribute("ModelUrl"),
        tostring(humanoid.RootPart), tostring(humanoid.Health), tostring(humanoid.WalkSpeed),
    }, " ")""") == (
        "ann Model Workspace HumanoidRootPart 2, 5, 2 Enum.PartType.Cylinder false true "
        "asset://player.glb HumanoidRootPart 100 16"
    )
    assert world.ask("root.Color == Color3.new(0.9, 0.45, 0.3)") is True


def test_joining_players_stand_in_rows_of_four():
    world = SmallWorld()
    for name in ("a", "b", "c", "d", "e"):
        world.join(name)
    places = [world.ask(f"tostring({name}.Character.PrimaryPart.Position)") for name in "abcde"]
    assert places == ["-1.5, 6, 0", "1.5, 6, 0", "4.5, 6, 0", "-4.5, 6, 3", "-1.5, 6, 3"]


def test_character_added_does_not_fire_for_the_first_character():
    world = SmallWorld()
    world.run("""
        game.Players.ChildAdded:Connect(function(player) hear(player, "CharacterAdded") end)
    """)
    world.join("ann")
    assert world.ask("take()") == ""
    assert world.ask("ann.Character.Humanoid.ClassName") == "Humanoid"


def test_load_character_reports_the_old_character_and_then_the_new_character(world):
    world.run("""
        old = ann.Character
        ann.CharacterRemoving:Connect(function(character)
            table.insert(heard, "removing " .. tostring(character == old) .. tostring(old.Parent))
        end)
        old.AncestryChanged:Connect(function() table.insert(heard, "unparented") end)
        ann.CharacterAdded:Connect(function(character)
            table.insert(heard, "added " .. tostring(character.Parent) .. " at "
                .. tostring(character.HumanoidRootPart.Position))
        end)
        ann:LoadCharacter()
    """)
    assert world.ask("take()") == "removing trueWorkspace, unparented, added Workspace at 0, 6, 0"
    assert world.ask("old.Parent == nil and ann.Character ~= old") is True


def test_character_from_load_character_can_walk(world):
    world.run("ann:LoadCharacter() root = ann.Character.HumanoidRootPart")
    world.run("ann.Character.Humanoid:MoveTo(Vector3.new(20, 0, 0))")
    world.tick(60)
    assert world.ask("root.Position.X") > 8.0


def test_load_character_has_no_effect_for_a_player_who_has_left(world):
    world.run("ann.Parent = nil before = ann.Character ann:LoadCharacter()")
    assert world.ask("ann.Character == before") is True


def test_player_has_no_character_before_load_character_if_auto_loads_is_off():
    world = SmallWorld()
    world.run("game.Players.CharacterAutoLoads = false")
    world.join("ann")
    assert world.ask("ann.Character == nil") is True
    world.run("ann:LoadCharacter()")
    assert world.ask("ann.Character.Name") == "ann"


def test_humanoid_with_jumping_disabled_does_not_jump(world):
    world.tick(60)
    world.run("""
        human, Type = ann.Character.Humanoid, Enum.HumanoidStateType
        human:SetStateEnabled(Type.Jumping, false)
        human:SetStateEnabled(Type.Dead, false)
        human:SetStateEnabled(Type.Dead, true)
        human.Jump = true
    """)
    world.tick(6)
    assert world.ask("human:GetState().Name") == "Running"
    assert world.ask("tostring(human:GetStateEnabled(Type.Jumping))") == "false"
    assert world.ask("tostring(human:GetStateEnabled(Type.Dead))") == "true"
    again = SmallWorld(state=json.loads(json.dumps(world.document())))
    for each in (world, again):
        assert "expected, got" in each.ask("select(2, pcall(human.SetStateEnabled, human, 5))")
        each.run("human.Jump = true")
        each.tick(6)
        assert each.ask("human:GetState().Name") == "Running"
        each.run("human:SetStateEnabled(Type.Jumping, true) human.Jump = true")
        each.tick(6)
        assert each.ask("human:GetState().Name") == "Jumping"


def test_load_character_async_equals_load_character(world):
    world.run("old = ann.Character ann:LoadCharacterAsync()")
    assert world.ask("ann.Character ~= old") is True


# Health


def test_health_is_clamped_and_died_fires_once_after_health_changed(world):
    world.run("""
        hear(humanoid, "HealthChanged") hear(humanoid, "Died")
        humanoid.Health = 500
        humanoid.Health = 40
        humanoid.Health = 40
        humanoid.Health = -5
        humanoid.Health = -7
        humanoid:TakeDamage(5)
    """)
    assert world.ask("take()") == "HealthChanged 40.00, HealthChanged 0.00, Died"


def test_take_damage_stops_at_0_and_lowering_max_health_leaves_health(world):
    world.run("hear(humanoid, 'HealthChanged') hear(humanoid, 'Died')")
    world.run("humanoid:TakeDamage(30) humanoid.MaxHealth = 50")
    assert world.ask("humanoid.Health") == 70.0
    world.run("humanoid:TakeDamage(5)")
    assert world.ask("humanoid.Health") == 65.0
    world.run("humanoid:TakeDamage(-100)")
    assert world.ask("humanoid.Health") == 65.0
    world.run("humanoid:TakeDamage(1000)")
    assert world.ask("take()") == (
        "HealthChanged 70.00, HealthChanged 65.00, HealthChanged 0.00, Died"
    )


def test_infinite_health_is_shown_as_the_maximum(world):
    world.run("humanoid.MaxHealth = math.huge humanoid.Health = math.huge")
    assert shown_health(world.environment.get("ann")) == 1 << 53
    world.run("humanoid:TakeDamage(math.huge)")
    assert world.ask("humanoid.Health") == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("TakeDamage('x')", "invalid argument #1 to 'TakeDamage' (number expected, got string)"),
        ("TakeDamage(0/0)", "invalid argument #1 to 'TakeDamage' (it is NaN)"),
        ("MoveTo(3)", "invalid argument #1 to 'MoveTo' (Vector3 expected, got number)"),
        ("MoveTo(Vector3.new(0/0, 0, 0))", "invalid argument #1 to 'MoveTo' (it is not finite)"),
        ("Move()", "invalid argument #1 to 'Move' (Vector3 expected, got nil)"),
        (
            "ChangeState(3)",
            "invalid argument #1 to 'ChangeState' (Enum.HumanoidStateType expected, got number)",
        ),
    ],
)
def test_humanoid_method_refuses_a_wrong_argument(world, call, message):
    assert world.ask(f"select(2, pcall(function() humanoid:{call} end))").endswith(message)


# Walking


def test_move_to_is_reached_within_half_a_stud(world):
    stand(world)
    world.run("hear(humanoid, 'MoveToFinished') humanoid:MoveTo(Vector3.new(8, 0, 0))")
    ticks = 0
    while not world.ask("#heard > 0"):
        world.tick()
        ticks += 1
    assert (
        ticks == 30
    )  # after 29 steps of 16/60 the distance is below half a stud, reported in the next tick
    assert world.ask("take()") == "MoveToFinished true"
    assert 7.5 < world.ask("root.Position.X") < 8.0


def test_move_to_in_an_input_handler_moves_the_character_in_the_same_tick(world):
    stand(world)
    world.tick(1, inputs="humanoid:MoveTo(Vector3.new(8, 0, 0))")
    assert world.ask("root.Position.X") == pytest.approx(16.0 / 60.0, abs=2e-3)


def test_move_to_times_out_after_8_seconds_unless_called_again(world):
    stand(world)
    world.run("""
        hear(humanoid, "MoveToFinished") humanoid.WalkSpeed = 0
        humanoid:MoveTo(Vector3.new(50, 0, 0))
    """)
    world.tick(400)
    world.run("humanoid:MoveTo(Vector3.new(0, 0, 50))")
    world.tick(480)
    assert world.ask("take()") == ""
    world.tick()
    assert world.ask("take()") == "MoveToFinished false"
    world.tick(100)
    assert world.ask("take()") == ""


def test_cancel_move_to_always_fires(world):
    stand(world)
    world.run("hear(humanoid, 'MoveToFinished') humanoid:CancelMoveTo()")
    assert world.ask("take()") == ""
    world.tick()
    assert world.ask("take()") == "MoveToFinished false"
    world.run("humanoid:MoveTo(Vector3.new(50, 0, 0))")
    world.tick(5)
    world.run("humanoid:CancelMoveTo()")
    at = world.ask("root.Position.X")
    world.tick(5)
    assert world.ask("take()") == "MoveToFinished false"
    assert world.ask("root.Position.X") == pytest.approx(at, abs=1e-3)


def test_move_walks_until_the_next_request(world):
    stand(world)
    world.run("humanoid:Move(Vector3.new(0, 0, -3))")
    world.tick(60)
    assert world.ask("root.Position.Z") == pytest.approx(-16.0, abs=0.05)
    world.run("humanoid:Move(Vector3.zero)")
    world.tick(10)
    assert world.ask("root.Position.Z") == pytest.approx(-16.0, abs=0.05)


@pytest.mark.parametrize("jump", ["humanoid.Jump = true humanoid.Jump = false", "humanoid:Jump()"])
def test_jump_works_as_a_property_and_as_a_method(world, jump):
    stand(world)
    world.run(jump)
    assert world.ask("humanoid.Jump") is True
    world.tick()
    assert world.ask("humanoid.Jump") is False
    assert world.ask("root.Position.Y") == pytest.approx(2.55 + 50.0 / 60.0, abs=1e-3)


def test_character_turns_towards_its_motion_by_10_radians_per_second(world):
    stand(world)
    world.run("humanoid:Move(Vector3.new(1, 0, 0))")
    world.tick()
    assert world.ask("math.acos(root.CFrame.LookVector:Dot(Vector3.new(0, 0, -1)))") == (
        pytest.approx(10.0 / 60.0, abs=1e-4)
    )
    world.tick(10)
    assert world.ask("root.CFrame.LookVector.X") == pytest.approx(1.0, abs=1e-4)
    world.run("humanoid.AutoRotate = false humanoid:Move(Vector3.new(0, 0, 1))")
    world.tick(10)
    assert world.ask("root.CFrame.LookVector.X") == pytest.approx(1.0, abs=1e-4)


def test_move_direction_is_the_unit_vector_of_the_motion(world):
    stand(world)
    assert world.ask("humanoid.MoveDirection == Vector3.zero") is True
    world.run("humanoid:Move(Vector3.new(3, 0, 4))")
    world.tick(3)
    assert world.ask("humanoid.MoveDirection.X") == pytest.approx(0.6, abs=1e-3)
    assert world.ask("humanoid.MoveDirection.Magnitude") == pytest.approx(1.0, abs=1e-6)


def test_running_fires_when_the_speed_changes_by_6_studs_per_second(world):
    stand(world)
    world.run("hear(humanoid, 'Running') humanoid:Move(Vector3.new(1, 0, 0))")
    world.tick(5)
    world.run("humanoid.WalkSpeed = 20")
    world.tick(5)
    world.run("humanoid.WalkSpeed = 24")
    world.tick(5)
    world.run("humanoid:Move(Vector3.zero)")
    world.tick(5)
    speeds = [round(float(text.split()[1])) for text in world.ask("take()").split(", ")]
    assert speeds == [16, 24, 0]


@pytest.mark.parametrize(("speed", "times"), [(2.9, 0), (3.1, 2)])
def test_running_fires_when_the_speed_crosses_3_studs_per_second(world, speed, times):
    stand(world)
    world.run(f"""
        hear(humanoid, "Running")
        humanoid.WalkSpeed = {speed}
        humanoid:Move(Vector3.new(1, 0, 0))
    """)
    world.tick(3)
    world.run("humanoid:Move(Vector3.zero)")
    world.tick(3)
    assert world.ask("#heard") == times


def test_humanoid_reports_the_states_of_a_fall_and_a_jump(world):
    world.run("hear(humanoid, 'StateChanged')")
    assert world.ask("humanoid:GetState() == Enum.HumanoidStateType.None") is True
    world.tick(60)
    assert world.ask("take()") == (
        "StateChanged None Freefall, StateChanged Freefall Landed, StateChanged Landed Running"
    )
    world.run("humanoid:Jump()")
    world.tick(60)
    assert world.ask("take()") == (
        "StateChanged Running Jumping, StateChanged Jumping Freefall, "
        "StateChanged Freefall Landed, StateChanged Landed Running"
    )


def test_landed_lasts_one_tick_and_change_state_overwrites_it_silently(world):
    states = []
    for _ in range(60):
        world.tick()
        states.append(world.ask("humanoid:GetState().Name"))
    assert states.count("Landed") == 1
    world.run("hear(humanoid, 'StateChanged')")
    world.run("humanoid:ChangeState(Enum.HumanoidStateType.Physics)")
    assert world.ask("humanoid:GetState().Name .. take()") == "Physics"
    world.tick()
    assert world.ask("take()") == "StateChanged Physics Running"


def test_dead_character_still_obeys_move_to(world):
    stand(world)
    world.run("humanoid.Health = 0 humanoid:MoveTo(Vector3.new(20, 0, 0))")
    world.tick(30)
    assert world.ask("root.Position.X") > 7.0
    assert world.ask("humanoid.Health") == 0.0


# Writes of scripts to the root


def test_writing_the_position_teleports_the_character_and_clears_its_target(world):
    stand(world)
    world.run("hear(humanoid, 'MoveToFinished') humanoid:MoveTo(Vector3.new(50, 0, 0))")
    world.tick(5)
    world.run("root.Position = Vector3.new(-30, 9, 4)")
    assert world.ask("tostring(root.Position)") == "-30, 9, 4"
    world.tick()
    assert world.ask("root.Position.X") == -30.0
    assert world.ask("root.Position.Y") == 9.0
    world.tick(30)
    assert world.ask("root.Position.Y") < 3.0
    assert world.ask("root.Position.X") == -30.0
    assert world.ask("take()") == ""


def test_teleport_in_an_input_handler_reads_back_unchanged_until_the_next_tick(world):
    stand(world)
    world.run("humanoid:MoveTo(Vector3.new(50, 0, 0))")
    world.tick(3)
    world.tick(1, inputs="root.CFrame = CFrame.new(0, 2.55, 30) * CFrame.Angles(0, 1, 0)")
    assert world.ask("root.Position == Vector3.new(0, 2.55, 30)") is True
    assert world.ask("root.CFrame == CFrame.new(0, 2.55, 30) * CFrame.Angles(0, 1, 0)") is True
    world.tick()
    assert world.ask("root.Position.Z") == 30.0
    assert world.ask("root.Position.X") == 0.0


def test_walk_requested_after_a_teleport_in_the_same_handler_continues(world):
    stand(world)
    world.run("""
        root.Position = Vector3.new(5, 2.55, 0)
        humanoid:MoveTo(Vector3.new(20, 0, 0))
    """)
    world.tick(10)
    assert world.ask("root.Position.X") == pytest.approx(5.0 + 10 * 16.0 / 60.0, abs=0.01)


def test_velocity_written_to_a_root_moves_it_and_reads_back(world):
    stand(world)
    world.run("root.Velocity = Vector3.new(30, 60, 0)")
    assert world.ask("tostring(root.Velocity)") == "30, 60, 0"
    world.tick()
    assert world.ask("root.Position.X") == pytest.approx(0.5, abs=1e-3)
    assert world.ask("root.Velocity.Y") == pytest.approx(60.0 - 196.2 / 60.0, abs=0.1)
    world.tick(20)
    assert world.ask("root.Position.X") == pytest.approx(10.5, abs=1e-2)
    world.tick(60)
    assert world.ask("root.Velocity.Magnitude") < 0.1


def test_anchored_root_does_not_move(world):
    stand(world)
    world.run("root.Anchored = true humanoid:MoveTo(Vector3.new(20, 0, 0))")
    world.tick(10)
    assert world.ask("root.Position.X") == pytest.approx(0.0, abs=1e-6)
    world.run("root.Anchored = false")
    world.tick(10)
    assert world.ask("root.Position.X") > 2.0


# Several characters


def test_characters_move_in_the_order_in_which_their_players_joined():
    world = SmallWorld()
    for name in ("a", "b", "c"):
        world.join(name)
    world.run("""
        b:LoadCharacter() a:LoadCharacter()
        for _, player in {c, b, a} do
            hear(player.Character.Humanoid, "MoveToFinished", player.Name)
            player.Character.Humanoid:CancelMoveTo()
        end
    """)
    world.tick()
    assert world.ask("take()") == "a false, b false, c false"


def test_model_without_a_player_can_walk():
    world = SmallWorld()
    world.run("""
        npc = Instance.new("Model")
        root = Instance.new("Part")
        root.Name, root.Position, root.Parent = "HumanoidRootPart", Vector3.new(0, 3, 0), npc
        humanoid = Instance.new("Humanoid")
        humanoid.Parent = npc
        npc.Parent = workspace
        hear(humanoid, "MoveToFinished")
        humanoid:MoveTo(Vector3.new(0, 0, 5))
    """)
    world.tick(40)
    assert world.ask("take()") == "MoveToFinished true"
    assert world.ask("root.Position.Y") == pytest.approx(2.55, abs=1e-3)
    world.run("humanoid:Destroy()")
    world.tick(30)
    assert world.ask("root.Position.Y") < 1.0  # an ordinary part now


def test_anchored_root_of_a_model_without_a_player_is_an_ordinary_part(world):
    stand(world)
    world.run("""
        npc = Instance.new("Model")
        local part = Instance.new("Part")
        part.Name, part.Anchored, part.Size = "HumanoidRootPart", true, Vector3.new(10, 1, 10)
        part.Position, part.Parent = Vector3.new(0, 20, 0), npc
        Instance.new("Humanoid", npc)
        npc.Parent = workspace
        root.Position = Vector3.new(0, 23.05, 0)
    """)
    world.tick(5)
    for _ in range(20):
        world.run("npc.HumanoidRootPart.Position += Vector3.new(0.2, 0, 0)")
        world.tick()
    assert world.ask("root.Position.X") == pytest.approx(4.0, abs=0.01)
    assert world.ask("root.Position.Y") == pytest.approx(23.05, abs=0.01)


def test_character_destroyed_by_a_handler_is_skipped():
    world = SmallWorld()
    for name in ("a", "b"):
        world.join(name)
    world.run("""
        b.Character.Humanoid.MoveToFinished:Connect(function() end)
        a.Character.Humanoid.MoveToFinished:Connect(function() b.Character:Destroy() end)
        for _, player in {a, b} do player.Character.Humanoid:CancelMoveTo() end
    """)
    world.tick(3)
    assert world.ask("b.Character.Parent == nil") is True
    assert world.ask("#workspace:GetChildren()") == 2.0


# Snapshots

SCENE = """
    lift = Instance.new("Part")
    lift.Anchored, lift.Size, lift.Parent = true, Vector3.new(8, 1, 8), workspace
    task.spawn(function()
        local n = 0
        while true do
            n += 1
            lift.Position = Vector3.new(math.sin(n / 20) * 6, 1 + math.sin(n / 13), 0)
            for at, player in game.Players:GetPlayers() do
                local character = player.Character
                if (n + at * 7) % 31 == 0 then
                    character.Humanoid:MoveTo(Vector3.new(n % 17 - 8, 0, n % 11 - 5))
                elseif (n + at) % 43 == 0 then
                    character.Humanoid.Jump = true
                elseif n % 97 == at then
                    character.HumanoidRootPart.Velocity = Vector3.new(20, 40, n % 9)
                elseif n % 89 == at then
                    character.HumanoidRootPart.Position = Vector3.new(0, 8, 0)
                elseif n % 83 == at then
                    player:LoadCharacter()
                end
            end
            task.wait()
        end
    end)
"""


@pytest.mark.parametrize(
    "saved_at",
    [37, *(pytest.param(at, marks=pytest.mark.thorough) for at in range(1, 120, 7))],
)
def test_characters_continue_exactly_from_a_snapshot(saved_at):
    world = SmallWorld()
    for name in ("a", "b", "c"):
        world.join(name)
    world.run(SCENE)
    world.tick(saved_at)
    again = SmallWorld(state=json.loads(json.dumps(world.document())))
    assert json.dumps(again.document()) == json.dumps(world.document())
    for _ in range(4):
        world.tick(20)
        again.tick(20)
        assert json.dumps(again.document()) == json.dumps(world.document())
