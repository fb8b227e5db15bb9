"""World directories of ``worlds/cheating.py``, whose hidden files are removed after use."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.provable import make_provable_world

CHEATING = Path(__file__).parents[1] / "worlds" / "cheating.py"

PLACES = (
    "tmp",
    "shm",
    "home",
    "passwd-home",
    "bytecode",
    "recordings",
    "above",
    "daemon",
)
WATCHES = ("variable", "path", "names")


@contextmanager
def cheating_world(
    parent: Path,
    *,
    clock: str = "lockstep",
    flags: Sequence[str],
) -> Iterator[Path]:
    """Write the directory of a cheating orchard for a block; remove its hidden files at the end.

    Args:
        parent: Parent of the directory.
        clock: ``lockstep`` or ``realtime``.
        flags: Flags of its program.
    """
    mark = f"orchard-{uuid.uuid4().hex}"
    directory = make_provable_world(parent, clock=clock)
    command = [sys.executable, "-I", "-S", str(CHEATING), "--clock", clock, "--mark", mark, *flags]
    toml = (directory / "world.toml").read_text().splitlines()
    toml = [line for line in toml if not line.startswith("command")]
    text = "\n".join([*toml, f"command = {json.dumps(command)}", ""])
    (directory / "world.toml").write_text(text)
    try:
        yield directory
    finally:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
            peer.connect("\0" + mark)
            peer.sendall(b"quit")
        homes = Path.home(), Path(pwd.getpwuid(os.getuid()).pw_dir)
        left = [
            Path("/tmp") / mark,
            Path("/dev/shm") / mark,
            *(home / f".{mark}" for home in homes),
        ]
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
