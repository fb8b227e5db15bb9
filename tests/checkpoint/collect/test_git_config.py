"""The few settings of a repository that are read from its configuration."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.checkpoint.collect.git_config import GitConfig
from tests.checkpoint.repositories import git_env

VALUES = {
    "[core]\n\tsparseCheckout = true\n": ["true"],
    "[core]\nsparsecheckout=true\n": ["true"],
    "[CORE]\n  SparseCheckout = TRUE  # why\n": ["TRUE"],
    "[core] sparseCheckout = yes ; why\n": ["yes"],
    "[core]\n\tsparseCheckout\n": ["true"],
    "[core]\n\tsparseCheckout =\n": [""],
    '[core]\n\tsparseCheckout = "on"\n': ["on"],
    "[core]\r\n\tsparseCheckout = 1\r\n": ["1"],
    "\ufeff[core]\n\tsparseCheckout = off\n": ["off"],
    "# [core]\n[core]\n; x\n\tsparseCheckout = 0\n[core]\nsparseCheckout = 1": ["0", "1"],
    "[other]\n\tsparseCheckout = true\n": [],
    "sparseCheckout = true\n": [],
    '[core "sub"]\n\tsparseCheckout = true\n': [],
    "[core]\n\tx = a \\\nsparseCheckout = true\n": [],
    '[core]\n[x "\\"]\n\tsparseCheckout = true\n': [],
}


@pytest.mark.parametrize("text", VALUES, ids=repr)
def test_a_value_is_parsed(text: str) -> None:
    assert GitConfig.parse(text.encode()).values("core", "sparsecheckout") == VALUES[text]


@pytest.mark.needs("git")
@pytest.mark.parametrize("text", VALUES, ids=repr)
def test_git_parses_the_same_value(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_bytes(text.encode())
    command = ["git", "config", "--file", str(tmp_path / "config"), "--get-all"]
    done = subprocess.run(
        [*command, "core.sparseCheckout"], env=git_env(), capture_output=True, check=False
    )
    if done.returncode == 0:
        said = done.stdout.decode().splitlines()
        assert [value or "true" for value in said] == [value or "true" for value in VALUES[text]]
    else:
        assert VALUES[text] == []


@pytest.mark.parametrize(
    ("word", "flag"),
    [
        *dict.fromkeys(("true", "Yes", "ON", "1"), True).items(),
        *dict.fromkeys(("false", "no", "off", "0", ""), False).items(),
        *dict.fromkeys(("maybe", '"a\\"'), None).items(),
    ],
)
def test_a_boolean_is_parsed_like_in_git(word: str, flag: bool | None) -> None:
    config = GitConfig.parse(f"[index]\n\tsparse = {word}\n".encode())
    assert config.flag("index", "sparse") is flag


def test_a_subsection_keeps_its_case_and_includes_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "more").write_text('[remote "more"]\n\tpromisor = true\n')
    text = f'[include]\n\tpath = {tmp_path}/more\n[remote "Origin"]\n\turl = x\n'
    assert GitConfig.parse(text.encode()).subsections("remote") == ["Origin"]


@given(st.binary())
def test_arbitrary_bytes_are_parsed_without_an_error(data: bytes) -> None:
    GitConfig.parse(data).subsections("remote")


@settings(deadline=None)
@given(st.text('[]"\\\n=#; \tremote.x-1', max_size=200))
def test_text_that_resembles_a_configuration_is_parsed(text: str) -> None:
    for name in GitConfig.parse(text.encode()).subsections("remote"):
        assert "\n" not in name
