"""Reading world.toml: values, errors, and the positions that errors name."""

import contextlib
import datetime
import os
import string
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from clawblox import World
from clawblox.config import schema
from clawblox.config.world_toml import (
    LivenessRule,
    ReadyRule,
    Sidecar,
    WorldConfig,
    read_world_config,
)
from clawblox.errors import ConfigError

EVERY_KEY = """
name = "Panda table"
description = "A robot arm."
max_players = 4
afk_timeout = 300
game_type = "lua"
colour = "unknown keys stay"

[runtime]
mode = "external"

[run]
command = ["bash", "-lc", "exec ./server"]
note = "kept"
listen = "inherit"
reseed = true

[run.ready]
log = "listening on .*"
interval = 0.05

[run.liveness]
path = "/alive"
period = 2.5
timeout = 2
failure_threshold = 1

[[run.sidecar]]
name = "spectator"
command = ["python", "spectate.py"]

[[run.sidecar]]
name = "bridge-2"
command = ["./bridge"]

[limits]
memory = "1.5 GiB"

[scripts]
main = "main.luau"
tree = "scripts"
skill = "SKILL.md"

[renderer]
name = "World Renderer"
api_version = 1

[observation]
radius = 40

[speech]
mode = "proximity"
hearing_radius = 7.5

[agent_api]
allow_reset = true

[clawblox]
player_object_physics = true

[replay]
command = ["replay", "{recording}", "--port", "{port}"]

[agent]
source_workspace = false
server_source = "../../server.py"

[transport]
type = "dds"

[sandbox]
deps_root = "/opt/deps"
enable_weaker_nested_sandbox = true
add_deps_lib_to_library_path = false
allow_loopback = true

[api]
observe = "/look"
extra = 1
"""


def read(root: Path, text: str) -> WorldConfig:
    (root / "world.toml").write_text(text, encoding="utf-8")
    return read_world_config(root)


def refusal(root: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(root, text)
    return caught.value


# --- values ---------------------------------------------------------------------------------


def test_known_keys_are_read_and_unknown_keys_kept(tmp_path):
    world = read(tmp_path, EVERY_KEY)
    assert world.name == "Panda table"
    assert world.description == "A robot arm."
    assert world.config["colour"] == "unknown keys stay"
    assert world.run["note"] == "kept"
    assert world.runtime == {"mode": "external"}
    assert world.renderer == {"name": "World Renderer", "api_version": 1}
    assert world.scripts["main"] == "main.luau"
    assert world.run_command == ["bash", "-lc", "exec ./server"]
    assert world.start_command == world.run_command
    assert world.run_command is not None
    assert world.ready == ReadyRule(log="listening on .*", interval=0.05)
    assert world.liveness == LivenessRule("/alive", 2.5, 2, 1)
    assert world.inherits_listener
    assert world.takes_reseed
    assert world.memory_limit_bytes == 3 << 29
    assert world.sidecars == (
        Sidecar("spectator", ("python", "spectate.py")),
        Sidecar("bridge-2", ("./bridge",)),
    )
    assert world.config["replay"]["command"][1] == "{recording}"


def test_a_world_toml_with_only_a_name_has_the_defaults(tmp_path):
    world = read(tmp_path, 'name = "Small"')
    assert world.config == {"name": "Small"}
    assert world.description is None
    assert (world.scripts, world.renderer, world.runtime, world.run) == ({}, {}, {}, {})
    assert world.run_command is None
    assert world.run_command is None
    assert world.start_command == ["clawblox", "run", str(tmp_path)]
    assert world.sidecars == ()
    assert world.is_engine_world
    assert world.ready == ReadyRule(path="/health", log=None, interval=None)
    assert world.liveness == LivenessRule("/health", timeout=10.0)
    assert world.memory_limit_bytes is None
    assert world.inherits_listener
    assert world.takes_reseed


@pytest.mark.parametrize(
    "text", ['run.command = ["./run"]', 'run.command = ["./run"]\nruntime.mode = "clawblox"']
)
def test_a_world_with_a_command_is_not_an_engine_world(tmp_path, text):
    world = read(tmp_path, f'name = "w"\n{text}')
    assert not world.is_engine_world
    assert world.ready == ReadyRule(path="/api.md", log=None, interval=None)
    assert not world.inherits_listener
    assert not world.takes_reseed


def test_an_external_world_without_a_command_is_not_an_engine_world(tmp_path):
    world = read(tmp_path, 'name = "w"\nruntime.mode = "external"')
    assert (world.is_external, world.is_engine_world, world.run_command) == (True, False, None)


@pytest.mark.parametrize("table", ["[run.liveness]", "[run]\nliveness = {}"])
def test_a_world_with_a_command_is_probed_only_if_liveness_is_set(tmp_path, table):
    external = 'name = "w"\nruntime.mode = "external"\n'
    assert read(tmp_path, external).liveness is None
    rule = read(tmp_path, f"{external}{table}\n").liveness
    assert rule == LivenessRule("/api.md", period=10.0, timeout=1.0, failure_threshold=3)


def test_a_liveness_table_with_only_listener_enables_no_probes(tmp_path):
    world = read(tmp_path, 'name = "w"\nruntime.mode = "external"\nrun.liveness.listener = false')
    assert (world.liveness, world.watches_listener) == (None, False)
    both = read(tmp_path, 'name = "w"\n[run.liveness]\nlistener = false\nperiod = 2')
    assert both.liveness == LivenessRule("/health", period=2, timeout=10.0)
    assert read(tmp_path, 'name = "w"').watches_listener


def test_the_liveness_table_of_an_engine_world_overrides_defaults(tmp_path):
    rule = read(tmp_path, 'name = "w"\n[run.liveness]\nperiod = 2').liveness
    assert rule == LivenessRule("/health", period=2, timeout=10.0)


@pytest.mark.parametrize(("listen", "inherits"), [("bind", False), ("inherit", True)])
def test_a_world_binds_its_port_unless_it_inherits_a_listener(tmp_path, listen, inherits):
    world = read(tmp_path, f'name = "w"\nrun.listen = "{listen}"')
    assert world.inherits_listener is inherits


@pytest.mark.parametrize("takes", [True, False])
def test_reseeding_needs_an_explicit_declaration(tmp_path, takes):
    assert read(tmp_path, f'name = "w"\nrun.reseed = {takes}'.lower()).takes_reseed is takes


def test_the_agent_api_is_known_before_a_launch(tmp_path):
    assert read(tmp_path, 'name = "w"').api == {
        "doc_path": str(tmp_path / "API.md"),
        "doc_url_path": "/api.md",
        "join": "/join",
        "observe": "/observe",
        "input": "/input",
        "session_header": "X-Session",
    }


def test_the_api_table_overrides_and_adds_routes(tmp_path):
    text = 'name = "w"\n[scripts]\nskill = "S.md"\n[api]\nobserve = "/look"\nextra = 1\n'
    world = read(tmp_path, text)
    assert world.api["observe"] == "/look"
    assert world.api["extra"] == 1
    assert world.api["doc_path"] == str(tmp_path / "S.md")
    other = read(tmp_path, text + 'doc_path = "docs/agents.md"\n')
    assert other.api_doc_path == tmp_path / "docs" / "agents.md"
    assert other.api["doc_path"] == str(other.api_doc_path)


def test_the_api_document_is_scripts_skill_or_else_api_md(tmp_path):
    assert read(tmp_path, 'name = "w"').api_doc_path == tmp_path / "API.md"
    named = read(tmp_path, 'name = "w"\nscripts.skill = "SKILL.md"')
    assert named.api_doc_path == tmp_path / "SKILL.md"


def test_the_template_environment_names_its_values(tmp_path):
    env = read(tmp_path, 'name = "w"').start_env
    assert env["WORLD_PORT"] == "{port}"
    assert env["WORLD_RECORD_DIR"] == "{record_dir}"
    assert set(env) == {
        *(
            f"WORLD_{name}"
            for name in (
                *("HOST", "PORT", "BASE_PATH", "RECORD", "RECORD_DIR", "RESUME_PATH"),
                *("OPERATOR_TOKEN", "SPECTATOR_TOKEN"),
            )
        ),
        "CLAWBLOX_MANIFEST_PATH",
        "CLAWBLOX_BIN",
    }


def test_changes_to_a_returned_table_do_not_affect_the_config(tmp_path):
    world = read(tmp_path, EVERY_KEY)
    world.start_env["WORLD_PORT"] = "1"
    world.start_command.append("x")
    world.api["join"] = "/x"
    assert world.start_env["WORLD_PORT"] == "{port}"
    assert world.start_command == world.run_command
    assert world.api["join"] == "/join"


def test_the_config_is_made_of_plain_values(tmp_path):
    text = EVERY_KEY + "\n[more]\nwhen = 2026-06-22T18:59:25Z\nday = 2026-06-22\nat = 18:59:25\n"
    plain = {dict, list, str, int, float, bool}
    plain |= {datetime.datetime, datetime.date, datetime.time}

    def walk(value):
        assert type(value) in plain, type(value)
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            for item in inner:
                walk(item)

    walk(read(tmp_path, text).config)


@pytest.mark.parametrize("head", ["", "\ufeff"])
def test_windows_line_ends_and_byte_order_marks_are_read(tmp_path, head):
    (tmp_path / "world.toml").write_bytes(f'{head}name = "w"\r\n[run]\r\n'.encode())
    assert read_world_config(tmp_path).name == "w"


def test_a_relative_directory_becomes_absolute(tmp_path, monkeypatch):
    (tmp_path / "world.toml").write_text('name = "w"')
    monkeypatch.chdir(tmp_path.parent)
    assert read_world_config(Path(tmp_path.name)).dir == tmp_path
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    assert read_world_config(link).dir == tmp_path


# --- unreadable files -----------------------------------------------------------------------


def test_the_error_names_a_missing_directory(tmp_path):
    with pytest.raises(ConfigError, match="directory does not exist") as caught:
        read_world_config(tmp_path / "nowhere")
    assert caught.value.path == tmp_path / "nowhere"


def test_a_path_below_a_file_counts_as_missing(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(ConfigError, match="does not exist"):
        read_world_config(tmp_path / "f" / "w")


def test_the_path_of_the_world_toml_itself_is_refused(tmp_path):
    (tmp_path / "world.toml").write_text('name = "w"')
    with pytest.raises(ConfigError, match="a file, not a directory") as caught:
        read_world_config(tmp_path / "world.toml")
    assert "directory that holds" in str(caught.value)


def test_a_directory_without_the_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no world\.toml") as caught:
        read_world_config(tmp_path)
    assert caught.value.path == tmp_path


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    (tmp_path / "world.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read: is not a regular file"):
        read_world_config(tmp_path)


def test_a_loop_of_symbolic_links_is_refused(tmp_path):
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(ConfigError):
        read_world_config(tmp_path / "loop")


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path):
    (tmp_path / "world.toml").write_bytes(b'name = "w"\n# caf\xe9\n')
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        read_world_config(tmp_path)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('name = "w"\nfoo bar\n', 2),
        ('name = "w"\nname = "x"\n', 2),
        ('name = "w"\n\nmax_players = \n', 3),
        ("a = 2026-13-01", 1),
        ("[a]\nb = 1\n[a.b]\nc = 2\n", 3),
        ("a = " + "9" * 5000, None),
    ],
)
def test_a_syntax_error_is_a_config_error_with_the_parsers_line(tmp_path, text, line):
    error = refusal(tmp_path, text)
    assert "not TOML" in error.message
    assert (error.path, error.line) == (tmp_path / "world.toml", line)


def test_endless_nesting_is_a_config_error(tmp_path):
    assert "not TOML" in refusal(tmp_path, "a = " + "[" * 5000).message


TOML_LIKE = st.text(alphabet="ab.=[]{}\"'#\\ \n\r,1-:TZ\0\ud7ff_xu" + string.digits, max_size=60)


@given(TOML_LIKE)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_is_a_world_or_a_config_error(tmp_path, text):
    (tmp_path / "world.toml").write_text('name = "w"\n' + text, encoding="utf-8", newline="")
    with contextlib.suppress(ConfigError):
        read_world_config(tmp_path)


# --- invalid values -------------------------------------------------------------------------

WRONG = {
    "name": ["5", '""', '"a\\u0000b"', "[]"],
    "description": ["5", "true"],
    "max_players": ["0", "-1", "2.5", "true", '"4"'],
    "afk_timeout": ["-1", "inf", "nan", "true", '"300"', "1" + "0" * 400],
    "game_type": ["1"],
    "runtime": ["5", "[]"],
    "runtime.mode": ['"mujoco"', "1"],
    "run": ["5", "[]", '"./x"'],
    "run.command": ['"bash run.sh"', "[]", "5", "{a = 1}"],
    "run.sidecar": ["5", "{name = 'a', command = ['x']}"],
    "run.ready": ["5", "[]"],
    "run.ready.path": ['"api.md"', '""', '"/a b"', "5", '"/é"'],
    "run.ready.log": ['"("', '""', "5", '"a{99999999999}"'],
    "run.liveness": ["5", "true", "[]", "[{}]"],
    "run.liveness.path": ['"api.md"', '""', "5"],
    "run.liveness.period": ["0", "-1", "inf", "nan", '"10"', "true"],
    "run.liveness.timeout": ["0", "-1", "inf", "nan", '"1"', "true"],
    "run.liveness.failure_threshold": ["0", "-1", "1.5", "true", '"3"'],
    "run.liveness.listener": ['"no"', "0", "[]"],
    "limits.memory": ["0", "-5", "1.5", "true", '"2"', '"2G"', '"much"'],
    "run.listen": ['"socket"', '""', '"INHERIT"', "true", "3"],
    "run.reseed": ['"yes"', "1", "[]"],
    "run.ready.interval": ["0", "-1", "inf", "nan", '"1"', "true"],
    "scripts": ['"main.lua"'],
    "scripts.main": ["5", '""'],
    "scripts.tree": ["5", '""'],
    "scripts.skill": ["5", '""'],
    "renderer": ['"x"'],
    "observation": ["40"],
    "observation.radius": ["0", "-40", "inf", "-inf", "nan", "true", '"40"'],
    "speech": ['"global"'],
    "speech.mode": ['"loud"', "1"],
    "speech.hearing_radius": ["0", "nan", '"30"'],
    "physics.gravity": ["1000001", "-inf", '"30"', "true"],
    "agent_api": ["true"],
    "agent_api.allow_reset": ['"yes"', "1"],
    "clawblox": ["1"],
    "replay": ['"x"'],
    "replay.command": ['"replay {recording}"', "[]"],
    "agent": ["1"],
    "agent.source_workspace": ['"yes"', "1"],
    "agent.server_source": ["true", '""'],
    "transport": ['"dds"'],
    "transport.type": ["1"],
    "sandbox": ["true"],
    "sandbox.deps_root": ["1"],
    "sandbox.enable_weaker_nested_sandbox": ["1"],
    "sandbox.add_deps_lib_to_library_path": ["'x'"],
    "sandbox.allow_loopback": ["0"],
    "api": ['"/api.md"'],
    "api.doc_path": ["5", '""'],
    "api.doc_url_path": ['"api.md"'],
    "api.join": ["5"],
    "api.observe": ['"/a b"'],
    "api.input": ['""'],
    "api.session_header": ['"X Session"', '"X:Y"', "1"],
}


@pytest.mark.parametrize("key", WRONG)
def test_the_error_for_an_invalid_value_names_file_key_value_and_line(tmp_path, key):
    named = "" if key == "name" else 'name = "w"\n'
    for value in WRONG[key]:
        error = refusal(tmp_path, f"# first\n{named}{key} = {value}\n")
        assert error.key == key, value
        assert error.line == (2 if key == "name" else 3), value
        assert error.path == tmp_path / "world.toml"
        assert error.value is not None, value
        assert f"{tmp_path / 'world.toml'}:{error.line}" in str(error)
        assert str(error).startswith(f"{key}: ")


@pytest.mark.parametrize("key", ["run.command", "replay.command"])
@pytest.mark.parametrize("wrong", ["5", '""', "[]", "true", '"a\\u0000"'])
def test_the_error_names_an_invalid_word_of_a_command_by_index(tmp_path, key, wrong):
    error = refusal(tmp_path, f'name = "w"\n{key} = ["bash", {wrong}]\n')
    assert (error.key, error.line) == (f"{key}[1]", 2)


def test_a_missing_name_is_refused(tmp_path):
    error = refusal(tmp_path, "[run]\n")
    assert (error.key, error.value, error.line) == ("name", None, None)
    assert str(error).startswith("name: missing")


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ('name = "a"', "run.sidecar[1].command"),
        ('command = ["x"]', "run.sidecar[1].name"),
        ('name = "a"\ncommand = "x"', "run.sidecar[1].command"),
        ('name = "a"\ncommand = ["x", 5]', "run.sidecar[1].command[1]"),
        ('name = 5\ncommand = ["x"]', "run.sidecar[1].name"),
        ('name = []\ncommand = ["x"]', "run.sidecar[1].name"),
        ('name = "first"\ncommand = ["x"]', "run.sidecar[1].name"),
    ],
)
def test_the_error_names_an_invalid_sidecar_by_index(tmp_path, entry, key):
    first = 'name = "w"\n[[run.sidecar]]\nname = "first"\ncommand = ["x"]\n'
    error = refusal(tmp_path, f"{first}[[run.sidecar]]\n{entry}\n")
    assert error.key == key
    assert error.line in (5, 6, 7)


@pytest.mark.parametrize(
    "name", ["", "a b", "a.b", "a:b", "0", "-x", "@1", "world-0", "agent-0-1", "é", "a" * 65]
)
def test_a_reserved_sidecar_name_is_refused(tmp_path, name):
    error = refusal(tmp_path, f'name = "w"\n[[run.sidecar]]\nname = "{name}"\ncommand = ["x"]\n')
    assert (error.key, error.line) == ("run.sidecar[0].name", 3)


@pytest.mark.parametrize("name", ["spectator", "a", "A_b-2", "worldly", "world-0x"])
def test_an_ordinary_sidecar_name_is_accepted(tmp_path, name):
    text = f'name = "w"\n[[run.sidecar]]\nname = "{name}"\ncommand = ["x"]\n'
    assert read(tmp_path, text).sidecars[0].name == name


def test_readiness_by_path_and_by_log_exclude_each_other(tmp_path):
    error = refusal(tmp_path, 'name = "w"\n[run.ready]\npath = "/up"\nlog = "up"\n')
    assert (error.key, error.line) == ("run.ready.log", 4)


def test_unknown_keys_next_to_known_keys_are_kept(tmp_path):
    world = read(tmp_path, 'name = "w"\n[run.ready]\npath = "/up"\nlater = 1\n[clawblox]\na.b = 1')
    assert world.ready == ReadyRule(path="/up")
    assert world.run["ready"]["later"] == 1
    hung = read(tmp_path, 'name = "w"\n[run.liveness]\nperiod = 1\ninitial_delay = 5')
    assert hung.liveness == LivenessRule("/health", period=1, timeout=10.0)
    assert hung.run["liveness"]["initial_delay"] == 5
    assert world.config["clawblox"] == {"a": {"b": 1}}


def keys_of(table, *parents):
    for key, check in getattr(table, "checks", {}).items():
        yield (*parents, key)
        yield from keys_of(getattr(check, "table", check), *parents, key)


def test_every_key_that_is_checked_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "world-toml.md").read_text()
    for keys in keys_of(schema.SCHEMA):
        assert any(f"`{key}`" in page or f"`{key}." in page for key in (".".join(keys), keys[-1]))


# --- lines of faults ------------------------------------------------------------------------

PLACES = {
    "dotted key": ('name = "w"\n\nrun.command = "x"\n', 3),
    "spaced and quoted key": ('name = "w"\n  "run" . \'command\' = "x"\n', 2),
    "dotted below a table": ('name = "w"\n[run]\n# c\nready.log = 5\n', 4),
    "inline table": ('name = "w"\nrun = { a = 1, command = "x" }\n', 2),
    "multi-line array": ('name = "w"\n[run]\n# c\ncommand = [\n  "a", # ]\n  5,\n]\n', 4),
    "after a multi-line array": ('name = "w"\na = [\n 1,\n [2,\n 3]]\n[run]\ncommand = 5\n', 7),
    "after a multi-line string": (
        'name = "w"\na = """\n[run]\ncommand = 1 \\" ""\n"""""\n[run]\ncommand = 5\n',
        7,
    ),
    "after a literal string": (
        "name = 'w'\na = '''\n[\"\"\"\n#'' \n'''\nb = '#['\n[run]\ncommand = 5\n",
        8,
    ),
    "after brackets in strings": ('name = "w"\na = "[{\\""\nb = \'[{"\'\nrun.command = 5\n', 4),
    "second array table": (
        (
            'name = "w"\n[[run.sidecar]]\nname="a"\ncommand=["x"]\n#\n'
            '[[run.sidecar]]\nname=5\ncommand=["x"]\n'
        ),
        7,
    ),
    "missing in the second array table": (
        'name = "w"\n[[run.sidecar]]\nname = "a"\ncommand = ["x"]\n\n[[run.sidecar]]\nname="b"\n',
        6,
    ),
    "table out of order": (
        'name = "w"\n[run.ready]\nlog = "x"\n[api]\n[run]\n\ncommand = 5\n',
        7,
    ),
    "after an inline table": ("a = { b = { c = [1] } }\nname = 5\n", 2),
    "no newline at the end": ('name = "w"\nmax_players = 0', 2),
    "windows line ends": ('name = "w"\r\n\r\nmax_players = 0\r\n', 3),
    "form feed in a string": ('name = "w"\na = "\u2028\u0085"\nmax_players = 0', 3),
}


@pytest.mark.parametrize(("text", "line"), PLACES.values(), ids=PLACES)
def test_a_fault_has_the_line_where_its_statement_starts(tmp_path, text, line):
    (tmp_path / "world.toml").write_bytes(text.encode())
    with pytest.raises(ConfigError) as caught:
        read_world_config(tmp_path)
    assert caught.value.line == line


FILLERS = st.sampled_from(
    [
        "",
        '# a = [ "',
        "a{n} = 1",
        "a{n}.b.c = '#'",
        "a{n} = [\n  [1], # ]\n  [2],\n]",
        'a{n} = """\n]]\n""" # "',
        "a{n} = '''\nb = \"\n'''",
        "a{n} = {{ b = [1, {{}}] }}",
    ]
)


@given(before=st.lists(FILLERS, max_size=6), after=st.lists(FILLERS, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_line_is_right_among_any_other_statements(tmp_path, before, after):
    statements = ['name = "w"', *before, "max_players = [\n0,\n]", *after]
    text = "\n".join(part.format(n=n) for n, part in enumerate(statements))
    error = refusal(tmp_path, text)
    assert error.key == "max_players"
    assert text.split("\n")[error.line - 1] == "max_players = ["


# --- unknown keys that look misspelled ------------------------------------------------------


MISSPELLED = {
    "at the top": ('descripton = "x"', 2, "descripton: did you mean description?"),
    "of a table": ('[run]\ncomand = ["x"]', 3, "run.comand: did you mean command?"),
    "a table": ('[runn]\ncommand = ["x"]', 2, "runn: did you mean run?"),
    "in a rule": ("[run.ready]\nintervall = 1", 3, "run.ready.intervall: did you mean interval?"),
    "in another rule": (
        "[run.liveness]\nfailure_treshold = 1",
        3,
        "run.liveness.failure_treshold: did you mean failure_threshold?",
    ),
    "a table after a sidecar": (
        '[[run.sidecar]]\nname = "a"\ncommand = ["x"]\n[run.redy]\nlog = "x"',
        5,
        "run.redy: did you mean ready?",
    ),
    "of another style": ("max-players = 3", 2, "max-players: did you mean max_players?"),
    "two letters swapped": ('[runtime]\nmoed = "external"', 3, "runtime.moed: did you mean mode?"),
    "with an escape sequence": (
        '[speech]\n"hearing_radius\\u001b" = 1',
        3,
        "speech.hearing_radius\\x1b: did you mean hearing_radius?",
    ),
}


@pytest.mark.parametrize(("text", "line", "warning"), MISSPELLED.values(), ids=MISSPELLED)
def test_a_misspelled_unknown_key_is_kept_with_a_warning(tmp_path, text, line, warning):
    with capture_logs() as logs:
        world = read(tmp_path, f'name = "A"\n{text}\n')
        read_world_config(tmp_path)
    assert world.warnings == (warning,)
    assert world.config == tomllib.loads(f'name = "A"\n{text}')
    (entry,) = logs  # one, although the file was read twice
    assert (entry["event"], entry["file"]) == (warning, f"{tmp_path}/world.toml:{line}")


@pytest.mark.parametrize(
    "text",
    [
        EVERY_KEY.partition("\n")[2],
        'name = "A"\nmin_players = 2\nversion = 1\nauthors = []\nlicense = "MIT"\ntags = []',
        'name = "A"\nnames = ["the known key is there too"]',
        'name = "A"\n[scripts]\nmian = "x"\n[renderer]\nnam = 1',
        'name = "A"\n[clawblox]\nrunn = 1\n[api]\njoins = 1',
        'name = "A"\n[speech]\nspeaking_radius = 3\n[sandbox]\ndeny_loopback = true',
        'name = "A"\n[other]\ncomand = 1',
    ],
)
def test_other_unknown_keys_cause_no_warning(tmp_path, text):
    with capture_logs() as logs:
        assert read(tmp_path, text).warnings == ()
    assert logs == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('nmae = "A"', "there is 'nmae'; did you mean name?"),
        ('nmae = "A"\nrun = 5', "there is 'nmae'; did you mean name?"),
        (
            'name = "A"\n[[run.sidecar]]\nname = "a"\ncomand = ["x"]',
            "there is 'comand'; did you mean command?",
        ),
        ('title = "A"', None),
        ('name = "A"\nnmae = "B"\nmax_players = "C"', None),
    ],
)
def test_the_error_for_a_missing_key_points_out_a_misspelling(tmp_path, text, hint):
    assert refusal(tmp_path, text).hint == hint


def test_the_warnings_are_an_attribute_of_the_world(tmp_path):
    (tmp_path / "world.toml").write_text('name = "A"\n[run]\ncomand = ["x"]\n')
    with capture_logs():
        assert World(tmp_path).config_warnings == ("run.comand: did you mean command?",)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            'name = "w"\n[run]\ncommand = true\n',
            "must be a non-empty list of strings, not true",
            None,
        ),
        ('name = "w"\n[[run]]\ncommand = ["a"]\n', "must be a table", "write [run] in place of"),
        (
            'name = "w"\n[run.sidecar]\nname = "a"\ncommand = ["a"]\n',
            "must be an array of tables: [[run.sidecar]]",
            "write [[run.sidecar]] in place of [run.sidecar]",
        ),
        ('[run]\ncommand = ["a"]\nname = "w"\n', "missing", "keys below [run] belong to it"),
    ],
)
def test_a_fault_is_reported_in_toml_syntax_with_the_correction(
    tmp_path: Path, text: str, message: str, hint: str | None
) -> None:
    (tmp_path / "world.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_world_config(tmp_path)
    assert caught.value.message.startswith(message)
    assert (caught.value.hint or "").startswith(hint or "")
    assert (caught.value.hint is None) == (hint is None)


def test_a_top_level_key_below_a_header_causes_a_warning(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text('name = "w"\n[run]\ncommand = ["a"]\nmax_players = 3\n')
    (warning,) = read_world_config(tmp_path).warnings
    assert warning == (
        "run.max_players: keys below [run] belong to it:"
        " write those of the whole file above the first header"
    )


def test_all_faults_are_reported_together_each_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text(
        'name = 5\n[run]\ncommand = "python w.py"\n[run.liveness]\nlistener = 0\n'
    )
    with pytest.raises(ConfigError) as caught:
        read_world_config(tmp_path)
    faults = [caught.value, *caught.value.others]
    found = {(fault.key, fault.line) for fault in faults}
    assert found == {("name", 1), ("run.command", 3), ("run.liveness.listener", 5)}
    assert "write ['python', 'w.py']" in {fault.hint for fault in faults}
