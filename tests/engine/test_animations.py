import json

import pytest

from tests.engine.characters.support import SmallWorld


@pytest.fixture
def world():
    made = SmallWorld(floor=False)
    made.join("ann")
    made.run("""
        humanoid = ann.Character.Humanoid
        function load(id)
            local animation = Instance.new("Animation")
            animation.AnimationId = id
            return humanoid:LoadAnimation(animation)
        end
        function follow(track, label)
            for _, event in {"Stopped", "Ended", "DidLoop"} do
                hear(track, event, label .. " " .. event)
            end
        end
    """)
    return made


def spectate(world):
    return world.animations.spectate(world.environment.get("humanoid"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ident", "length"),
    [
        ("local://fire_rifle", 0.16),
        ("local://fire_shotgun", 0.22),
        ("local://reload_rifle", 1.15),
        ("local://reload_shotgun", 1.35),
        ("local://idle_default", 0.9),
        ("local://walk_default", 1.2),
        ("rbxassetid://1", 0.5),
    ],
)
def test_tracks_have_the_lengths_of_their_animations(world, ident, length):
    assert world.ask(f"load('{ident}').Length") == length


@pytest.mark.thorough
def test_load_animation_creates_a_single_animator(world):
    world.run("load('a') load('b')")
    assert world.ask("#humanoid:GetChildren()") == 1.0
    assert world.ask("humanoid:FindFirstChildOfClass('Animator').Name") == "Animator"


def test_an_empty_animation_id_is_an_error(world):
    message = world.ask("select(2, pcall(load, ''))")
    assert message.endswith("AnimationId is empty")


def test_track_fires_stopped_then_ended_at_its_length(world):
    world.run("track = load('local://fire_rifle') follow(track, 'a') track:Play()")
    assert world.ask("track.IsPlaying") is True
    world.tick(9)  # 9/60 = 0.15 s
    assert world.ask("take()") == ""
    world.tick()
    assert world.ask("take()") == "a Stopped, a Ended"
    assert world.ask("track.IsPlaying") is False
    assert spectate(world) == []


def test_looped_track_starts_again(world):
    world.run("track = load('x') track.Looped = true follow(track, 'a') track:Play()")
    world.tick(61)
    assert world.ask("take()") == "a DidLoop, a DidLoop"
    assert world.ask("track.TimePosition") == pytest.approx(1 / 60)
    world.run("track:AdjustSpeed(-1)")
    world.tick(2)
    assert world.ask("take()") == "a DidLoop"
    assert world.ask("track.TimePosition") == pytest.approx(0.5 - 1 / 60)


def test_stopped_fires_immediately_and_ended_after_the_fade_out(world):
    world.run("track = load('x') track.Looped = true follow(track, 'a') track:Play(0)")
    world.tick(5)
    world.run("track:Stop(0.2) track:Stop()")
    assert world.ask("take()") == "a Stopped"
    world.tick(11)
    assert spectate(world)[0]["is_stopping"] is True
    assert world.ask("take()") == ""
    world.tick()
    assert world.ask("take()") == "a Ended"
    world.run("track:Play(0) track:Stop(0)")
    assert world.ask("take()") == "a Stopped, a Ended"


def test_weights_fade_in_evenly(world):
    world.run("track = load('x') track.Looped = true track:Play(0.5, 2, 3)")
    world.tick(15)
    assert world.ask("track.WeightCurrent") == pytest.approx(1.0)
    assert world.ask("track.WeightTarget") == 2.0
    assert world.ask("track.Speed") == 3.0
    world.tick(15)
    assert world.ask("track.WeightCurrent") == 2.0
    world.run("track:AdjustWeight(0.5, 0)")
    assert world.ask("track.WeightCurrent") == 0.5


def test_weights_are_taken_by_priority_then_by_id_up_to_a_total_of_1(world):
    world.run("""
        for name, entry in {
            {0.7, Enum.AnimationPriority.Idle}, {0.4, 2}, {0.3, Enum.AnimationPriority.Action},
            {1, Enum.AnimationPriority.Core},
        } do
            local track = load("t" .. name)
            track.Looped, track.Priority = true, entry[2]
            track:Play(0, entry[1])
        end
    """)
    world.tick()
    seen = [(each["animation_id"], each["effective_weight"]) for each in spectate(world)]
    assert seen == [("t2", 0.4), ("t3", 0.3), ("t1", 0.3), ("t4", 0.0)]


def test_spectators_see_the_active_animations(world):
    world.run("load('local://walk_default'):Play()")
    world.tick(3)
    (seen,) = spectate(world)
    assert isinstance(seen.pop("track_id"), int)
    assert seen == {
        "animation_id": "local://walk_default",
        "length": 1.2,
        "priority": 0.0,
        "time_position": 0.05,
        "speed": 1.0,
        "looped": False,
        "is_playing": True,
        "is_stopping": False,
        "weight_current": 0.5,
        "weight_target": 1.0,
        "effective_weight": 0.5,
    }


def test_tracks_of_a_leaving_character_stop_without_events(world):
    world.run("track = load('x') follow(track, 'a') track:Play() ann.Character.Parent = nil")
    assert world.ask("track.IsPlaying") is False
    world.run("track:Play()")
    assert world.ask("track.IsPlaying") is False
    world.tick(60)
    assert world.ask("take()") == ""


@pytest.mark.parametrize("name", ["Humanoid", "AnimationController"])
def test_animation_played_fires_on_the_animator_and_its_parent(world, name):
    world.run(f"""
        local model = ann.Character
        local holder = model:FindFirstChild("{name}") or Instance.new("{name}", model)
        local animation = Instance.new("Animation")
        animation.AnimationId = "x"
        track = holder:LoadAnimation(animation)
        hear(holder, "AnimationPlayed", "holder")
        hear(holder.Animator, "AnimationPlayed", "animator")
        track:GetMarkerReachedSignal("Step"):Connect(error)
        before = #holder:GetPlayingAnimationTracks()
        track:Play()
        playing = holder:GetPlayingAnimationTracks()
    """)
    assert world.ask("take()") == "animator Animation, holder Animation"
    assert world.ask("before == 0 and #playing == 1 and playing[1] == track")
    again = SmallWorld(state=json.loads(json.dumps(world.document())))
    again.run("track:Play()")
    assert again.ask("take()") == "animator Animation, holder Animation"


def test_tracks_continue_exactly_from_a_snapshot(world):
    world.run("""
        held = load("local://idle_default")
        held.Looped = true
        held:Play(0.4)
        load("local://reload_rifle"):Play()
        stopping = load("local://walk_default")
        stopping:Play(0) stopping:Stop(1)
        follow(held, "held") follow(stopping, "stopping")
    """)
    world.tick(20)
    again = SmallWorld(state=json.loads(json.dumps(world.document())))
    for _ in range(3):
        assert json.dumps(again.document()) == json.dumps(world.document())
        assert spectate(again) == spectate(world)
        world.tick(30)
        again.tick(30)
    assert again.ask("take()") == "held DidLoop, stopping Ended, held DidLoop"
