"""Ctrl-C ends a wait for the portal at any moment."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import Any

import anyio
import anyio.to_thread

from clawblox.concurrency import portal
from tests.support.waiting import HANG_S

MISSED = """
import signal, sys, threading
import anyio
from clawblox.concurrency.portal import portal

begun = threading.Event()

async def wait():
    begun.set()
    await anyio.sleep_forever()

def interrupt():
    begun.wait()
    # Another thread gets the signal, so the wait of the main thread is not interrupted by it.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

threading.Thread(target=interrupt).start()
portal.run(wait)
"""


def test_a_signal_that_does_not_interrupt_the_wait_is_seen_soon() -> None:
    words = [sys.executable, "-c", MISSED]
    result = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert result.returncode == -signal.SIGINT
    assert result.stderr.endswith("KeyboardInterrupt\n")


EXHAUSTED = """
import resource
import anyio
from clawblox.concurrency.portal import portal

async def count():
    return 5

limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
try:
    portal.run(count)
except OSError as error:
    print(error.strerror)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
print(portal.run(count))
"""


def test_a_call_without_descriptors_fails_and_the_next_call_retries() -> None:
    words = [sys.executable, "-c", EXHAUSTED]
    result = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert result.stdout.splitlines() == [os.strerror(errno.EMFILE), "5"]


class Interrupter:
    """Raises KeyboardInterrupt at a line of the wait, counted from 1."""

    def __init__(self, number: int) -> None:
        self.has_begun = threading.Event()
        self._left = number

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_globals.get("__name__") != portal.__name__:
            return None
        if event == "line":
            self.has_begun.set()
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self.trace


def is_interrupted_at(number: int) -> bool:
    """Return whether a wait was interrupted at a line; False if it ended before."""
    outcome = portal._Outcome[int]()
    interrupter = Interrupter(number)

    async def compute() -> int:
        await anyio.to_thread.run_sync(interrupter.has_begun.wait)
        return 5

    loop = threading.Thread(target=anyio.run, args=(outcome.settle, compute))
    loop.start()
    before = sys.gettrace()
    sys.settrace(interrupter.trace)
    try:
        assert outcome.wait() == 5
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        interrupter.has_begun.set()
        loop.join(HANG_S)
        assert not loop.is_alive()
        assert outcome.wait() == 5
    return False


def test_an_interruption_at_any_line_of_a_wait_is_raised_safely() -> None:
    are_interrupted = [is_interrupted_at(number) for number in range(1, 10)]
    assert are_interrupted[0]
    assert not are_interrupted[-1]
