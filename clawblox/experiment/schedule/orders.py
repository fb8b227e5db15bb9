"""Makes the orders for attempts from the decisions of ``machine``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.history.lines import Line
from clawblox.experiment.history.machine import Begin
from clawblox.experiment.history.state import ChainState, ExperimentState
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.ports import Order


def make_order(state: ExperimentState, chain: Chain, begin: Begin, run_id: str) -> Order:
    """Return the order for an attempt.

    Args:
        state: The state of the experiment.
        chain: The chain.
        begin: How the attempt begins.
        run_id: Name of the attempt.
    """
    message = None if begin.branch is None else begin.branch.prompt
    if begin.phase == "save" and chain.plan.save is not None:
        message = chain.plan.save.prompt
    return Order(
        chain=chain,
        generation=begin.generation,
        run_id=run_id,
        phase=begin.phase,
        origin=begin.origin,
        inherited=begin.inherited if chain.plan.inherit.workspace else None,
        elapsed_s=begin.elapsed_s,
        branch=begin.branch,
        message=message,
        world=find_world(state, chain, begin),
        revision=_find_revision(state, chain, begin),
    )


def _find_revision(state: ExperimentState, chain: Chain, begin: Begin) -> int:
    """Return the revision of the plan under which a generation was begun, or begins now."""
    generation = state.chain(chain.name).generations.get(begin.generation)
    revision = None if generation is None else generation.revision
    return state.revision if revision is None else revision


def describe_order(order: Order, begin: Begin) -> Mapping[str, Any]:
    """Return the data of the line ``opened`` for an order."""
    return {
        "origin": None if order.origin is None else attrs.asdict(order.origin),
        "inherited": order.inherited,
        "phase": order.phase,
        "reason": begin.reason,
        "elapsed_s": order.elapsed_s,
        "idle_s": begin.idle_s,
        "revision": order.revision,
    }


def find_world(state: ExperimentState, chain: Chain, begin: Begin) -> CheckpointRef | None:
    """Return the checkpoint from which only the world of a new generation continues."""
    if not chain.plan.inherit.world or begin.origin is not None:
        return None
    previous = state.chain(chain.name).generations.get(begin.generation - 1)
    ends = [] if previous is None else [p for p in previous.checkpoints() if p.kind == "end"]
    return ends[-1].ref if ends else None


def find_family(state: ExperimentState, chain: Chain) -> str | None:
    """Return the family of a chain whose members know their worlds by the same address.

    A branch outside a sandbox has the address of its original in its conversation, so only one of
    them can run. In a sandbox, each has a network of its own: there is no such family.
    """
    if all(agent.sandbox for agent in chain.plan.agents):
        return None
    name = chain.name
    while (branch := state.chain(name).branch) is not None:
        name = branch.source.chain
    return name


def last_ending(chain: ChainState) -> Line | None:
    """Return the line that ended the latest attempt of a chain; None if none has ended it."""
    latest = chain.latest
    return latest.attempts[-1].ending if latest is not None and latest.attempts else None
