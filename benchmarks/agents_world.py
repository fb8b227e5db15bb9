"""A very cheap world for many agents: all requests except joins get the same answer.

It serves all connections concurrently, keeps them open, and reads bodies by length. An observation
has the size of one in the marbles example. Run as ``python -I``; standard library only.
"""

import asyncio
import itertools
import json
import os
import time

BODY = {"id": "marble-1", "entity_type": "marble", "position": [5.803849440710332, 8.478695047]}
SEEN = {"tick": 17, "time": 0.85, "game_status": "active", "entities": [BODY] * 12}
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
SESSIONS = itertools.count(1)


def make_answer(value: object) -> bytes:
    """Return an answer with a JSON value."""
    body = json.dumps(value).encode()
    return ANSWER % (len(body), body)


SEEN_ANSWER = make_answer(SEEN)


def make_join_answer() -> bytes:
    """Return the answer to a join, with a new session."""
    number = next(SESSIONS)
    return make_answer({"session": f"s-{number}", "agent_id": f"a-{number}"})


class Peer(asyncio.Protocol):
    """A connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to read."""
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        """Answer every complete request."""
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, rest = self.received.partition(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            sizes = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
            size = sizes[0] if sizes else 0
            if len(rest) < size:
                return
            self.received = rest[size:]
            is_join = head.startswith(b"POST /join")
            self.transport.write(make_join_answer() if is_join else SEEN_ANSWER)
            if b"connection: close" in lines:
                self.transport.close()


async def main() -> None:
    """Serve until TERM."""
    loop = asyncio.get_running_loop()
    host, port = os.environ["WORLD_HOST"], int(os.environ["WORLD_PORT"])
    server = await loop.create_server(Peer, host, port, backlog=512)
    if ready := os.environ.get("BENCH_READY"):
        with open(ready, "w") as fifo:
            fifo.write(f"{time.monotonic():.9f}\n")
    await server.serve_forever()


asyncio.run(main())
