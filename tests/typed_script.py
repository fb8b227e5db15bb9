"""A script as type checkers see it; ``mypy`` checks it with the package. It is never run."""

from __future__ import annotations

from typing import assert_type

from clawblox import Agent, Batch, Checkpointer, Experiment, Team, World
from clawblox.results import SavedSnapshot
from clawblox.world.sync_world import StartedInstance


def use_a_world(world: World) -> None:
    """Use the methods that convert, bridge and stream."""
    assert_type(World("world", run_dir="run"), World)
    assert_type(World.attach("run"), World)
    assert_type(world.start(health_timeout=5.0), StartedInstance)
    assert_type(world.start_many(2), Batch[StartedInstance])
    assert_type(world.save(), SavedSnapshot)


def use_the_other_twins(world: World) -> None:
    """Make each of the other classes of a script."""
    agent = Agent(agent="claude", name="a", dir="agent")
    assert_type(agent, Agent)
    assert_type(Team(world, [agent], run_dir="run"), Team)
    assert_type(Team.resume("run"), Team)
    assert_type(Checkpointer(world, [agent], dir="checkpoints"), Checkpointer)
    assert_type(Experiment(None, dir="experiment"), Experiment)
    assert_type(Experiment.open("experiment"), Experiment)


def refuse_unknown_arguments() -> None:
    """Name options wrongly; mypy reports an ignored error that does not occur."""
    World("world", rundir="run")  # type: ignore[call-arg]
    Experiment.open("experiment", retry=True)  # type: ignore[call-arg]
    Team.resume("run", environment={})  # type: ignore[call-arg]
