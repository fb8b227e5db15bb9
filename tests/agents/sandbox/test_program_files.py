"""The files that a program needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clawblox.agents.sandbox.program_files import find_program_files


def write(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def link(path: Path, target: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def is_outside(path: Path) -> bool:
    return not path.is_relative_to("/usr") and not path.is_relative_to("/bin")


def test_a_program_of_one_file_needs_only_that_file(tmp_path: Path) -> None:
    real = write(tmp_path / "share" / "versions" / "2.1.197", "\x7fELF")
    link(tmp_path / "bin" / "claude", "../share/versions/2.1.197")
    write(tmp_path / "share" / "secret")
    found = find_program_files("claude", str(tmp_path / "bin"))
    assert (found.executable, found.paths, found.links) == (real, (real,), ())
    assert found.commands == (real.parent,)


def test_a_package_needs_the_tree_around_it_and_its_node(tmp_path: Path) -> None:
    node = write(tmp_path / "node" / "bin" / "node", "\x7fELF")
    npm = write(tmp_path / "node" / "lib" / "node_modules" / "npm" / "cli.js")
    link(tmp_path / "node" / "bin" / "npm", "../lib/node_modules/npm/cli.js")
    write(tmp_path / "node" / "share" / "secret")
    tree = tmp_path / "app" / "node_modules"
    write(tree / "codex" / "node_modules" / "inner" / "codex.js", "#!/usr/bin/env node\n")
    link(tree / ".bin" / "codex", "../codex/node_modules/inner/codex.js")
    found = find_program_files(str(tree / ".bin" / "codex"), f"{node.parent}:/usr/bin:/bin")
    assert found.executable == tree / ".bin" / "codex"
    assert set(found.paths) == {tree, node, npm.parents[1]}
    assert found.links == ((node.parent / "npm", "../lib/node_modules/npm/cli.js"),)
    assert found.commands == (tree / ".bin", node.parent)


def test_a_script_needs_its_python_with_library_and_environment(tmp_path: Path) -> None:
    base = tmp_path / "base"
    python = write(base / "bin" / "python3.11", "\x7fELF")
    library = write(base / "lib" / "python3.11" / "os.py").parent
    shared = write(base / "lib" / "libpython3.11.so.1.0")
    write(base / "lib" / "secret")
    named = link(base / "bin" / "python3", "python3.11")
    environment = tmp_path / "venv"
    write(environment / "pyvenv.cfg", "home = base")
    link(environment / "bin" / "python", str(named))
    script = write(environment / "bin" / "agent", f"#!{environment / 'bin' / 'python'} -I\n")
    found = find_program_files(str(script), "")
    assert found.executable == script
    assert set(found.paths) == {script, environment, python, library, shared}
    assert found.links == ((named, "python3.11"),)


def test_a_python_of_an_environment_keeps_its_name(tmp_path: Path) -> None:
    found = find_program_files(sys.executable, "")
    if (Path(sys.executable).parent.parent / "pyvenv.cfg").exists():
        assert found.executable == Path(sys.executable)


def test_a_script_of_the_system_shell_needs_no_further_files(tmp_path: Path) -> None:
    script = write(tmp_path / "agent")
    assert list(filter(is_outside, find_program_files(str(script), "").paths)) == [script]


def test_a_program_or_interpreter_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="'claude' is not an executable program"):
        find_program_files("claude", str(tmp_path))
    script = write(tmp_path / "agent", "#!/usr/bin/env -S no-such-node --flag\n")
    with pytest.raises(FileNotFoundError, match="'no-such-node' is not an executable program"):
        find_program_files(str(script), "/usr/bin")
