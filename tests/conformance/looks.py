"""Direct tests of an orchard, one for each family of its defects, independent of the checks.

A look returns whether the orchard conforms in one respect.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from tests.support.processes import is_alive, marked_processes
from tests.support.provable import ACTIONS, is_serving, make_provable_world, running_orchard
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import Answer, RunningWorld

Headers = dict[str, str]

PUSH, PICK, PULL, DROP = ACTIONS

WARM_UP = ((0, PUSH), (1, PICK), (0, PULL), (1, PUSH))
"""Inputs before a save, by agent: both agents are in motion, one carries an apple."""

SCRIPT = ((1, PUSH), (0, PICK), (1, DROP), (0, PUSH), (0, DROP), (1, PICK))
MANY = 120
"""Ticks to observe worlds in real time after a save; a start takes about 20 ticks."""


@attrs.frozen
class Bed:
    """Starts orchards with a clock and a defect; closing the bed ends them."""

    parent: Path
    clock: str
    defect: str | None
    _exits: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack)

    def start(self, *flags: str, **options: Any) -> RunningWorld:
        running = running_orchard(
            self.parent, *flags, clock=self.clock, defect=self.defect, **options
        )
        return self._exits.enter_context(running)

    def start_two(self) -> tuple[RunningWorld, list[Headers]]:
        """Start an orchard with two agents, which act for a while."""
        world = self.start()
        agents = [world.join("Ann"), world.join("Bob")]
        say(world, agents[0], "hello")
        for number, action in WARM_UP:
            act(world, agents[number], action)
        return world, agents

    def close(self) -> None:
        self._exits.close()


def act(world: RunningWorld, agent: Headers, action: Mapping[str, Any]) -> Answer:
    return world.ask("POST", "/input", body=json.dumps(action).encode(), headers=agent)


def say(world: RunningWorld, agent: Headers, content: str) -> Answer:
    return world.ask("POST", "/chat", body=json.dumps({"content": content}).encode(), headers=agent)


def hear(world: RunningWorld, agent: Headers) -> Any:
    return world.ask("GET", "/chat/messages", headers=agent).json()["messages"]


def observe(world: RunningWorld, agent: Headers) -> Answer:
    return world.ask("GET", "/observe", headers=agent)


def live_on(world: RunningWorld, agents: list[Headers], *, saves: bool = False) -> list[Answer]:
    """Return the answers of a world to a fixed sequence of requests."""
    answers = [observe(world, agent) for agent in agents]
    for number, action in SCRIPT:
        if saves:
            world.snapshot()
        answers.append(act(world, agents[number], action))
    return answers


# ---------------------------------------------------------------------- restore, lockstep


def continues_exactly(bed: Bed) -> bool:
    original, agents = bed.start_two()
    saved = original.snapshot().body
    return live_on(original, agents) == live_on(bed.start(resume=saved), agents)


def restores_are_equal(bed: Bed) -> bool:
    original, agents = bed.start_two()
    saved = original.snapshot().body
    first, second = bed.start(resume=saved), bed.start(resume=saved)
    return live_on(first, agents) == live_on(second, agents)


def restores_again(bed: Bed) -> bool:
    original, agents = bed.start_two()
    restored = bed.start(resume=original.snapshot().body)
    live_on(restored, agents)
    again = bed.start(resume=restored.snapshot().body)
    return live_on(restored, agents) == live_on(again, agents)


def snapshots_are_equal(bed: Bed) -> bool:
    original, _ = bed.start_two()
    saved = original.snapshot().body
    return bed.start(resume=saved).snapshot().body == saved


def saves_change_nothing(bed: Bed) -> bool:
    original, agents = bed.start_two()
    saved = original.snapshot().body
    plain, watched = bed.start(resume=saved), bed.start(resume=saved)
    return live_on(plain, agents) == live_on(watched, agents, saves=True)


def keeps_sessions(bed: Bed) -> bool:
    original, agents = bed.start_two()
    restored = bed.start(resume=original.snapshot().body)
    return all(observe(restored, agent).status == 200 for agent in agents)


def keeps_chat(bed: Bed) -> bool:
    original, agents = bed.start_two()
    restored = bed.start(resume=original.snapshot().body)
    messages = [hear(world, agents[0]) for world in (original, restored)]
    ids = [say(world, agents[0], "again").json()["id"] for world in (original, restored)]
    return messages[0] == messages[1] and ids[0] == ids[1]


def joins_are_equal(bed: Bed) -> bool:
    first, second = join_both_lives(bed)
    return bool(first == second)


def agent_ids_continue(bed: Bed) -> bool:
    first, second = join_both_lives(bed)
    return bool(first["you"]["agent_id"] == second["you"]["agent_id"])


def join_both_lives(bed: Bed) -> list[Any]:
    """Return the observations of the next agent in an original and in its restore."""
    original, _ = bed.start_two()
    restored = bed.start(resume=original.snapshot().body)
    return [observe(world, world.join("Cy")).json() for world in (original, restored)]


# ---------------------------------------------------------------------- restore, real time


def watch(world: RunningWorld, agent: Headers, until: int, *, saves: bool = False) -> Any:
    """Return the observations of a world by tick, up to a tick."""
    seen: dict[int, Any] = {}
    while max(seen, default=0) < until:
        if saves:
            world.snapshot()
        document = observe(world, agent).json()
        seen[document["tick"]] = document
    return seen


def equal_ticks(first: Mapping[int, Any], second: Mapping[int, Any]) -> bool:
    common = first.keys() & second.keys()
    assert common, "the worlds were never seen at the same tick"
    return all(first[tick] == second[tick] for tick in common)


def runs_on_exactly(bed: Bed) -> bool:
    original, agents = bed.start_two()
    saved = original.snapshot()
    until = saved.json()["tick"] + MANY
    expected = watch(original, agents[0], until)
    return equal_ticks(expected, watch(bed.start(resume=saved.body), agents[0], until))


def restores_run_equally(bed: Bed) -> bool:
    original, agents = bed.start_two()
    saved = original.snapshot()
    until = saved.json()["tick"] + MANY
    lives = [watch(bed.start(resume=saved.body), agents[0], until) for _ in range(2)]
    return equal_ticks(*lives)


def saves_change_no_tick(bed: Bed) -> bool:
    original, agents = bed.start_two()
    saved = original.snapshot()
    until = saved.json()["tick"] + MANY
    plain = watch(bed.start(resume=saved.body), agents[0], until)
    return equal_ticks(plain, watch(bed.start(resume=saved.body), agents[0], until, saves=True))


def snapshots_run_on_exactly(bed: Bed) -> bool:
    """Compare the snapshots of both runs at equal times."""
    original, _ = bed.start_two()
    saved = original.snapshot()
    until = saved.json()["tick"] + MANY
    expected = watch_snapshots(original, until)
    return equal_ticks(expected, watch_snapshots(bed.start(resume=saved.body), until))


def watch_snapshots(world: RunningWorld, until: int) -> Mapping[int, Any]:
    """Return the snapshots of a world by tick, up to a tick."""
    seen: dict[int, Any] = {}
    while max(seen, default=0) < until:
        document = world.snapshot().json()
        seen[document["tick"]] = document
    return seen


def _save_with_waiting_input(
    world: RunningWorld, agent: Headers
) -> tuple[Mapping[str, Any], bytes, int]:
    """Return a snapshot with a waiting input, and the number of inputs applied before.

    The input and the request for the snapshot are sent at the same time.
    """

    def try_once() -> Any:
        before = observe(world, agent).json()["harvest"]
        body = json.dumps(PUSH).encode()
        acting, saving = (http.client.HTTPConnection("127.0.0.1", world.port) for _ in range(2))
        with contextlib.closing(acting), contextlib.closing(saving):
            acting.request("POST", "/input", body=body, headers=agent)
            saving.request("GET", "/snapshot", headers={"X-Operator-Token": world.token})
            saved = saving.getresponse().read()
            answer = json.loads(acting.getresponse().read())
        return json.loads(saved)["pending"] and (answer, saved, before)

    return wait_until(try_once, what="a snapshot with an input that waits")


def inputs_land_equally(bed: Bed) -> bool:
    """Compare both runs after a waiting input of the snapshot lands at the same tick."""
    original, agents = bed.start_two()
    _, saved, _ = _save_with_waiting_input(original, agents[0])
    until = json.loads(saved)["tick"] + MANY
    expected = watch(original, agents[0], until)
    return equal_ticks(expected, watch(bed.start(resume=saved), agents[0], until))


def saves_keep_waiting_inputs(bed: Bed) -> bool:
    world = bed.start()
    answer, _, before = _save_with_waiting_input(world, world.join())
    return bool(answer["harvest"] == before + 1)


def restores_waiting_inputs(bed: Bed) -> bool:
    world = bed.start()
    agent = world.join()
    _, saved, before = _save_with_waiting_input(world, agent)
    restored = bed.start(resume=saved)
    saved_tick = json.loads(saved)["tick"]
    watch(restored, agent, saved_tick + 1)
    return bool(observe(restored, agent).json()["harvest"] == before + 1)


# ------------------------------------------------------------------------------------ gate


def snapshot_needs_token(bed: Bed) -> bool:
    world = bed.start()
    wrong = {"X-Operator-Token": "wrong"}
    return all(world.ask("GET", "/snapshot", headers=h).status == 401 for h in ({}, wrong))


def token_has_one_form(bed: Bed) -> bool:
    world = bed.start()
    bearer = {"Authorization": f"Bearer {world.token}"}
    answers = (
        world.ask("GET", f"/snapshot?token={world.token}"),
        world.ask("GET", "/snapshot", headers=bearer),
    )
    return all(answer.status == 401 for answer in answers)


def sessions_are_needed(bed: Bed) -> bool:
    world = bed.start()
    world.join()
    return observe(world, {}).status == 401


def unknown_sessions_are_refused(bed: Bed) -> bool:
    world = bed.start()
    world.join()
    unknown = {"X-Session": "f" * 32}
    answers = (
        world.ask("POST", "/join?name=Eve", headers=unknown),
        observe(world, unknown),
        act(world, unknown, PUSH),
    )
    return all(answer.status == 401 for answer in answers)


def sessions_are_fresh(bed: Bed) -> bool:
    original, _ = bed.start_two()
    saved = original.snapshot().body
    worlds = [original, bed.start(resume=saved), bed.start(resume=saved)]
    return len({world.join("Cy")["X-Session"] for world in worlds}) == len(worlds)


def foreign_hosts_are_refused(bed: Bed) -> bool:
    return bed.start().ask("GET", "/api.md", headers={"Host": "evil.example"}).status == 421


def foreign_origins_are_refused(bed: Bed) -> bool:
    origin = {"Origin": "http://evil.example"}
    return bed.start().ask("GET", "/api.md", headers=origin).status == 403


def players_are_limited(bed: Bed) -> bool:
    world = bed.start()
    statuses = [world.ask("POST", f"/join?name=A{n}").status for n in range(9)]
    return statuses == [200] * 8 + [400]


def bodies_are_limited(bed: Bed) -> bool:
    world = bed.start()
    return act(world, world.join(), {**PUSH, "padding": "x" * 65536}).status == 413


def sessions_are_random(bed: Bed) -> bool:
    world = bed.start()
    sessions = [world.join(name)["X-Session"] for name in ("Ann", "Bob")]
    return abs(int(sessions[0], 16) - int(sessions[1], 16)) > 1000


# ---------------------------------------------------------------------------------- refuse


def _refuses(bed: Bed, change: Callable[[bytes], bytes | None]) -> bool:
    """Return whether the world ends before its port is open, given a changed snapshot."""
    world, _ = bed.start_two()
    changed = change(world.snapshot().body)
    missing = {"WORLD_RESUME_PATH": str(bed.parent / "missing")} if changed is None else {}
    restored = bed.start(resume=changed, env=missing, listens=False)

    return _first_answer(restored) is None and restored.wait() == 65


def _first_answer(world: RunningWorld) -> int | None:
    """Return the status of the first answer of a world; None if the world ended first."""

    def look() -> tuple[int | None] | None:
        if world.process.poll() is not None:
            return (None,)
        with contextlib.suppress(OSError, http.client.HTTPException):
            return (world.ask("GET", "/api.md").status,)
        return None

    return wait_until(look, what="the world answers or ends")[0]


def _change(**fields: Any) -> Callable[[bytes], bytes]:
    return lambda saved: json.dumps({**json.loads(saved), **fields}).encode()


def refuses_corrupt(bed: Bed) -> bool:
    garbled = _refuses(bed, lambda saved: saved.replace(b'"agents"', b'"agentz"'))
    return garbled and _refuses(bed, _change(tick=3))


def refuses_empty(bed: Bed) -> bool:
    return _refuses(bed, lambda saved: b"")


def refuses_truncated(bed: Bed) -> bool:
    return _refuses(bed, lambda saved: saved[: len(saved) // 2])


def refuses_foreign(bed: Bed) -> bool:
    return _refuses(bed, _change(scene_hash="00000000"))


def refuses_newer(bed: Bed) -> bool:
    return _refuses(bed, _change(version=2))


def refuses_missing(bed: Bed) -> bool:
    return _refuses(bed, lambda saved: None)


# ------------------------------------------------------------------------------- invisible


def headers_are_stable(bed: Bed) -> bool:
    return bed.start().ask("GET", "/api.md").headers.keys() == {"content-type", "content-length"}


def chat_has_simulated_time(bed: Bed) -> bool:
    world, agents = bed.start_two()
    return bool(hear(world, agents[0])[0]["created_at"] < 1e6)


def observations_show_no_host(bed: Bed) -> bool:
    world, agents = bed.start_two()
    keys = {"tick", "time", "you", "others", "wind", "harvest"}
    return observe(world, agents[0]).json().keys() == keys


# ---------------------------------------------------------------------------------- static


def files_conform(bed: Bed) -> bool:
    directory = make_provable_world(bed.parent, clock=bed.clock, defect=bed.defect)
    text = (directory / "API.md").read_text()
    is_documented = "/join" in text and '"type"' in text and "/snapshot" not in text
    toml = (directory / "world.toml").read_text()
    return is_documented and "max_players = 8\n" in toml and "description = " in toml


# -------------------------------------------------------------------------------- contract


def gets_ready(bed: Bed) -> bool:
    return _first_answer(bed.start(listens=False)) == 200


def has_alias(bed: Bed) -> bool:
    world = bed.start()
    return world.ask("GET", "/skill.md").body == world.ask("GET", "/api.md").body


def listens_on_its_host(bed: Bed) -> bool:
    world = bed.start()
    try:
        socket.create_connection(("127.0.0.2", world.port), timeout=HANG_S).close()
    except ConnectionRefusedError:
        return True
    return False


def joins_differ(bed: Bed) -> bool:
    world = bed.start()
    return world.join("Ann") != world.join("Bob")


def rejoins(bed: Bed) -> bool:
    world = bed.start()
    agent = world.join()
    answer = world.ask("POST", "/join?name=Rocky", headers=agent).json()
    return bool(answer["session"] == agent["X-Session"])


def answers_are_json(bed: Bed) -> bool:
    world = bed.start()
    agent = world.join()
    bodies = [observe(world, agent).body, act(world, agent, PUSH).body]
    return all(body.startswith(b"{") and b"NaN" not in body for body in bodies)


def malformed_is_refused(bed: Bed) -> bool:
    world = bed.start()
    agent = world.join()
    try:
        status = world.ask("POST", "/input", body=b'{"type": ', headers=agent).status
    except (OSError, http.client.HTTPException):
        return False
    return status == 400 and observe(world, agent).status == 200


def chat_is_heard(bed: Bed) -> bool:
    world, agents = bed.start_two()
    return [message["content"] for message in hear(world, agents[1])] == ["hello"]


def leaving_ends_sessions(bed: Bed) -> bool:
    world = bed.start()
    agent = world.join()
    return (
        world.ask("POST", "/leave", headers=agent).status == 200
        and observe(world, agent).status == 401
    )


def connections_are_kept(bed: Bed) -> bool:
    world = bed.start()
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=HANG_S)
    with contextlib.closing(connection):
        statuses = []
        for method, path in (("POST", "/input"), ("POST", "/join?name=A"), ("GET", "/api.md")):
            body = b"{}\r\n\r\n" if method == "POST" else None
            try:
                connection.request(method, path, body=body)
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                return False
            if connection.sock is None:
                return False
            statuses.append(answer.status)
    return statuses == [401, 200, 200]


def base_path_is_used(bed: Bed) -> bool:
    world = bed.start(env={"WORLD_BASE_PATH": "/w1"})
    return world.ask("GET", "/w1/api.md").status == 200


def flags_override(bed: Bed) -> bool:
    port = bed.start().port  # the variable's port is in use, so a world that takes it cannot start
    world = bed.start("--port", "0", env={"WORLD_PORT": str(port)}, listens=False)
    wait_until(lambda: is_serving(world) or world.process.poll() is not None)
    return world.process.poll() is None


def snapshot_has_header(bed: Bed) -> bool:
    answer = bed.start().snapshot()
    if b"NaN" in answer.body:
        return False
    document = answer.json()
    is_dated = document.get("format") == "orchard-v1" and isinstance(document.get("time"), float)
    return is_dated and "scene_hash" in document


def files_have_no_token(bed: Bed) -> bool:
    world = bed.start()
    texts = [path.read_text(errors="replace") for path in world.directory.iterdir()]
    return not any(world.token in text for text in texts)


def observations_are_small(bed: Bed) -> bool:
    world = bed.start()
    return len(observe(world, world.join()).body) < 4 << 20


# --------------------------------------------------------------------------------- hygiene


def snapshots_do_not_grow(bed: Bed) -> bool:
    world = bed.start()
    agent = world.join()
    sizes = []
    for _ in range(2):
        for _ in range(30):
            act(world, agent, PULL)
        sizes.append(len(world.snapshot().body))
    return sizes[1] - sizes[0] < 100


def snapshots_have_no_secrets(bed: Bed) -> bool:
    world = bed.start(env={"API_KEY": "a-secret-of-the-host"})
    body = world.snapshot().body
    secrets = (world.token, "a-secret-of-the-host", str(bed.parent))
    return not any(secret.encode() in body for secret in secrets)


def obeys_sigterm(bed: Bed) -> bool:
    world = bed.start()
    status = Path(f"/proc/{world.process.pid}/status").read_text()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    if ignored >> (signal.SIGTERM - 1) & 1:
        return False
    world.process.terminate()
    return world.wait() == 0


def reports_no_errors(bed: Bed) -> bool:
    world = bed.start()
    answer = world.ask("GET", "/health", headers={"X-Operator-Token": world.token})
    return answer.status == 404 or "errors" not in answer.json()


def leaves_nothing(bed: Bed) -> bool:
    world = bed.start()
    world.process.terminate()
    world.wait()
    files = {path.name for path in world.directory.iterdir()}
    is_alone = not any(map(is_alive, marked_processes(world.cookie)))
    return is_alone and files == {"API.md", "world.toml", "world.log"}
