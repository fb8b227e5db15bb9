"""``TweenService``: properties that change over time, on ticks and in snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.errors import SnapshotMismatch
from clawblox.engine.settings import EngineSettings
from clawblox.engine.values.enums import ENUMS
from clawblox.engine.values.tween_info import ease
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep
from tests.engine.playing import play, say
from tests.engine.torture import Plan, torture

STYLES = ENUMS["EasingStyle"]
DIRECTIONS = ENUMS["EasingDirection"]

START = """
local TweenService = game:GetService("TweenService")
local part = Instance.new("Part", workspace)
part.Anchored = true
local function tween(time, goals, ...)
    local info = TweenInfo.new(time, Enum.EasingStyle.Linear, Enum.EasingDirection.Out, ...)
    local made = TweenService:Create(part, info, goals)
    made.Completed:Connect(function(state) print("completed", state.Name) end)
    return made
end
"""


def test_easing_goes_from_0_to_1_and_out_mirrors_in() -> None:
    for style in STYLES:
        for direction in DIRECTIONS:
            assert ease(0.0, style, direction) == ease(-1.0, style, direction) == 0.0, style
            assert ease(1.0, style, direction) == ease(7.0, style, direction) == 1.0, style
        assert ease(0.5, style, "InOut") == pytest.approx(0.5), style
        for share in (0.1, 0.3, 0.72):
            from_the_end = 1.0 - ease(1.0 - share, style, "In")
            assert ease(share, style, "Out") == pytest.approx(from_the_end), (style, share)
            first, last = ease(share, style, "InOut"), ease(1.0 - share, style, "InOut")
            assert 0.5 - first == pytest.approx(last - 0.5), (style, share)


SHARES = {
    "Linear": 0.25, "Sine": 0.0761204674887, "Quad": 0.0625, "Cubic": 0.015625,
    "Quart": 0.00390625, "Quint": 0.0009765625, "Exponential": 0.00552427172802,
    "Circular": 0.0317541634481, "Back": -0.0641365625, "Bounce": 0.02734375,
    "Elastic": -0.0055242717280,
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_easing_styles_have_their_curves(style: str) -> None:
    assert ease(0.25, style, "In") == pytest.approx(SHARES[style], abs=1e-9)


def test_get_value_returns_the_eased_share(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        """
        local TweenService = game:GetService("TweenService")
        local style, direction = Enum.EasingStyle.Quad, Enum.EasingDirection.In
        print(TweenService:GetValue(0.5, style, direction))
        print(TweenService:GetValue(2, style, direction))
        print(pcall(TweenService.GetValue, TweenService, 0.5, direction, style))
        """,
    )
    assert lines == [
        "0.25",
        "1",
        "false\tinvalid argument #2 to 'GetValue' (Enum.EasingStyle expected, got EnumItem)",
    ]


def test_tween_changes_a_property_per_tick_and_ends_at_the_exact_goal(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        START
        + """
        local made = tween(0.1, { Transparency = 0.75 })
        print(made.PlaybackState.Name, made.Instance, made.TweenInfo.Time)
        task.wait()
        made:Play()
        made:Play()
        for _ = 1, 7 do
            print(string.format("%.4f", part.Transparency), made.PlaybackState.Name)
            task.wait()
        end
        """,
        12,
    )
    assert lines == [
        "Begin\tPart\t0.1",
        "0.0000\tPlaying", "0.1250\tPlaying", "0.2500\tPlaying", "0.3750\tPlaying",
        "0.5000\tPlaying", "0.6250\tPlaying", "completed\tCompleted", "0.7500\tCompleted",
    ]  # fmt: skip


def test_every_type_of_property_can_be_tweened(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        """
        local TweenService = game:GetService("TweenService")
        local part = Instance.new("Part", workspace)
        part.Anchored = true
        local label = Instance.new("TextLabel")
        local corner = Instance.new("UICorner")
        local info = TweenInfo.new(0.1, Enum.EasingStyle.Linear)
        local function go(target, goals) TweenService:Create(target, info, goals):Play() end
        task.wait()
        local turned = CFrame.new(4, 0, 0) * CFrame.Angles(0, math.pi / 2, 0)
        go(part, { Size = Vector3.new(8, 1, 2), Color = Color3.new(1, 1, 1), CanCollide = false,
            CFrame = turned, Reflectance = 0.5 })
        go(label, { Position = UDim2.new(0, 40, 1, 0), AnchorPoint = Vector2.new(1, 0.5) })
        go(corner, { CornerRadius = UDim.new(1, 20) })
        task.wait(0.05)
        print(part.Size, part.Color.R > 0.79 and part.Color.R < 0.81, part.CanCollide)
        local half = CFrame.new(2, 0, 0) * CFrame.Angles(0, math.pi / 4, 0)
        print(part.Position, part.CFrame:FuzzyEq(half))
        print(label.Position, label.AnchorPoint, corner.CornerRadius)
        task.wait(0.05)
        print(part.Size, part.Color, part.CanCollide, part.CFrame == turned, part.Reflectance)
        print(label.Position, label.AnchorPoint, corner.CornerRadius)
        """,
        12,
    )
    assert lines == [
        "6, 1, 2\ttrue\tfalse",
        "2, 0, 0\ttrue",
        "{0, 20}, {0.5, 0}\t0.5, 0.25\t0.5, 14",
        "8, 1, 2\t1, 1, 1\tfalse\ttrue\t0.5",
        "{0, 40}, {1, 0}\t1, 0.5\t1, 20",
    ]


def watch(directory: Path, made: str, ticks: int, *, sets: str = "") -> list[str]:
    """Return the transparency and the state in each tick after a tween was played."""
    script = f"""
        {START}
        local made = {made}
        task.wait()
        made:Play()
        for at = 0, {ticks} do
            {sets}
            print(math.round(part.Transparency * 100), made.PlaybackState.Name)
            task.wait()
        end
    """
    return say(directory, script, ticks + 4)


def test_a_tween_repeats_and_reverses(tmp_path: Path) -> None:
    lines = watch(tmp_path, "tween(2 / 60, { Transparency = 1 }, 1, true)", 9)
    assert lines == [
        "0\tPlaying", "50\tPlaying", "100\tPlaying", "50\tPlaying", "0\tPlaying", "50\tPlaying",
        "100\tPlaying", "50\tPlaying", "completed\tCompleted", "0\tCompleted", "0\tCompleted",
    ]  # fmt: skip


def test_a_tween_waits_for_its_delay_before_each_repetition(tmp_path: Path) -> None:
    lines = watch(tmp_path, "tween(2 / 60, { Transparency = 1 }, 1, false, 3 / 60)", 11)
    assert lines == [
        "0\tDelayed", "0\tDelayed", "0\tDelayed", "0\tPlaying", "50\tPlaying", "100\tDelayed",
        "100\tDelayed", "100\tDelayed", "0\tPlaying", "50\tPlaying", "completed\tCompleted",
        "100\tCompleted", "100\tCompleted",
    ]  # fmt: skip


def test_delayed_tween_starts_from_the_values_at_the_end_of_the_delay(tmp_path: Path) -> None:
    lines = watch(
        tmp_path,
        "tween(2 / 60, { Transparency = 1 }, 0, false, 3 / 60)",
        5,
        sets="if at == 1 then part.Transparency = 0.5 end",
    )
    assert lines[:6] == [
        "0\tDelayed", "50\tDelayed", "50\tDelayed", "50\tPlaying", "75\tPlaying",
        "completed\tCompleted",
    ]  # fmt: skip


def test_tween_of_zero_length_sets_its_goal_in_the_next_tick(tmp_path: Path) -> None:
    assert watch(tmp_path, "tween(0, { Transparency = 1 })", 1) == [
        "0\tPlaying", "completed\tCompleted", "100\tCompleted",
    ]  # fmt: skip
    endless = watch(tmp_path, "tween(0 / 0, { Transparency = 1 }, -1)", 3)
    assert endless == ["0\tPlaying", "100\tPlaying", "100\tPlaying", "100\tPlaying"]


def test_paused_tween_continues_and_cancelled_tween_starts_again(tmp_path: Path) -> None:
    lines = watch(
        tmp_path,
        "tween(4 / 60, { Transparency = 1 })",
        13,
        sets="""
            if at == 2 then made:Pause() made:Pause() end
            if at == 4 then made:Play() end
            if at == 5 then made:Cancel() made:Cancel() end
            if at == 7 then made:Play() end
        """,
    )
    assert lines == [
        "0\tPlaying", "25\tPlaying", "50\tPaused", "50\tPaused", "50\tPlaying",
        "completed\tCancelled", "75\tCancelled", "75\tCancelled", "75\tPlaying", "81\tPlaying",
        "88\tPlaying", "94\tPlaying", "completed\tCompleted", "100\tCompleted", "100\tCompleted",
        "100\tCompleted",
    ]  # fmt: skip


def test_later_tween_of_a_property_cancels_the_earlier_tween(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        START
        + """
        local first, second = tween(1, { Transparency = 1 }), tween(1, { Transparency = 0.5 })
        local other = tween(1, { Reflectance = 1 })
        first:Play() other:Play() second:Play()
        print(first.PlaybackState.Name, second.PlaybackState.Name, other.PlaybackState.Name)
        """,
    )
    assert lines == ["completed\tCancelled", "Cancelled\tPlaying\tPlaying"]


def test_a_tween_of_a_destroyed_instance_is_cancelled(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        START + "tween(1, { Transparency = 1 }, -1):Play() task.wait() part:Destroy()",
        4,
    )
    assert lines == ["completed\tCancelled"]


def test_a_thread_can_wait_for_the_end_of_a_tween(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        START
        + """
        local made = tween(0.05, { Transparency = 1 })
        made:Play()
        print("waited", made.Completed:Wait())
        """,
        6,
    )
    assert lines == ["completed\tCompleted", "waited\tEnum.PlaybackState.Completed"]


WRONG = {
    "TweenService:Create(5, info, {})": "argument #1 to 'Create' (Instance expected, got number)",
    "TweenService:Create(part, 5, {})": "argument #2 to 'Create' (TweenInfo expected, got number)",
    "TweenService:Create(part, info)": "argument #3 to 'Create' (table expected, got nil)",
    "TweenService:Create(part, info, { Transparancy = 1 })": (
        "'Transparancy' is not a property of Part; did you mean 'Transparency'?"
    ),
    "TweenService:Create(part, info, { 1 })": "number is not a property of Part",
    "TweenService:Create(part, info, { Name = 'x' })": "'Name' of Part cannot be tweened",
    "TweenService:Create(part, info, { Mass = 1 })": "'Mass' of Part cannot be tweened",
    "TweenService:Create(part, info, { Size = 1 })": "'Size' (Vector3 expected, got number)",
    "TweenService:Create(part, info, { Transparency = 0 / 0 })": "'Transparency' cannot be NaN",
    "TweenInfo.new('x')": "number expected",
    "TweenInfo.new(1, Enum.EasingDirection.In)": "Enum.EasingStyle expected",
    "info.Time = 5": "Time cannot be assigned to",
    "Instance.new('Tween')": "Unknown class 'Tween'",
}


@pytest.mark.thorough
@pytest.mark.parametrize("statement", WRONG)
def test_create_refuses_invalid_tweens(tmp_path: Path, statement: str) -> None:
    script = f"""
        {START}
        local info = TweenInfo.new()
        print(select(2, pcall(function() {statement} end)))
    """
    (line,) = say(tmp_path, script)
    assert WRONG[statement] in line


@pytest.mark.thorough
def test_tweens_are_charged_and_count_as_memory(tmp_path: Path) -> None:
    many = START + "for at = 1, 2000 do tween(100, { Transparency = 1 }):Play() end"
    run = play(tmp_path, many, steps_per_tick=100_000)
    assert "exhausted the allowed number of steps" in (run.world.failure or "")
    kept = (
        START
        + """
        local info = TweenInfo.new(1e6, nil, nil, -1)
        while true do
            for _ = 1, 500 do
                TweenService:Create(Instance.new("Part"), info, { Size = Vector3.one }):Play()
            end
            task.wait()
        end
    """
    )
    run = play(tmp_path, kept, 40, memory_bytes=4 << 20)
    assert "not enough memory" in (run.world.failure or ""), run.world.failure


def test_endless_tweens_of_many_properties_are_charged_in_each_tick(tmp_path: Path) -> None:
    script = (
        START
        + """
        for at = 1, 60 do
            local p = Instance.new("Part")
            TweenService:Create(p, TweenInfo.new(1, nil, nil, -1), { Size = Vector3.one }):Play()
            if at % 10 == 0 then task.wait() end
        end
    """
    )
    run = play(tmp_path, script, 20, steps_per_tick=1_500)
    assert "exhausted the allowed number of steps" in (run.world.failure or "")


SAVED = """
local TweenService = game:GetService("TweenService")
local part, other = Instance.new("Part", workspace), Instance.new("Part", workspace)
part.Anchored, other.Anchored = true, true
local styles, directions = Enum.EasingStyle:GetEnumItems(), Enum.EasingDirection:GetEnumItems()
local function tween(target, at, goals, ...)
    local style, direction = styles[at % #styles + 1], directions[at % #directions + 1]
    local made = TweenService:Create(target, TweenInfo.new(0.2, style, direction, ...), goals)
    made.Completed:Connect(function(state) print(at, state) end)
    return made
end
local turn = CFrame.new(3, 5, 7) * CFrame.Angles(1, 2, 3)
local paused = tween(other, 7, { CFrame = turn })
tween(part, 1, { Size = Vector3.new(9, 8, 7), Color = Color3.new(1, 0.5, 0) }, 2, true, 0.05):Play()
tween(workspace, 2, { Gravity = 50 }, -1, true):Play()
paused:Play()
local at = 3
game:GetService("RunService").Heartbeat:Connect(function()
    at += 1
    if at % 5 == 0 then paused:Pause() elseif at % 5 == 2 then paused:Play() end
    if at % 9 == 0 then
        tween(part, at, { Transparency = at % 2, Position = Vector3.one * at }):Play()
    end
    if at % 17 == 0 then tween(part, at, { Reflectance = 1 }, 0, false, 0.1) end
end)
local last = tween(other, 4, { Transparency = 1 }, 1)
last:Play()
print("last", last.Completed:Wait())
"""


@pytest.mark.parametrize(
    ("every", "on"), [(13, 7), pytest.param(1, 45, marks=pytest.mark.thorough)]
)
def test_a_world_with_tweens_continues_exactly(tmp_path: Path, every: int, on: int) -> None:
    (tmp_path / "world.toml").write_text('name = "tweens"\n')
    (tmp_path / "main.lua").write_text(SAVED)
    run = torture(tmp_path, Plan(), ticks=40, saves=range(1, 40, every), on=on)
    assert "out [Lua] last\tEnum.PlaybackState.Completed" in run.lines


def damaged(directory: Path, change: Any) -> str:
    """Return the error for a changed snapshot of a world with tweens."""
    (directory / "main.lua").write_text(SAVED)
    settings = EngineSettings(directory=directory)
    messages: list[str] = []

    def run() -> None:
        world = EngineWorld(settings, Console(messages.append, messages.append))
        world.begin()
        for _ in range(4):
            world.step()
        state = json.loads(json.dumps(world.snapshot()))
        change(state)
        restored = EngineWorld(settings, Console(messages.append, messages.append))
        with pytest.raises(SnapshotMismatch) as refused:
            restored.restore(state)
        messages.append(str(refused.value))

    run_deep(run)
    return messages[-1]


def props_of_tween(state: Any) -> dict[str, Any]:
    return next(row[4] for row in state["tree"]["instances"] if row[1] == "Tween")


def test_a_damaged_tween_in_a_snapshot_is_refused(tmp_path: Path) -> None:
    def remove_goals(state: Any) -> None:
        del props_of_tween(state)["Goals\u2089"]

    def remove_target(state: Any) -> None:
        del props_of_tween(state)["Instance"]

    def begin_later(state: Any) -> None:
        state["systems"]["tweens"][0][1] = 1000

    def name_another(state: Any) -> None:
        state["systems"]["tweens"][0][0] = 1

    assert "is not a tween" in damaged(tmp_path, remove_goals)
    assert "Tween" in damaged(tmp_path, remove_target)
    assert "is not a tween that has run since tick 1000" in damaged(tmp_path, begin_later)
    assert "the snapshot" in damaged(tmp_path, name_another)
