"""The entry of a world's program: settings, restore, reseed, bind, serve, close, in this order.

A world binds its port last, so one that refuses its snapshot was never reachable. On an
inherited socket others can connect before the world is there: they wait in the backlog, get
their answer when it serves, and are reset by the kernel when it ends instead.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import attrs

from clawblox.protocol import LISTEN_FD, RESEED_ENV
from clawblox.server.activation import take_inherited_listener
from clawblox.server.app import create_app
from clawblox.server.document import SnapshotRefusal, restore
from clawblox.server.gate import Address
from clawblox.server.instance import Instance
from clawblox.server.recording import Recording, open_recording, register_recording
from clawblox.server.settings import Settings, read_settings
from clawblox.server.simulation import Simulation

__all__ = ["HALTED_STATUS", "REFUSED_STATUS", "serve"]

REFUSED_STATUS: Final = 65
"""Exit status of a world that refuses its snapshot (``EX_DATAERR`` of sysexits.h)."""

HALTED_STATUS: Final = 70
"""Exit status of a world that ends because it halted (``EX_SOFTWARE`` of sysexits.h)."""

_log = logging.getLogger("clawblox.server")


def serve(simulation: Simulation, argv: Sequence[str] | None = None) -> None:
    """Serve a world until SIGTERM or SIGINT; the last line of a world's program.

    Args:
        simulation: The world, as it is at time 0.
        argv: Flags, without the program's name; None takes those of the process.

    Raises:
        SystemExit: With status 65 when the snapshot is refused, 70 when the world halted and is
            to end then, 2 when a flag or a variable
            is wrong or the world cannot be reseeded, 1 when the port or the recording cannot
            be opened or the inherited socket is of no use. One line on stderr says why.
    """
    settings = read_settings(argv, os.environ)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of every malformed request
    inherited = _inherit()
    instance = Instance(simulation)
    if settings.resume_path is not None:
        _restore(instance, settings)
    if settings.reseed is not None:
        _reseed(simulation, settings.reseed)
    listener = inherited or _bind(settings)
    settings = _at_address_of(listener, settings)
    recording = _start_recording(instance, settings)
    try:
        _run(instance, settings, listener, recording)
    finally:
        if recording is not None:
            recording.close()
    if settings.exit_on_halt and instance.failure is not None:
        _fail(HALTED_STATUS, f"the world halted: {instance.failure}")


def _inherit() -> socket.socket | None:
    try:
        return take_inherited_listener(os.environ)
    except (OSError, ValueError) as error:
        _fail(1, f"cannot serve on the inherited descriptor {LISTEN_FD}: {error}")


def _restore(instance: Instance, settings: Settings) -> None:
    assert settings.resume_path is not None
    try:
        restore(instance, settings.resume_path.read_bytes())
    except (OSError, SnapshotRefusal) as error:
        _fail(REFUSED_STATUS, f"refusing the snapshot {settings.resume_path}: {error}")


def _reseed(simulation: Simulation, seed: int) -> None:
    try:
        simulation.reseed(seed)
    except NotImplementedError:
        _fail(2, f"this world cannot be reseeded; without {RESEED_ENV} it goes on exactly")


def _bind(settings: Settings) -> socket.socket:
    """Bind, and leave it to the server to listen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        _fail(1, f"cannot listen on {Address(settings.host, settings.port)}: {error}")
    return listener


def _at_address_of(listener: socket.socket, settings: Settings) -> Settings:
    """Return the settings with the address that is served, which an inherited socket decides.

    A host name that was told and means this address is kept: requests carry it.
    """
    address, port = listener.getsockname()[:2]
    if not ipaddress.ip_address(address).is_loopback:
        _log.warning("this world can be reached from other machines, through %s", address)
    host = settings.host if address in _addresses_of(settings.host) else address
    return attrs.evolve(settings, host=host, port=port)


def _addresses_of(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return set()
    return {str(sockaddr[0]) for *_, sockaddr in found}


def _start_recording(instance: Instance, settings: Settings) -> Recording | None:
    if settings.record_dir is None:
        return None
    try:
        recording = open_recording(
            settings.record_dir,
            instance,
            resumed=settings.resume_path is not None,
            reseed=settings.reseed,
        )
    except OSError as error:
        _fail(1, f"cannot record into {settings.record_dir}: {error}")
    instance.record = recording.write
    _log.info("Recording to: %s", recording.path)
    if settings.manifest_path is not None:
        try:
            register_recording(settings.manifest_path, recording.path)
        except (OSError, ValueError) as error:
            _log.error("the recording is not in %s: %s", settings.manifest_path, error)
    return recording


def _run(
    instance: Instance, settings: Settings, listener: socket.socket, recording: Recording | None
) -> None:
    from clawblox.server.listener import run_server  # uvicorn: only programs pay for it

    background = () if recording is None else (recording.run,)
    app = create_app(instance, settings, background=background)
    address = Address(settings.host, settings.port)

    def is_over() -> bool:
        return settings.exit_on_halt and instance.failure is not None

    run_server(app, listener, f"http://{address}{settings.base_path}", settings, is_over)


def _fail(status: int, message: str) -> NoReturn:
    sys.stderr.write(f"{sys.argv[0]}: {message}\n")
    raise SystemExit(status)
