"""Health checks: probes for the readiness, identity and liveness of a world.

A world is ready when its route answers 200 (or its log matches a pattern) *and* the listening
socket belongs to its process tree. Probes use raw loopback sockets: a refused connection takes
about 14 µs, compared to a third of a millisecond with an HTTP client.

Probes are generators that yield wait conditions, so the launcher can run many of them in a single
thread, and the liveness check can run one in the event loop. Liveness uses the terms of the
kubelet: every ``period`` seconds, a probe may take up to ``timeout`` seconds;
``failure_threshold`` failures in a row mean that the world hangs. If a world reports that it has
halted, a single probe is enough.
"""

from __future__ import annotations

import errno
import math
import os
import re
import select
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import anyio
import attrs

from clawblox.concurrency.deadlines import running_deadline
from clawblox.config.world_toml import LivenessRule
from clawblox.protocol import OPERATOR_HEADER, HealthReport, parse_report
from clawblox.system.ports import (
    connect_host,
    describe_owner,
    find_owners,
    join_address,
    listeners_at,
)
from clawblox.system.process_tree import Mark, find_tree
from clawblox.system.request import INTERIM_STATUSES
from clawblox.telemetry.logs import open_to_read
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

_FIRST_DELAY_S = 0.002
_LAST_DELAY_S = 0.02
_LONG_S, _SLOW_DELAY_S = 5.0, 0.05
_LONGEST_WAIT_S = 0.25
_LAST_LOOK_S = 0.25
"""Maximum duration of the last check at the deadline of a start, in seconds."""
_ANSWER_TIMEOUT_S = 5.0
_DRAIN_TIMEOUT_S = 0.2
_MAX_ANSWER_BYTES = 1 << 20
_LOG_CHUNK_BYTES = 1 << 16
_HEAD_END: Final = b"\r\n\r\n"
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d{1,12})\s*\r?$", re.IGNORECASE | re.MULTILINE)
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT


class Wait(NamedTuple):
    """The condition that a step of a probe waits for: a descriptor event or a timeout.

    Attributes:
        seconds: Maximum wait in seconds; ``math.inf`` for no limit.
        fd: The descriptor; -1 to wait only for the timeout.
        events: :data:`READ` or :data:`WRITE`.
    """

    seconds: float
    fd: int = -1
    events: int = 0


Steps: TypeAlias = Generator[Wait, bool, bool]
"""The steps of a probe: yield a wait, receive whether the event came in time, return the result.

Closing the generator closes the connection.
"""


class StrangerAnswers(Exception):  # noqa: N818 - names the condition; the caller raises the public error
    """A process outside the instance listens on the port; the text describes the process."""


class HaltedAtStart(Exception):  # noqa: N818 - names the condition; the caller raises the public error
    """The world reports that it has halted before it was ready; the text is the reason."""


@attrs.define
class ReadinessProbe:
    """Checks whether an instance is ready, and keeps the last result.

    Attributes:
        host: Address that the world must bind.
        port: Its port.
        path: Route that must answer 200, including the base path; None to connect only.
        log_pattern: Pattern that its log must contain; None to ignore the log.
        log_file: The log.
        log_start: Offset of this instance's first byte in the log.
        interval: Seconds between two checks; None for increasing intervals from 2 ms to 20 ms, and
            to 50 ms after 5 s.
        is_inherited: Whether the world inherits a listening socket. A request then waits in the
            backlog without limit, and other processes cannot answer it.
        operator_token: Token sent with the request to get a detailed report, or None.
        seen: The result of the last check, for an error message.
        report: The world's report in the last check; empty if it did not answer.
    """

    host: str
    port: int
    path: str | None
    log_pattern: re.Pattern[str] | None
    log_file: Path
    log_start: int
    interval: float | None = None
    is_inherited: bool = False
    operator_token: str | None = attrs.field(default=None, repr=False)
    seen: str = "nothing yet"
    report: HealthReport = attrs.field(factory=HealthReport)
    _log_offset: int = attrs.field(init=False, default=0)
    _log_end: bytes = attrs.field(init=False, default=b"")
    _log_matched: bool = attrs.field(init=False, default=False)

    def probe_once(self) -> Steps:
        """Check once whether the world reports ready; store the result in ``seen``.

        Raises:
            OSError: There are no file descriptors left, or the log cannot be read.
        """
        self.report = HealthReport()
        if self.log_pattern is not None and not self._log_matched:
            self._log_matched = self._search_log(self.log_pattern)
            if not self._log_matched:
                self.seen = f"no log line matches {self.log_pattern.pattern!r}"
                return False
        connection = yield from self._connect()
        if connection is None:
            return False
        try:
            return True if self.path is None else (yield from self._ask(connection, self.path))
        finally:
            connection.close()

    def _search_log(self, pattern: re.Pattern[str]) -> bool:
        with open_to_read(self.log_file) as file:
            file.seek(max(self._log_offset, self.log_start))
            while chunk := file.read(_LOG_CHUNK_BYTES):
                self._log_offset = file.tell()
                text = self._log_end + chunk
                if pattern.search(text.decode(errors="replace")):
                    return True
                # An unfinished line is searched again when it is longer.
                self._log_end = text[text.rfind(b"\n") + 1 :][-_LOG_CHUNK_BYTES:]
        return False

    def _ask(self, connection: socket.socket, path: str) -> Steps:
        self.seen = f"connected, no answer to GET {path}"
        try:
            answer = yield from self._read_answer(connection, self._request(path))
        except OSError as error:
            self.seen = f"GET {path} failed: {error.strerror}"
            return False
        if answer is None:
            return False
        found = _STATUS_LINE.match(answer)
        status = int(found[1]) if found else None
        self.seen = f"GET {path} answered {status or 'something that is not HTTP'}"
        self.report = parse_report(status, answer.partition(_HEAD_END)[2])
        return status == 200

    def _read_answer(
        self, connection: socket.socket, request: bytes
    ) -> Generator[Wait, bool, bytes | None]:
        """Send ``request`` and return the answer; None if it does not come in time."""
        deadline = math.inf if self.is_inherited else time.monotonic() + _ANSWER_TIMEOUT_S
        connection.sendall(request)
        answer = b""
        while not _is_complete(answer):
            # Without a content length, do not wait for the end of the connection.
            has_status = _STATUS_LINE.match(answer) and not _is_interim(answer)
            left = deadline - time.monotonic()
            is_readable = yield Wait(
                min(left, _DRAIN_TIMEOUT_S) if has_status else left, connection.fileno(), READ
            )
            if not is_readable:
                return answer if has_status else None
            chunk = connection.recv(1 << 16)
            if not chunk:
                break
            answer = _skip_interim(answer + chunk)
        return answer

    def _request(self, path: str) -> bytes:
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: {join_address(connect_host(self.host), self.port)}",
            "Accept: */*",
            "Accept-Encoding: identity",
            "Connection: close",
            *([f"{OPERATOR_HEADER}: {self.operator_token}"] if self.operator_token else ()),
        )
        return "\r\n".join((*lines, "", "")).encode()

    def _connect(self) -> Generator[Wait, bool, socket.socket | None]:
        host = connect_host(self.host)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        is_open = False
        try:
            code = connection.connect_ex((host, self.port))
            if code == errno.EINPROGRESS:  # on loopback the result is known by now, so ask again
                code = connection.connect_ex((host, self.port))
            if code == errno.EALREADY:
                yield Wait(math.inf, connection.fileno(), WRITE)
                code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            # A TCP simultaneous open can connect a closed port to itself.
            is_open = code == 0 and connection.getsockname() != connection.getpeername()
        finally:
            if not is_open:
                connection.close()
        if is_open:
            return connection
        self.seen = f"connection failed: {os.strerror(code)}" if code else "no listener"
        return None


def steps_until_ready(probe: ReadinessProbe, expected_s: float, timeout: float) -> Steps:
    """Probe until the world reports ready, although another process may have answered.

    Args:
        probe: The probe.
        expected_s: Seconds that the fastest world so far took; 0 if unknown. Probing starts after
            half of this time, and after 0.25 s at the latest, since this world may be faster.
        timeout: Seconds within which it must report ready.

    Returns:
        Whether it reported ready in time. The last check starts at the deadline, which may have
        passed while this process slept.

    Raises:
        HaltedAtStart: The world reports that it has halted.
        OSError: There are no file descriptors left, or the log cannot be read.
    """
    begun_at = time.monotonic()
    deadline = begun_at + timeout
    if expected_s and probe.interval is None and not probe.is_inherited:
        yield Wait(min(expected_s / 2, _LONGEST_WAIT_S, timeout))
    delay = _FIRST_DELAY_S
    while True:
        is_last = (now := time.monotonic()) >= deadline
        if (yield from _look_until(probe, now + _LAST_LOOK_S if is_last else deadline)):
            return True
        if probe.report.halt is not None:
            raise HaltedAtStart(probe.report.halt)
        if is_last:
            return False
        now = time.monotonic()
        pause = delay if probe.interval is None else probe.interval
        yield Wait(max(0.0, min(pause, deadline - now)))
        delay = min(delay * 2, _SLOW_DELAY_S if now - begun_at > _LONG_S else _LAST_DELAY_S)


def _look_until(probe: ReadinessProbe, deadline: float) -> Steps:
    """Check once, until a deadline on the monotonic clock."""
    steps = probe.probe_once()
    try:
        wait = next(steps)
        while (left := deadline - time.monotonic()) > 0:
            wait = steps.send((yield wait._replace(seconds=min(wait.seconds, left))))
    except StopIteration as end:
        return bool(end.value)
    finally:
        steps.close()
    return False


def require_own_listener(probe: ReadinessProbe, mark: Mark) -> None:
    """Check that the instance itself listens on its port. Blocks.

    Args:
        probe: The probe that found it ready.
        mark: Marks the processes of the instance.

    Raises:
        StrangerAnswers: A process outside the instance listens there.
        OSError: There are no file descriptors left.
    """
    is_proven = probe.is_inherited and probe.path is not None
    if is_proven:
        return
    inodes = {listener.inode for listener in listeners_at(probe.host, probe.port)}
    if not inodes or find_owners(inodes, find_members(mark)).keys() != inodes:
        raise StrangerAnswers(describe_owner(probe.port))


def find_members(mark: Mark) -> Iterator[int]:
    """Yield the pids of an instance, leaders first; search the tree only if more are needed."""
    yield from (pid for pid, _ in mark.leaders)
    yield from (proc.pid for proc in find_tree([mark]))


def _skip_interim(answer: bytes) -> bytes:
    """Return an answer without the complete heads of preceding interim answers."""
    while _is_interim(answer) and _HEAD_END in answer:
        answer = answer.partition(_HEAD_END)[2]
    return answer


def _is_interim(answer: bytes) -> bool:
    found = _STATUS_LINE.match(answer)
    return found is not None and int(found[1]) in INTERIM_STATUSES


def _is_complete(answer: bytes) -> bool:
    """Return whether the whole body has arrived; reading less would reset the connection."""
    head, separator, body = answer[:_MAX_ANSWER_BYTES].partition(_HEAD_END)
    promised = _LENGTH.search(head)
    has_all = bool(separator and promised and len(body) >= int(promised[1]))
    return has_all or len(answer) >= _MAX_ANSWER_BYTES


# -- liveness: whether a ready world still answers ----------------------------------------------


class ProbePacer:
    """Paces the liveness probes of a world; callers that suspect a halt hurry the next probe."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._hurried: anyio.Event | None = None
        self._probed: anyio.Event | None = None
        self._is_probing = False
        self._begun = 0
        self._ended = 0

    def begin(self) -> None:
        """Start the probing of the instance."""
        self._is_probing = True
        self._hurried = anyio.Event()

    def end(self) -> None:
        """End the probing, and wake the waiting callers."""
        self._is_probing = False
        self._wake()

    async def pause(self, seconds: float) -> None:
        """Wait until the next probe is due.

        Args:
            seconds: Maximum wait in seconds.

        Cancellation: has no effect.
        """
        hurried = self._hurried or anyio.Event()
        self._hurried = hurried
        with anyio.move_on_after(seconds):
            await hurried.wait()
        self._hurried = anyio.Event()
        self._begun += 1

    def note_probe(self) -> None:
        """Record that the probe after the last `pause` has finished without a change."""
        self._ended = self._begun
        self._wake()

    def hurry(self) -> None:
        """Start the next probe immediately; no effect if called from another thread."""
        if self._hurried is not None and threading.get_ident() == self._thread:
            self._hurried.set()

    async def probe_now(self) -> None:
        """Hurry the next probe, and wait for the result of a probe that starts after this call.

        Cancellation: the probe still takes place.
        """
        wanted = self._begun + 1
        self.hurry()
        while self._is_probing and self._ended < wanted:
            self._probed = self._probed or anyio.Event()
            await self._probed.wait()

    def _wake(self) -> None:
        if self._probed is not None:
            self._probed.set()
            self._probed = None


async def wait_until_unresponsive(
    probe: ReadinessProbe,
    rule: LivenessRule,
    pacer: ProbePacer,
    on_report: Callable[[HealthReport], Awaitable[None]],
) -> str:
    """Probe a world until it has halted or stopped answering; return the result of the last probe.

    Time in which this process was not running does not count as a failure.

    Args:
        probe: The probe; afterwards its ``report.halt`` is the reason of the halt, or None.
        rule: Period and timeout in seconds, and the number of consecutive failures.
        pacer: Paces and hurries the probes.
        on_report: Called with the report of each good answer.

    Cancellation: leaves no connection open.
    """
    failures = 0
    while True:
        await pacer.pause(rule.period)
        is_good = False
        try:
            is_good = await _answers_in_time(probe, rule.timeout)
            failures = 0 if is_good else failures + 1
        except (
            OSError
        ) as error:  # a lack of descriptors in this process is not a failure of the world
            _log.warning("liveness not checked", error=str(error))
        if failures >= rule.failure_threshold or probe.report.halt is not None:
            return probe.seen
        pacer.note_probe()
        if is_good:
            await on_report(probe.report)


async def ask_report(probe: ReadinessProbe, seconds: float) -> HealthReport | None:
    """Return the report of a world that is healthy or halted; None for others or if late.

    Cancellation: leaves no connection open.
    """
    is_good = False
    try:
        is_good = await _answers_in_time(probe, seconds)
    except OSError as error:
        _log.warning("report not requested", error=str(error))
    return probe.report if is_good or probe.report.halt is not None else None


async def _answers_in_time(probe: ReadinessProbe, timeout: float) -> bool:
    is_good = False
    async with running_deadline(timeout) as scope:
        is_good = await run_steps(probe.probe_once())
    if scope.cancelled_caught:
        probe.seen = f"{probe.seen} within {timeout:g} s"
    return is_good


async def run_steps(steps: Steps) -> bool:
    """Run the steps of a probe in the event loop and return their result.

    Raises:
        OSError: Raised by the steps.

    Cancellation: leaves no connection open.
    """
    try:
        wait = next(steps)
        while True:
            with anyio.move_on_after(wait.seconds) as limit:
                if wait.fd < 0:
                    await anyio.sleep(wait.seconds)
                elif wait.events == READ:
                    await anyio.wait_readable(wait.fd)
                else:
                    await anyio.wait_writable(wait.fd)
            wait = steps.send(not limit.cancelled_caught)
    except StopIteration as end:
        return bool(end.value)
    finally:
        steps.close()


def look_once(probe: ReadinessProbe, seconds: float) -> bool:
    """Check once and return whether the world reports ready. Blocks.

    Args:
        probe: The probe; afterwards its ``seen`` is the result.
        seconds: Time limit in seconds.

    Raises:
        OSError: There are no file descriptors left, or the log cannot be read.
    """
    steps = _look_until(probe, time.monotonic() + seconds)
    try:
        wait = next(steps)
        while True:
            poll = select.poll()
            if wait.fd >= 0:
                poll.register(wait.fd, wait.events)
            wait = steps.send(bool(poll.poll(1000 * wait.seconds)))
    except StopIteration as end:
        return bool(end.value)
    finally:
        steps.close()
