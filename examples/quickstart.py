"""Start a world, play, save, play on; then resume the save and get the same results again.

python examples/quickstart.py

All files go to runs/quickstart below the current directory: recordings, logs, checkpoint, manifest,
and a script that reruns each launch by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clawblox import AgentClient, World, read_manifest

RUN_DIR = Path("runs/quickstart")
MOVES = [[1, 0], [0.5, 1], [-1, 0.2], [0, -1], [1, 1], [-0.3, -1]]


def play(agent: AgentClient) -> list[Any]:
    """Make the moves; return the agent's observation after each move."""
    return [agent.act("Steer", {"direction": direction}) for direction in MOVES]


def main() -> None:
    """Run the example."""
    world = World(Path(__file__).parent / "marbles", run_dir=RUN_DIR)
    started = world.start(record=True)
    print(f"{world.name} is ready at {started.url} after {started.ready_s:.2f} s")

    rocky = world.join("Rocky")
    play(rocky)
    saved = world.save()
    print(f"saved {saved.format} at t={saved.time} s, {saved.size_bytes} bytes")
    first = play(rocky)
    world.stop()

    resumed = world.start(resume=saved)
    second = play(rocky.on(resumed.name))  # the save contains the session
    world.stop()

    assert first == second, "the resumed world diverged"
    print(f"resumed: the same {len(second)} observations again")
    world.record_run(id="quickstart", index=0, status="complete", resume_from=saved)
    manifest = read_manifest(RUN_DIR)
    print(f"manifest: {manifest.path} ({len(manifest.checkpoints)} checkpoints)")


if __name__ == "__main__":
    main()
