"""The helper process of the watchdog. It uses only the standard library, to stay near 9 MB.

The helper sleeps in ``poll`` until the next check is due, the world closes its socket, or the world
ends. It measures the CPU time of the whole process. This time does not advance while the world is
stopped or waits for a processor, so a busy machine does not end worlds. The world shares a page of
memory with the helper, the slot: the call, its place, and the request to stop.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import select
import signal
import time

from clawblox.system.helper import detach_from_parent, open_parent

_SIZE = mmap.PAGESIZE
_CALL, _ASKED, _CAUSE, _LENGTH = range(4)
_TEXT = 64
_MOST_TEXT = 512


def open_slot_file() -> int:
    """Return the descriptor of an empty slot; the caller closes it.

    Raises:
        OSError: The process has reached its limit of descriptors.
    """
    descriptor = os.memfd_create("clawblox-watchdog")
    os.ftruncate(descriptor, _SIZE)
    return descriptor


class Slot:
    """The slot, mapped into this process.

    Args:
        descriptor: Descriptor of its file; may be closed afterwards.
    """

    def __init__(self, descriptor: int) -> None:
        self._bytes = mmap.mmap(descriptor, _SIZE)
        self._words = memoryview(self._bytes)[:_TEXT].cast("Q")

    @property
    def call(self) -> int:
        """Number of the current call of the world: odd during a call, even between calls."""
        return self._words[_CALL]

    @call.setter
    def call(self, number: int) -> None:
        self._words[_CALL] = number

    @property
    def asked(self) -> tuple[int, int]:
        """The call that should stop, and the number of the cause."""
        return self._words[_ASKED], self._words[_CAUSE]

    @asked.setter
    def asked(self, asked: tuple[int, int]) -> None:
        self._words[_ASKED], self._words[_CAUSE] = asked

    @property
    def place(self) -> str:
        """The last known place in a script, ``name:line``; empty if unknown."""
        length = min(self._words[_LENGTH], _MOST_TEXT)
        text = self._bytes[_TEXT : _TEXT + length].decode(errors="replace")
        return "".join(letter if letter.isprintable() else "?" for letter in text)

    @place.setter
    def place(self, place: str) -> None:
        data = place.encode(errors="replace")[:_MOST_TEXT]
        self._bytes[_TEXT : _TEXT + len(data)] = data
        self._words[_LENGTH] = len(data)

    def close(self) -> None:
        """Unmap the slot."""
        self._words.release()
        self._bytes.close()


ASK_SIGNAL = 56
"""Signal that asks the world to stop its script: an otherwise unused real-time signal."""

CPU, MEMORY = range(2)
CAUSES = (
    (
        "more than {cpu_s:g} s of CPU time in one tick or call"
        " ([clawblox] watchdog_cpu_s in world.toml)"
    ),
    (
        "its process has more than {memory_mib:.0f} MiB of memory"
        " ([clawblox] watchdog_memory_mib in world.toml)"
    ),
)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_IDLE_FACTOR = 5
"""Factor by which the time to answer is longer for a world that is idle or not scheduled."""
_KILL_AFTER_S = 1.0
_WRITE_TIMEOUT_S = 1.0


def main(
    world: str,
    end: str,
    mark: str,
    cpu_s: str,
    memory_bytes: str,
    patience_s: str,
    interval_s: str,
) -> None:
    """Run the program: standard input is a socket of the world, standard output the slot.

    Args:
        world: Process id of the world, the parent.
        end: Number of the signal that ends the world.
        mark: Prefix of the reason, in the log.
        cpu_s: Maximum CPU time of a call, in seconds.
        memory_bytes: Maximum resident memory of the process.
        patience_s: CPU time between asking and ending, in seconds.
        interval_s: Seconds between two checks.
    """
    detach_from_parent()
    pid = int(world)
    if (handle := open_parent(pid)) is not None:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # the world has just ended
            watching = _Watching(pid, handle, int(end), mark)
            watching.limit(float(cpu_s), int(memory_bytes), float(patience_s))
            watching.run(float(interval_s))
    os._exit(0)


class _Watching:
    """The watch over a world."""

    def __init__(self, pid: int, handle: int, end: int, mark: str) -> None:
        self._handle = handle
        self._end_signal = end
        self._mark = mark
        self._slot = Slot(1)
        self._clock = (~pid << 3) | 2  # CPU time of that process; see clock_getcpuclockid(3)
        self._statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
        self._call = 0
        self._began_at = 0.0
        self._asked: int | None = None
        self._asked_at = 0.0, 0.0

    def limit(self, cpu_s: float, memory_bytes: int, patience_s: float) -> None:
        """Set the limits; see `main`."""
        self._cpu_s, self._memory_bytes, self._patience_s = cpu_s, memory_bytes, patience_s

    def run(self, interval_s: float) -> None:
        """Check regularly until the world closes its socket or ends."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._handle, select.POLLIN)
        while not poll.poll(1000 * interval_s):
            cpu = time.clock_gettime(self._clock)
            if self._slot.call != self._call:
                self._call, self._began_at = self._slot.call, cpu
                if self._asked == CPU:
                    self._asked = None  # the call has ended
            self._judge(cpu)

    def _judge(self, cpu: float) -> None:
        cause = self._find_cause(cpu)
        if cause is None:
            self._asked = None
        elif self._asked is None:
            self._asked, self._asked_at = cause, (cpu, time.monotonic())
            self._slot.asked = self._call, cause
            self._send(ASK_SIGNAL)
        elif self._waited(cpu) >= self._patience_s:
            self._end(self._asked)

    def _find_cause(self, cpu: float) -> int | None:
        if self._call % 2 and cpu - self._began_at > self._cpu_s:
            return CPU
        pages = int(os.pread(self._statm, 256, 0).split()[1])
        return MEMORY if pages * _PAGE_BYTES > self._memory_bytes else None

    def _waited(self, cpu: float) -> float:
        """Return the CPU time since the request to stop, or a share of the wall time if larger."""
        cpu_at, at = self._asked_at
        idle = 0.0 if self._asked == CPU else (time.monotonic() - at) / _IDLE_FACTOR
        return max(cpu - cpu_at, idle)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def _end(self, cause: int) -> None:
        values = {"cpu_s": self._cpu_s, "memory_mib": self._memory_bytes / 2**20}
        place = self._slot.place
        where = f"; last known line: {place}" if place else ""
        _write(f"{self._mark}{CAUSES[cause].format(**values)}{where}")
        self._send(self._end_signal)
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        if not poll.poll(1000 * _KILL_AFTER_S):
            self._send(signal.SIGKILL)
        self._patience_s = math.inf  # done; wait for the end


def _write(line: str) -> None:
    """Write a line to the standard error of the world; do not block on a full pipe."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if poll.poll(1000 * _WRITE_TIMEOUT_S):
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode(errors="replace"))
