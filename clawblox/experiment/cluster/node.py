"""The machine of a node, and the process of a host on it, independent of the engine."""

from __future__ import annotations

import os
import platform
import signal  # noqa: TID251 - unblocks one for the programs of a host, nothing is sent
import socket
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final, NoReturn

from clawblox import __version__
from clawblox.system.files import available_bytes

ENGINE_PREFIX: Final = "RAY_"
"""Prefix of Ray's environment variables, including the one that holds the token."""
MACHINE_FACTS: Final = ("processor", "libc", "python")
"""Facts of a machine that a program's state may depend on."""
SCRATCH_ENV: Final = "CLAWBLOX_SCRATCH"
"""Variable with the directory for the files of hosts; default: the temporary directory."""
_MAX_LINES: Final = 1000
_UNKNOWN: Final = "unknown"
_CPUINFO: Final = Path("/proc/cpuinfo")
_MODELS: Final = ("model name", "cpu model", "cpu", "CPU part")
"""Keys of the processor's name in ``/proc/cpuinfo``, for different architectures."""
_FAR_AWAY: Final = {
    socket.AF_INET: ("192.0.2.1", 9),
    socket.AF_INET6: ("2001:db8::1", 9),
}
"""Addresses for documentation (RFC 5737, RFC 3849), to which no datagram is ever sent."""


def machine_facts() -> dict[str, str]:
    """Return facts that a program's state may depend on: ``processor``, ``libc`` and ``python``."""
    return {
        "processor": f"{platform.machine()} {_processor_model()}",
        "libc": " ".join(platform.libc_ver()).strip() or _UNKNOWN,
        "python": platform.python_version(),
    }


def scratch_parent() -> Path:
    """Return the directory that contains the hosts' directories on this machine."""
    return Path(os.environ.get(SCRATCH_ENV) or tempfile.gettempdir())


def describe_node() -> dict[str, Any]:
    """Return the facts of this machine and this process, as a node of a cluster. Blocks.

    Returns:
        The facts of :func:`machine_facts`; the versions ``clawblox`` and ``engine``; the flags
        ``route_out``, ``token`` and ``tls``; ``niceness``; and ``scratch_bytes``, the space free
        for the directories of attempts.
    """
    return {
        "clawblox": __version__,
        "engine": _engine_build(),
        **machine_facts(),
        "route_out": any(_has_route(family) for family in _FAR_AWAY),
        "token": requires_token(),
        "tls": os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true"),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "scratch_bytes": available_bytes(scratch_parent()),
    }


def _processor_model() -> str:
    try:
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return _UNKNOWN
    pairs = (line.partition(":") for line in lines)
    values = {key.strip(): value.strip() for key, _, value in pairs}
    return next((values[key] for key in _MODELS if values.get(key)), _UNKNOWN)


def _engine_build() -> str:
    """Return the library that the engine's saved worlds depend on, without its slow import."""
    from importlib import metadata

    try:
        return f"rapier3d {metadata.version('rapier3d')} {platform.machine()}"
    except metadata.PackageNotFoundError:
        return "not installed"


def _has_route(family: socket.AddressFamily) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as client:
            client.connect(_FAR_AWAY[family])  # sends nothing
    except OSError:
        return False
    return True


# -- the process of a host ------------------------------------------------------------------------


def prepare_process() -> int:
    """Prepare this thread and its process for the programs that they will start.

    Environment variables of Ray are removed, and SIGINT, which Ray blocks, is unblocked. Call it in
    the thread of the host's event loop, before anything is started there.

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


class NodeLog:
    """The lines of this package's own log in this process, to be sent to the driver.

    Creating it configures structlog, as an application does.
    """

    def __init__(self) -> None:
        import structlog

        self._lines: list[tuple[str, str, dict[str, str]]] = []
        structlog.configure(processors=[self._keep])

    def _keep(self, _logger: object, level: str, entry: MutableMapping[str, Any]) -> NoReturn:
        from structlog import DropEvent

        if len(self._lines) < _MAX_LINES:
            event = str(entry.pop("event", ""))
            self._lines.append((level, event, {name: str(entry[name]) for name in entry}))
        raise DropEvent

    def take(self) -> list[tuple[str, str, dict[str, str]]]:
        """Return the lines since the previous call: level, event and fields."""
        lines, self._lines = self._lines, []
        return lines
