"""Texts of the repository keep four rules that make each sentence read once."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "clawblox", "docs", "examples", "tests")
HERE = Path(__file__)

BEGINNING = re.compile(r"(What|Which|Whether|How|Who)\b")
PHRASES = {
    "ends in 'of it' or 'of them'": re.compile(r"\bof (?:it|them)(?=[.;:!?]|$)", re.IGNORECASE),
    "uses a clause 'what is …' as a noun": re.compile(
        r"\bwhat (?:is|was|are|were|has|have|had|can|could|may|must|will|would)\b", re.IGNORECASE
    ),
    "contains 'nothing of'": re.compile(r"\bnothing of\b", re.IGNORECASE),
}


def find_faults(text: str, *, is_docstring: bool = False) -> list[str]:
    """Return the rules that a text breaks."""
    prose = " ".join(text.split())
    faults = [name for name, phrase in PHRASES.items() if phrase.search(prose)]
    if is_docstring and BEGINNING.match(prose):
        faults.append(f"begins with {prose.split()[0]!r}")
    return faults


def docstrings(tree: ast.Module) -> dict[int, ast.Constant]:
    """Return the docstrings of a module, its classes and functions, by identity of their nodes."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, kinds) and node.body]
    values = [
        statement.value
        for statement in first
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    ]
    return {id(value): value for value in values if isinstance(value.value, str)}


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks of comments of a module, each with its first line."""
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and block:
            yield start, " ".join(block)
            block = []
        if not block:
            start = token.start[0]
        last = token.start[0]
        block.append(token.string.lstrip("# "))
    if block:
        yield start, " ".join(block)


GAP = r"""(?:\s|["'#]|\b[fr]+["']|\\n)+"""
CANDIDATES = [
    re.compile(rf'"""\s*{BEGINNING.pattern}'),
    re.compile(rf"""\bof{GAP}(?:it|them)\s*(?:[.;:!?"'\\]|$)""", re.IGNORECASE | re.MULTILINE),
    *(
        re.compile(phrase.pattern.replace(" ", GAP), re.IGNORECASE)
        for phrase in list(PHRASES.values())[1:]
    ),
]
"""What a fault looks like in a module, wherever its strings and comments begin and end."""


def faults_in_python(path: Path) -> Iterator[str]:
    source = path.read_text()
    if not any(candidate.search(source) for candidate in CANDIDATES):
        return  # to parse each module takes long
    tree = ast.parse(source)
    documented = docstrings(tree)
    place = path.relative_to(ROOT)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for fault in find_faults(node.value, is_docstring=id(node) in documented):
                yield f"{place}:{node.lineno}: {fault}"
    for line, text in comments(source):
        for fault in find_faults(text):
            yield f"{place}:{line}: {fault}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_texts_of_python_files_break_no_rule(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    faults = [fault for path in paths if path != HERE for fault in faults_in_python(path)]
    assert faults == []


@pytest.mark.parametrize(
    "sentence",
    [
        "What an agent may ask of its world.",
        "Which snapshot a restart takes.",
        "Whether the world answers.",
        "How a start ended.",
        "Who holds the lease.",
        "Close the journal, or the rest of it.",
        "The plan of an experiment; chains are parts of them.",
        "Keep what is left after the stop.",
        "Return what was\nrecorded.",
        "The proxy passes on nothing of a refused request.",
    ],
)
def test_each_planted_sentence_is_found(sentence: str) -> None:
    assert len(find_faults(sentence, is_docstring=True)) == 1


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('class A:\n    """What it has."""\n', 2),
        ("# The rest\n# of it\nrest = 1\n", 1),
        ('text = "a part of it"\nmore = 1\n', 1),
        ('text = f"{1} of " "them."\n', 1),
        ('text = ("Nothing "\n    f"of {1}")\n', 1),
        ('text = "all of\\nit\\n"\n', 1),
        ("# Keep what\n# is left.\n", 1),
    ],
)
def test_faults_are_found_across_lines_of_strings_and_comments(
    source: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.test_sentences.ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(source)
    (fault,) = faults_in_python(path)
    assert fault.startswith(f"module.py:{line}: ")


@pytest.mark.parametrize(
    "sentence",
    [
        "Return whether the world answers.",
        "The size of it all is bounded.",
        "Ask the world what it saved.",
        "There is nothing to stop.",
    ],
)
def test_plain_sentences_pass(sentence: str) -> None:
    assert find_faults(sentence, is_docstring=True) == []
