"""A type is never analysed by two threads concurrently, which can crash the process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import attrs
import msgspec
import pytest

import clawblox
from clawblox.typed_values import converter

PACKAGE = Path(clawblox.__file__).parent
THREADS = """
import json, sys, threading
import attrs, msgspec
from clawblox.agents import status
from clawblox.experiment.tables.status import LiveChain, decode_live

sys.setswitchinterval(1e-6)
cases = {
    "decoder": (status.AgentRecord, lambda value: status._decoder.decode(json.dumps(value))),
    "converter": (LiveChain, lambda value: decode_live({"chain": value})),
}
kind, read = cases[sys.argv[1]]
# A value of a member needs the analysis of its type.
values = [{field.name: 1} for field in attrs.fields(kind)]
barrier = threading.Barrier(8)

def use():
    barrier.wait()
    for value in values:
        try:
            read(value)
        except msgspec.ValidationError:
            pass

threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@attrs.frozen
class Point:
    x: int
    y: int = 0


def test_a_converter_analyses_its_type_when_it_is_made() -> None:
    assert "__msgspec_cache__" not in vars(Point)
    convert = converter(Point)
    assert "__msgspec_cache__" in vars(Point)
    assert convert({"x": 1}) == Point(1)
    with pytest.raises(msgspec.ValidationError):
        convert({"x": "1"})


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["decoder", "converter"])
def test_threads_that_first_decode_a_type_concurrently_do_not_crash(form: str) -> None:
    for _ in range(12):  # without the analysis at import, most of these end with SIGSEGV
        result = subprocess.run(
            [sys.executable, "-c", THREADS, form], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr


def lazy_forms(source: str) -> list[str]:
    """Return the calls in a module that analyse a type when they run instead of at import."""
    tree = ast.parse(source)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, functions)
        for node in ast.walk(function)
    }
    forms = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name, text = ast.unparse(node.func), ast.unparse(node)
        is_typed = len(node.args) > 1 or any(word.arg == "type" for word in node.keywords)
        if (
            (name.endswith("json.decode") and is_typed)
            or name.endswith("msgspec.convert")
            or (name.endswith(("json.Decoder", "converter")) and node.args and id(node) in inner)
        ):
            forms.append(text)
        if any(ast.unparse(argument) == "msgspec.convert" for argument in node.args):
            forms.append(text)
    return forms


@pytest.mark.parametrize(
    "source",
    [
        "msgspec.json.decode(line, type=Record)",
        "msgspec.convert(value, Record)",
        "partial(msgspec.convert, type=Record)",
        "def read(line):\n    return msgspec.json.Decoder(Record).decode(line)",
        "def read(line):\n    return converter(Record)(line)",
    ],
)
def test_a_lazily_analysed_type_is_reported(source: str) -> None:
    assert len(lazy_forms(source)) == 1


def test_every_type_is_analysed_at_import() -> None:
    forms = {
        str(path.relative_to(PACKAGE)): lazy
        for path in sorted(PACKAGE.rglob("*.py"))
        if "msgspec" in (source := path.read_text()) or "converter" in source
        if (lazy := lazy_forms(source))
    }
    assert set(forms) == {"typed_values.py"}
