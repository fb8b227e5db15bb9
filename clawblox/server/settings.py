"""How one instance was launched: ``WORLD_*`` as defaults, command-line flags over them."""

from __future__ import annotations

import argparse
import os
import re
import resource
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.protocol import (
    BASE_PATH_ENV,
    HOST_ENV,
    MANIFEST_ENV,
    OPERATOR_TOKEN_ENV,
    PORT_ENV,
    RECORD_DIR_ENV,
    RECORD_ENV,
    RESEED_ENV,
    RESUME_ENV,
    SECRET_ENV,
    SEEDS,
    normalise_base_path,
)
from clawblox.server.simulation import Clock

__all__ = ["Settings", "read_settings"]

REQUEST_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 300.0
MAX_CONNECTIONS: Final = 1000
_MAX_SECONDS = 86400.0
_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _default_max_connections() -> int:
    """Return three quarters of the descriptors that this process may open, 1000 at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft < 0 else max(1, min(MAX_CONNECTIONS, soft * 3 // 4))


@attrs.frozen
class Settings:
    """The facts of a launch.

    Attributes:
        host: Address to bind.
        port: Port to bind; 0 lets the system choose.
        base_path: Prefix of every route; empty for none.
        clock: What makes time pass; None leaves it to the simulation.
        record_dir: Directory to record into, or None not to record.
        resume_path: Snapshot to restore before serving, or None for a fresh world.
        reseed: Seed to draw chance from after that, or None to leave the world exact.
        manifest_path: Manifest of the run, where recordings are registered, or None.
        operator_token: Secret that gates the snapshot; None refuses everybody.
        exit_on_halt: Whether the world's process ends when the world halts.
        request_timeout: Seconds within which a request has to come, head and body.
        answer_timeout: Seconds in which a client may take nothing of its answer.
        max_connections: Connections at one time.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    base_path: str = attrs.field(default="", converter=normalise_base_path)
    clock: Clock | None = None
    record_dir: Path | None = None
    resume_path: Path | None = None
    reseed: int | None = None
    manifest_path: Path | None = None
    operator_token: bytes | None = attrs.field(default=None, repr=False)
    exit_on_halt: bool = False
    request_timeout: float = REQUEST_TIMEOUT_S
    answer_timeout: float = ANSWER_TIMEOUT_S
    max_connections: int = attrs.field(factory=_default_max_connections)


def read_settings(argv: Sequence[str] | None, environ: MutableMapping[str, str]) -> Settings:
    """Read flags and environment; a blank variable counts as unset.

    The secrets are taken *out* of ``environ``, so that no child process inherits them.

    Args:
        argv: The flags, without the program's name; None takes those of the process.
        environ: The environment.

    Raises:
        SystemExit: A flag or a variable is wrong, or ``--help`` was asked for.
    """
    given = {name: value.strip() for name, value in environ.items() if value.strip()}
    for name in SECRET_ENV:
        environ.pop(name, None)
    parser = _parser(given)
    flags = parser.parse_args(argv)
    token = given.get(OPERATOR_TOKEN_ENV)
    return Settings(
        host=flags.host,
        port=flags.port,
        base_path=flags.base_path,
        clock=flags.clock,
        record_dir=flags.record_dir if flags.record else None,
        resume_path=flags.resume,
        reseed=flags.reseed,
        manifest_path=Path(given[MANIFEST_ENV]) if MANIFEST_ENV in given else None,
        operator_token=None if token is None else os.fsencode(token),
        exit_on_halt=flags.exit_on_halt,
        request_timeout=flags.request_timeout,
        answer_timeout=flags.answer_timeout,
        max_connections=flags.max_connections,
    )


def _parser(given: Mapping[str, str]) -> argparse.ArgumentParser:
    """Build the parser; argparse runs string defaults through ``type`` like flags."""
    parser = argparse.ArgumentParser(
        description="Serve this world.",
        epilog="WORLD_* variables are the defaults of these flags. "
        f"The operator token is only ever read from {OPERATOR_TOKEN_ENV}.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    host, port = given.get(HOST_ENV, "127.0.0.1"), given.get(PORT_ENV, "8080")
    add("--host", type=_host, default=host, help="address to bind [%(default)s]")
    add("--port", type=_port, default=port, help="port to bind, 0 for any [%(default)s]")
    add("--base-path", default=given.get(BASE_PATH_ENV, ""), help="prefix of every route")
    add("--record", action=argparse.BooleanOptionalAction, help="record what happens")
    record_dir = given.get(RECORD_DIR_ENV, "recordings")
    add("--record-dir", type=Path, default=record_dir, help="where to record [%(default)s]")
    resume = given.get(RESUME_ENV)
    add("--resume", type=Path, default=resume, help="snapshot to restore before serving")
    reseed = given.get(RESEED_ENV)
    add("--reseed", type=_seed, default=reseed, help="seed to draw chance from after restoring")
    add("--clock", type=Clock, choices=list(Clock), help="what makes simulation time pass")
    add("--exit-on-halt", action="store_true", help="end with status 70 when the world halts")
    limit = parser.add_argument_group("limits of clients").add_argument
    limit(
        "--request-timeout",
        type=_seconds,
        default=REQUEST_TIMEOUT_S,
        metavar="SECONDS",
        help="time within which a request has to come, head and body [%(default)g]",
    )
    limit(
        "--answer-timeout",
        type=_seconds,
        default=ANSWER_TIMEOUT_S,
        metavar="SECONDS",
        help="time in which a client may take nothing of its answer [%(default)g]",
    )
    limit(
        "--max-connections",
        type=_count,
        default=_default_max_connections(),
        metavar="N",
        help="connections at one time [%(default)s]",
    )
    parser.set_defaults(record=_record_default(parser, given))
    return parser


def _record_default(parser: argparse.ArgumentParser, given: Mapping[str, str]) -> bool:
    text = given.get(RECORD_ENV, "0")
    if text.lower() not in _BOOLEANS:
        parser.error(f"{RECORD_ENV} must be 1 or 0, not {text!r}")
    return _BOOLEANS[text.lower()]


def _host(text: str) -> str:
    if not text.strip():  # the empty address would mean every interface
        raise argparse.ArgumentTypeError("an address is needed")
    return text.strip()


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= port <= 65535:  # noqa: PLR2004, RUF100 - the range of ports
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0..65535)")
    return port


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _seed(text: str) -> int:
    seed = int(text) if re.fullmatch("[0-9]{1,20}", text) else -1
    if seed not in SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed (0..2**64-1)")
    return seed
