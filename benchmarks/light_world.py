"""A very cheap world, to measure the cost of the orchestrator only.

It uses raw sockets, one connection after the other, and runs as ``python -I -S``. It uses an
inherited listening socket (``LISTEN_FDS``) or binds one itself. It writes the monotonic time at
which it starts to listen to the path or descriptor in ``BENCH_READY``, and serves ``GET /snapshot``
with ``sendfile`` from the file in ``BENCH_SNAPSHOT``. With ``BENCH_LINES`` it also writes this
number of lines per second to its log, and ``GET /longest-write`` returns the duration of the
longest write since the last such request. ``BENCH_STOP_S`` is the delay before it obeys TERM, like
a world that cleans up.
"""

import _signal  # avoids the enum imported by `signal`
import _thread
import os
import socket
import time

ANSWER = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n"
JOINED = b'{"session": "s-1", "agent_id": "a-1"}'
LINE = b"marble 17 rolled past the third gate at 1.25 m/s, the crowd is cheering\n"
BURSTS_PER_S = 100

longest_write = [0.0]


def main() -> None:
    """Serve one connection after the other until TERM."""
    if "BENCH_STOP_S" in os.environ:
        _signal.signal(_signal.SIGTERM, clean_up)
    listener = open_listener()
    tell_ready(time.monotonic())
    lines_per_s = int(os.environ.get("BENCH_LINES", "0"))
    if lines_per_s:
        _thread.start_new_thread(write_lines, (lines_per_s,))
    while True:
        connection = listener.accept()[0]
        with connection:
            serve(connection)


def clean_up(number: int, frame: object) -> None:
    """Wait for BENCH_STOP_S, and end."""
    time.sleep(float(os.environ["BENCH_STOP_S"]))
    os._exit(0)


def open_listener() -> socket.socket:
    """Return the inherited listening socket, or a new one."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        listener = socket.socket(fileno=3)
        listener.setblocking(True)  # the flag is shared with the process that created it
        return listener
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((os.environ["WORLD_HOST"], int(os.environ["WORLD_PORT"])))
    listener.listen(128)
    return listener


def tell_ready(at: float) -> None:
    """Write the time at which the world started to listen to the requested place."""
    ready = os.environ.get("BENCH_READY", "")
    if not ready:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    fd = int(ready) if ready.isdigit() else os.open(ready, flags)
    os.write(fd, b"%.9f\n" % at)
    if not ready.isdigit():
        os.close(fd)


def write_lines(per_second: int) -> None:
    """Write lines endlessly, with one write per line, in a hundred bursts per second."""
    due = time.monotonic()
    while True:
        for _ in range(per_second // BURSTS_PER_S):
            begun = time.monotonic()
            os.write(1, LINE)
            longest_write[0] = max(longest_write[0], time.monotonic() - begun)
        due += 1 / BURSTS_PER_S
        time.sleep(max(0.0, due - time.monotonic()))


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
        answer(connection, head)
        if b"connection: close" in head.lower():
            return


def answer(connection: socket.socket, head: bytes) -> None:
    """Answer one request."""
    if head.startswith(b"GET /snapshot"):
        send_snapshot(connection)
    elif head.startswith(b"GET /longest-write"):
        send(connection, b"%.9f" % longest_write[0])
        longest_write[0] = 0.0
    elif head.startswith(b"POST /join"):
        send(connection, JOINED)
    else:
        send(connection, b"ok")


def send(connection: socket.socket, body: bytes) -> None:
    """Send a small answer."""
    connection.sendall(ANSWER % (b"200 OK", len(body)) + body)


def send_snapshot(connection: socket.socket) -> None:
    """Send the prepared snapshot without copying its bytes."""
    with open(os.environ["BENCH_SNAPSHOT"], "rb") as file:
        size = os.fstat(file.fileno()).st_size
        connection.sendall(ANSWER % (b"200 OK", size))
        offset = 0
        while offset < size:
            offset += os.sendfile(connection.fileno(), file.fileno(), offset, size - offset)


main()
