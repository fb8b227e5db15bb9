"""Flags over ``WORLD_*`` over defaults; a blank variable is unset."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from clawblox.server import Clock, Settings
from clawblox.server.launch_settings import SESSION_NONCE_ENV, read_settings

FULL = {
    "WORLD_HOST": "127.0.0.2",
    "WORLD_PORT": "9001",
    "WORLD_BASE_PATH": "/env/",
    "WORLD_RECORD": "1",
    "WORLD_RECORD_DIR": "/env/recordings",
    "WORLD_RESUME_PATH": "/env/snapshot.json",
    "WORLD_RESEED": "18446744073709551615",
    "WORLD_OPERATOR_TOKEN": "secret",
    "WORLD_SPECTATOR_TOKEN": "other secret",
    "CLAWBLOX_MANIFEST_PATH": "/env/.clawblox/manifest.json",
}


def test_without_flags_and_variables_the_defaults_apply():
    assert read_settings([], {}) == Settings()


def test_the_environment_gives_the_defaults():
    assert read_settings([], dict(FULL)) == Settings(
        host="127.0.0.2",
        port=9001,
        base_path="/env",
        record_dir=Path("/env/recordings"),
        resume_path=Path("/env/snapshot.json"),
        reseed=2**64 - 1,
        manifest_path=Path("/env/.clawblox/manifest.json"),
        operator_token=b"secret",
    )


def test_flags_override_the_environment():
    flags = (
        "--host ::1 --port 9002 --base-path flag --record --record-dir r --resume s.json --reseed 0"
    )
    assert read_settings([*flags.split(), "--clock", "lockstep"], dict(FULL)) == Settings(
        host="::1",
        port=9002,
        base_path="/flag",
        clock=Clock.LOCKSTEP,
        record_dir=Path("r"),
        resume_path=Path("s.json"),
        reseed=0,
        manifest_path=Path("/env/.clawblox/manifest.json"),
        operator_token=b"secret",
    )


def test_recording_can_be_switched_off_by_flag():
    assert read_settings(["--no-record"], dict(FULL)).record_dir is None


def test_flags_set_the_limits_of_clients():
    flags = ["--request-timeout", "2.5", "--answer-timeout", "7", "--max-connections", "3"]
    settings = read_settings(flags, {})
    assert (settings.request_timeout, settings.answer_timeout) == (2.5, 7.0)
    assert settings.max_connections == 3


@pytest.mark.parametrize(
    ("descriptors", "count"),
    [(128, 96), (1024, 768), (4096, 1000), (1, 1), (resource.RLIM_INFINITY, 1000)],
)
def test_connections_leave_descriptors_for_the_world(monkeypatch, descriptors, count):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert read_settings([], {}).max_connections == count


@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_a_blank_variable_is_unset(blank):
    assert read_settings([], dict.fromkeys(FULL, blank)) == Settings()


@pytest.mark.parametrize(
    ("text", "is_on"), [("1", True), ("true", True), ("0", False), ("No", False)]
)
def test_record_is_a_switch(text, is_on):
    settings = read_settings([], {"WORLD_RECORD": text})
    assert settings.record_dir == (Path("recordings") if is_on else None)


@pytest.mark.parametrize(
    ("argv", "environ", "complaint"),
    [
        (["--port", "65536"], {}, "--port: must be a port from 0 to 65535, not '65536'\n"),
        (["--port", "-1"], {}, "must be a port from 0 to 65535, not '-1'\n"),
        (["--port", "²"], {}, "must be a port from 0 to 65535, not '²'\n"),
        ([], {"WORLD_PORT": "http"}, "from 0 to 65535, not 'http' (from WORLD_PORT)\n"),
        (["--port", "x"], {"WORLD_PORT": "http"}, "from 0 to 65535, not 'x'\n"),
        ([], {"WORLD_RECORD": "maybe"}, "WORLD_RECORD must be 1 or 0, not 'maybe'"),
        (["--host", ""], {}, "must be an address, not an empty text"),
        (["--reseed", "-1"], {}, "must be a seed from 0 to 2**64-1, not '-1'\n"),
        (["--reseed", "1.0"], {}, "must be a seed from 0 to 2**64-1, not '1.0'\n"),
        ([], {"WORLD_RESEED": str(2**64)}, f"not '{2**64}' (from WORLD_RESEED)\n"),
        ([], {"WORLD_RESEED": "9" * 5000}, f"not '{'9' * 40}' (from WORLD_RESEED)\n"),
        ([], {"WORLD_RESEED": "random"}, "not 'random' (from WORLD_RESEED)\n"),
        (["--clock", "sundial"], {}, "sundial"),
        (["--request-timeout", "0"], {}, "must be a number of seconds above 0"),
        (["--request-timeout", "soon"], {}, "--request-timeout: must be a number of seconds"),
        (["--answer-timeout", "nan"], {}, "up to 86400, not 'nan'\n"),
        (["--answer-timeout", "inf"], {}, "up to 86400, not 'inf'\n"),
        (["--max-connections", "0"], {}, "must be a whole number above 0, not '0'\n"),
        (["--max-connections", "1.5"], {}, "must be a whole number above 0, not '1.5'\n"),
        (["--operator-token", "secret"], {}, "unrecognized arguments"),
        (["--res", "x"], {}, "unrecognized arguments"),
        (["extra"], {}, "unrecognized arguments"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(capsys, argv, environ, complaint):
    with pytest.raises(SystemExit) as exited:
        read_settings(argv, environ)
    assert exited.value.code == 2
    assert complaint in capsys.readouterr().err


def test_secrets_are_removed_from_the_environment():
    environ = {**FULL, SESSION_NONCE_ENV: "fixed"}
    assert read_settings([], environ).session_nonce == b"fixed"
    assert environ.keys() == FULL.keys() - {"WORLD_OPERATOR_TOKEN", "WORLD_SPECTATOR_TOKEN"}


def test_help_names_every_flag_and_no_token_flag(capsys):
    with pytest.raises(SystemExit):
        read_settings(["--help"], {})
    shown = capsys.readouterr().out
    for flag in (
        "--host",
        "--port",
        "--base-path",
        "--record",
        "--record-dir",
        "--resume",
        "--reseed",
        "--request-timeout",
        "--answer-timeout",
        "--max-connections",
    ):
        assert flag in shown
    assert "-token" not in shown
