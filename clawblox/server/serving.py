"""The entry of a world's program: settings, state, bind, serve, close, in this order.

A saved state is restored and then reseeded; a fresh world is reseeded and then begun.

A world binds its port last, so a world that refuses its snapshot is never reachable. On an
inherited socket clients can connect earlier. They wait in the backlog until the world serves; if it
exits instead, the kernel resets them.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import attrs

from clawblox.host_gate import ServerAddress
from clawblox.protocol import (
    LISTEN_FD,
    LISTEN_FDNAMES_ENV,
    LISTEN_FDS_ENV,
    LISTEN_PID_ENV,
    RECORD_ENV,
    REPLAY_ENV,
    RESEED_ENV,
)
from clawblox.recording.writer import FileDigest, create_next
from clawblox.server.app import create_app, create_replay_app
from clawblox.server.hosted_world import HostedWorld
from clawblox.server.launch_settings import Settings, read_settings
from clawblox.server.recording import RecordingWriter, register_recording
from clawblox.server.simulation import Halted, Simulation
from clawblox.server.snapshot_document import SnapshotRefusal, restore_snapshot
from clawblox.server.stop_signals import StopSignals

REFUSED_STATUS: Final = 65
"""Exit status of a world that refuses its snapshot (``EX_DATAERR`` of sysexits.h)."""

HALTED_STATUS: Final = 70
"""Exit status of a world that ends because it halted (``EX_SOFTWARE`` of sysexits.h)."""

_log = logging.getLogger("clawblox.server")


def serve(simulation: Simulation, argv: Sequence[str] | None = None) -> None:
    """Serve a world until SIGTERM or SIGINT; the last line of a world's program.

    Args:
        simulation: The world, neither begun nor restored.
        argv: Flags, without the program's name; None for those of the process.

    Raises:
        SystemExit: With status 1 if the port or the recording cannot be opened or the inherited
            socket is unusable, 2 if a flag or a variable is wrong or the world cannot be
            reseeded, 65 if the snapshot is refused, and 70 if the world halted before it was
            served, or later with ``--exit-on-halt``. A line on stderr gives the reason.
    """
    serve_with(read_settings(argv, os.environ), simulation)


def serve_with(
    settings: Settings,
    simulation: Simulation,
    signals: StopSignals | None = None,
    until: Callable[[], Awaitable[None]] | None = None,
) -> HostedWorld:
    """Serve a world like :func:`serve`, with already parsed settings.

    Args:
        settings: The settings of this launch.
        simulation: The world, neither begun nor restored.
        signals: Receives SIGTERM and SIGINT, where this is not the main thread.
        until: The world is stopped when this returns; None serves it until a signal.

    Returns:
        The world, no longer served, between two ticks.

    Raises:
        SystemExit: As :func:`serve` does.
    """
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns about every malformed request
    owner = os.environ.get(LISTEN_PID_ENV, "").strip()
    with _exiting(1, f"cannot serve on the inherited descriptor {LISTEN_FD}", OSError, ValueError):
        inherited = take_inherited_listener(os.environ)
    world = HostedWorld(simulation, nonce=settings.session_nonce)
    if settings.replay_path is not None:
        _serve_replay(world, settings, settings.replay_path, inherited, owner, signals)
        return world
    resume = settings.resume_path
    if resume is not None:
        refusal = f"refusing the snapshot {resume}"
        with _exiting(REFUSED_STATUS, refusal, OSError, SnapshotRefusal):
            restore_snapshot(world, resume.read_bytes())
    if settings.reseed is not None:
        try:
            world.reseed(settings.reseed)
        except NotImplementedError:
            _fail(2, f"this world has no reseed(): start it without {RESEED_ENV} and --reseed")
    if resume is None:
        with _exiting(HALTED_STATUS, "cannot begin the world", Halted):
            world.begin()
    listener = inherited or _bind(settings, owner)
    settings = _with_bound_address(settings, listener)
    recorder = _start_recording(world, settings)
    is_clean = False
    try:
        _run(world, settings, listener, recorder, signals, until)
        is_clean = True
    finally:
        if recorder is not None:
            digest = recorder.close(is_clean=is_clean)
            _register(settings, recorder, digest)
    if settings.exit_on_halt and world.failure is not None:
        _fail(HALTED_STATUS, f"the world halted: {world.failure}")
    return world


def _serve_replay(
    world: HostedWorld,
    settings: Settings,
    script: Path,
    inherited: socket.socket | None,
    owner: str,
    signals: StopSignals | None,
) -> None:
    """Perform a script, record, and serve the progress, until a signal."""
    # Imported here, because worlds that serve agents do not need them.
    from clawblox.server.connections import run_server
    from clawblox.server.replaying import ScriptedReplay

    if settings.record_dir is None:
        _fail(2, f"a replay is recorded: {REPLAY_ENV} and --replay need {RECORD_ENV} or --record")
    with _exiting(1, f"cannot record into {settings.record_dir}", OSError):
        settings.record_dir.mkdir(parents=True, exist_ok=True)
    replay = ScriptedReplay(world, script, settings.record_dir, settings.clock)
    replay.begin()
    listener = inherited or _bind(settings, owner)
    settings = _with_bound_address(settings, listener)
    url = f"http://{ServerAddress(settings.host, settings.port)}{settings.base_path}"
    run_server(
        create_replay_app(replay, settings),
        listener,
        settings,
        lambda: _log.info("Repeating a recording; listening on %s", url),
        lambda: False,
        signals,
    )


def _bind(settings: Settings, owner: str) -> socket.socket:
    """Bind the port; the server starts to listen.

    Args:
        settings: They have the address.
        owner: Id of the process that was started with a listening socket; empty for none.
    """
    with _exiting(1, f"cannot listen on {ServerAddress(settings.host, settings.port)}", OSError):
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            if not owner or error.errno != errno.EADDRINUSE:
                raise
            kept = f"a socket was handed to process {owner}, which must exec this program"
            raise OSError(f"{error}; {kept}") from error
    return listener


def _with_bound_address(settings: Settings, listener: socket.socket) -> Settings:
    """Return the settings with the host and port of the socket, and the name of the log.

    A configured host name that resolves to the socket's address is kept: requests carry it.
    """
    address, port = listener.getsockname()[:2]
    if not ipaddress.ip_address(address).is_loopback:
        _log.warning("this world can be reached from other machines, through %s", address)
    host = settings.host if address in _resolve(settings.host) else address
    log_name = _log_name(settings.manifest_path)
    return attrs.evolve(settings, host=host, port=port, log_name=log_name)


def _resolve(host: str) -> set[str]:
    try:
        results = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return set()
    return {str(sockaddr[0]) for *_, sockaddr in results}


def _log_name(manifest_path: Path | None) -> str | None:
    """Return the name of the file that stderr goes to, relative to the run or to this directory.

    Agents see it, so a file elsewhere is named only by its last component.
    """
    try:
        if not stat.S_ISREG(os.fstat(sys.stderr.fileno()).st_mode):
            return None
        log = Path(f"/proc/self/fd/{sys.stderr.fileno()}").readlink()
    except (OSError, ValueError):
        return None
    homes = [Path.cwd()] if manifest_path is None else [manifest_path.parent.parent, Path.cwd()]
    home = next((home for home in homes if log.is_relative_to(home)), log.parent)
    return str(log.relative_to(home))


def _start_recording(world: HostedWorld, settings: Settings) -> RecordingWriter | None:
    if settings.record_dir is None:
        return None
    with _exiting(1, f"cannot record into {settings.record_dir}", OSError, ImportError):
        settings.record_dir.mkdir(parents=True, exist_ok=True)
        recorder = RecordingWriter(world, create_next(settings.record_dir))
        recorder.start(
            resumed=settings.resume_path is not None,
            reseed=settings.reseed,
            clock=settings.clock,
            world_files=settings.world_files,
        )
    world.recorder = recorder
    _log.info("Recording to: %s", recorder.path)
    _register(settings, recorder)
    return recorder


def _register(
    settings: Settings, recorder: RecordingWriter, digest: FileDigest | None = None
) -> None:
    """Register the recording in the manifest of the run, if there is one."""
    if settings.manifest_path is not None:
        try:
            register_recording(settings.manifest_path, recorder.path, digest)
        except (OSError, ValueError) as error:
            _log.error("%s: cannot register the recording: %s", settings.manifest_path, error)


def _run(
    world: HostedWorld,
    settings: Settings,
    listener: socket.socket,
    recorder: RecordingWriter | None,
    signals: StopSignals | None,
    until: Callable[[], Awaitable[None]] | None,
) -> None:
    from clawblox.server.connections import run_server

    has_finished = False

    async def wait_until_finished() -> None:
        nonlocal has_finished
        if until is not None:
            await until()
            has_finished = True

    background = [wait_until_finished, *([] if recorder is None else [recorder.run])]
    app = create_app(world, settings, background=background)
    url = f"http://{ServerAddress(settings.host, settings.port)}{settings.base_path}"

    def announce() -> None:
        _log.info("Listening on %s", url)
        world.simulation.serving(url)

    def is_over() -> bool:
        return has_finished or (settings.exit_on_halt and world.failure is not None)

    run_server(app, listener, settings, announce, is_over, signals)


@contextmanager
def _exiting(status: int, message: str, *errors: type[Exception]) -> Iterator[None]:
    """Exit with a status where the block raises one of the errors."""
    try:
        yield
    except errors as error:
        _fail(status, f"{message}: {error}")


def _fail(status: int, message: str) -> NoReturn:
    sys.stderr.write(f"{sys.argv[0]}: {message}\n")
    raise SystemExit(status)


def take_inherited_listener(environ: MutableMapping[str, str]) -> socket.socket | None:
    """Return the listening socket that this process was started with, or None.

    The variables are removed from ``environ`` and the descriptor is set to close on exec, so no
    child process mistakes the socket for its own. Variables that were meant for an ancestor of this
    process are ignored.

    Args:
        environ: The environment; changed in place.

    Raises:
        OSError: The descriptor is not open, or is not a socket.
        ValueError: ``LISTEN_FDS`` is not a number above 0, or the socket is not a listening
            TCP socket.
    """
    names = (LISTEN_PID_ENV, LISTEN_FDS_ENV, LISTEN_FDNAMES_ENV)
    pid, count, _ = (environ.pop(name, "").strip() for name in names)
    if pid != str(os.getpid()) or not count:
        return None
    if not count.isdecimal() or int(count) == 0:
        raise ValueError(f"{LISTEN_FDS_ENV} must be a number above 0, not {count!r}")
    listener = socket.socket(fileno=LISTEN_FD)
    listener.set_inheritable(False)
    if not _listens_for_tcp(listener):
        listener.close()
        raise ValueError("it is not a listening TCP socket")
    return listener


def _listens_for_tcp(candidate: socket.socket) -> bool:
    is_tcp = candidate.type == socket.SOCK_STREAM
    is_ip = candidate.family in (socket.AF_INET, socket.AF_INET6)
    return is_tcp and is_ip and bool(candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
