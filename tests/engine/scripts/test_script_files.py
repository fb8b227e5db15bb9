"""The script tree on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.engine.errors import SettingsError
from clawblox.engine.scripts.script_files import WorldScripts
from clawblox.engine.scripts.script_tree import read_scripts
from tests.engine.scripts.support import write_world
from tests.support.deep import constrained, make_deep


def read(directory: Path, main: str = "main.lua") -> WorldScripts:
    return read_scripts(directory, main, "scripts")


@pytest.mark.parametrize(
    ("file", "name", "class_name"),
    [
        ("Rules.module.lua", "Rules", "ModuleScript"),
        ("Rules.module.luau", "Rules", "ModuleScript"),
        ("Rules.server.lua", "Rules", "Script"),
        ("Rules.script.lua", "Rules", "Script"),
        ("Rules.lua", "Rules", "Script"),
        ("Rules.luau", "Rules", "Script"),
        ("Rules.client.lua", "Rules", "LocalScript"),
        ("Big.Rules.lua", "Big.Rules", "Script"),
        (".module.lua", ".module", "Script"),
        ("Zoë.lua", "ZoÃ«", "Script"),
    ],
)
def test_script_file_error_names_the_class(
    tmp_path: Path, file: str, name: str, class_name: str
) -> None:
    write_world(tmp_path, **{f"Workspace__{file}": "return 1"})
    (found,) = read(tmp_path).tree
    assert (found.name, found.class_name, found.folders) == (name, class_name, ("Workspace",))
    assert found.path == f"scripts/Workspace/{file}"
    assert found.source == "return 1"


def test_script_tree_deeper_than_the_recursion_limit_is_read(tmp_path: Path) -> None:
    write_world(tmp_path, **{"Workspace__a.lua": "return 1"})
    make_deep(tmp_path / "scripts" / "Workspace", "d", 200)
    with constrained():
        (found,) = read(tmp_path).tree
    assert found.path == "scripts/Workspace/a.lua"


def test_scripts_are_sorted_by_path_and_other_files_are_ignored(tmp_path: Path) -> None:
    names = ["Workspace__b__c.lua", "Workspace__b-b__a.lua", "ServerScriptService__z.lua",
             "Workspace__a.lua", "Workspace__notes.txt", "notes.md"]  # fmt: skip
    write_world(tmp_path, **dict.fromkeys(names, ""))
    assert [each.path.removeprefix("scripts/") for each in read(tmp_path).tree] == [
        "ServerScriptService/z.lua", "Workspace/a.lua", "Workspace/b/c.lua", "Workspace/b-b/a.lua",
    ]  # fmt: skip


def test_script_outside_of_services_is_refused(tmp_path: Path) -> None:
    write_world(tmp_path, **{"loose.lua": ""})
    with pytest.raises(SettingsError) as caught:
        read(tmp_path)
    assert str(caught.value) == "Invalid script path 'loose.lua': expected <Service>/<file.lua>"


def test_an_unknown_service_is_refused(tmp_path: Path) -> None:
    write_world(tmp_path, **{"Teams__a.lua": ""})
    with pytest.raises(SettingsError) as caught:
        read(tmp_path)
    assert str(caught.value) == (
        "Unsupported script service root 'Teams' in 'Teams/a.lua'; expected ServerScriptService, "
        "Workspace, ReplicatedStorage, ServerStorage, StarterGui or StarterPlayer"
    )


def test_script_tree_is_optional_and_may_contain_the_main_script(tmp_path: Path) -> None:
    write_world(tmp_path, "print(1)")
    assert read(tmp_path).sources() == [["main.lua", "print(1)"]]
    write_world(tmp_path, **{"start.lua": "print(2)"})
    assert read(tmp_path, "scripts/start.lua").sources() == [["scripts/start.lua", "print(2)"]]


def test_byte_order_mark_is_removed_from_a_script(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_bytes(b"\xef\xbb\xbfprint('\xc3\xab')")
    assert read(tmp_path).main.source == "print('\xc3\xab')"


def test_a_missing_main_script_is_named_by_the_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"main\.lua: cannot be read: No such file"):
        read(tmp_path)
