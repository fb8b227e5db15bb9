"""The wire contract: literals that others rely on, and parsing of foreign data."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import pprint
import string
import subprocess
from pathlib import Path

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.dev import ConsoleRenderer
from structlog.processors import JSONRenderer, KeyValueRenderer

from clawblox import protocol
from clawblox.protocol import (
    MASK,
    SECRET_ENV,
    MaskedEnvironment,
    WorldEnvironment,
    is_session_id,
    normalise_base_path,
    parse_join_answer,
)

WORLD = WorldEnvironment(
    host="127.0.0.1",
    port=8085,
    base_path="/w/7",
    record=True,
    record_dir=Path("/runs/r1/recordings"),
    resume_path=Path("/runs/r0/saved.json"),
    manifest_path=Path("/runs/r1/.clawblox/manifest.json"),
    clawblox_bin="/opt/bin/clawblox",
    operator_token="operator-canary",
    spectator_token="spectator-canary",
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)

# ---------------------------------------------------------------------------- environment


def test_a_world_gets_exactly_the_environment_of_the_contract() -> None:
    assert {**WORLD.public(), **WORLD.secrets()} == {
        "WORLD_HOST": "127.0.0.1",
        "WORLD_PORT": "8085",
        "WORLD_BASE_PATH": "/w/7",
        "WORLD_RECORD": "1",
        "WORLD_RECORD_DIR": "/runs/r1/recordings",
        "WORLD_RESUME_PATH": "/runs/r0/saved.json",
        "CLAWBLOX_MANIFEST_PATH": "/runs/r1/.clawblox/manifest.json",
        "CLAWBLOX_BIN": "/opt/bin/clawblox",
        "WORLD_OPERATOR_TOKEN": "operator-canary",
        "WORLD_SPECTATOR_TOKEN": "spectator-canary",
    }


def test_variables_that_do_not_apply_are_unset_except_a_blank_base_path() -> None:
    bare = attrs.evolve(WORLD, base_path="", record=False, record_dir=None, resume_path=None)
    public = bare.public()
    assert public["WORLD_RECORD"] == "0"
    gone = {"WORLD_RECORD_DIR", "WORLD_RESUME_PATH"}
    assert WORLD.public().keys() - public.keys() == gone
    assert [name for name, value in public.items() if not value] == ["WORLD_BASE_PATH"]


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_a_seed_is_passed_as_a_decimal_number(seed: int) -> None:
    told = attrs.evolve(WORLD, reseed=seed).public()
    assert told == {**WORLD.public(), "WORLD_RESEED": str(seed)}
    assert seed in protocol.SEEDS


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_has_64_bits_and_no_sign(seed: int) -> None:
    assert seed not in protocol.SEEDS


def test_public_and_secret_variables_are_separate() -> None:
    assert not WORLD.public().keys() & WORLD.secrets().keys()
    assert set(SECRET_ENV) == WORLD.secrets().keys()


REAL = {**WORLD.complete(), "MY_API_KEY": "canary", "COLOUR": "blue"}
MASKED = {name: MASK if "canary" in value else value for name, value in REAL.items()}


def test_a_masked_environment_and_its_copies_have_the_actual_values() -> None:
    env = MaskedEnvironment(REAL)
    assert env == REAL
    assert dict(env.items()) == {name: env[name] for name in env} == REAL
    assert list(env.values()) == list(REAL.values())
    assert env.get("MY_API_KEY") == "canary"
    more = {"MY_API_KEY": "other", "MORE": "1"}
    copies = [dict(env), {**env}, env.copy(), env | {}, {} | env]
    assert [type(copied) for copied in copies] == [dict] * len(copies)
    for copied in (*copies, copy.copy(env), copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert copied == REAL
    assert (env | more, more | env) == ({**REAL, **more}, {**more, **REAL})


def test_a_process_gets_the_actual_values_of_a_masked_environment() -> None:
    env = MaskedEnvironment({"PATH": os.environ["PATH"], "MY_API_KEY": "canary"})
    words = ["sh", "-c", "echo $MY_API_KEY"]
    assert subprocess.run(words, env=env, capture_output=True, check=True).stdout == b"canary\n"


def test_every_representation_of_a_masked_environment_is_masked() -> None:
    env = MaskedEnvironment(REAL)
    assert env.masked() == MASKED
    texts = [repr(env), str(env), f"{env}", pprint.pformat([env]), f"{[env]}"]
    texts.append(json.dumps({"env": env}, default=str))
    entry = {"event": "started", "env": env, "level": "info"}
    renderers = (ConsoleRenderer(colors=False), JSONRenderer(), KeyValueRenderer())
    texts.extend(str(render(None, "info", dict(entry))) for render in renderers)
    texts.append(logging.LogRecord("a", 20, "b", 1, "%s %r", (env, env), None).getMessage())
    for text in texts:
        assert MASK in text
        assert "canary" not in text
    with pytest.raises(TypeError, match="MaskedEnvironment"):
        json.dumps(env)


def test_no_representation_of_the_environment_shows_a_token() -> None:
    assert "canary" not in repr(WORLD)
    assert "canary" not in str(WORLD)


def test_the_literals_match_the_contract() -> None:
    assert [getattr(protocol, name) for name in dir(protocol) if name.endswith("_ROUTE")] == [
        "/skill.md",
        "/api.md",
        "/chat/messages",
        "/chat",
        "/health",
        "/input",
        "/join",
        "/leave",
        "/observe",
        "/replay",
        "/snapshot",
    ]
    assert (protocol.SESSION_HEADER, protocol.OPERATOR_HEADER) == ("X-Session", "X-Operator-Token")
    assert protocol.INSTANCE_ENV == "CLAWBLOX_INSTANCE"
    assert (protocol.LISTEN_FDS_ENV, protocol.LISTEN_PID_ENV) == ("LISTEN_FDS", "LISTEN_PID")
    assert protocol.LISTEN_FDNAMES_ENV == "LISTEN_FDNAMES"
    assert (protocol.LISTEN_FD, protocol.LISTEN_FD_NAME) == (3, "world")
    assert protocol.DEFAULT_SNAPSHOT_FORMAT == "world-snapshot"


# ---------------------------------------------------------------------------------- /join


def test_a_join_answer_is_kept_whole() -> None:
    fields = {"session": "s1", "agent_id": "agent-1", "spawn": {"x": 1.5}}
    answer = parse_join_answer(json.dumps(fields).encode())
    assert (answer.session, answer.agent_id, answer.fields) == ("s1", "agent-1", fields)


@pytest.mark.parametrize("agent_id", [{}, {"agent_id": None}, {"agent_id": 7}])
def test_a_join_answer_need_not_contain_an_agent_id(agent_id: dict[str, object]) -> None:
    answer = parse_join_answer(json.dumps({"session": "s1", **agent_id}).encode())
    assert answer.agent_id == ""


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "is not JSON"),
        (b"welcome!", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'"s1"', "is not a JSON object"),
        (b'["s1"]', "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b"{}", "has no usable 'session'"),
        (b'{"session": null}', "has no usable 'session'"),
        (b'{"session": 7}', "has no usable 'session'"),
        (b'{"session": ""}', "has no usable 'session'"),
        (b'{"session": "two\\r\\nlines"}', "has no usable 'session'"),
        (b'{"session": "caf\xc3\xa9"}', "has no usable 'session'"),
    ],
)
def test_the_error_describes_an_unusable_join_answer(body: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_join_answer(body)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
@example(b"1" * 5000)
def test_every_join_answer_is_usable_or_refused(body: bytes) -> None:
    try:
        answer = parse_join_answer(body)
    except ValueError:
        return
    assert is_session_id(answer.session)
    assert answer.fields["session"] == answer.session


# ------------------------------------------------------------------------------- sessions


@pytest.mark.parametrize("text", ["s", "0f3a-77", "a" * 512, "!~", "Bearer/+=="])
def test_a_session_id_is_visible_ascii(text: str) -> None:
    assert is_session_id(text)


@pytest.mark.parametrize("text", ["", " ", "a b", "a\n", "\ta", "é", "\x7f", "\x00", "a" * 513])
def test_a_text_unfit_for_a_header_is_not_a_session_id(text: str) -> None:
    assert not is_session_id(text)


@given(st.text())
def test_a_session_id_is_unchanged_in_a_header(text: str) -> None:
    visible = set(string.ascii_letters + string.digits + string.punctuation)
    assert is_session_id(text) == (0 < len(text) <= 512 and set(text) <= visible)


# -------------------------------------------------------------------------------- base path


@pytest.mark.parametrize(
    ("given_path", "normal"),
    [
        ("", ""),
        ("/", ""),
        ("//", ""),
        ("w", "/w"),
        ("/w/", "/w"),
        ("w//7/", "/w/7"),
        ("/w/7", "/w/7"),
    ],
)
def test_a_base_path_is_normalised_to_one_form(given_path: str, normal: str) -> None:
    assert normalise_base_path(given_path) == normal


@given(st.text(alphabet="/ab.", max_size=20))
def test_a_normal_base_path_stays_and_joins_cleanly(text: str) -> None:
    normal = normalise_base_path(text)
    assert normalise_base_path(normal) == normal
    joined = f"{normal}/api.md"
    assert joined.startswith("/")
    assert joined.endswith("/api.md")
    assert "//" not in joined
    assert [p for p in joined.split("/") if p] == [*(p for p in text.split("/") if p), "api.md"]
