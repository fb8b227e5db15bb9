"""Makes the orders for attempts from the decisions of ``machine``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.history.lines import Line
from clawblox.experiment.history.machine import Begin
from clawblox.experiment.history.state import ChainState, ExperimentState
from clawblox.experiment.plan.plan import Chain, Plan
from clawblox.experiment.schedule.ports import Order, Room
from clawblox.experiment.schedule.slots import Place


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


def describe_order(
    state: ExperimentState, order: Order, begin: Begin, room: Room
) -> Mapping[str, Any]:
    """Return the data of the line ``opened`` for an order in a room."""
    host, differs = describe_host(room), _find_difference(state, order.origin, room.machine)
    return {
        "origin": None if order.origin is None else attrs.asdict(order.origin),
        "inherited": order.inherited,
        "phase": order.phase,
        "reason": begin.reason,
        "elapsed_s": order.elapsed_s,
        "idle_s": begin.idle_s,
        "revision": order.revision,
        **({"host": host} if host else {}),
        **({"differs": differs} if differs else {}),
    }


def describe_host(room: Room) -> Mapping[str, Any]:
    """Return the facts of the line ``opened`` about a node; empty for this machine."""
    if not room.node:
        return {}
    bounds = {"lease_s": room.lease_s, "bound_s": room.bound_s}
    return {"node": room.node, **bounds, "machine": dict(room.machine)}


def _find_difference(
    state: ExperimentState, origin: CheckpointRef | None, machine: Mapping[str, str]
) -> str:
    """Return how a machine differs from the one where a checkpoint was made, as far as known."""
    if origin is None:
        return ""
    source = state.chain(origin.chain).generations[origin.generation].find_attempt(origin.attempt)
    before = {} if source is None else source.host.get("machine", {})
    return "; ".join(
        f"{name}: {machine[name]}, before {before[name]}"
        for name in before
        if name in machine and machine[name] != before[name]
    )


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


def make_place(plan: Plan, state: ExperimentState, chain: Chain, begin: Begin) -> Place:
    """Return what an attempt takes while it runs."""
    by_depth, by_generation = (chain.index, begin.generation), (begin.generation, chain.repeat)
    return Place(
        priority=by_depth if plan.order == "depth" else (*by_generation, chain.index),
        models=tuple(agent.model or agent.driver for agent in chain.plan.agents),
        exclusive=find_family(state, chain),
        usd=sum((agent.budget and agent.budget.usd) or 0.0 for agent in chain.plan.agents),
    )


def last_ending(chain: ChainState) -> Line | None:
    """Return the line that ended the latest attempt of a chain; None if none has ended it."""
    latest = chain.latest
    return latest.attempts[-1].ending if latest is not None and latest.attempts else None
