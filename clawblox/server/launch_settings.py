"""The settings of a launch: command-line flags, with ``WORLD_*`` variables as defaults."""

from __future__ import annotations

import argparse
import os
import re
import resource
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.protocol import (
    BASE_PATH_ENV,
    FILES_ENV,
    HOST_ENV,
    MANIFEST_ENV,
    OPERATOR_TOKEN_ENV,
    PORT_ENV,
    RECORD_DIR_ENV,
    RECORD_ENV,
    REPLAY_ENV,
    RESEED_ENV,
    RESUME_ENV,
    SECRET_ENV,
    SEEDS,
    normalise_base_path,
)
from clawblox.server.simulation import Clock

REQUEST_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 300.0
MAX_CONNECTIONS: Final = 1000
SESSION_NONCE_ENV: Final = "_CLAWBLOX_SESSION_NONCE"
"""For tests only: fixes the nonce of the launch, so that two restored worlds issue the same ids."""
_MAX_SECONDS = 86400.0
_Parse = Callable[[str], object]
_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _default_max_connections() -> int:
    """Return three quarters of the descriptors that this process may open, at most 1000."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft < 0 else max(1, min(MAX_CONNECTIONS, soft * 3 // 4))


@attrs.frozen
class Settings:
    """The settings of a launch.

    Attributes:
        host: Address to bind.
        port: Port to bind; 0 lets the system choose.
        base_path: Prefix of every route; empty for none.
        clock: What makes time pass; None takes the simulation's own clock.
        record_dir: Directory to record into; None does not record.
        resume_path: Snapshot to restore before serving; None starts a fresh world.
        replay_path: Script to perform and record instead of serving agents; None serves agents.
        reseed: Seed of a fresh world, or set after restoring; None leaves the random generator
            unchanged.
        manifest_path: Manifest in which recordings are registered; None registers none.
        world_files: Digest of the world's files, for its recording; None if it was given none.
        operator_token: Secret that a request for a snapshot must carry; None refuses all.
        session_nonce: Secret of this launch, mixed into session ids; None for a new secret.
        exit_on_halt: Whether the process exits when the world halts.
        request_timeout: Seconds within which a complete request must arrive.
        answer_timeout: Seconds for which a client may leave its answer unread.
        max_connections: Maximum number of open connections.
        log_name: Name of the world's log, shown to agents when it halts; None if it has no file.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    base_path: str = attrs.field(default="", converter=normalise_base_path)
    clock: Clock | None = None
    record_dir: Path | None = None
    resume_path: Path | None = None
    replay_path: Path | None = None
    reseed: int | None = None
    manifest_path: Path | None = None
    world_files: str | None = None
    operator_token: bytes | None = attrs.field(default=None, repr=False)
    session_nonce: bytes | None = attrs.field(default=None, repr=False)
    exit_on_halt: bool = False
    request_timeout: float = REQUEST_TIMEOUT_S
    answer_timeout: float = ANSWER_TIMEOUT_S
    max_connections: int = attrs.field(factory=_default_max_connections)
    log_name: str | None = None


def read_settings(
    argv: Sequence[str] | None,
    environ: MutableMapping[str, str],
    parser: argparse.ArgumentParser | None = None,
    flags: argparse.Namespace | None = None,
) -> Settings:
    """Read flags and environment; a blank variable counts as unset.

    The secrets are removed from ``environ``, so no child process inherits them.

    Args:
        argv: The flags, without the program's name; None for those of the process.
        environ: The environment; changed in place.
        parser: A parser with additional flags; the kit adds its own. None for no additional flags.
        flags: Gets all flags, including the additional flags.

    Raises:
        SystemExit: A flag or a variable is wrong (status 2), or ``--help`` is given (status 0).
    """
    given = {name: value.strip() for name, value in environ.items() if value.strip()}
    for name in (*SECRET_ENV, SESSION_NONCE_ENV):
        environ.pop(name, None)
    parser = parser or argparse.ArgumentParser(description="Serve this world.", allow_abbrev=False)
    _add_flags(parser, given)
    flags = parser.parse_args(argv, flags)
    token, nonce = given.get(OPERATOR_TOKEN_ENV), given.get(SESSION_NONCE_ENV)
    return Settings(
        host=flags.host,
        port=flags.port,
        base_path=flags.base_path,
        clock=flags.clock,
        record_dir=flags.record_dir if flags.record else None,
        resume_path=flags.resume,
        replay_path=flags.replay,
        reseed=flags.reseed,
        manifest_path=Path(given[MANIFEST_ENV]) if MANIFEST_ENV in given else None,
        world_files=given.get(FILES_ENV),
        operator_token=None if token is None else os.fsencode(token),
        session_nonce=None if nonce is None else os.fsencode(nonce),
        exit_on_halt=flags.exit_on_halt,
        request_timeout=flags.request_timeout,
        answer_timeout=flags.answer_timeout,
        max_connections=flags.max_connections,
    )


def _add_flags(parser: argparse.ArgumentParser, given: Mapping[str, str]) -> None:
    """Add the flags; argparse passes string defaults through ``type``, as it does flags."""
    parser.epilog = (
        "WORLD_* variables set the defaults of these flags. The operator token has no "
        f"flag; it is read from {OPERATOR_TOKEN_ENV}."
    )
    _add_launch_flags(parser, given)
    _add_limit_flags(parser)


def _add_launch_flags(parser: argparse.ArgumentParser, given: Mapping[str, str]) -> None:
    def add(flag: str, variable: str, default: str | None, parse: _Parse, text: str) -> None:
        kind = _naming_variable(parse, variable, given.get(variable))
        parser.add_argument(flag, type=kind, default=given.get(variable, default), help=text)

    add("--host", HOST_ENV, "127.0.0.1", _parse_host, "address to bind [%(default)s]")
    port = _number_in(range(65536), "a port from 0 to 65535")
    add("--port", PORT_ENV, "8080", port, "port to bind; 0 takes a free one [%(default)s]")
    add("--base-path", BASE_PATH_ENV, "", str, "prefix of every route [none]")
    add(
        "--record-dir", RECORD_DIR_ENV, "recordings", Path, "directory to record into [%(default)s]"
    )
    add("--resume", RESUME_ENV, None, Path, "snapshot to restore before serving [a fresh world]")
    add("--replay", REPLAY_ENV, None, Path, "script to perform and record, serving no agent")
    seed = _number_in(SEEDS, "a seed from 0 to 2**64-1")
    add("--reseed", RESEED_ENV, None, seed, "random seed, set after restoring [none]")
    parser.add_argument(
        "--record",
        action=argparse.BooleanOptionalAction,
        default=_record_default(parser, given),
        help="record every event [off]",
    )
    parser.add_argument(
        "--clock",
        type=Clock,
        choices=list(Clock),
        help="what makes simulation time pass [the world's own choice]",
    )
    parser.add_argument(
        "--exit-on-halt", action="store_true", help="exit with status 70 when the world halts"
    )


def _add_limit_flags(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("limits of clients")
    late = "close a connection whose client leaves an answer unread for this time"
    for flag, default, text in (
        ("--request-timeout", REQUEST_TIMEOUT_S, "time limit for a complete request to arrive"),
        ("--answer-timeout", ANSWER_TIMEOUT_S, late),
    ):
        limits.add_argument(
            flag,
            type=_parse_seconds,
            default=default,
            metavar="SECONDS",
            help=f"{text} [%(default)g]",
        )
    limits.add_argument(
        "--max-connections",
        type=_number_in(range(1, 10**9), "a whole number above 0"),
        default=_default_max_connections(),
        metavar="N",
        help="maximum number of open connections; further ones wait [%(default)s]",
    )


def _naming_variable(parse: _Parse, variable: str, value: str | None) -> _Parse:
    """Return a parser whose error names the variable that a wrong value came from."""

    def parse_value(text: str) -> object:
        try:
            return parse(text)
        except argparse.ArgumentTypeError as error:
            if text != value:
                raise
            raise argparse.ArgumentTypeError(f"{error} (from {variable})") from None

    return parse_value


def _record_default(parser: argparse.ArgumentParser, given: Mapping[str, str]) -> bool:
    text = given.get(RECORD_ENV, "0")
    if text.lower() not in _BOOLEANS:
        parser.error(f"{RECORD_ENV} must be 1 or 0, not {text!r}")
    return _BOOLEANS[text.lower()]


def _parse_host(text: str) -> str:
    if not text.strip():  # the empty address would mean every interface
        raise argparse.ArgumentTypeError("must be an address, not an empty text")
    return text.strip()


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError(
            f"must be a number of seconds above 0 and up to {_MAX_SECONDS:g}, not {text!r}"
        )
    return seconds


def _number_in(numbers: range, what: str) -> _Parse:
    def parse(text: str) -> int:
        number = int(text) if re.fullmatch("[0-9]{1,20}", text) else -1
        if number not in numbers:
            raise argparse.ArgumentTypeError(f"must be {what}, not {text[:40]!r}")
        return number

    return parse
