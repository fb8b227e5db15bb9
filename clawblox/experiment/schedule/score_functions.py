"""Imports score functions by name. Everything here blocks.

A function is named by the path of its module and its name: ``DIR/scores:points`` is ``points`` in
``DIR/scores.py``. For each directory, modules are imported as parts of a private
package, so they do not conflict with other modules.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from traceback import walk_tb
from types import ModuleType, TracebackType
from typing import Any, Final

from clawblox.errors import ConfigError
from clawblox.experiment.plan.values import check_function, split_function, to_function
from clawblox.foreign_values import clean_text
from clawblox.rundir.experiments import JOURNAL_NAME, PLAN_NAME
from clawblox.rundir.manifest import MANIFEST_NAME
from clawblox.rundir.paths import state_dir
from clawblox.spelling import suggest_nearest

_PACKAGE: Final = "_clawblox_scores_"
"""Prefix of the names of the packages."""
_DIGEST_CHARS: Final = 16
_MOST_NAMED: Final = 8

_importing: Final = threading.Lock()
_imported: Final[dict[Path, tuple[object, ModuleType]]] = {}
"""Modules by file, each with the state of the file at its import."""


def load_score(text: str, key: str = "score") -> Callable[..., Any]:
    """Return the score function with a name from a plan or a command line.

    A module is imported once, and again after its file has changed.

    Args:
        text: The function, as in :attr:`Plan.score`.
        key: Name of the argument, for errors.

    Raises:
        ConfigError: There is no such module or function, the module cannot be imported, or it is in
            the directory of an experiment or of an agent.
    """
    directory, module, name = split_function(text)
    file = _find_file(directory, module)
    if file is None:
        raise ConfigError(
            f"there is no such module in {directory}",
            key=key,
            value=text,
            hint=f"put it there as {module.replace('.', os.sep)}.py, or name another with score=",
        )
    hint = "copy the module to another directory, and name the function with score="
    refuse_result(file, key, text, hint)
    try:
        with _importing:
            imported = _import(file, directory, module)
    except (Exception, SystemExit) as error:
        place, line = _find_place(error, directory, file)
        raise ConfigError(
            f"cannot be imported: {describe_error(error)}",
            key=key,
            value=text,
            path=place,
            line=line,
        ) from error
    function = getattr(imported, name, None)
    if not callable(function):
        names = [word for word in vars(imported) if not word.startswith("_") and word != name]
        kind = type(function).__name__
        own = [
            word
            for word in names
            if inspect.isfunction(value := vars(imported)[word])
            and value.__module__ == imported.__name__
        ]
        others = f"its functions are {', '.join(own[:_MOST_NAMED])}" if own else None
        raise ConfigError(
            f"must be a function, not of the type {kind}"
            if hasattr(imported, name)
            else "there is no such function",
            key=key,
            value=text,
            path=file,
            hint=suggest_nearest(name, names) or others,
        )
    return function  # type: ignore[no-any-return]


def load_function(text: str, key: str) -> Callable[..., Any]:
    """Return the function ``MODULE:FUNC`` of the current directory. Blocks.

    Args:
        text: The text.
        key: The option or argument, for errors.

    Raises:
        ConfigError: The text has another form, or the function cannot be imported.
    """
    check_function(text, key)
    return load_score(str(to_function(text)), key)


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an error in a user's code, as one line."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return clean_text(" ".join(f"{type(error).__name__}: {text}".splitlines()))
    except Exception:  # noqa: BLE001 - a foreign `__str__` may raise anything
        return type(error).__name__


def original_module(name: str) -> str:
    """Return the original name of a module."""
    return name.partition(".")[2] if name.startswith(_PACKAGE) else name


def _find_file(directory: Path, module: str) -> Path | None:
    """Return the file of a module; packages precede modules of the same name, as for imports."""
    place = directory.joinpath(*module.split("."))
    files = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    # Unlike Path.is_file, it is False for an inaccessible file.
    return next(filter(os.path.isfile, files), None)


def refuse_result(file: Path, key: str, value: str, hint: str) -> None:
    """Raise an error for a file that an agent or a downloaded experiment may have supplied.

    Args:
        file: A file with code.
        key: Name of the argument with the file, for the error.
        value: The argument.
        hint: Advice for the error.

    Raises:
        ConfigError: The file is in the directory of an experiment or of an agent.
    """
    path = file.resolve()
    for place in path.parents:
        is_experiment = (place / JOURNAL_NAME).is_file() and (place / PLAN_NAME).is_file()
        is_agents = place.name == "agents" and (state_dir(place.parent) / MANIFEST_NAME).is_file()
        if is_experiment or is_agents:
            whose = "of an experiment" if is_experiment else "of agents"
            raise ConfigError(
                f"must be outside of the directory {whose}, {place}",
                key=key,
                value=value,
                path=file,
                hint=hint,
            )


# -- imports ------------------------------------------------------------------------------------


def _import(file: Path, directory: Path, module: str) -> ModuleType:
    status = file.stat()
    state = (status.st_mtime_ns, status.st_size, status.st_ino)
    known = _imported.get(file)
    if known is not None and known[0] == state:
        return known[1]
    digest = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()
    package = f"{_PACKAGE}{digest[:_DIGEST_CHARS]}"
    _forget(package)
    spec = ModuleSpec(package, None, is_package=True)
    spec.submodule_search_locations = [os.fspath(directory)]
    sys.modules[package] = module_from_spec(spec)
    importlib.invalidate_caches()
    try:
        with _siblings_found(directory):
            imported = importlib.import_module(f"{package}.{module}")
    except BaseException:
        _forget(package)
        raise
    _imported[file] = (state, imported)
    return imported


def _forget(package: str) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            del sys.modules[name]


@contextmanager
def _siblings_found(directory: Path) -> Iterator[None]:
    """Let a module import others of its directory; installed modules take precedence.

    Afterwards there is no byte code on disk, and no entry in ``sys.modules`` under a name that a
    module of another directory may have.
    """
    place = os.fspath(directory)
    before, writes_no_bytecode = set(sys.modules), sys.dont_write_bytecode
    sys.path.append(place)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_no_bytecode
        with suppress(ValueError):  # only the last entry is this block's
            del sys.path[-1 - sys.path[::-1].index(place)]
        for name in set(sys.modules) - before:
            if _is_sibling(sys.modules[name], name.partition(".")[0], directory):
                del sys.modules[name]


def _is_sibling(module: ModuleType, name: str, directory: Path) -> bool:
    """Return whether a module belongs to the module with this name in the directory."""
    file = getattr(module, "__file__", None)
    places = [file] if file is not None else getattr(module, "__path__", ())
    own = (directory / name, directory / f"{name}.py")
    return any(Path(place).is_relative_to(path) for place in places for path in own)


def _find_place(error: BaseException, directory: Path, file: Path) -> tuple[Path, int | None]:
    """Return the file and line in the directory where an import failed."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return Path(error.filename), error.lineno
    places = [
        place for place in find_places(error.__traceback__) if place[0].is_relative_to(directory)
    ]
    return places[-1] if places else (file, None)


def find_places(traceback: TracebackType | None) -> list[tuple[Path, int | None]]:
    """Return the files and lines of an error's traceback, the innermost last."""
    return [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(traceback)]
