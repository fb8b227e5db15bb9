"""Cost of recording for a world in real time, and speed of `clawblox verify`.

Two agents play two copies of the same world concurrently, with and without recording. Both worlds
share a core, so other activity on the machine affects them equally.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.engine_processes import Served, serve_on_first_core
from clawblox.recording.blocks import Track
from clawblox.recording.reader import RecordingReader

__all__ = ["WORLDS", "measure_recording"]

_EXAMPLES: Final = Path(__file__).parent.parent / "examples"
_ENGINE: Final = [sys.executable, "-m", "clawblox.engine"]
_AGENTS: Final = 2
_OBSERVE_S: Final = 0.1
_MINUTE_TICKS: Final = 3600
_WARM_UP: Final = 0.5
"""Warm-up time as a share of the measured time, since recorders start with a burst."""
_ACT_EVERY: Final = 5
"""Number of observations of an agent between two inputs."""

Input = tuple[str, Any]


def _steer(turn: int, seen: Any) -> Input:
    return "Steer", {"direction": [math.cos(turn), math.sin(turn)]}


def _race(turn: int, seen: Any) -> Input:
    return "Leap", {"position": seen["player"]["attributes"]["NextPosition"]}


def _build(turn: int, seen: Any) -> Input:
    place = [10 * math.cos(turn / 4), 2, 16 + 10 * math.sin(turn / 4)]
    inputs: list[Input] = [
        ("MoveTo", {"position": place}),
        ("Gather", None),
        ("Craft", {"item": "Plank"}),
        ("Place", {"position": place, "block": "Plank"}),
    ]
    return inputs[turn % len(inputs)]


WORLDS: Final[dict[str, tuple[list[str], Callable[[int, Any], Input]]]] = {
    "marbles": ([sys.executable, "marbles/world.py", "--clock", "realtime"], _steer),
    "platform_race": ([*_ENGINE, "platform_race"], _race),
    "workshop": ([*_ENGINE, "workshop"], _build),
}
"""The programs of the worlds and the actions of their agents, by name."""


def measure_recording(name: str, seconds: float) -> dict[str, float]:
    """Let two agents play a world with and without a recording, and verify the recording.

    Args:
        name: One of :data:`WORLDS`.
        seconds: Duration of the measurement, after the warm-up.

    Returns:
        Per simulated minute: `plain_s` and `recorded_s`, the CPU time without and with a
        recording; `bytes`, and the same by track; `verify_s`, the real time of `clawblox verify`.
        Also `start_bytes`, the size of the first block, which is excluded from the other sizes.

    Raises:
        RuntimeError: The replay differs from the recording.
    """
    program, choose = WORLDS[name]
    with tempfile.TemporaryDirectory() as scratch:
        recorded = [*program, "--record", "--record-dir", scratch]
        programs = {"plain_s": [*program, "--no-record"], "recorded_s": recorded}
        kinds = random.sample(list(programs), len(programs))
        with serve_on_first_core([programs[kind] for kind in kinds]) as worlds:
            played = dict(zip(kinds, _play(worlds, choose, seconds), strict=True))
        (path,) = Path(scratch).iterdir()
        return {**played, **_read_sizes(path), "verify_s": _verify(path, name)}


def _play(worlds: list[Served], choose: Callable[[int, Any], Input], seconds: float) -> list[float]:
    """Play all worlds equally; return the CPU time of each per simulated minute."""
    agents = [[world, *_join(world)] for world in worlds]
    begun_at = time.monotonic()
    turn = _play_until(begun_at + _WARM_UP * seconds, 0, agents, choose)
    before = [(world.cpu_s(), _tick(world)) for world in worlds]
    _play_until(begun_at + (1 + _WARM_UP) * seconds, turn, agents, choose)
    costs = [
        _MINUTE_TICKS * (world.cpu_s() - cpu_s) / (_tick(world) - tick)
        for world, (cpu_s, tick) in zip(worlds, before, strict=True)
    ]
    for _, *others in agents:
        for other in others:
            other.close()
    return costs


def _play_until(
    ends_at: float, turn: int, agents: list[list[Served]], choose: Callable[[int, Any], Input]
) -> int:
    """Let the agents of each world observe in each turn, and act in some; return the next turn."""
    while (begun_at := time.monotonic()) < ends_at:
        for number in range(_AGENTS):
            for players in agents:
                seen = players[number].ask("GET", "/observe")
                if turn % _ACT_EVERY == number:
                    action, data = choose(turn // _ACT_EVERY, seen)
                    players[number].ask("POST", "/input", {"type": action, "data": data})
        turn += 1
        time.sleep(max(0.0, begun_at + _OBSERVE_S - time.monotonic()))
    return turn


def _tick(world: Served) -> int:
    return int(world.ask("GET", "/observe")["tick"])


def _join(world: Served) -> list[Served]:
    """Let further agents join, each with its own connection."""
    others = [Served(world.pid, world.port) for _ in range(_AGENTS - 1)]
    for other in others:
        other.wait()
    return others


def _read_sizes(path: Path) -> dict[str, float]:
    fd = os.open(path, os.O_RDONLY)
    try:
        start, *blocks = RecordingReader(fd, path).index
        sizes = Counter(dict.fromkeys(Track, 0))
        for block in blocks:
            sizes[block.header.track] += block.header.compressed
        end = max(block.header.last.time for block in blocks)
    finally:
        os.close(fd)
    minutes = (end - start.header.first.time) / 60
    start_bytes = start.offset + start.header.compressed
    return {
        "start_bytes": start_bytes,
        "bytes": (path.stat().st_size - start_bytes) / minutes,
        **{f"{track}_bytes": size / minutes for track, size in sizes.items()},
    }


def _verify(path: Path, name: str) -> float:
    """Return the real time for verifying a simulated minute, including the start."""
    words = ["verify", str(path), "--world", str(_EXAMPLES / name), "--json"]
    verifying = subprocess.run(
        [sys.executable, "-m", "clawblox", *words], capture_output=True, text=True, check=False
    )
    if verifying.returncode != 0:
        raise RuntimeError(f"{name}: {verifying.stdout}{verifying.stderr}")
    (replay,) = json.loads(verifying.stdout)["recordings"]
    return float(60 * replay["seconds"] / replay["time"])
