"""Functions of modules that a command line names as ``MODULE:FUNC``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawblox.errors import ClawbloxError, ConfigError


def load_function(text: str) -> Callable[..., Any]:
    """Return a function that is given as ``MODULE:FUNC``.

    The module may be in the current directory.

    Raises:
        ConfigError: It is no such text, or the module or the function does not exist.
        ClawbloxError: The module cannot be imported.
    """
    module_name, colon, name = text.partition(":")
    if not colon or not module_name or not name.isidentifier():
        raise ConfigError(
            "must be a module and a function, such as scores:cubes", key="MODULE:FUNC", value=text
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in (module_name, module_name.partition(".")[0]):
            raise ClawbloxError(f"{module_name} cannot be imported: {error}") from error
        hint = f"modules are looked for in the current directory, {Path.cwd()}"
        raise ConfigError(
            "there is no such module", key="MODULE:FUNC", value=text, hint=hint
        ) from error
    except Exception as error:
        raise ClawbloxError(f"{module_name} cannot be imported: {error!r}") from error
    finally:
        sys.path.pop(0)
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError("there is no such function", key="MODULE:FUNC", value=text)
    return function  # type: ignore[no-any-return]
