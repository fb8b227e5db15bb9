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
FOLDERS = ("clawblox",)
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


def faults_in_python(path: Path) -> Iterator[str]:
    source = path.read_text()
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
