"""Start a world, play, save, play on; then resume the save and see the same happen again.

    python examples/quickstart.py

All files go to runs/quickstart below the current directory: recordings, logs, checkpoint, manifest,
and a script that reruns each launch by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from clawblox import World, read_manifest

WORLD = Path(__file__).parent / "marbles"
RUN = Path("runs/quickstart")
MOVES = [[1, 0], [0.5, 1], [-1, 0.2], [0, -1], [1, 1], [-0.3, -1]]


def play(access: Mapping[str, Any], moves: list[list[float]]) -> list[str]:
    """Send some inputs; return the text of the world's answers."""
    with httpx.Client(headers=access["headers"], trust_env=False, timeout=30) as client:
        return [
            client.post(
                f"{access['base_url']}/input",
                json={"type": "Steer", "data": {"direction": direction}},
            )
            .raise_for_status()
            .text
            for direction in moves
        ]


def main() -> None:
    """Run the example."""
    world = World(dir=WORLD)
    started = world.start(record=True, record_dir=RUN / "recordings")
    print(f"{world.name} is ready at {started.url} after {started.ready_s:.2f} s")

    rocky = world.connect(agent="Rocky")
    play(rocky, MOVES)
    saved = world.save(dir=RUN / "checkpoints")
    print(f"saved {saved['format']} at t={saved['time']} s, {saved['size_bytes']} bytes")

    first = play(rocky, MOVES)
    world.stop()

    world.start(resume=saved["path"], run_dir=RUN)
    resumed = {**rocky, "base_url": world.url}  # the same session, without joining again
    second = play(resumed, MOVES)
    world.stop()

    assert first == second, "the resumed world diverged"
    print(f"resumed: {len(second)} observations equal to the byte")
    world.record_run(id="quickstart", index=0, status="complete", resume_from=saved)
    manifest = read_manifest(RUN)
    print(f"manifest: {manifest.path} ({len(manifest.checkpoints)} checkpoints)")


if __name__ == "__main__":
    main()
