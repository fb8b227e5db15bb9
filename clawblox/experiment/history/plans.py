"""The plans of an experiment: the plan in force, and the chains of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from clawblox.experiment.history.checkpoints import Branch
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan.naming import BRANCH_LABEL
from clawblox.experiment.plan.plan import Chain, Plan


@attrs.frozen(eq=False)
class Plans:
    """All revisions of an experiment's plan, with the chains of each.

    Args:
        revisions: The plan in each revision, the original first.
        state: The state of the experiment, which may advance.
    """

    revisions: Sequence[Plan]
    state: ExperimentState
    _expanded: dict[int, tuple[int, Mapping[str, Chain]]] = attrs.field(
        factory=dict, init=False, repr=False
    )

    @property
    def present(self) -> Plan:
        """The plan in force."""
        return self.revisions[-1]

    @property
    def chains(self) -> Mapping[str, Chain]:
        """The chains by name: the chains of the plan in force, in its order, then the branches.

        A branch has the plan, repeat and labels of its source. Its label ``prompt`` is the short
        name of its first message.
        """
        return self.chains_at(len(self.revisions) - 1)

    def chains_at(self, revision: int) -> Mapping[str, Chain]:
        """Return the chains with the plan of a revision, as :attr:`chains` does."""
        count, chains = self._expanded.get(revision, (-1, {}))
        if count != len(
            self.state.chains
        ):  # the first line of a chain decides whether it is a branch
            chains = _expand(self.revisions[revision], self.state)
            self._expanded[revision] = len(self.state.chains), chains
        return chains

    def in_force(self, chain: Chain, generation: int) -> tuple[Chain, int]:
        """Return a chain with the plan under which a generation was started, and its revision.

        The places of its world and programs come from the plan in force.

        Args:
            chain: The chain, with the plan in force, under which new generations start.
            generation: The generation.
        """
        begun = self.state.chain(chain.name).generations.get(generation)
        revision = None if begun is None else begun.revision
        if revision is None or revision == self.state.revision:
            return chain, self.state.revision
        earlier = self.chains_at(revision).get(chain.name)
        return (chain if earlier is None else _with_places(earlier, chain)), revision

    def last_generation(self, chain: Chain) -> int:
        """Return the number of the last generation of a chain."""
        branch = self.state.chain(chain.name).branch
        if branch is None:
            return chain.plan.generations
        return branch.source.generation + branch.generations - 1


def _expand(plan: Plan, state: ExperimentState) -> Mapping[str, Chain]:
    chains = {chain.name: chain for chain in plan.chains()}
    for name, branch in state.branches.items():
        if (source := chains.get(branch.source.chain)) is not None:
            chains[name] = _branch_off(source, name, branch, index=len(chains))
    return chains


def _branch_off(source: Chain, name: str, branch: Branch, *, index: int) -> Chain:
    duration_s = source.plan.duration if branch.duration_s is None else branch.duration_s
    return attrs.evolve(
        source,
        name=name,
        index=index,
        seed=source.seed if branch.reseed is None else branch.reseed,
        labels={**source.labels, **({BRANCH_LABEL: branch.label} if branch.label else {})},
        plan=source.plan.but(duration=duration_s),
    )


def _with_places(chain: Chain, present: Chain) -> Chain:
    """Return a chain of an earlier plan with the present places of its world and programs."""
    world = attrs.evolve(chain.plan.world, dir=present.plan.world.dir)
    agents = [
        agent.but(binary=now.binary, command=now.command)
        for agent, now in zip(chain.plan.agents, present.plan.agents, strict=True)
    ]
    return attrs.evolve(chain, plan=chain.plan.but(world=world, agents=agents))
