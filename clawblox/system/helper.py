"""Starting small Python programs that work beside this process and for it alone.

A helper runs as ``python -I -S`` with an empty environment, in a session of its own, so that
Ctrl-C on the terminal does not reach it. Its standard input is the channel to this process, and
when that ends, the helper ends. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal  # noqa: TID251 - a helper ignores signals meant for its parent
import sys
from collections.abc import Iterable


def spawn_helper(
    name: str,
    function: str,
    *arguments: str,
    channel: int,
    paths: Iterable[str],
    output: int | None = None,
    errors: int | None = None,
) -> int:
    """Spawn a helper and return its pid, a child that the caller reaps. Blocks.

    Args:
        name: Identifies it in a process list: a word of its command line.
        function: What it calls, as ``module:function``.
        *arguments: Arguments of that call.
        channel: Descriptor that becomes its standard input.
        paths: Where it finds its imports beside those of the standard library.
        output: Descriptor that becomes its standard output; None for none.
        errors: Descriptor that becomes its standard error; None for none.

    Raises:
        OSError: It cannot be spawned.
    """
    module, _, call = function.partition(":")
    boot = (
        f"import sys; sys.path += {list(paths)!r}; "
        f"from {module} import {call}; {call}(*sys.argv[2:])"
    )
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", boot, name, *arguments],
        {"PATH": os.defpath},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, channel, 0),
            _redirect(1, output),
            _redirect(2, errors),
        ],
        setsid=True,
    )


def _redirect(standard: int, descriptor: int | None) -> tuple[int | str, ...]:
    if descriptor is None:
        return (os.POSIX_SPAWN_OPEN, standard, os.devnull, os.O_WRONLY, 0)
    return (os.POSIX_SPAWN_DUP2, descriptor, standard)


def detach_from_parent() -> None:
    """Make the helper independent of its parent; it calls this first."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    # Descriptors meant for all children: another process may wait for them to be closed.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the descriptor of this very listing
                os.close(int(name))
