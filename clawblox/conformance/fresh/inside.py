"""Starts and plays a world in the places of this process, as requested on standard input.

python -m clawblox.conformance.fresh.inside < ORDER > RESULT
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec

from clawblox.concurrency.threads import run_blocking
from clawblox.config.home import home_dir
from clawblox.conformance import realtime
from clawblox.conformance.failed_starts import STOP_GRACE_S, describe_start
from clawblox.conformance.fresh.footprints import FootprintWatch
from clawblox.conformance.fresh.messages import AgentIdentity, LifeRequest, Result
from clawblox.conformance.instances import SAVE_TIMEOUT_S
from clawblox.conformance.live import MAX_SNAPSHOT_BYTES, LiveWorld, Player, observe_all, run_script
from clawblox.conformance.masking import find_secrets
from clawblox.conformance.registry import CouldNotRun, NotMet
from clawblox.errors import WorldError, WorldStartError
from clawblox.protocol import INSTANCE_ENV
from clawblox.results import StartedWorld
from clawblox.snapshot.rows import rows_beside
from clawblox.system.files import write_all
from clawblox.system.process_tree import Mark, read_process, read_variables
from clawblox.system.regular_files import read_regular
from clawblox.world.async_world import AsyncWorld


async def live(order: LifeRequest) -> Result:
    """Run the world as requested, and return the result."""
    result = Result()
    own = Path(order.run_dir).parent, home_dir()
    without = (order.run_dir, order.world, *map(str, own))
    watch = await run_blocking(
        lambda: FootprintWatch(is_alone=order.is_alone, without=without, known=order.listeners)
    )
    async with AsyncWorld(dir=order.world, run_dir=order.run_dir) as world:
        try:
            started = await world.start(
                name=order.name,
                resume=order.save or None,
                env=order.env,
                health_timeout=order.options.health_timeout,
            )
        except WorldStartError as error:
            result.fault, result.reason = "start", describe_start("did not start", error)
            return result
        mark = await run_blocking(_find_mark, started)
        watch.follow(mark)
        result.secrets = find_secrets(started.env)
        alive = LiveWorld(started.url, started)
        try:
            players = await _play(order, world, alive, result)
            await watch.compare_saves(partial(_save_again, order, players))
        except (NotMet, CouldNotRun, WorldError) as error:
            result.fault, result.reason = "life", str(error)
            result.evidence = error.exchange if isinstance(error, NotMet) else None
        finally:
            alive.close()
            await run_blocking(watch.note_listeners, mark)
            await world.stop(started.name, grace_seconds=STOP_GRACE_S)
    result.files, result.listeners, result.foreign = await run_blocking(watch.end)
    return result


def _find_mark(started: StartedWorld) -> Mark:
    """Return the mark of the world's processes."""
    cookie = read_variables(started.pid).get(INSTANCE_ENV, "")
    leader = read_process(started.pid)
    leaders = () if leader is None else ((leader.pid, leader.start_time),)
    return Mark(f"{INSTANCE_ENV}={cookie}".encode(), leaders)


async def _play(
    order: LifeRequest, world: AsyncWorld, alive: LiveWorld, result: Result
) -> list[Player]:
    """Add the observations to the result, and return the agents.

    Raises:
        Failed: An agent cannot join, or its session is lost.
        WorldError: The world cannot be saved.
    """
    players = [
        agent.playing(alive) if agent.session else await alive.join(agent.name)
        for agent in order.agents
    ]
    result.agents = tuple(
        AgentIdentity(player.name, player.session, player.agent_id) for player in players
    )
    if not order.save:
        await run_script(players, order.warm)
        await _save(world, alive, result)
    await observe_all(players)
    if order.is_realtime:
        watched = await realtime.watch_quietly(
            players[0], observed_until=order.observed_until, saved_until=order.saved_until
        )
        result.observations, result.snapshots = watched.observations, watched.snapshots
        return players
    result.trace = await run_script(players, order.script)
    result.final = await alive.snapshot()
    return players


async def _save_again(order: LifeRequest, players: Sequence[Player]) -> None:
    """Save the world in a new state."""
    await run_script(players, [step for step in order.warm if step.kind == "act"])
    await players[0].live.snapshot()


async def _save(world: AsyncWorld, alive: LiveWorld, result: Result) -> None:
    save = await world.save(
        instance=alive.name, timeout=SAVE_TIMEOUT_S, max_bytes=MAX_SNAPSHOT_BYTES
    )

    def read() -> None:
        result.save = read_regular(save.path, max_bytes=MAX_SNAPSHOT_BYTES)
        if save.rows_sha256 is not None:
            result.rows = read_regular(rows_beside(save.path), max_bytes=MAX_SNAPSHOT_BYTES)

    await run_blocking(read)


def main() -> None:
    """Run the world as requested on standard input, and write the observations to the output."""
    with os.fdopen(os.dup(0), "rb") as file:
        order = msgspec.msgpack.decode(file.read(), type=LifeRequest)
    output = os.dup(1)
    os.dup2(2, 1)  # so that no other output is mixed with the result
    write_all(output, msgspec.msgpack.encode(anyio.run(live, order)))


if __name__ == "__main__":
    main()
