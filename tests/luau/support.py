"""Runs Luau scripts for tests: plainly, or saved and restored at every line they print."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from operator import length_hint
from typing import Any

from clawblox.luau.core.errors import LuaError, RuntimeFault
from clawblox.luau.core.machine import current
from clawblox.luau.core.operators import to_text
from clawblox.luau.runtime.host import Host, suspend, to_luau
from clawblox.luau.vm import VM

_PLENTY = 10**12


class TortureHost(Host):
    """Provides a ``print`` that suspends the script wherever possible."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

        @self.function("print")
        def show(*values: Any) -> None:
            line = "\t".join(to_text(to_luau(value)) for value in values)
            self.lines.append(line.encode("latin-1").decode("utf-8", "replace"))
            if current.vm.running is not current.vm.roots["main"]:
                return
            try:
                pause = suspend()
            except RuntimeFault:  # within a metamethod or another callback
                return
            raise pause


def run_plainly(source: str, **options: Any) -> list[str]:
    """Return the lines that a script prints, with its error last."""
    lines: list[str] = []

    def show(line: str) -> None:
        lines.append(line.encode("latin-1").decode("utf-8", "replace"))

    vm = VM(output=show, **options)
    try:
        vm.resume(vm.coroutine(vm.load(textwrap.dedent(source), "=test")))
    except LuaError as error:
        lines.append(f"error: {error}")
    return lines


def run_tortured(source: str, **options: Any) -> list[str]:
    """Run like `run_plainly`, continuing in a restored VM after each line; check the documents."""
    lines: list[str] = []
    host = TortureHost(lines)
    vm = VM(**options)
    vm.globals["print"] = host.functions["print"]
    vm.roots["main"] = vm.coroutine(vm.load(textwrap.dedent(source), "=test"))
    while vm.roots["main"].status == "suspended":
        try:
            vm.resume(vm.roots["main"])
        except LuaError as error:
            lines.append(f"error: {error}")
        vm = round_trip(vm, host, **options)
    return lines


def round_trip(vm: VM, host: Host | None = None, **options: Any) -> VM:
    """Return a restored copy of a VM, which must give the same document."""
    document = json.dumps(vm.snapshot())
    restored = VM.restore(json.loads(document), host=host, **options)
    assert json.dumps(restored.snapshot()) == document
    return restored


MODES = {"plain": run_plainly, "torture": run_tortured}


def values(source: str, **options: Any) -> tuple[Any, ...]:
    """Return the values of an expression list."""
    vm = VM(**options)
    return vm.call(vm.load(f"return {source}", "=test"))


def value(source: str) -> Any:
    """Return the value of an expression."""
    (result,) = values(source)
    return result


def check_scripts(
    run: Callable[[str], list[str]], scripts: Mapping[str, tuple[str, list[str]]]
) -> None:
    """Assert that all scripts print the expected lines; show the others."""
    printed = {name: run(source) for name, (source, _) in scripts.items()}
    expected = {name: lines for name, (_, lines) in scripts.items()}
    assert printed == expected


def check_values(expected: Mapping[str, tuple[object, ...]]) -> None:
    """Assert that all expression lists have the expected values; show the others."""
    assert {source: values(source) for source in expected} == dict(expected)


def steps_taken(source: str) -> int:
    """Return the number of steps that a script takes."""
    vm = VM(steps=_PLENTY)
    vm.call(vm.load(textwrap.dedent(source), "=test"))
    left = vm.steps_left
    assert left is not None
    return _PLENTY - left - length_hint(vm.steps)


def failure(source: str, **options: Any) -> str:
    """Return the error message of a failing script."""
    vm = VM(**options)
    try:
        vm.call(vm.load(textwrap.dedent(source), "=test"))
    except LuaError as error:
        return str(error)
    raise AssertionError("the script did not fail")
