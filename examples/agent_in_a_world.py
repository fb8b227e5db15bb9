"""Two agents act in one world, are saved with it, and continue the same conversations.

python examples/agent_in_a_world.py claude

The argument is the driver of the agents' program (claude, codex, kimi, opencode), whose key must be
in the environment. All files go to two new directories, runs/agents and runs/agents-2, -3 and so
on, below the current directory.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from clawblox import AUTO_CONTINUE, Agent, Budget, Checkpointer, World

TURNS = 3


def name_run_dir() -> Path:
    """Return a new run directory, because a world that starts over has new agents."""
    names = ("agents" if number == 1 else f"agents-{number}" for number in itertools.count(1))
    return next(path for name in names if not (path := Path("runs", name)).exists())


def main(driver: str) -> None:
    """Run the example."""
    run_dir = name_run_dir()
    world = World(Path(__file__).parent / "marbles", run_dir=run_dir)
    world.start()
    agents = [
        Agent(agent=driver, name=name, dir=run_dir / "agents" / name, budget=Budget(turns=TURNS))
        for name in ("Ada", "Ben")
    ]
    with Checkpointer(world, agents, dir=run_dir / "checkpoints", every=600) as checkpointer:
        for agent in agents:
            api = world.api_path(access=world.connect(agent=agent))
            agent.start(initial_prompt=f"You act in a world. Read {api} with curl, and begin.")
            print(f"{agent.name} is {agent.state} in {agent.visible_workspace_dir}")
        for agent in agents:
            result = agent.wait()  # until the budget is used up
            print(f"{result.name}: {result.reason}; {result.usage.tokens} tokens")
        saved = checkpointer.save()
    for agent in agents:
        agent.close()  # reveals its address
    world.stop()

    loaded = world.start(resume=saved.path, run_dir=name_run_dir()).loaded
    for old in agents:
        directory = loaded["agents"][old.name]
        agent = Agent(agent=driver, name=old.name, dir=directory, auto_continue=False)
        world.connect(agent=agent)  # the same session in the world, at the same address
        agent.send(prompt=AUTO_CONTINUE)
        assert agent.session_id == old.session_id, "this is another conversation"
        print(f"{agent.wait().name} goes on in {directory}")
        agent.close()
    world.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
