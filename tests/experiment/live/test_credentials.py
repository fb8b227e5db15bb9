"""The variables of agents, and the names of their accounts."""

from __future__ import annotations

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment.live.credentials import Credentials
from clawblox.experiment.plan import AgentSpec

TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"
SECRET = "s3cret-s3cret"
EKO = AgentSpec("claude", name="Eko", env=[TOKEN, "LANG"])


def test_an_agent_gets_only_the_variables_named_in_the_plan() -> None:
    credentials = Credentials({TOKEN: SECRET, "LANG": "C", "OTHER": "x"}, inherited={})
    assert credentials.env(EKO) == {TOKEN: SECRET, "LANG": "C"}
    assert credentials.secrets(EKO) == [SECRET]
    assert SECRET not in repr(credentials)


def test_an_agent_gets_the_login_of_its_program_if_this_process_lacks_it() -> None:
    eko, moa = AgentSpec("claude", name="Eko"), AgentSpec("codex", name="Moa")
    credentials = Credentials({TOKEN: SECRET, "OTHER": "x"}, inherited={})
    assert (credentials.env(eko), credentials.env(moa)) == ({TOKEN: SECRET}, {})
    assert credentials.secrets(eko) == [SECRET]
    assert credentials.account(eko) == f"claude {TOKEN}"
    assert Credentials({TOKEN: SECRET}, inherited={TOKEN: SECRET}).env(eko) == {}


def test_a_secret_too_short_to_search_for_does_not_prevent_checkpoints() -> None:
    assert Credentials({TOKEN: "x", "LANG": "C"}, inherited={}).secrets(EKO) == []


def test_a_variable_without_a_value_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=TOKEN) as raised:
        Credentials({"LANG": "C"}, inherited={}).env(EKO)
    assert raised.value.key == "agents.Eko.env"


def test_an_account_is_a_program_an_address_and_a_credential() -> None:
    inherited = {
        "ANTHROPIC_BASE_URL": "https://me:pw@models.example:8443/v1",
        "OPENAI_API_KEY": "other",
    }
    credentials = Credentials({TOKEN: SECRET}, inherited=inherited)
    assert credentials.account(EKO) == f"claude at models.example {TOKEN}"
    assert credentials.account(AgentSpec("codex", name="Moa")) == "codex OPENAI_API_KEY"
    assert Credentials({}, inherited={}).account(EKO) == "claude"
    strange = Credentials({}, inherited={"ANTHROPIC_BASE_URL": "http://[::"})
    assert strange.account(EKO) == "claude at ?"


def test_different_values_of_a_variable_are_different_accounts() -> None:
    variables: dict[str, str] = {}
    credentials = Credentials(variables, inherited={})
    names = []
    for value in ("one", "two", "one"):
        credentials._values[TOKEN] = value
        names.append(credentials.account(EKO))
    assert names == [f"claude {TOKEN}", f"claude {TOKEN}#2", f"claude {TOKEN}"]
