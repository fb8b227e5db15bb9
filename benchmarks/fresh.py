"""Calls in a fresh process, without memory or threads from earlier measurements.

Arguments and result of the function are passed as JSON; its output goes to standard error.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import anyio

__all__ = ["call_in_fresh_process"]


def call_in_fresh_process(
    function: Callable[..., Any],
    *args: object,
    timeout: float = 300.0,
    env: Mapping[str, str] | None = None,
) -> Any:
    """Call a module's function, plain or async, in a new process and return its result.

    Args:
        function: The function.
        *args: Its arguments.
        timeout: Maximum duration of the call, in seconds.
        env: Environment of the process; None for that of this process.

    Raises:
        CalledProcessError: The function failed; its traceback was written to standard error.
        TimeoutExpired: The function did not return within ``timeout`` seconds and was killed.
    """
    spec = sys.modules[function.__module__].__spec__
    assert spec is not None  # the spec has the module's name even for __main__
    command = [sys.executable, "-m", __name__, spec.name, function.__qualname__]
    finished = subprocess.run(
        [*command, json.dumps(args)], stdout=subprocess.PIPE, timeout=timeout, check=True, env=env
    )
    return json.loads(finished.stdout)


def _main(module: str, name: str, args: str) -> None:
    result_fd = os.dup(1)
    os.dup2(2, 1)
    function = getattr(importlib.import_module(module), name)
    result = function(*json.loads(args))
    if inspect.iscoroutine(result):
        coroutine = result

        async def finish() -> Any:
            return await coroutine

        result = anyio.run(finish)
    with os.fdopen(result_fd, "w") as answer:
        json.dump(result, answer)


if __name__ == "__main__":
    _main(*sys.argv[1:])
