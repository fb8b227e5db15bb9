"""The login of Claude Code in ``.env``, read as the public generation script reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment.harness.options import read_login

NAME = "CLAUDE_CODE_OAUTH_TOKEN"
SECRET = "sk-ant-oat-0001"


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str | bytes, name: str = ".env") -> Path:
    path = Path(name)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"{NAME}={SECRET}\n", SECRET),
        (f"{NAME}={SECRET}", SECRET),
        (f"  export   {NAME}= '{SECRET}' \r\n", SECRET),
        (f'{NAME}="{SECRET}"\n{NAME}=second\n', SECRET),
        (f"OTHER=1\n\n# {NAME}=old\n{NAME}={SECRET}\n", SECRET),
        (f"{NAME}=a=b #c\n", "a=b #c"),
        (f"\ufeff{NAME}={SECRET}\n", None),
        (f"{NAME}=\n{NAME}={SECRET}\n", None),
        (f"{NAME} = {SECRET}\n", None),
        (f"{NAME}\n", None),
        (f"MY_{NAME}={SECRET}\n", None),
        ("", None),
    ],
)
def test_the_first_line_with_the_variable_counts(text: str, value: str | None) -> None:
    write(text)
    assert read_login({}) == ({} if value is None else {NAME: value})


def test_the_environment_takes_precedence_over_the_file() -> None:
    write(f"{NAME}={SECRET}")
    assert read_login({NAME: "own"}) == {}
    assert read_login({NAME: ""}) == {NAME: SECRET}


def test_a_variable_can_name_another_file() -> None:
    write(f"{NAME}=usual")
    write(f"{NAME}={SECRET}", "keys")
    Path("link").symlink_to("keys")
    for name in ("keys", "link", str(Path("keys").absolute())):
        assert read_login({"CLAWBLOX_ENV_FILE": name}) == {NAME: SECRET}
    assert read_login({"CLAWBLOX_ENV_FILE": ""}) == {NAME: "usual"}


def test_the_usual_file_may_be_missing_or_a_directory() -> None:
    assert read_login({}) == {}
    Path(".env").mkdir()  # a virtual environment
    assert read_login({}) == {}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.mkdir(), "cannot be read: "),
        (os.mkfifo, "cannot be read: is not a regular file"),
        (lambda path: path.symlink_to(path), "cannot be read: "),
        (lambda path: path.symlink_to("/dev/zero"), "cannot be read: "),
        (lambda path: os.close(os.open(path, os.O_CREAT)) or os.truncate(path, 1 << 40), "larger"),
        (lambda path: path.write_bytes(b"\xff" + SECRET.encode()), "is not UTF-8"),
    ],
    ids=["missing", "directory", "pipe", "loop", "device", "huge", "binary"],
)
def test_a_file_that_cannot_be_read_is_refused_without_its_content(make, text: str) -> None:
    path = Path("keys")
    make(path)
    with pytest.raises(ConfigError) as caught:
        read_login({"CLAWBLOX_ENV_FILE": "keys"})
    shown = str(caught.value)
    assert text in shown
    assert "keys" in shown
    assert "CLAWBLOX_ENV_FILE names the file" in shown
    assert SECRET not in shown
    assert caught.value.__context__ is None or SECRET not in repr(caught.value.__context__)
