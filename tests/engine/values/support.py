"""Runs Luau that uses the value types."""

from __future__ import annotations

import functools
from typing import Any

from clawblox.engine.values.enums import find_enum_object
from clawblox.engine.values.libraries import lend_values
from clawblox.engine.values.vector3 import VECTOR_TYPE
from clawblox.luau import VM, Host, HostObject


class EnumHost(Host):
    def find_object(self, ident: str) -> HostObject | None:
        return find_enum_object(ident)


def make_vm() -> VM:
    host = Host()
    vm = VM(vectors=VECTOR_TYPE)
    vm.globals.update(lend_values(host))
    vm.sandbox()
    return vm


shared_vm = functools.cache(make_vm)  # shared by the tests, which have separate globals


def run(source: str) -> Any:
    """Return the results of a chunk."""
    vm = shared_vm()
    results = vm.call(vm.load(source, "=t", vm.new_environment()))
    return results[0] if len(results) == 1 else results


def text(expression: str) -> Any:
    """Return the ``tostring`` form of an expression."""
    return run(f"return tostring({expression})")


def error(statement: str) -> Any:
    """Return the error of a statement, without its position."""
    message = run(f"local _, e = pcall(function() {statement} end) return e")
    return message.removeprefix("t:1: ")
