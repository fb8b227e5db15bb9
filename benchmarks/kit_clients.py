"""Agents in a closed loop: each sends its next request after the complete answer to the last.

All agents share one process, with persistent connections and one epoll. It only searches for the
end of each answer, so it needs a fraction of a server's time, shown by `client_share`.
"""

from __future__ import annotations

import re
import select
import socket
import statistics
import time
from collections.abc import Sequence, Set
from contextlib import ExitStack
from typing import Final

from benchmarks.worlds import HOST

__all__ = ["VERBS", "connect_while_busy", "drive"]

_BODY: Final = b'{"type":"Steer","data":{"direction":[0.25,-0.75]}}'
VERBS: Final = {
    "observe": (b"GET /observe", b""),
    "input": (b"POST /input", _BODY),
}
"""Actions of agents: the start of the request line, and the body."""

_WARM_UP: Final = 0.2
"""Share of the time before answers are counted."""
_LEAST_ANSWERS: Final = 2
"""Minimum number of answers to wait for, regardless of their duration."""
_BUSY_ANSWERS: Final = 8
"""Number of answers of each busy agent before others connect."""
_CHUNK: Final = 1 << 16
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class _Agent:
    """A connection with at most one request in progress."""

    __slots__ = ("_answer", "_request", "sent_at", "socket")

    def __init__(self, connection: socket.socket, request: bytes) -> None:
        self.socket = connection
        self.sent_at = 0.0
        self._request = request
        self._answer = b""

    def send(self, now: float) -> None:
        self.sent_at = now
        self.socket.sendall(self._request)

    def receive(self) -> bool:
        """Receive a part of the answer; return whether the answer is complete."""
        data = self.socket.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the server closed a connection")
        self._answer = answer = self._answer + data if self._answer else data
        end, length = answer.find(b"\r\n\r\n"), _LENGTH.search(answer)
        if end < 0 or length is None or len(answer) < end + 4 + int(length[1]):
            return False
        if not answer.startswith(b"HTTP/1.1 200"):
            raise ValueError(f"the server refused a request: {answer.decode()}")
        self._answer = b""
        return True


def drive(port: int, verb: str, sessions: Sequence[str], seconds: float) -> dict[str, float]:
    """Let agents send requests in a closed loop.

    Args:
        port: Port of the server.
        verb: One of :data:`VERBS`.
        sessions: A session for each agent.
        seconds: Duration of sending requests, after each agent has received an answer.

    Returns:
        The total number of `answers`; and without the warm-up, `rate` in answers per second,
        `p50_ms` and `p99_ms` from a request to its complete answer, and `client_share`, the share
        of a core used by this process.
    """
    with ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        agents = _connect(stack, poll, port, verb, sessions)
        waiting = len(agents)
        while waiting:
            waiting -= sum(agents[fd].receive() for fd, _ in poll.poll())
        figures = _run(poll, agents, seconds)
        return {**figures, "answers": figures["answers"] + len(agents)}


def connect_while_busy(port: int, sessions: Sequence[str]) -> float:
    """Let the second half of the agents connect while the first half observes in a closed loop.

    Returns:
        The time in ms until each agent of the second half has its first observation.
    """
    half = len(sessions) // 2
    with ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        agents = _connect(stack, poll, port, "observe", sessions[:half])
        busy = set(agents)
        answers = 0
        while answers < _BUSY_ANSWERS * half:
            answers += len(_observe_again(poll, agents, busy))
        begun_at = time.perf_counter()
        agents |= _connect(stack, poll, port, "observe", sessions[half:])
        waiting = agents.keys() - busy
        while waiting:
            waiting -= _observe_again(poll, agents, busy)
        return 1e3 * (time.perf_counter() - begun_at)


def _observe_again(poll: select.epoll, agents: dict[int, _Agent], busy: Set[int]) -> set[int]:
    """Return the agents with complete answers; let the busy agents observe again."""
    answered = {fd for fd, _ in poll.poll() if agents[fd].receive()}
    for fd in answered & busy:
        agents[fd].send(time.perf_counter())
    for fd in answered - busy:
        poll.unregister(fd)  # the server may close it while it is idle
    return answered


def _connect(
    stack: ExitStack, poll: select.epoll, port: int, verb: str, sessions: Sequence[str]
) -> dict[int, _Agent]:
    """Return agents by descriptor, each with a request in progress."""
    agents = {}
    for session in sessions:
        connection = stack.enter_context(socket.create_connection((HOST, port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(connection.fileno(), select.EPOLLIN)
        agent = _Agent(connection, _make_request(port, verb, session))
        agents[connection.fileno()] = agent
        agent.send(time.perf_counter())
    return agents


def _run(poll: select.epoll, agents: dict[int, _Agent], seconds: float) -> dict[str, float]:
    now = time.perf_counter()
    counted_from, ends_at = now + _WARM_UP * seconds, now + seconds
    counted_until = ends_at
    cpu_before = 0.0
    latencies: list[float] = []
    answers, waiting = 0, len(agents)
    for agent in agents.values():
        agent.send(now)
    while waiting:
        for fd, _ in poll.poll():
            agent = agents[fd]
            if not agent.receive():
                continue
            answers += 1
            now = time.perf_counter()
            if now >= ends_at and len(latencies) >= _LEAST_ANSWERS:
                waiting -= 1
                continue
            if now >= counted_from:
                cpu_before = cpu_before or time.process_time()
                latencies.append(now - agent.sent_at)
                counted_until = now
            agent.send(now)
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "answers": answers,
        "rate": len(latencies) / (counted_until - counted_from),
        "p50_ms": 1e3 * cuts[49],
        "p99_ms": 1e3 * cuts[98],
        "client_share": (time.process_time() - cpu_before) / (now - counted_from),
    }


def _make_request(port: int, verb: str, session: str) -> bytes:
    line, body = VERBS[verb]
    lines = [
        line + b" HTTP/1.1",
        b"Host: %s:%d" % (HOST.encode(), port),
        b"X-Session: " + session.encode(),
    ]
    if body:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
