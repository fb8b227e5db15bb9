"""The requests that an agent may send; requests of the orchestrator cannot be allowed."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from clawblox import ConfigError, World
from clawblox.agents.access.grant import Policy
from clawblox.config.agent_routes import AgentRoute

API = {
    "doc_url_path": "/docs/world.md",
    "join": "/enter",
    "observe": "/look",
    "input": "/act",
    "session_header": "X-Session",
    "doc_path": "/worlds/x/API.md",
    "allow": ["GET /map", "GET /players/*", "DELETE /marks/*/note"],
}


def shown(policy: Policy) -> list[str]:
    return [str(route) for route in policy.routes]


def test_a_policy_contains_documented_routes_and_routes_added_by_the_world() -> None:
    assert shown(Policy.from_api(API)) == [
        "DELETE /marks/*/note",
        "GET /api.md",
        "GET /chat/messages",
        "GET /docs/world.md",
        "GET /look",
        "GET /map",
        "GET /players/*",
        "GET /skill.md",
        "POST /act",
        "POST /chat",
    ]


@pytest.mark.parametrize(
    ("method", "path", "is_allowed"),
    [
        ("GET", "/look", True),
        ("POST", "/look", False),
        ("get", "/look", False),
        ("GET", "/Look", False),
        ("GET", "/look/", False),
        ("GET", "/look/again", False),
        ("GET", "/observe", False),
        ("POST", "/act", True),
        ("GET", "/players/7", True),
        ("GET", "/players", False),
        ("GET", "/players/7/8", False),
        ("GET", "/players/..", False),
        ("DELETE", "/marks/3/note", True),
        ("DELETE", "/marks/3/4/note", False),
        ("GET", "/snapshot", False),
        ("POST", "/enter", False),
        ("POST", "/join", False),
    ],
)
def test_only_routes_in_the_table_are_allowed(method: str, path: str, is_allowed: bool) -> None:
    assert Policy.from_api(API).allows(method, path) is is_allowed


def test_a_policy_cannot_be_changed() -> None:
    policy = Policy.from_api(API)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        policy.routes = ()  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        policy.routes[0].path = "/snapshot"  # type: ignore[misc]


REFUSED = [
    "GET /snapshot",
    "GET /SNAPSHOT",
    "GET /Snapshot/latest",
    "GET /snapshot/*",
    "GET /snapshot.json",
    "POST /snapshot",
    "POST /join",
    "GET /join/again",
    "POST /leave",
    "DELETE /leave/now",
    "GET /*",
    "GET /*/snapshot",
    "GET /*/..",
    "GET /a/../snapshot",
    "GET /./snapshot",
    "GET //snapshot",
    "GET /a//b",
    "GET /a/",
    "GET /a/...",
    "GET /%73napshot",
    "GET /a;b",
    "GET /a?b",
    "GET /a#b",
    "GET /ä",
    "GET /a b",
    "GET /a\n",
    "GET a",
    "GET http://127.0.0.1/a",
    "GET",
    "GET ",
    "",
    "get /a",
    "CONNECT /a",
    "HEAD /a",
    "OPTIONS *",
    " GET /a",
    "GET  /a",
]


@pytest.mark.parametrize("text", REFUSED)
def test_an_ambiguous_route_or_one_of_the_orchestrator_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        AgentRoute.parse(text)


@pytest.mark.parametrize("text", ["GET /snapshots", "GET /joined", "GET /map/snapshot", "GET /"])
def test_a_route_that_resembles_one_of_the_orchestrator_is_allowed(text: str) -> None:
    assert str(AgentRoute.parse(text)) == text


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"observe": "/snapshot"}, "api.observe"),
        ({"input": "/leave"}, "api.input"),
        ({"doc_url_path": "/join/api.md"}, "api.doc_url_path"),
        ({"observe": "/observe?all=1"}, "api.observe"),
        ({"join": "/enter", "allow": ["POST /Enter/again"]}, "api.allow"),
        ({"join": "/session/new", "allow": ["POST /session/*"]}, "api.allow"),
    ],
)
def test_a_world_that_allows_a_route_of_the_orchestrator_is_an_error(
    entry: dict[str, object], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.from_api({**API, **entry})
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("value", "key", "words"),
    [
        ('"GET /map"', "api.allow", "a list of routes"),
        ("[7]", "api.allow[0]", "a method and a path"),
        ('["GET /map", "GET /snapshot"]', "api.allow[1]", "never given to agents"),
        ('["GET /map/"]', "api.allow[0]", "without '..' and a final '/'"),
    ],
)
def test_an_invalid_list_of_routes_is_an_error_when_the_world_is_read(
    tmp_path: Path, value: str, key: str, words: str
) -> None:
    (tmp_path / "world.toml").write_text(f'name = "x"\n[api]\nallow = {value}\n')
    with pytest.raises(ConfigError, match=words) as caught:
        World(dir=tmp_path)
    assert (caught.value.key, caught.value.line) == (key, 3)


def test_the_metadata_of_a_world_has_its_routes(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text('name = "x"\n[api]\nallow = ["GET /map"]\n')
    assert "GET /map" in shown(Policy.from_api(World(dir=tmp_path).api))
