"""A world in bare asyncio: 60 empty ticks per second, and the same routes with small JSON.

This is the floor of the engine's server, without framework and checks, and with a minimal HTTP/1.1
parser.

    python -m benchmarks.engine_floor --port 8080
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

_TICK_S = 1 / 60


class World:
    """An empty world."""

    def __init__(self) -> None:
        self.tick = 0
        self.inputs: list[Any] = []

    def observe(self) -> dict[str, Any]:
        """Return the observation of an agent."""
        entities = [
            {"id": number, "name": "Part", "position": [number, 0.0, 0.5], "size": [1, 1, 1]}
            for number in range(20)
        ]
        return {"tick": self.tick, "game_status": "active", "world": {"entities": entities}}

    async def run(self) -> None:
        """Run empty ticks."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self.tick += 1
            self.inputs.clear()
            due += _TICK_S
            await asyncio.sleep(due - loop.time())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").lower().split("\r\n")
                sizes = (line.partition(":")[2] for line in lines if line.startswith("content-le"))
                body = await reader.readexactly(int(next(sizes, "0")))
                answer = json.dumps(self.answer(lines[0].split()[1], body)).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(answer), answer))
        except asyncio.IncompleteReadError:
            writer.close()

    def answer(self, path: str, body: bytes) -> Any:
        """Return the answer to a request."""
        if path.startswith("/join"):
            return {"session": "s-1", "agent_id": "a-1"}
        if path == "/input":
            self.inputs.append(json.loads(body))
        return self.observe()


async def main(port: int) -> None:
    """Serve until the process is ended."""
    world = World()
    await asyncio.start_server(world.serve, "127.0.0.1", port)
    await world.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(main(parser.parse_args().port))
