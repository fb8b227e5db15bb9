"""The script tree: storages, directories as modules, Rojo projects, paths of `require`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox.engine.errors import SettingsError
from clawblox.engine.scripts.script_files import WorldScripts
from clawblox.engine.scripts.script_tree import find_files, read_scripts
from clawblox.engine.settings import read_settings
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from tests.engine.playing import play, printed, say
from tests.engine.torture import Plan, torture

SHOW = """
local function show(instance, indent)
    print(indent .. instance.Name .. " " .. instance.ClassName)
    for _, child in instance:GetChildren() do show(child, indent .. ".") end
end
"""


def write(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def test_scripts_in_storages_do_not_run(tmp_path: Path) -> None:
    write(
        tmp_path / "scripts",
        {
            "ReplicatedStorage/Shared/Rules.lua": "return 'rules'",
            "ServerStorage/Never.server.lua": "this is not compiled",
            "StarterGui/Screen.client.lua": "nor is this",
            "StarterPlayer/StarterPlayerScripts/Keys.client.lua": "",
            "ServerScriptService/Local.client.lua": "nor this",
            "ServerScriptService/Main.server.lua": """
            print(require(game.ReplicatedStorage.Shared.Rules))
            """,
        },
    )
    shown = [f"show(game.{name}, '')" for name in ("ServerStorage", "StarterGui", "StarterPlayer")]
    assert say(tmp_path, SHOW + "\n".join(shown), 2) == [
        "ServerStorage ServerStorage",
        ".Never Script",
        "StarterGui StarterGui",
        ".Screen LocalScript",
        "StarterPlayer StarterPlayer",
        ".StarterPlayerScripts Folder",
        "..Keys LocalScript",
        "rules",
    ]


def test_script_from_a_storage_runs_when_moved_below_workspace(tmp_path: Path) -> None:
    write(tmp_path / "scripts", {"ServerStorage/Lamp.server.lua": "print('lit', script.Parent)"})
    main = "task.wait() game.ServerStorage.Lamp:Clone().Parent = workspace"
    assert say(tmp_path, main, 4) == ["lit\tWorkspace"]


def test_directory_with_init_becomes_a_script_and_its_files_become_modules(tmp_path: Path) -> None:
    write(
        tmp_path / "scripts",
        {
            "ServerScriptService/Lib/init.lua": "return {"
            " require(script.a), require('@self/b/c') }",
            "ServerScriptService/Lib/a.lua": "return 'a'",
            "ServerScriptService/Lib/b/c.luau": "return 'c'",
            "ServerScriptService/Game/init.server.lua": "print('game', require('./Lib')[2])",
            "ServerScriptService/Game/Part.lua": "error('a module does not run')",
        },
    )
    lines = say(tmp_path, SHOW + "show(game.ServerScriptService, '')", 1)
    assert lines == [
        "ServerScriptService ServerScriptService",
        ".Game Script",
        "..Part ModuleScript",
        ".Lib ModuleScript",
        "..a ModuleScript",
        "..b Folder",
        "...c ModuleScript",
        ".main Script",
        "game\tc",
    ]


REQUIRES = {
    "scripts/ReplicatedStorage/lib/init.lua": "return { sister = require('./other') }",
    "scripts/ReplicatedStorage/lib/inner.lua": "return require('../other')",
    "scripts/ReplicatedStorage/lib/lazy.lua": "return function()"
    " return pcall(require, './inner') end",
    "scripts/ReplicatedStorage/other.lua": "return 'other'",
    "scripts/.luaurc": '{"aliases": {"Shared": "ReplicatedStorage"}}',
    "scripts/ServerScriptService/sub/.luaurc": '{"aliases": {"shared": "."}}',
    "scripts/ServerScriptService/sub/near.server.lua": "print(require('@Shared/own'))",
    "scripts/ServerScriptService/sub/own.module.lua": "return 'nearest alias'",
    ".luaurc": """{
        "languageMode": "strict", // for "editors"
        "aliases": {"all": "./scripts/ReplicatedStorage", "url": "a//b",},
    }""",
}
MAIN = """
print(require("@all/other"), require("@all/lib").sister, require("@all/lib/inner"))
print(require("@game/ReplicatedStorage/other"), require("@all/lib/lazy")())
task.spawn(function() print(pcall(require, "@Shared/other")) end)
for _, path in { "other", "./nothing", "@none/x", "../../../x", "@all", "" } do
    print(select(2, pcall(function() return require(path) end)))
end
game:GetService("RunService").Heartbeat:Once(function() print(require("@all/other")) end)
"""


def test_require_accepts_paths(tmp_path: Path) -> None:
    write(tmp_path, REQUIRES)
    lines = say(tmp_path, MAIN, 1)
    assert [line.replace("main.lua:6: ", "") for line in lines] == [
        "other\tother\tother",
        "other\ttrue\tother",
        "false\trequire: no .luaurc has the alias 'shared'",
        "require expects a ModuleScript, or a path that begins with './', '../' or '@'",
        "require: there is no ModuleScript at './nothing'",
        "require: no .luaurc has the alias 'none'",
        "require: there is no ModuleScript at '../../../x'",
        "require: there is no ModuleScript at '@all'",
        "require expects a ModuleScript, or a path that begins with './', '../' or '@'",
        "nearest alias",
        "other",
    ]


def test_paths_are_found_after_a_restore(tmp_path: Path) -> None:
    write(tmp_path, {**REQUIRES, "world.toml": 'name = "w"'})
    (tmp_path / "main.lua").write_text(
        "while true do task.wait() print(require('@all/lib').sister, require('@all/lib/inner')) end"
    )
    torture(tmp_path, Plan(), ticks=5, saves=(1, 3))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"aliases": {', ".luaurc: not JSON"),
        ('{"aliases": []}', ".luaurc: aliases must be an object, not []"),
        ('{"aliases": {"up": "../secret"}}', "aliases.up must be a path within the world"),
        (
            '{"aliases": {"root": "/etc"}}',
            "aliases.root must be a path within the world, not '/etc'",
        ),
        ('{"aliases": {"n": 5}}', "aliases.n must be a path within the world, not 5"),
    ],
)
def test_invalid_aliases_file_error_names_file_and_key(
    tmp_path: Path, text: str, problem: str
) -> None:
    write(tmp_path, {"main.lua": "", "world.toml": 'name = "w"', ".luaurc": text})
    with pytest.raises(SettingsError) as caught:
        EngineWorld(read_settings(tmp_path))
    assert problem in str(caught.value)


def test_luaurc_without_aliases_does_not_change_the_content_hash(tmp_path: Path) -> None:
    write(tmp_path, {"main.lua": "", "world.toml": 'name = "w"', "scripts/Workspace/a.lua": ""})
    before = read_scripts(tmp_path, "main.lua", "scripts").sources()
    text = '{"languageMode": "strict"} // for the editor'
    write(tmp_path, {".luaurc": text, "scripts/.luaurc": text})
    assert read_scripts(tmp_path, "main.lua", "scripts").sources() == before


PROJECT = {
    "name": "place",
    "tree": {
        "$className": "DataModel",
        "ReplicatedStorage": {
            "Shared": {"$path": "src/shared"},
            "Packages": {"$path": {"optional": "Packages"}},
            "Config": {"$path": "src/config.lua"},
        },
        "ServerScriptService": {"$path": "src/server"},
        "StarterPlayer": {
            "StarterPlayerScripts": {
                "$className": "StarterPlayerScripts",
                "Client": {"$path": "src/client"},
            }
        },
        "Lighting": {"$properties": {"Brightness": 2}},
    },
}
SOURCES = {
    "src/shared/Math.lua": "return { double = function(n) return n * 2 end }",
    "src/shared/net/init.luau": "return require('@self/wire')",
    "src/shared/net/wire.luau": "return 'wire'",
    "src/shared/notes.txt": "",
    "src/config.lua": "return { limit = 7 }",
    "src/server/game.server.lua": """
    local storage = game.ReplicatedStorage
    local math, config = require(storage.Shared.Math), require(storage.Config)
    print("Math", math.double(config.limit), require(storage.Shared.net))
    """,
    "src/server/tool.lua": "return 'a module'",
    "src/client/init.client.lua": "",
    "Packages/promise/default.project.json": '{"name": "promise", "tree": {"$path": "lib"}}',
    "Packages/promise/lib/init.lua": "return 'promise'",
    "Packages/promise/tests/broken.lua": "not read",
    "main.lua": "",
}


def write_project(directory: Path, project: object = PROJECT) -> Path:
    write(directory, SOURCES)
    (directory / "default.project.json").write_text(json.dumps(project))
    (directory / "world.toml").write_text('name = "w"\n[scripts]\ntree = "default.project.json"\n')
    return directory


def test_rojo_project_is_the_script_tree_if_the_world_names_it(tmp_path: Path) -> None:
    main = (
        SHOW
        + "show(game.ReplicatedStorage, '') show(game.StarterPlayer, '') print(require('./tool'))"
    )
    write_project(tmp_path)
    run = play(tmp_path, main, 1, tree="default.project.json")
    assert printed(run) == [
        "ReplicatedStorage ReplicatedStorage",
        ".Shared Folder",
        "..Math ModuleScript",
        "..net ModuleScript",
        "...wire ModuleScript",
        ".Packages Folder",
        "..promise ModuleScript",
        ".Config ModuleScript",
        "StarterPlayer StarterPlayer",
        ".StarterPlayerScripts Folder",
        "..Client LocalScript",
        "a module",
        "Math\t14\twire",
    ]


def test_rojo_project_is_ignored_unless_the_world_names_it(tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / "world.toml").write_text('name = "w"')
    assert read_scripts(tmp_path, "main.lua", "scripts").tree == ()


def test_content_hash_includes_the_files_of_a_project(tmp_path: Path) -> None:
    write_project(tmp_path)

    def hashed() -> str:
        return EngineWorld(read_settings(tmp_path), Console(str, str)).content_hash()

    before = hashed()
    (tmp_path / "src" / "shared" / "notes.txt").write_text("more")
    assert hashed() == before
    (tmp_path / "default.project.json").write_text(json.dumps({**PROJECT, "servePort": 1}))
    changed = hashed()
    (tmp_path / "Packages" / "promise" / "lib" / "init.lua").write_text("return 'other'")
    assert len({before, changed, hashed()}) == 3


def test_watched_files_equal_the_files_that_are_read(tmp_path: Path) -> None:
    write_project(tmp_path)
    found = {
        path.relative_to(tmp_path).as_posix()
        for path in find_files(tmp_path, "main.lua", "default.project.json")
    }
    scripts = read_scripts(tmp_path, "main.lua", "default.project.json")
    assert found == {path for path, _ in scripts.sources()} | {".luaurc"}
    (tmp_path / "default.project.json").write_text("{")
    assert tmp_path / "default.project.json" in set(
        find_files(tmp_path, "main.lua", "default.project.json")
    )


def node(path: object) -> object:
    return {"tree": {"$className": "DataModel", "Workspace": {"a": {"$path": path}}}}


@pytest.mark.parametrize(
    ("project", "problem"),
    [
        ([], "default.project.json: tree must be an object"),
        ({"tree": {"$path": "src"}}, "tree.$className must be 'DataModel', not None"),
        (node("../other"), "tree.Workspace.a.$path leads out of the world: '../other'"),
        (node("/etc"), "tree.Workspace.a.$path leads out of the world: '/etc'"),
        (node(5), "tree.Workspace.a.$path must be a path, not 5"),
        (node("missing"), "tree.Workspace.a.$path points to a missing file: 'missing'"),
        (node("link"), "tree.Workspace.a.$path must not lead through a link: 'link'"),
        (node("loop"), "loop/default.project.json: projects contain each other"),
        ({"tree": {"$className": "DataModel", "Workspace": 1}}, "tree.Workspace must be an object"),
        (
            {"tree": {"$className": "DataModel", "Teams": {"$path": "src/shared"}}},
            "Unsupported script service root 'Teams'",
        ),
    ],
)
def test_invalid_project_error_names_file_key_and_value(
    tmp_path: Path, project: object, problem: str
) -> None:
    write_project(tmp_path, project)
    (tmp_path / "link").symlink_to(tmp_path.parent, target_is_directory=True)
    (tmp_path / "loop" / "a").mkdir(parents=True)
    for name, path in (("loop", "a"), ("loop/a", "../default.project.json")):
        nested = {"name": "n", "tree": {"$path": path}}
        (tmp_path / name / "default.project.json").write_text(json.dumps(nested))
    with pytest.raises(SettingsError) as caught:
        read_scripts(tmp_path, "main.lua", "default.project.json")
    assert problem in str(caught.value)


def test_links_within_a_directory_of_a_project_are_not_followed(tmp_path: Path) -> None:
    write_project(tmp_path)
    secret = tmp_path.parent / "secret.lua"
    secret.write_text("return 'secret'")
    (tmp_path / "src" / "shared" / "file.lua").symlink_to(secret)
    (tmp_path / "src" / "shared" / "folder").symlink_to(tmp_path.parent, target_is_directory=True)
    scripts: WorldScripts = read_scripts(tmp_path, "main.lua", "default.project.json")
    assert not [file for file in scripts.tree if "secret" in file.source]
