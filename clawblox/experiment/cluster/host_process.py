"""The process on a node in which a host runs. It knows no engine."""

from __future__ import annotations

import os
import signal  # noqa: TID251 - unblocks one for the programs of a host, nothing is sent

ENGINE_PREFIX = "RAY_"
"""How the names of Ray's environment variables start. The token of the cluster is among them."""


def prepare_process() -> int:
    """Prepare this thread and its process for programs that they start, which inherit both.

    Environment variables of Ray are removed, and SIGINT, which Ray blocks, is unblocked. Call it
    in the thread of the host's event loop, before anything is started there.

    Returns:
        The niceness of the process. Ray's own is 15 unless ``RAY_worker_niceness=0`` was set when
        its node was started; a process without privileges cannot lower it.
    """
    for name in [name for name in os.environ if name.startswith(ENGINE_PREFIX)]:
        del os.environ[name]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return os.getpriority(os.PRIO_PROCESS, 0)


def requires_token() -> bool:
    """Return whether the node of this process refuses calls without a token."""
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
