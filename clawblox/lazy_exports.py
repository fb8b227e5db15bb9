"""Imports the public names of a package when they are first used (PEP 562).

A stub next to the package, ``__init__.pyi``, lists the names with the modules that define them, for
both type checkers and this module.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any, TypeAlias

_Export: TypeAlias = tuple[Callable[[str], Any], Callable[[], list[str]]]


def export_lazily(package: str, file: str) -> _Export:
    """Return the ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: ``__name__`` of the package.
        file: ``__file__`` of the package.
    """

    @functools.cache
    def read_homes() -> dict[str, str]:
        import ast  # small programs import the package without using its names

        with open(os.path.splitext(file)[0] + ".pyi") as stub:  # noqa: PTH122, PTH123
            statements = ast.parse(stub.read()).body
        imports = [each for each in statements if isinstance(each, ast.ImportFrom)]
        return {alias.name: str(each.module) for each in imports for alias in each.names}

    def load(name: str) -> Any:  # noqa: ANN401 - any public name
        if name == "__all__":
            return sorted(read_homes())
        if name not in read_homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(read_homes()[name]), name)

    return load, lambda: load("__all__")
