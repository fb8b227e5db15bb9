"""An orchard that keeps a part of its state outside its snapshot, and finds the part again.

``--place NAME`` selects the place: a file or a daemon, under the digest of the snapshot. The
snapshot then lacks the state of the random generator, so a restore is exact only if the world still
finds the place. With ``--part carrying``, the snapshot instead lacks the item that the first agent
carries, if any. ``--watch NAME`` cheats in another way: it loses the state of the random generator
in each restore unless it detects a check. With ``--honest`` the snapshot is complete, and the
places get a copy, as a cache may.

``--frozen`` always gives the same answers, ``--asks-port`` shows in observations whether a port of
this machine can be reached, and ``--reads`` ends the world if a file is missing.

``--mark`` names the files and the socket, so that a test can remove them.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import provable

PARTS = {"chance": f"{0:016x}", "carrying": None}
"""Parts that a snapshot can lack, and their replacements."""
NOT_FOUND = "-"
_DAEMON = """
import signal, socket, sys
signal.alarm(300)
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + sys.argv[1])
listener.listen(64)
kept = {}
while True:
    peer, _ = listener.accept()
    word, _, rest = peer.recv(4096).decode().partition(" ")
    if word == "quit":
        sys.exit()
    if word == "put":
        key, _, kept[key] = rest.partition(" ")
    peer.sendall(kept.get(rest, "").encode() or b"-")
    peer.close()
"""

options: Any = None


def run_dir() -> Path:
    return Path(provable.setting("CLAWBLOX_MANIFEST_PATH")).parent.parent


DIRECTORIES: dict[str, Callable[[], Path]] = {
    "tmp": lambda: Path("/tmp") / options.mark,
    "shm": lambda: Path("/dev/shm") / options.mark,
    "home": lambda: Path.home() / f".{options.mark}",
    "passwd-home": lambda: Path(pwd.getpwuid(os.getuid()).pw_dir) / f".{options.mark}",
    "bytecode": lambda: Path("__pycache__") / options.mark,
    "recordings": lambda: run_dir() / "recordings" / options.mark,
    "above": lambda: run_dir().parent / options.mark,
}
PLACES = (*DIRECTORIES, "daemon")


def recognises_variable() -> bool:
    return "CLAWBLOX_CHECK_API_KEY" in os.environ


def recognises_path() -> bool:
    return "check" in provable.setting("CLAWBLOX_MANIFEST_PATH")


def recognises_names() -> bool:
    return {agent["name"] for agent in restored} <= {"Ada", "Bo", "Cleo"}


WATCHES = {
    "variable": recognises_variable,
    "path": recognises_path,
    "names": recognises_names,
}
restored: list[dict[str, Any]] = []


def ask_daemon(text: str) -> str:
    for attempt in range(200):
        try:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect("\0" + options.mark)
                peer.sendall(text.encode())
                return peer.recv(4096).decode()
        except OSError:
            if text.startswith("get"):
                return NOT_FOUND
            if not attempt:
                leave_daemon()
            time.sleep(0.01)
    return NOT_FOUND


def leave_daemon() -> None:
    """Leave a listening process without our environment, in its own session."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.waitpid(child, 0)
        os.close(writer)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.close(reader)
    os.closerange(3, 64)
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", _DAEMON, options.mark], {})


def keep(key: str, value: str) -> None:
    if options.place == "daemon":
        ask_daemon(f"put {key} {value}")
        return
    directory = DIRECTORIES[options.place]()
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{key}.{os.getpid()}"
    partial.write_text(value)
    partial.rename(directory / key)  # runs are concurrent


def find(key: str) -> str:
    if options.place == "daemon":
        return ask_daemon(f"get {key}")
    try:
        return (DIRECTORIES[options.place]() / key).read_text()
    except OSError:
        return NOT_FOUND


def replace_part(document: dict[str, Any], value: Any) -> Any:
    """Replace the part that is kept elsewhere, and return the original."""
    owner = document["agents"][0] if options.part == "carrying" else document
    owner[options.part], part = value, owner[options.part]
    return part


def find_key(document: dict[str, Any]) -> str:
    state = {**document, "digest": ""}
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def save(orchard: Any) -> dict[str, Any]:
    document = honest_save(orchard)
    if not has_part(document):
        return document
    part = replace_part(document, PARTS[options.part])
    keep(find_key(document), json.dumps(part))
    if options.honest:
        replace_part(document, part)
    document["digest"] = provable.digest(document)
    return document


def restore(orchard: Any, document: dict[str, Any]) -> None:
    if has_part(document) and not options.honest:
        found = find(find_key(document))
        if found != NOT_FOUND:
            replace_part(document, json.loads(found))
    honest_restore(orchard, document)
    restored[:] = document["agents"]
    if options.watch and not options.honest and not WATCHES[options.watch]():
        orchard.chance.state = 0


def has_part(document: dict[str, Any]) -> bool:
    return bool(options.place and document["agents"])


def observe(orchard: Any, agent_id: str) -> dict[str, Any]:
    if options.frozen:
        return {"agent_id": agent_id}
    seen = honest_observe(orchard, agent_id)
    return {**seen, "online": is_open(options.asks_port)} if options.asks_port else seen


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


honest_observe, provable.Orchard.observe = provable.Orchard.observe, observe
honest_save, honest_restore = provable.save, provable.restore
provable.save, provable.restore = save, restore


def main() -> None:
    global options
    parser = provable.build_parser()
    parser.add_argument("--place", choices=PLACES)
    parser.add_argument("--part", choices=PARTS, default="chance")
    parser.add_argument("--watch", choices=WATCHES)
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--asks-port", type=int)
    parser.add_argument("--reads", metavar="FILE", help="without its first slash")
    parser.add_argument("--mark", required=True)
    options = parser.parse_args()
    if options.reads and not os.path.exists(f"/{options.reads}"):
        sys.exit(f"/{options.reads} is missing")
    signal.alarm(provable.LIFETIME_S)
    signal.signal(signal.SIGTERM, provable.stop)
    orchard = provable.Orchard(options.clock)
    provable.load_or_exit(orchard, options.resume)
    server = provable.Server(orchard, options)
    print(f"serving http://{options.host}:{server.port}{server.base_path}/", flush=True)
    server.run()


if __name__ == "__main__":
    main()
