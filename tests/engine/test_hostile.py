"""Hostile scripts, inputs and world files cause a clear error, or do no harm."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawblox.engine.errors import SettingsError
from clawblox.engine.settings import read_settings
from clawblox.luau import run_deep
from clawblox.server import InputError
from tests.engine.playing import play
from tests.engine.torture import Plan, agent_id

STEPS = 300_000
PLAN = Plan().join(1, "Ada").leave(4, "Ada")

HALTING = {
    "while true do end": "exhausted the allowed number of steps",
    "while true do pcall(function() while true do end end) end": "exhausted the allowed number",
    "task.spawn(function() while true do end end)": "exhausted the allowed number",
    "task.wait() task.spawn(function() while true do end end)": "exhausted the allowed number",
    "workspace.ChildAdded:Connect(function() while true do end end)"
    " task.wait() Instance.new('Part', workspace)": "exhausted the allowed number",
    "local function g() task.defer(g) task.defer(g) end g()": "exhausted the allowed number",
    "local a, b = Instance.new('Folder'), Instance.new('Folder') a.Parent = b b.Parent = a": (
        "circular reference"
    ),
    "local s = string.rep('x', 1e10)": "resulting string too large",
    "table.create(1e9, 0)": "table overflow",
    "print(table.unpack({}, 1, 1e8))": "too many results to unpack",
    "string.format('%99999999d', 1)": "invalid format",
    "string.find(string.rep('a', 30), string.rep('a?', 30) .. string.rep('a', 30))": (
        "exhausted the allowed number of steps"
    ),
    "table.sort({ 3, 2, 1 }, function(a, b) task.wait() return a < b end)": "attempt to yield",
    "local t t = setmetatable({}, { __index = function(s, k) return s[k] end }) print(t.a)": (
        "C stack overflow"
    ),
    "local function f() return 1 + f() end f()": "stack overflow",
    "local t = {} t.t = t game.HttpService:JSONEncode(t)": "nested more than 128 deep",
    "workspace.Terrain:FillBlock(CFrame.new(), Vector3.one * 1e6, Enum.Material.Grass)": (
        "Region is too large"
    ),
    "error(workspace)": "Workspace",
    "error(nil)": "nil",
}

HARMLESS = (
    "local function g() task.spawn(g) end g()",
    "local function g() task.defer(g) end g()",
    """
    workspace.ChildAdded:Connect(function() Instance.new("Folder", workspace) end)
    Instance.new("Folder", workspace)
    """,
    """
    workspace.AttributeChanged:Connect(function() workspace:SetAttribute("a", 1) end)
    workspace:SetAttribute("a", 1)
    """,
    """
    game.Players.PlayerAdded:Connect(function(player)
        player.CharacterAdded:Connect(function() player:LoadCharacter() end)
        player:LoadCharacter()
    end)
    """,
    "game:GetService('RunService').Heartbeat:Connect(function() error('x' .. tick()) end)",
    "game:GetService('RunService').Heartbeat:Connect(function() error(string.rep('x', 1e6)) end)",
    "task.delay(1e308, print)",
    """
    for _, v in { 0 / 0, 1 / 0, -1 / 0, 1e30, 1e38 } do
        local p = Instance.new("Part", workspace)
        pcall(function() p.Position = Vector3.new(v, v, v) end)
        pcall(function() p.Velocity = Vector3.new(v, 0, 0) end)
        pcall(function() p.CFrame = CFrame.new(v, v, v) * CFrame.Angles(v, v, v) end)
    end
    """,
    """
    for _, v in { 0, -1, 1e-30, -1e30 } do
        for _, shape in Enum.PartType:GetEnumItems() do
            local p = Instance.new("Part", workspace)
            p.Shape = shape
            pcall(function() p.Size = Vector3.new(v, v, v) end)
        end
    end
    """,
    "workspace.Gravity = 1 / 0 Instance.new('Part', workspace) task.wait() workspace.Gravity = -1",
    """
    game.Players.PlayerAdded:Connect(function(player)
        local root, humanoid = player.Character.HumanoidRootPart, player.Character.Humanoid
        for _, v in { 1e6, 1e9, 1e30 } do
            root.Position = Vector3.new(v, v, v)
            humanoid:MoveTo(Vector3.new(-v, 0, 0))
            task.wait()
        end
        humanoid.WalkSpeed, humanoid.JumpPower, humanoid.Jump = 1e308, 1e308, true
        root.Velocity = Vector3.new(1e38, 1e38, 1e38)
    end)
    """,
    """
    game.Players.PlayerAdded:Connect(function(player)
        player:Kick() player.Character:Destroy() player.PlayerGui:Destroy()
        player:ClearAllChildren() player:Destroy()
    end)
    """,
    "for i = 1, 1000 do game.Players:AddBot('bot' .. i) end",
    "script:Destroy() task.wait() print(script)",
    "for _, c in game:GetChildren() do pcall(c.Destroy, c) pcall(c.ClearAllChildren, c) end",
    "game.HttpService:JSONDecode(string.rep('[', 1e5))",
    """
    local c
    c = coroutine.create(function() coroutine.resume(c) task.spawn(c) task.cancel(c) end)
    coroutine.resume(c)
    """,
)


@pytest.mark.thorough
@pytest.mark.parametrize("main", HALTING)
def test_a_hostile_script_halts_the_world_with_a_clear_message(tmp_path: Path, main: str) -> None:
    run = play(tmp_path, main, 6, PLAN, steps_per_tick=STEPS)
    assert run.world.failure is not None
    assert HALTING[main] in run.world.failure


@pytest.mark.parametrize("main", HARMLESS)
def test_a_hostile_script_does_no_harm(tmp_path: Path, main: str) -> None:
    run = play(tmp_path, main, 6, PLAN, steps_per_tick=STEPS)
    assert run.world.failure is None, run.lines
    json.dumps(run.record(), allow_nan=False)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers()
    | st.text(max_size=8),  # JSON values that the server accepts
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)
TYPES = st.sampled_from(["MoveTo", "Throw", "Place", "GuiClick", "Jump", "Reset", ""]) | st.text()
ECHO = """
game:GetService("AgentInputService").InputReceived:Connect(function(player, kind, data)
    player:SetAttribute("kind", kind)
    pcall(player.SetAttribute, player, "data", data)
    game:GetService("RemoteEventService"):FireAllClients(kind, data)
end)
"""


@pytest.mark.thorough
@given(
    inputs=st.lists(
        st.tuples(
            TYPES,
            JSON
            | st.fixed_dictionaries({"position": JSON})
            | st.fixed_dictionaries({"element_id": JSON}),
        ),
        max_size=20,
    )
)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_input_is_refused_or_reaches_the_script(tmp_path: Path, inputs) -> None:
    run = play(tmp_path, ECHO, 1, Plan().join(0, "Ada"))

    def send() -> None:
        for kind, data in inputs:
            with suppress(InputError):
                run.world.act(agent_id("Ada"), kind, data)
            run.step()

    run_deep(send)
    assert run.world.failure is None
    json.dumps(run.record(), allow_nan=False)


TOML = st.sampled_from(
    """
name = "x"
name = 1
name = ""
max_players = 0
max_players = -1
afk_timeout = nan
[scripts]
main = "../main.lua"
main = 5
tree = 'missing'
[observation]
radius = inf
radius = 10
[speech]
mode = 'proximity'
[clawblox.physics]
solver_iterations = 33
[renderer]
entry = '/etc/passwd'
[[renderer]]
x = [
[clawblox]
memory_mib = true
\0
""".strip().splitlines()
)


@given(lines=st.lists(TOML, max_size=6))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_world_file_is_read_or_named_in_the_error(
    tmp_path: Path, lines: list[str]
) -> None:
    (tmp_path / "main.lua").write_text("")
    (tmp_path / "world.toml").write_text("\n".join(lines))
    try:
        problem = read_settings(tmp_path).name and "world.toml"
    except SettingsError as error:
        problem = str(error)
    assert "world.toml" in problem or "scripts." in problem


@pytest.mark.parametrize(
    ("event", "where"),
    [
        ("MoveToFinished", "MoveToFinished event"),
        ("Running", "Humanoid Running event"),
        ("StateChanged", "Humanoid Running event"),
        ("HealthChanged", "Failed to process agent inputs"),
    ],
)
def test_errors_of_humanoid_events_name_the_place(tmp_path: Path, event: str, where: str) -> None:
    main = f"""
    local floor = Instance.new("Part", workspace)
    floor.Anchored, floor.Size = true, Vector3.new(99, 1, 99)
    game.Players.PlayerAdded:Connect(function(player)
        player.Character.Humanoid.{event}:Connect(function() error("boom") end)
    end)
    game:GetService("AgentInputService").InputReceived:Connect(function(player)
        player.Character.Humanoid:TakeDamage(1)
        player.Character.Humanoid:MoveTo(Vector3.new(4, 0, 0))
    end)
    """
    plan = Plan().join(1, "Ada").act(3, "Ada", "Go")
    run = play(tmp_path, main, 60, plan, halts_on_error=True)
    assert run.world.failure is not None
    assert run.world.failure.startswith(f"{where}: main.lua:")
    assert run.world.failure.endswith("boom")
