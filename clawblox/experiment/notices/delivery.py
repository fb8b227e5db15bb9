"""Delivers a notice to a command or an address, within a time limit.

A command gets the notice on its standard input, and a few variables without secrets.
Its processes end with it. An address gets a shorter notice, in one request without redirects.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError
from clawblox.experiment.schedule.score_functions import refuse_result
from clawblox.foreign_values import clean_text
from clawblox.protocol import INSTANCE_ENV
from clawblox.supervision.program import run_program
from clawblox.supervision.tree import SharedStop
from clawblox.system.process import CannotExecute, Process, spawn

DELIVERY_S: Final = 10.0
"""Time limit in seconds for the end of a command and the answer of an address."""
VARIABLES: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ"),
    *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES"),
)
"""The variables of this process that a command gets."""

_GRACE_S: Final = 1.0
_MAX_OUTPUT_BYTES: Final = 2000
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "clawblox"}


class DeliveryError(Exception):
    """A notice was not delivered."""


def check_program(program: str, hook: str) -> None:
    """Check that the program of a hook can be run. Blocks.

    Args:
        program: A path, or a name to look up in PATH.
        hook: Name of the hook, for the error.

    Raises:
        ConfigError: The program cannot be executed, or is in the directory of an experiment or of
            an agent, which may have written it.
    """
    found = shutil.which(program)
    if found is None:
        raise ConfigError(
            f"must begin with a program that can be executed, not {program!r}",
            key=hook,
            hint="a path with a slash is relative to the directory of the plan; any other name is"
            " looked up in PATH",
        )
    refuse_result(Path(found), hook, program, "copy the program to another directory")


async def run_command(words: Sequence[str], hook: str, notice: bytes, cwd: Path) -> None:
    """Run a command with a notice as input, and end all processes that it started.

    Args:
        words: The program and its arguments.
        hook: Name of the hook, for errors.
        notice: Its standard input.
        cwd: Its working directory.

    Raises:
        DeliveryError: The command cannot be run, has failed, or did not end in time.

    Cancellation: ends the processes of the command.
    """
    try:
        await run_blocking(check_program, words[0], hook)
    except ConfigError as error:
        raise DeliveryError(error.message) from error
    kept = bytearray()

    async def keep(data: bytes) -> None:
        kept.extend(data[: _MAX_OUTPUT_BYTES - len(kept)])

    stop = SharedStop()
    stop.scope.deadline = anyio.current_time() + DELIVERY_S
    try:
        end = await run_program(partial(_start, words, notice, cwd), keep, stop, _GRACE_S)
    except (CannotExecute, OSError) as error:
        raise DeliveryError(str(error)) from error
    text = clean_text(kept.decode(errors="replace").strip())
    output = f": {text}" if text else ""
    if end is None or stop.scope.cancelled_caught:
        raise DeliveryError(f"it did not end within {DELIVERY_S:g} s and was stopped{output}")
    if end.status != 0:
        how = f"status {end.status}" if end.signal is None else end.signal
        raise DeliveryError(f"it ended with {how}{output}")


def _start(words: Sequence[str], notice: bytes, cwd: Path, cookie: str, output: int) -> Process:
    """Start a command whose standard input is a file in memory. Blocks."""
    given = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    env = {"PATH": os.defpath, **given, INSTANCE_ENV: cookie}
    with os.fdopen(os.memfd_create("notice"), "w+b", buffering=0) as file:
        file.write(notice)
        file.seek(0)
        return spawn(words, cwd=cwd, env=env, output=output, stdin=file.fileno())


async def post(address: str, notice: bytes) -> None:
    """Send a notice to an address. Only the status of the answer is read.

    Certificates are verified; those in ``SSL_CERT_FILE`` are trusted too. No proxy, cookie,
    login or ``.netrc`` is used.

    Args:
        address: The address.
        notice: The body.

    Raises:
        DeliveryError: There was no answer in time, or its status was not success.

    Cancellation: the notice may have been received.
    """
    import httpx  # loading it takes longer than everything else

    try:
        with anyio.fail_after(DELIVERY_S):
            context = await run_blocking(httpx.create_ssl_context)
            client = httpx.AsyncClient(
                verify=context, trust_env=False, follow_redirects=False, timeout=DELIVERY_S
            )
            async with client:
                request = client.stream("POST", address, content=notice, headers=_HEADERS)
                async with request as response:
                    status = response.status_code
    except (TimeoutError, httpx.TimeoutException) as error:
        raise DeliveryError(f"it did not answer within {DELIVERY_S:g} s") from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise DeliveryError(f"it cannot be reached: {clean_text(str(error))}") from error
    if not 200 <= status < 300:
        hint = ", and redirects are not followed" if 300 <= status < 400 else ""
        raise DeliveryError(f"it answered with status {status}{hint}")
