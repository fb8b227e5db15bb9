"""The chains of an experiment: those of its plan, and their branches. Pure."""

from __future__ import annotations

import attrs

from clawblox.experiment.history.state import ChainState, ExperimentState
from clawblox.experiment.plan.naming import BRANCH_LABEL
from clawblox.experiment.plan.plan import Chain, Plan


def all_chains(plan: Plan, state: ExperimentState) -> dict[str, Chain]:
    """Return the chains by name: those of the plan in its order, then the branches.

    A branch has the plan, repeat and labels of its source. Its label ``prompt`` is the short name
    of its first message.

    Args:
        plan: The plan in force.
        state: The state of the experiment.
    """
    chains = {chain.name: chain for chain in plan.chains()}
    for branched in state.chains.values():
        if branched.branch is not None and branched.branch.source.chain in chains:
            source = chains[branched.branch.source.chain]
            chains[branched.name] = _branch_off(source, branched, index=len(chains))
    return chains


def _branch_off(source: Chain, branched: ChainState, *, index: int) -> Chain:
    branch = branched.branch
    assert branch is not None
    duration_s = source.plan.duration if branch.duration_s is None else branch.duration_s
    return attrs.evolve(
        source,
        name=branched.name,
        index=index,
        seed=source.seed if branch.reseed is None else branch.reseed,
        labels={**source.labels, **({BRANCH_LABEL: branch.label} if branch.label else {})},
        plan=source.plan.but(duration=duration_s),
    )
