"""Running a program that ends soon, and reading what it writes."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

_MAX_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 16


@attrs.frozen
class Outcome:
    """How a program ended.

    Attributes:
        status: Its exit status; the negative number of the signal that ended it.
        output: What it wrote to standard output and error.
    """

    status: int
    output: str

    @property
    def first_line(self) -> str:
        """The first line that it wrote."""
        return self.output.strip().partition("\n")[0]


def run_briefly(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    cwd: str = "/",
    pass_fds: Sequence[int] = (),
    max_bytes: int = _MAX_BYTES,
) -> Outcome:
    """Run a program to its end. Blocks.

    Args:
        command: Program and arguments.
        env: The whole environment.
        timeout: Seconds after which it is killed.
        cwd: Working directory.
        pass_fds: Further descriptors that it inherits, under their own numbers.
        max_bytes: Maximum output in bytes; a program that writes more is killed.

    Raises:
        OSError: It cannot be executed, or wrote too much and was killed.
        TimeoutError: It did not end in time, and was killed.
    """
    deadline = time.monotonic() + timeout
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            output = _read_output(process.stdout.fileno(), deadline, max_bytes)
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            process.kill()
            raise TimeoutError(f"{command[0]} did not end within {timeout:g} s") from None
        except BaseException:
            process.kill()
            raise
    return Outcome(status, output.decode(errors="replace"))


def _read_output(pipe: int, deadline: float, max_bytes: int) -> bytes:
    """Return all that is written to a pipe until its end.

    Raises:
        TimeoutError: It has not ended by the deadline.
        OSError: It is more than ``max_bytes``.
    """
    output = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        chunk = os.read(pipe, _CHUNK_BYTES)
        if not chunk:
            return bytes(output)
        output += chunk
        if len(output) > max_bytes:
            raise OSError(errno.EFBIG, f"it wrote more than {max_bytes} bytes")
    raise TimeoutError
