"""An agent's program gets only listed variables of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.agents.programs import CLAUDE, CODEX, Program
from clawblox.agents.running.preparation import agent_environment, check_agent_env
from clawblox.errors import ConfigError

INHERITED = {
    "PATH": "/usr/bin",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "C",
    "TZ": "UTC",
    "HOME": "/root",
    "TERM": "xterm",
    "WORLD_OPERATOR_TOKEN": "canary-operator",
    "WORLD_SPECTATOR_TOKEN": "canary-spectator",
    "ANTHROPIC_API_KEY": "canary-anthropic",
    "OPENAI_API_KEY": "canary-openai",
    "AWS_SECRET_ACCESS_KEY": "canary-aws",
    "CLAUDECODE": "1",
    "CLAUDE_CODE_SSE_PORT": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAWBLOX_INSTANCE": "outer",
    "LD_PRELOAD": "/x.so",
}


def environment(program: Program = CLAUDE, **more):
    arguments = {"inherited": INHERITED, "home": Path("/a/home"), "own": {}, "given": {}}
    return agent_environment(program, cookie="c1", **{**arguments, **more})


def test_a_program_gets_only_the_listed_variables_and_its_own_key():
    assert environment() == {
        "PATH": "/usr/bin",
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "TZ": "UTC",
        "TERM": "dumb",
        "HOME": "/a/home",
        "ANTHROPIC_API_KEY": "canary-anthropic",
        "CLAWBLOX_INSTANCE": "c1",
    }


def test_variables_of_the_caller_override_the_driver_and_inherited_keys():
    own = {"A": "driver", "B": "driver", "ANTHROPIC_API_KEY": "driver"}
    env = environment(own=own, given={"A": "caller", "LANG": "C"})
    assert (env["A"], env["B"], env["ANTHROPIC_API_KEY"]) == ("caller", "driver", "driver")
    assert env["LANG"] == "C"


def test_a_key_of_another_program_is_left_out_even_if_the_caller_gives_it():
    env = environment(CODEX, given={"CLAUDE_CODE_OAUTH_TOKEN": "canary", "MINE": "1"})
    assert "canary" not in str(env).replace("canary-openai", "")
    assert env["MINE"] == "1"
    assert env["OPENAI_API_KEY"] == "canary-openai"


def test_a_program_with_unknown_keys_gets_all_variables():
    program = Program(
        driver="command",
        command="x",
        home_dir="",
        state_variable=None,
        id_pattern=CLAUDE.id_pattern,
    )
    env = environment(program, given={"ANTHROPIC_API_KEY": "meant"})
    assert env["ANTHROPIC_API_KEY"] == "meant"
    assert "OPENAI_API_KEY" not in env


@pytest.mark.parametrize(
    "name", ["HOME", "CLAUDE_CONFIG_DIR", "WORLD_OPERATOR_TOKEN", "CLAWBLOX_INSTANCE"]
)
def test_the_caller_cannot_set_variables_that_clawblox_sets_or_withholds(name):
    with pytest.raises(ConfigError, match=rf"env\.{name}"):
        check_agent_env({"FINE": "1", name: "/x"}, CLAUDE)
    check_agent_env({"FINE": "1", "CODEX_HOME": "/x"}, CLAUDE)


NAMES = st.text("ABCDEHLMOPRT_", min_size=1, max_size=8)


@pytest.mark.thorough
@given(st.dictionaries(NAMES, st.text()), st.dictionaries(NAMES, st.text()))
def test_only_listed_variables_are_inherited(inherited, given_env):
    env = environment(inherited=inherited, given=given_env)
    allowed = {"PATH", "LANG", "LANGUAGE", "TZ", *CLAUDE.credential_variables, *given_env}
    extra = {name for name in env if name not in allowed and not name.startswith("LC_")}
    assert extra == {"HOME", "TERM", "CLAWBLOX_INSTANCE"} - set(given_env)
