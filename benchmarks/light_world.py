"""A world that costs next to nothing, so that the figures are the orchestrator's.

One thread, raw sockets, run as ``python -I -S``. It writes the monotonic time at which it
really listens into the file that ``BENCH_READY`` names, and serves ``GET /snapshot`` by
``sendfile`` from the file that ``BENCH_SNAPSHOT`` names.
"""

import os
import socket
import time

ANSWER = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n"
JOINED = b'{"session": "s-1", "agent_id": "a-1"}'


def main() -> None:
    """Serve one connection after the other until TERM."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((os.environ["WORLD_HOST"], int(os.environ["WORLD_PORT"])))
    listener.listen(128)
    ready = os.environ.get("BENCH_READY", "")
    if ready.isdigit():
        os.write(int(ready), b"%.9f\n" % time.monotonic())
    elif ready:
        fd = os.open(ready, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, b"%.9f\n" % time.monotonic())
        os.close(fd)
    while True:
        connection = listener.accept()[0]
        with connection:
            serve(connection)


def serve(connection: socket.socket) -> None:
    """Answer the requests of one connection until it is closed."""
    pending = b""
    while True:
        while b"\r\n\r\n" not in pending:
            chunk = connection.recv(65536)
            if not chunk:
                return
            pending += chunk
        head, _, pending = pending.partition(b"\r\n\r\n")
        if head.startswith(b"GET /snapshot"):
            send_snapshot(connection)
        elif head.startswith(b"POST /join"):
            connection.sendall(ANSWER % (b"200 OK", len(JOINED)) + JOINED)
        else:
            connection.sendall(ANSWER % (b"200 OK", 2) + b"ok")
        if b"connection: close" in head.lower():
            return


def send_snapshot(connection: socket.socket) -> None:
    """Send the prepared snapshot without touching its bytes."""
    with open(os.environ["BENCH_SNAPSHOT"], "rb") as file:
        size = os.fstat(file.fileno()).st_size
        connection.sendall(ANSWER % (b"200 OK", size))
        offset = 0
        while offset < size:
            offset += os.sendfile(connection.fileno(), file.fileno(), offset, size - offset)


main()
