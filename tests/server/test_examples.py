"""The example worlds: playable, and resumed exactly."""

from __future__ import annotations

import functools
import importlib.util
import json
import random
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clawblox.cli
from clawblox.server import HostedWorld, InputError, Simulation
from tests.server.conftest import EXAMPLES, SAME_SESSIONS, LaunchedWorld
from tests.support.extremes import flood
from tests.support.waiting import HANG_S

JSON = {"Content-Type": "application/json"}
NAMES = ("marbles", "mujoco_carts")


@functools.cache
def example_module(name: str) -> ModuleType:
    """Import an example's ``world.py`` as the module ``example_<name>``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES / name))
        patch.setattr(sys, "dont_write_bytecode", True)
        return load_module(f"example_{name}", EXAMPLES / name / "world.py")


def load_module(name: str, path: Path) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module


def make_simulation(name: str) -> Simulation:
    module = example_module(name)
    simulation = module.Marbles() if name == "marbles" else module.Carts()
    simulation.begin()
    return simulation


# ----------------------------------------------------------------- one world, two processes


class Player:
    """Acts on a world over HTTP and keeps every byte that it answered."""

    def __init__(self, world: LaunchedWorld) -> None:
        self.world = world
        self.trace: list[tuple[int, bytes]] = []

    def do(self, session: str | None, method: str, target: str, body: object = None) -> bytes:
        headers = {"X-Session": session} if session else {}
        if body is not None:
            headers |= JSON
        encoded = None if body is None else json.dumps(body).encode()
        answer = self.world.ask(method, target, headers=headers, body=encoded)
        self.trace.append((answer.status, answer.body))
        return answer.body

    def join(self, name: str) -> str:
        return json.loads(self.do(None, "POST", f"/join?name={name}"))["session"]


def act_on(player: Player, sessions: list[str], verb: str) -> None:
    """Do what agents do, the same each time: act, look, talk, fail, rejoin, come and go."""
    dice = random.Random(7)
    for turn in range(40):
        session = dice.choice(sessions)
        player.do(session, "POST", "/input", random_input(verb, dice))
        if turn % 10 == 0:
            player.do(session, "GET", "/observe")
            player.do(session, "POST", "/chat", {"content": f"turn {turn}"})
            player.do(session, "POST", "/input", {"type": "Nonsense"})
            player.do(session, "POST", "/join?name=back")
    newcomer = player.join("Newcomer")
    player.do(newcomer, "POST", "/input", random_input(verb, dice))
    player.do(None, "GET", "/chat/messages?after=m2")
    player.do(newcomer, "POST", "/leave")
    player.do(newcomer, "GET", "/observe")


def random_input(verb: str, dice: random.Random) -> dict[str, object]:
    x, y = dice.uniform(-1, 1), dice.uniform(-1, 1)
    data = {"direction": [x, y]} if verb == "Steer" else {"force": x}
    return {"type": verb, "data": data}


@pytest.mark.parametrize(
    ("name", "verb"),
    [("marbles", "Steer"), pytest.param("mujoco_carts", "Push", marks=pytest.mark.thorough)],
)
def test_a_resumed_world_answers_the_same_inputs_with_the_same_bytes(launch, tmp_path, name, verb):
    program = EXAMPLES / name / "world.py"
    original = launch(program, env=SAME_SESSIONS)
    player = Player(original)
    sessions = [player.join("Rocky"), player.join("Molly")]
    act_on(player, sessions, verb)
    saved = original.snapshot().body
    player.trace.clear()
    act_on(player, sessions, verb)
    ended = original.snapshot().body
    original.stop()

    path = tmp_path / "snapshot.json"
    path.write_bytes(saved)
    resumed = launch(program, env={"WORLD_RESUME_PATH": str(path), **SAME_SESSIONS})
    assert resumed.snapshot().body == saved
    again = Player(resumed)
    act_on(again, sessions, verb)
    assert again.trace == player.trace
    assert resumed.snapshot().body == ended
    assert ended != saved
    assert {status for status, _ in player.trace} == {200, 400, 401}


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_of_the_other_example_is_refused(launch, tmp_path, name):
    other = next(example for example in NAMES if example != name)
    path = tmp_path / "snapshot.json"
    path.write_bytes(launch(EXAMPLES / other / "world.py").snapshot().body)
    world = launch(EXAMPLES / name / "world.py", env={"WORLD_RESUME_PATH": str(path)})
    assert world.process.wait(HANG_S) == 65
    assert "its format is" in world.log


@pytest.mark.thorough
def test_a_mujoco_snapshot_has_the_fields_that_tools_know(launch):
    document = launch(EXAMPLES / "mujoco_carts" / "world.py").snapshot().json()
    assert document["format"] == "mujoco-state-v1"
    assert document["time"] == 0.0
    assert len(document["scene_hash"]) == 64
    assert document["sessions"] == []
    assert document["chat"] == {"posted": 0, "messages": []}


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_in_real_time_too(launch, name):
    world = launch(EXAMPLES / name / "world.py", "--clock", "realtime")
    session = Player(world).join("Rocky")
    first, later = (
        world.ask("GET", "/observe", headers={"X-Session": session}).json() for _ in range(2)
    )
    assert later["tick"] >= first["tick"]
    assert world.ask("GET", "/health").status == 200


# ---------------------------------------------------------------------------- their physics


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_the_documents_match_the_world(name):
    config = tomllib.loads((EXAMPLES / name / "world.toml").read_text())
    simulation = make_simulation(name)
    assert config["run"]["command"] == ["{python}", "world.py"]
    assert config["run"]["liveness"] == {"path": "/health"}
    assert config["max_players"] == simulation.max_agents
    api_doc = simulation.api_doc
    assert (EXAMPLES / name / config["scripts"]["skill"]).read_text() == api_doc
    assert "snapshot" not in api_doc.lower()
    assert "operator-token" not in api_doc.lower()
    seconds = simulation.ticks_per_input / simulation.tick_rate
    assert f"moves it {seconds:g} seconds on" in " ".join(api_doc.split())


@pytest.mark.parametrize("name", NAMES)
def test_an_observation_has_exactly_the_keys_of_the_document(name):
    simulation = make_simulation(name)
    simulation.join("agent", "Rocky")
    example = json.loads(simulation.api_doc.split("```json\n")[-1].split("```")[0])
    seen = simulation.observe("agent")
    assert {"tick", "time", "game_status", *seen} == example.keys()
    assert seen["player"].keys() == example["player"].keys()
    assert seen["world"].keys() == example["world"].keys()
    assert seen["world"]["entities"][0].keys() == example["world"]["entities"][0].keys()


NUMBERS = st.floats(-1, 1)


@pytest.mark.thorough
@given(pushes=st.lists(st.tuples(st.sampled_from("ab"), NUMBERS, NUMBERS), max_size=12))
@settings(max_examples=30)
def test_marbles_survive_json_at_any_moment(pushes):
    original = make_simulation("marbles")
    for agent in "ab":
        original.join(agent, agent)
    for agent, x, y in pushes:
        original.act(agent, "Steer", {"direction": [x, y]})
        for _ in range(20):
            original.step()
    copy = make_simulation("marbles")
    copy.restore(json.loads(json.dumps(original.snapshot())))
    for simulation in (original, copy):
        for _ in range(100):
            simulation.step()
    assert copy.snapshot() == original.snapshot()


@pytest.mark.thorough
@given(pushes=st.lists(st.tuples(st.sampled_from("ab"), NUMBERS), max_size=12))
@settings(max_examples=30)
def test_carts_survive_json_at_any_moment(pushes):
    original = make_simulation("mujoco_carts")
    for agent in "ab":
        original.join(agent, agent)
    for agent, force in pushes:
        original.act(agent, "Push", {"force": force})
        for _ in range(20):
            original.step()
    copy = make_simulation("mujoco_carts")
    copy.restore(json.loads(json.dumps(original.snapshot())))
    for simulation in (original, copy):
        for _ in range(100):
            simulation.step()
    assert copy.snapshot() == original.snapshot()
    assert copy.observe("a") == original.observe("a")


@pytest.mark.thorough
@given(
    directions=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=8, max_size=8),
    ticks=st.integers(1, 600),
)
@settings(max_examples=30)
def test_no_disc_ever_leaves_the_table(directions, ticks):
    game = make_simulation("marbles")
    for number, direction in enumerate(directions):
        game.join(str(number), str(number))
        game.act(str(number), "Steer", {"direction": [*direction]})
    for _ in range(ticks):
        game.step()
    for disc in game.snapshot()["discs"]:
        assert disc["radius"] <= disc["x"] <= 24 - disc["radius"]
        assert disc["radius"] <= disc["y"] <= 14 - disc["radius"]


def rolling_marble(game: Simulation, **changes: object) -> dict:
    """Leave one marble on the table, two metres from the right pocket, and roll it there."""
    state = game.snapshot()
    marble = {**state["discs"][0], "x": 21.0, "y": 7.0, "vx": 5.0, "vy": 0.0}
    pushers = state["discs"][7:]
    for pusher in pushers:
        pusher |= {"x": 3.0, "y": 3.0}
    return {**state, "discs": [marble, *pushers], **changes}


def test_a_pocketed_marble_scores_for_the_last_pusher_and_comes_back():
    game = make_simulation("marbles")
    game.join("a", "Rocky")
    game.restore(rolling_marble(game, last_touch={"marble-1": "a"}))
    for _ in range(60):
        game.step()
    seen = game.observe("a")
    assert seen["player"]["score"] == 1
    (marble,) = seen["world"]["entities"]
    assert marble["last_touched_by"] is None
    assert marble["velocity"] == [0.0, 0.0]
    assert 4 <= marble["position"][0] <= 20


def test_an_untouched_marble_scores_no_point():
    game = make_simulation("marbles")
    game.join("a", "Rocky")
    game.restore(rolling_marble(game))
    for _ in range(60):
        game.step()
    assert game.observe("a")["player"]["score"] == 0


def test_a_collision_keeps_momentum_and_remembers_the_touch():
    game = make_simulation("marbles")
    game.join("a", "Rocky")
    state = rolling_marble(game)
    marble, pusher = state["discs"]
    marble |= {"x": 12.0, "vx": -3.0, "friction": 0.0}
    pusher |= {"x": 10.5, "y": 7.0, "vx": 2.0, "friction": 0.0}
    game.restore(state)
    for _ in range(10):
        game.step()
    marble, pusher = game.snapshot()["discs"]
    assert marble["vx"] > 0 > pusher["vx"]
    assert marble["vx"] + 2 * pusher["vx"] == pytest.approx(-3 + 2 * 2)
    assert game.observe("a")["world"]["entities"][0]["last_touched_by"] == "a"


def test_braking_stops_a_pusher():
    game = make_simulation("marbles")
    game.join("a", "Rocky")
    game.act("a", "Steer", {"direction": [3, 4]})
    assert game.observe("a")["player"]["steering"] == pytest.approx([0.6, 0.8])
    for _ in range(20):
        game.step()
    game.act("a", "Brake", None)
    for _ in range(60):
        game.step()
    assert game.observe("a")["player"]["velocity"] == [0.0, 0.0]


BAD_DIRECTIONS = (None, 5, {}, {"direction": 1}, {"direction": [1]}, {"direction": [1, "2"]})


@pytest.mark.parametrize(
    ("name", "action", "data"),
    [
        *(("marbles", "Steer", data) for data in (*BAD_DIRECTIONS, {"direction": [True, 0]})),
        ("marbles", "Push", {"force": 1}),
        *(
            ("mujoco_carts", "Push", data)
            for data in (None, [], {}, {"force": "1"}, {"force": 1.01}, {"force": 10**300})
        ),
        ("mujoco_carts", "Steer", None),
    ],
)
def test_a_refused_input_changes_nothing(name, action, data):
    simulation = make_simulation(name)
    simulation.join("agent", "Rocky")
    before = simulation.snapshot()
    with pytest.raises(InputError):
        simulation.act("agent", action, data)
    assert simulation.snapshot() == before


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_no_input_halts_an_example(name):
    accepted = flood(HostedWorld(make_simulation(name)), ["Steer", "Brake", "Push", "Wait"], 1)
    own = {"Steer", "Brake"} if name == "marbles" else {"Push"}
    assert accepted == {*own, "Wait"}


def test_no_input_halts_the_world_that_init_writes():
    path = Path(clawblox.cli.__file__).with_name("starter") / "world.py"
    meadow = load_module("starter", path).Meadow()
    meadow.begin()
    assert flood(HostedWorld(meadow), ["Walk", "Wait"]) == {"Wait"}


def test_huge_numbers_steer_like_any_direction():
    game = make_simulation("marbles")
    game.join("a", "Rocky")
    game.act("a", "Steer", {"direction": [10**300, -(10**300)]})
    x, y = game.observe("a")["player"]["steering"]
    assert x == -y == pytest.approx(0.5**0.5)


def test_a_cart_without_a_driver_is_free_and_its_motor_is_off():
    carts = make_simulation("mujoco_carts")
    for agent in "abc":
        carts.join(agent, agent)
    carts.act("b", "Push", {"force": 1})
    carts.leave("b")
    entities = carts.observe("a")["world"]["entities"]
    assert [cart["driver"] for cart in entities] == ["a", None, "c"]
    assert entities[1]["force"] == 0.0
    carts.join("d", "d")
    assert carts.observe("d")["player"]["cart"] == 2


def test_a_fallen_pole_scores_no_longer():
    carts = make_simulation("mujoco_carts")
    carts.join("a", "a")
    carts.act("a", "Push", {"force": 1})
    for _ in range(500):
        carts.step()
    score = carts.observe("a")["world"]["entities"][0]["upright_s"]
    assert 0 < score < carts.time


def test_an_integration_state_of_another_size_is_refused():
    carts = make_simulation("mujoco_carts")
    state = carts.snapshot()
    state["integration"].append(0.0)
    with pytest.raises(ValueError, match="wrong size"):
        carts.restore(state)
