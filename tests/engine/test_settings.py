"""The settings of an engine world in ``world.toml``."""

from __future__ import annotations

import re

import pytest

from clawblox.engine.errors import SettingsError
from clawblox.engine.settings import EngineSettings, RendererSettings, read_settings, read_skill


@pytest.fixture
def write(tmp_path):
    """Return a function that writes the files of a world and reads its settings."""
    (tmp_path / "main.lua").write_text("")

    def write(text: str, **files: str) -> EngineSettings:
        (tmp_path / "world.toml").write_text(text)
        return read_settings(tmp_path)

    return write


def test_settings_of_a_public_world_are_read(write, tmp_path):
    """Public worlds have a game type, no runtime, and their own document."""
    (tmp_path / "SKILL.md").write_text("# Do")
    settings = write(
        'name = "Arena"\ngame_type = "lua"\nicon = "x.png"\n[scripts]\nmain = "main.lua"\n'
        'skill = "SKILL.md"\n[hosting]\nregion = 1\n'
    )
    assert settings == EngineSettings(
        directory=tmp_path,
        name="Arena",
        skill="SKILL.md",
        tables=settings.tables,
    )
    assert read_skill(settings) == "# Do"


def test_missing_settings_have_defaults(write, tmp_path):
    settings = write('name = "w"')
    assert (settings.max_players, settings.afk_timeout_s) == (8, 300.0)
    assert (settings.main, settings.skill, settings.tree) == ("main.lua", "API.md", "scripts")
    assert (settings.observation_radius, settings.hearing_radius) == (100.0, 30.0)
    assert (settings.speech_is_near, settings.allow_reset) == (False, False)
    assert (settings.player_object_physics, settings.solver_iterations) == (True, 4)
    assert settings.gravity == 196.2
    assert settings.renderer == RendererSettings("World Renderer", "module", 1, None, ())
    assert read_skill(settings) is None


def test_every_settings_key_is_read(write, tmp_path):
    for path in ("game.luau", "code/x.lua", "renderer/index.js"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("")
    settings = write(
        """
        name = "w"
        max_players = 2
        afk_timeout = 0
        [scripts]
        main = "game.luau"
        tree = "code"
        skill = "docs/API.md"
        [renderer]
        name = "R"
        mode = "default"
        api_version = 2
        entry = "index.js"
        capabilities = ["gui"]
        [observation]
        radius = 12.5
        [speech]
        mode = "proximity"
        hearing_radius = 7
        [agent_api]
        allow_reset = true
        [physics]
        gravity = 30
        [clawblox]
        player_object_physics = false
        steps_per_tick = 1000
        memory_mib = 2
        [clawblox.physics]
        solver_iterations = 32
        """
    )
    rules = {
        "max_players": 2,
        "afk_timeout_s": 0.0,
        "observation_radius": 12.5,
        "speech_is_near": True,
        "hearing_radius": 7.0,
        "allow_reset": True,
        "gravity": 30.0,
        "player_object_physics": False,
        "solver_iterations": 32,
    }
    assert settings == EngineSettings(
        directory=tmp_path,
        name="w",
        main="game.luau",
        tree="code",
        skill="docs/API.md",
        steps_per_tick=1000,
        memory_bytes=2 << 20,
        tables=rules,
        renderer=RendererSettings("R", "default", 2, "index.js", ("gui",)),
        **rules,
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "name must be a non-empty string: it is missing"),
        ('name = ""', "name must be a non-empty string, not ''"),
        ('name = "w"\nmax_players = 0', "max_players must be a whole number above 0, not 0"),
        ('name = "w"\nmax_players = true', "max_players must be a whole number above 0, not True"),
        ('name = "w"\nafk_timeout = -1', "afk_timeout must be 0 or more, not -1"),
        ('name = "w"\nscripts = 1', "scripts must be a table, not 1"),
        ('name = "w"\nscripts.main = "game.lua"', "scripts.main points to missing file: "),
        ('name = "w"\nscripts.main = "world.toml"', "scripts.main must end in .lua or .luau"),
        ('name = "w"\nscripts.main = "../main.lua"', "scripts.main must be a path below"),
        ('name = "w"\nscripts.main = "/main.lua"', "scripts.main must be a path below"),
        ('name = "w"\nscripts.tree = "src"', "scripts.tree points to missing directory: "),
        ('name = "w"\nobservation.radius = inf', "observation.radius must be a finite number"),
        ('name = "w"\nspeech.mode = "loud"', "speech.mode must be one of global, proximity"),
        ('name = "w"\nspeech.hearing_radius = 0', "speech.hearing_radius must be a finite"),
        ('name = "w"\nphysics.gravity = "30"', "physics.gravity must be a number from -1000000"),
        ('name = "w"\nphysics.gravity = 1e7', "physics.gravity must be a number from -1000000"),
        ('name = "w"\nagent_api.allow_reset = 1', "agent_api.allow_reset must be true or false"),
        (
            'name = "w"\nclawblox.physics.solver_iterations = 33',
            "clawblox.physics.solver_iterations must be a whole number from 1 to 32, not 33",
        ),
        (
            'name = "w"\nrenderer.mode = "x"',
            "renderer.mode must be one of module, default, not 'x'",
        ),
        ('name = "w"\nrenderer.capabilities = [1]', "renderer.capabilities must be a list of"),
        ("name =", "not TOML"),
    ],
)
def test_invalid_value_error_names_file_key_and_value(write, tmp_path, text, complaint):
    with pytest.raises(SettingsError, match=re.escape(complaint)) as caught:
        write(text)
    assert str(tmp_path) in str(caught.value)


def test_missing_file_or_directory_is_named_in_the_error(tmp_path):
    with pytest.raises(SettingsError, match=r"world\.toml: cannot be read: No such file"):
        read_settings(tmp_path)
    with pytest.raises(SettingsError, match="there is no such directory"):
        read_settings(tmp_path / "nothing")


def test_main_luau_is_used_without_a_main_key(write, tmp_path):
    (tmp_path / "main.lua").rename(tmp_path / "main.luau")
    assert write('name = "w"').main == "main.luau"


@pytest.mark.parametrize("entry", ["", "/x.js", "./x.js", "../x.js", "a//x.js", "missing.js", 1])
def test_an_unusable_renderer_entry_is_null_with_a_warning(write, caplog, entry):
    written = entry if entry == 1 else f'"{entry}"'
    assert write(f'name = "w"\nrenderer.entry = {written}').renderer.entry is None
    assert f"renderer.entry must be a file below renderer/, not {entry!r}" in caplog.text


def test_content_hash_ignores_budgets_names_and_renderers(write):
    usual = write('name = "w"').tables
    assert write('name = "v"\nclawblox.steps_per_tick = 1\nrenderer.name = "R"').tables == usual
    assert write('name = "w"\nmax_players = 7').tables != usual
