"""A small world that stands still between inputs and is hostile to its clients in a given way.

``python -I -S hostile.py WAY``: without a way, the world conforms. ``provable.py`` has worlds that
miss a requirement; this program gives answers and exits that clients do not expect. Its processes
end by themselves after ten minutes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

LIFETIME_S = 600
WAY = sys.argv[1] if len(sys.argv) > 1 else ""
TOKEN = os.environ.get("WORLD_OPERATOR_TOKEN", "")
EVIL = "\x1b[31m\u202e]]>&<script>"
API = '# A world\n\n```json\n{"type": "go", "data": {"x": 1}}\n```\n'

Answer = tuple[int, bytes]
state: dict[str, Any] = {"tick": 0, "joined": 0, "sessions": {}, "chat": []}
served = 0


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def observe(agent_id: str) -> bytes:
    if WAY == "deep-observations":
        return b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    if WAY == "repeated-key":
        keys = ",".join(f'"k{number}":0' for number in range(20_000))
        return f'{{{keys},"k19999":1}}'.encode()
    document = {"tick": state["tick"], "time": state["tick"] / 10, "you": agent_id}
    if WAY == "time-as-text":
        return as_json({"time": str(state["tick"]), "you": agent_id})
    if "is_other" in state:
        return as_json({**document, "tick": -1})
    if WAY == "tiny-times":
        now = time.monotonic_ns()
        return as_json({"time": 5e-324 * (now // 10**6), "tick": now % 2**53, "you": agent_id})
    return as_json(document)


def join(session: str) -> Answer:
    if WAY == "join-refused":
        return 403, EVIL.encode()
    if WAY == "join-of-other-types":
        return 200, as_json({"session": 5, "agent_id": [1]})
    if session not in state["sessions"]:
        prefix = {"session-with-lines": "\r\nX: ", "huge-session": "a" * 5_000_000}.get(WAY, "")
        session = prefix + os.urandom(16).hex()
        state["joined"] += 1
        state["sessions"][session] = f"agent-{state['joined']}" + (
            EVIL if WAY == "evil-ids" else ""
        )
    if WAY == "no-agent-ids":
        return 200, as_json({"session": session})
    return 200, as_json({"session": session, "agent_id": state["sessions"][session]})


def act(route: str, agent_id: str, body: bytes) -> Answer:
    try:
        given = json.loads(body)
        text = given["content" if route == "/chat" else "type"]
    except (ValueError, KeyError, TypeError):
        return 400, b"malformed"
    if not isinstance(text, str):
        return 400, b"malformed"
    if route == "/input":
        state["tick"] += 1
        return 200, observe(agent_id)
    message = {"id": len(state["chat"]) + 1, "agent_id": agent_id, "content": text}
    state["chat"].append({**message, "created_at": state["tick"] / 10})
    return 200, as_json(state["chat"][-1])


def snapshot(token: str) -> Answer:
    if WAY == "no-snapshot":
        return 404, b"no such route"
    if token != TOKEN:
        return 401, b"operators only"
    return 200, as_json({"format": "hostile-v1", "time": state["tick"] / 10, "state": state})


def answer(method: str, route: str, headers: dict[str, str], body: bytes) -> Answer:
    session = headers.get("x-session", "")
    if route in ("/api.md", "/skill.md"):
        return 200, API.encode()
    if WAY == "hangs" or (WAY == "hangs-at-fourth-request" and served > 3):
        time.sleep(LIFETIME_S)
    if WAY == "errors":
        return 500, EVIL.encode()
    if route == "/input" and WAY == "no-inputs":
        return 404, b"no such route"
    if route == "/snapshot":
        return snapshot(headers.get("x-operator-token", ""))
    if (method, route) == ("POST", "/join"):
        return join(session)
    if session not in state["sessions"]:
        return 401, b"join first"
    if method == "POST" and route in ("/input", "/chat"):
        return act(route, state["sessions"][session], body)
    if route == "/observe":
        return 200, observe(state["sessions"][session])
    if route == "/chat/messages":
        if WAY == "no-answer-to-hearing":
            raise ValueError
        return 200, as_json({"messages": state["chat"]})
    if (method, route) == ("POST", "/leave"):
        return 200, as_json(state["sessions"].pop(session))
    return 404, b"no such route"


def send(client: socket.socket, path: str, status: int, body: bytes) -> None:
    is_document = path.startswith("/api.md")
    if WAY == "endless-bodies" and not is_document:
        client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            client.sendall(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
    if WAY == "endless-headers" and not is_document:
        client.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            client.sendall(b"X-More: yes\r\n")
    if WAY == "redirects" and not is_document:
        client.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n")
        status, body = 0, b""
    first = f"HTTP/1.1 {status} Status\r\n" if status else ""
    client.sendall(f"{first}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def serve(client: socket.socket) -> None:
    global served
    with client, client.makefile("rb") as stream:
        while line := stream.readline():
            method, path, _ = line.decode("latin-1").split(" ", 2)
            headers = {}
            while field := stream.readline().strip():
                name, _, value = field.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            body = stream.read(int(headers.get("content-length", "0")))
            served += 1
            if WAY == "dies-at-third-request" and served > 2:
                os._exit(7)
            if WAY == "closes-every-fifth" and served % 5 == 0:
                return
            send(client, path, *answer(method, path.partition("?")[0], headers, body))


def serve_quietly(client: socket.socket) -> None:
    try:
        serve(client)
    except (OSError, ValueError):
        return


def count_restores() -> int:
    """Return the number of instances restored in this directory, including this one."""
    with open("restores", "ab") as file:
        file.write(b".")
        return file.tell()


def make_deep_directories(name: str, levels: int) -> None:
    directory = os.open(".", os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=directory)
        inner = os.open(name, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)


def misbehave_at_start() -> None:
    if WAY == "ignores-stop":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if WAY == "leaves-link" and not os.path.lexists("latest"):
        os.symlink("/etc/hostname", "latest")
    if WAY == "leaves-pipe" and not os.path.lexists("pipe"):
        os.mkfifo("pipe")
    if WAY == "leaves-large-file" and not os.path.lexists("large"):
        with open("large", "wb") as file:
            file.truncate(8 << 40)
    if WAY == "leaves-deep-directories" and not os.path.lexists("deep"):
        make_deep_directories("deep", 1500)
    if WAY == "forks" and os.fork() == 0:
        os.setsid()
        time.sleep(LIFETIME_S)
    if path := os.environ.get("WORLD_RESUME_PATH"):
        if WAY == "differs-once" and count_restores() == 2:
            state["is_other"] = True
        if WAY == "refuses-own-save":
            sys.exit("this save is from another world")
        with open(path, "rb") as file:
            document = json.load(file)
        if document["format"] != "hostile-v1":
            sys.exit("it is of another format")
        state.update(document["state"])


def main() -> None:
    signal.alarm(LIFETIME_S)
    misbehave_at_start()
    address = os.environ["WORLD_HOST"], int(os.environ["WORLD_PORT"])
    with socket.create_server(address) as listener:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve_quietly, args=(client,), daemon=True).start()


main()
