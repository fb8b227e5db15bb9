"""BindableFunction and RemoteFunction: callbacks, requests from agents and to agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.errors import WorldHalted
from tests.engine.playing import play, printed
from tests.engine.services.bench import ANN, BOB, Bench, bench, output
from tests.engine.torture import Plan, agent_id, torture

ADD = """
local add = Instance.new('BindableFunction')
add.OnInvoke = function(a, b) return a + b, 'sum' end
"""


def test_bindable_function_returns_the_results_of_its_callback() -> None:
    source = ADD + "print(add:Invoke(1, 2)) add.OnInvoke = nil print(add.OnInvoke)"
    assert output(source) == ["3\tsum", "nil"]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("add:Invoke(1, {})", "script:3: attempt to perform arithmetic (add) on number and table"),
        (
            "Instance.new('BindableFunction'):Invoke()",
            "script:4: OnInvoke of BindableFunction 'BindableFunction' is not set",
        ),
        (
            "add.OnInvoke = 5",
            "script:4: invalid value for property 'OnInvoke' (function expected, got number)",
        ),
        (
            "add.OnInvok = print",
            (
                "script:4: 'OnInvok' is not a valid member of BindableFunction "
                "'BindableFunction'; did you mean 'OnInvoke'?"
            ),
        ),
    ],
)
def test_error_in_a_callback_is_raised_in_the_caller(statement: str, error: str) -> None:
    source = ADD + f"print(select(2, pcall(function() {statement} end)))"
    assert output(source) == [error]


def test_a_bindable_function_that_invokes_itself_overflows_the_stack() -> None:
    source = """
    local f = Instance.new('BindableFunction')
    f.OnInvoke = function() return f:Invoke() + 1 end
    local ok, why = pcall(f.Invoke, f)
    print(ok, string.find(why, 'stack overflow') ~= nil)
    """
    assert output(source) == ["false\ttrue"]


WAITING = """
local slow = Instance.new("BindableFunction")
slow.OnInvoke = function(name)
    task.wait(0.1)
    if name == "bad" then error("refused", 0) end
    return name .. "!", time()
end
for _, name in { "first", "bad", "second" } do
    task.spawn(function() print(name, pcall(slow.Invoke, slow, name)) end)
end
print("waiting")
"""


def test_invocation_waits_for_its_callback_even_across_a_restore(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(WAITING)
    (tmp_path / "world.toml").write_text('name = "slow"')
    run = torture(tmp_path, Plan(), ticks=10, saves=(1, 3, 5))
    assert printed(run) == [
        "waiting",
        "first\ttrue\tfirst!\t0.1",
        "bad\tfalse\trefused",
        "second\ttrue\tsecond!\t0.1",
    ]


SHOP = """
local shop = Instance.new('RemoteFunction')
shop.Name = 'Shop'
shop.Parent = ReplicatedStorage
"""


def ask(world: Bench, data: Any, ident: str = ANN) -> None:
    world.services.inputs.add(world.services.players.find(ident), "RemoteFunction", data)


def payloads(world: Bench, ident: str = ANN) -> list[Any]:
    return [event["payload"] for event in world.services.remote_events.latest_for(ident)]


def test_agent_request_is_answered_to_this_agent_in_the_same_tick() -> None:
    world = bench(
        SHOP
        + """
        shop.OnServerInvoke = function(player, item, count)
            print(player, item, count)
            if item == 'both' then return 1, {2} end
            if item ~= 'none' then return {item = item, price = 3} end
        end
        """,
        players=["Ann", "Bob"],
    )
    ask(world, {"name": "Shop", "arguments": ["sword", 2], "id": "a"})
    ask(world, {"name": "Shop", "arguments": ["none", None]})
    ask(world, {"name": "Shop", "arguments": ["both"], "id": 7})
    ask(world, {"name": "Shop", "arguments": [None], "id": [1]})
    world.tick()
    assert world.printed() == ["Ann\tsword\t2", "Ann\tnone\tnil", "Ann\tboth\tnil", "Ann\tnil\tnil"]
    assert payloads(world) == [
        {"answer": "a", "result": {"item": "sword", "price": 3}},
        {"answer": None, "result": None},
        {"answer": 7, "result": [1, [2]]},
        {"answer": None, "result": {"price": 3}},
    ]
    assert payloads(world, BOB) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, []),
        ("Shop", []),
        ({"name": "Shpo"}, []),
        ({"name": ["Shop"]}, []),
        ({"name": "Shop", "id": 1}, [{"answer": 1, "error": "nothing answers"}]),
        (
            {"name": "Shop", "arguments": [0] * 101},
            [{"answer": None, "error": "arguments must be a list of at most 100 values"}],
        ),
        (
            {"name": "Shop", "arguments": "sword", "id": "x" * 101},
            [{"answer": None, "error": "arguments must be a list of at most 100 values"}],
        ),
        ({"answer": 1, "result": 2}, []),
        ({"answer": {}, "name": "Shop"}, []),
    ],
)
def test_unanswerable_agent_requests_are_ignored_or_fail(data: Any, expected: list[Any]) -> None:
    world = bench(SHOP, players=["Ann"])
    ask(world, data)
    world.tick()
    assert payloads(world) == expected


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("error('no coins')", "script:5: no coins"),
        ("local t = {} t.t = t return t", "the payload of an event is nested more than 128 deep"),
    ],
)
def test_failing_agent_request_is_a_script_error_and_is_answered(body: str, error: str) -> None:
    world = bench(f"{SHOP}shop.OnServerInvoke = function() {body} end", players=["Ann"])
    ask(world, {"name": "Shop", "id": 1})
    with pytest.raises(WorldHalted, match=error):
        world.tick()
    world.services.remote_events.publish()
    assert payloads(world) == [{"answer": 1, "error": "the function of the world failed"}]


LATER = """
local shop = Instance.new("RemoteFunction", game.ReplicatedStorage)
shop.Name = "Shop"
local threads = {}
shop.OnServerInvoke = function(player, kind)
    threads[kind] = coroutine.running()
    if kind == "never" then coroutine.yield() end
    task.wait(0.1)
    if kind == "bad" then error("no coins") end
    return kind
end
task.wait(0.05)
if threads.cancelled then task.cancel(threads.cancelled) end
"""


@pytest.mark.thorough
def test_waiting_agent_requests_are_answered_even_if_their_thread_ends(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(LATER)
    (tmp_path / "world.toml").write_text('name = "later"')
    plan = Plan().join(0, "Ada").join(0, "Bo")
    for kind in ("good", "bad", "cancelled", "never"):
        question = {"name": "Shop", "arguments": [kind], "id": kind}
        plan.act(1, "Ada", "RemoteFunction", question)
        if kind != "cancelled":
            plan.act(1, "Bo", "RemoteFunction", question)
    plan.leave(4, "Bo")
    run = torture(tmp_path, plan, ticks=14, saves=(2, 5, 8))
    events = run.world.observe(agent_id("Ada"))["recent_events"]
    failed = "the function of the world failed"
    assert [event["payload"] for event in events] == [
        {"answer": "cancelled", "error": failed},
        {"answer": "good", "result": "good"},
        {"answer": "bad", "error": failed},
    ]
    services = run.world.snapshot()["systems"]["services"]
    assert len(services["remote_functions"]["calls"]) == 1, "Ada's question that is never answered"
    assert run.world._parts.scheduler.errors.count == 2, "one of them for Bo, who has left"


def test_agent_has_at_most_256_waiting_requests() -> None:
    world = bench(f"{SHOP}shop.OnServerInvoke = function() coroutine.yield() end", players=["Ann"])
    for number in range(258):
        ask(world, {"name": "Shop", "id": number})
    world.tick()
    text = "256 requests wait for an answer"
    assert payloads(world) == [{"answer": number, "error": text} for number in (256, 257)]


ASKING = """
local poll = Instance.new('RemoteFunction', ReplicatedStorage)
poll.Name = 'Poll'
function askAll()
    for _, player in Players:GetPlayers() do
        coroutine.wrap(function()
            print(player, pcall(function() return poll:InvokeClient(player, 'tea', 2) end))
        end)()
    end
end
"""


def asking(*players: str) -> Bench:
    world = bench(ASKING, players=players)
    world.run("askAll()")
    world.tick()
    return world


def test_invoke_client_returns_the_answer_from_an_agents_input() -> None:
    world = asking("Ann", "Bob")
    assert payloads(world) == [{"ask": 1, "arguments": ["tea", 2]}]
    assert payloads(world, BOB) == [{"ask": 2, "arguments": ["tea", 2]}]
    ask(world, {"answer": 1, "result": "not mine"}, BOB)
    world.tick()
    assert world.printed() == []
    ask(world, {"answer": 2, "result": {"yes": True}}, BOB)
    ask(world, {"answer": 1})
    ask(world, {"answer": 1, "result": "too late"})
    world.tick()
    lines = world.printed()
    assert lines[0] == "Ann\ttrue\tnil"
    assert lines[1].startswith("Bob\ttrue\ttable")
    assert len(lines) == 2


def test_invoke_client_fails_after_60_seconds_or_when_the_agent_leaves() -> None:
    world = asking("Ann", "Bob")
    world.services.players.remove(BOB)
    world.tick()
    why = "InvokeClient of RemoteFunction 'Poll': "
    assert world.printed() == [f"Bob\tfalse\tscript:7: {why}Bob has left"]
    world.scheduler.tick += 60 * 60 - 3
    world.tick()
    assert world.printed() == []
    saved = Bench().restore(world.document())
    for each in (world, saved):
        each.tick()
        assert each.printed() == [f"Ann\tfalse\tscript:7: {why}Ann did not answer within 60 s"]


def test_invoke_client_requires_an_agent_in_the_world() -> None:
    world = bench(ASKING + "kept = nil", players=["Ann"])
    world.run("kept = Players.Ann Players:AddBot('Robo')")
    world.tick()
    world.services.players.remove(ANN)
    for each in (world, Bench().restore(world.document())):
        each.run(
            """
            local poll = ReplicatedStorage.Poll
            for _, asked in {kept, Players.Robo, poll} do
                print(pcall(poll.InvokeClient, poll, asked))
            end
            """
        )
        assert each.printed() == [
            "false\tInvokeClient of RemoteFunction 'Poll': Ann has no agent",
            "false\tInvokeClient of RemoteFunction 'Poll': Robo has no agent",
            "false\tinvalid argument #1 to 'InvokeClient' (Player expected, got Instance)",
        ]


QUESTIONS = """
local shop = Instance.new("RemoteFunction", game.ReplicatedStorage)
shop.Name = "Shop"
shop.OnServerInvoke = function(player, item)
    task.wait(0.1)
    local ok, answer = pcall(shop.InvokeClient, shop, player, "sure?")
    print(player, item, ok, answer)
    return item, answer
end
"""


def test_requests_in_both_directions_continue_after_a_restore(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(QUESTIONS)
    (tmp_path / "world.toml").write_text('name = "shop"')
    plan = Plan().join(0, "Ada").act(1, "Ada", "RemoteFunction", {"name": "Shop", "arguments": [5]})
    plan.act(12, "Ada", "RemoteFunction", {"answer": 1, "result": "sure"})
    plan.act(13, "Ada", "RemoteFunction", {"name": "Shop", "id": "again"})
    run = torture(tmp_path, plan, ticks=24, saves=(1, 3, 9, 12, 13, 16))
    assert printed(run) == ["Ada\t5\ttrue\tsure"]
    events = run.world.observe(agent_id("Ada"))["recent_events"]
    assert [event["payload"] for event in events] == [
        {"ask": 1, "arguments": ["sure?"]},
        {"answer": None, "result": [5, "sure"]},
        {"ask": 2, "arguments": ["sure?"]},
    ]


def test_world_without_requests_has_an_unchanged_snapshot(tmp_path: Path) -> None:
    saved = play(tmp_path, "Instance.new('RemoteFunction', game.ReplicatedStorage)", 2).world
    assert "remote_functions" not in saved.snapshot()["systems"]["services"]
