"""Names, files and commands on the pages exist and can be used as shown."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import clawblox
from benchmarks import plots, report
from tests.test_checks import CHECKS

ROOT = Path(__file__).parent.parent
LUAU = {"engine.md", "engine-classes.md"}
INSIDE = {"architecture.md", "day.md"}
"""The pages about modules, which name their content."""

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ABOUT_FILES = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "tests" / "README.md"]
"""The pages whose code spans with a slash or a suffix are paths of this repository."""
FILE = re.compile(r"`((?:[\w.-]+/)*[\w.-]+(?:\.(?:py|md|toml|json|lua)|/[\w-]+))`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[\w-]*)?\)")
HOOK = re.compile(r"^ +entry: (.+)$", re.MULTILINE)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
DOTTED = re.compile(r"clawblox(?:\.[A-Za-z_]\w*)+")
IMPORT = re.compile(r"from (clawblox[\w.]*) import ([\w, ]+)")
NAME = re.compile(r"(?<![\w./-])([A-Za-z_]\w*)(?=$|\(|\.)")
DEFINED = re.compile(r"^(?:(?:async )?def |class )?([A-Za-z]\w*)(?=[(\[:]| = )", re.MULTILINE)
"""A name that a module defines; faster than a parser."""
HOMONYMS = {"Begin", "DATABASE_URL", "Host", "Origin", "boot_id", "run_prefix", "state_dir"}
"""Words that are not names of the package: a prompt, a variable, headers and document keys."""


def public_names(module: ModuleType) -> set[str]:
    """Return the names in ``__all__`` of a package, or the public names that a module defines."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    names = DEFINED.findall(inspect.getsource(module))
    return {name for name in names if not name.startswith("_")}


@functools.cache
def names_of_the_package() -> frozenset[str]:
    """Return the public names of the package's modules, except ordinary words."""
    modules = (found.name for found in pkgutil.walk_packages(clawblox.__path__, "clawblox."))
    names = set(clawblox.__all__)
    for name in modules:
        if name.endswith("__main__"):
            continue
        try:
            names |= public_names(importlib.import_module(name))
        except ModuleNotFoundError as error:
            if str(error.name).startswith("clawblox"):
                raise  # only a package of an extra may be missing
    is_class = re.compile(r"[A-Z]\w*[a-z]").match
    return frozenset(name for name in names if is_class(name) or "_" in name.strip("_"))


def blocks(text: str) -> list[ast.Module]:
    """Return the programs of a page, except fragments of a class."""
    return [ast.parse(block) for block in BLOCK.findall(text) if not block.startswith(" ")]


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clawblox"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def shown_imports(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import that a page shows, in a block or in a line."""
    for module, names in IMPORT.findall(text):
        yield from ((module, name.strip()) for name in names.split(",") if name.strip())


def resolve(dotted: str) -> object:
    """Return the module, or the object in a module, that a dotted name denotes."""
    module, _, name = dotted.rpartition(".")
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        return getattr(resolve(module), name)


@pytest.fixture(params=PAGES, ids=lambda page: str(page.name))
def page(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_the_names_of_the_package_are_found() -> None:
    assert {"AsyncWorld", "Allowance", "Limits", "ManifestWriters"} <= names_of_the_package()


def test_every_import_works(page: Path) -> None:
    for module, name in shown_imports(page.read_text()):
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_every_dotted_name_exists(page: Path) -> None:
    for dotted in DOTTED.findall(" ".join(SPAN.findall(page.read_text()))):
        resolve(dotted)


def test_names_in_a_program_are_imported_there_or_above(page: Path) -> None:
    known: set[str] = set()
    for tree in blocks(page.read_text()):
        known |= {name for _, name in imports(tree)}
        known |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        used = {name.id for name in names if isinstance(name.ctx, ast.Load)}
        assert used & names_of_the_package() <= known


def test_names_in_the_text_can_be_imported_as_the_page_describes(page: Path) -> None:
    text = page.read_text()
    if page.name in INSIDE:
        pytest.skip("it tells which module has what")
    if page.name in LUAU:
        pytest.skip("its names are those of scripts")
    shown = {name for _, name in shown_imports(text)}
    for module, _ in shown_imports(text):
        shown |= public_names(importlib.import_module(module))
    shown |= {dotted.rpartition(".")[2] for dotted in DOTTED.findall(text)}
    shown |= {*clawblox.__all__, *HOMONYMS, *dir(clawblox.AsyncWorld)}
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    named = {name for span in SPAN.findall(text) for name in NAME.findall(span)}
    assert named & names_of_the_package() <= shown


def test_the_results_in_the_benchmarks_page_come_from_the_json() -> None:
    page = report.PAGE.read_text()
    sections = report.MARKED.findall(page)
    assert sections == list(dict.fromkeys(sections)), "a benchmark has two sections"
    assert set(sections) == report.BENCHMARKS.keys()
    again = "run python -m benchmarks.report"
    assert report.render_page(page) == page, again
    for path in report.RESULTS.glob("*.json"):
        plot = path.with_suffix(".svg")
        assert plot.read_text() == plots.draw(json.loads(path.read_text())).render(), again


def test_plots_of_every_kind_are_well_formed_and_contain_their_figures() -> None:
    for path in report.RESULTS.glob("*.json"):
        document = json.loads(path.read_text())
        root = ElementTree.fromstring(plots.draw(document).render())
        texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
        for row in [] if "series" in document else document["rows"]:
            if "clients" in document:  # each bar has the client, its panel the rest
                assert set(row["what"].split(": ")) <= set(texts)
            else:
                assert row["what"] in texts


@pytest.mark.parametrize("page", ABOUT_FILES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_pages_for_contributors_name_files_that_exist(page: Path) -> None:
    text = page.read_text()
    names = {name for name in (*FILE.findall(text), *LINK.findall(text)) if "ROOM" not in name}
    names -= {"world.toml"}
    assert names
    assert {name for name in names if not (page.parent / name).exists()} == set()


def test_the_stories_name_files_that_exist() -> None:
    names = set(FILE.findall((ROOT / "docs" / "day.md").read_text())) - {"world.toml"}
    assert len(names) > 50
    assert {name for name in names if not (ROOT / "clawblox" / name).exists()} == set()


def test_the_pages_for_contributors_are_linked_and_distributed() -> None:
    readme, project = (ROOT / "README.md").read_text(), (ROOT / "pyproject.toml").read_text()
    for name in ("CONTRIBUTING.md", "SECURITY.md"):
        assert f"({name})" in readme
        assert f'"/{name}"' in project


def test_the_commit_hooks_are_the_static_checks() -> None:
    hooks = HOOK.findall((ROOT / ".pre-commit-config.yaml").read_text())
    assert [hook.split() for hook in hooks] == list(CHECKS.values())
