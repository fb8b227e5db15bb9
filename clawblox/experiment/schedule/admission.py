"""Slots for concurrent attempts, granted by priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import anyio
import anyio.lowlevel
import attrs

from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan.parts import Limits
from clawblox.experiment.plan.plan import Chain


@attrs.frozen(kw_only=True)
class Slot:
    """The slot that an attempt holds while it runs.

    Attributes:
        priority: Attempts with smaller values start first.
        models: Model of each agent.
        address_group: Attempts with the same value run one at a time; None sets no such limit.
        usd: Budget of its agents, in US dollars; 0 if they have none.
    """

    priority: tuple[int, ...]
    models: tuple[str, ...]
    address_group: str | None = None
    usd: float = 0.0


def make_slot(plans: Plans, chain: Chain, generation: int) -> Slot:
    """Return the slot that an attempt holds while it runs.

    Args:
        plans: The plans of the experiment.
        chain: The chain, with the plan in force.
        generation: The generation.
    """
    by_depth, by_generation = (chain.index, generation), (generation, chain.repeat)
    return Slot(
        priority=by_depth if plans.present.order == "depth" else (*by_generation, chain.index),
        models=tuple(agent.model or agent.driver for agent in chain.plan.agents),
        address_group=_find_address_group(plans.state, chain),
        usd=sum((agent.budget and agent.budget.usd) or 0.0 for agent in chain.plan.agents),
    )


def _find_address_group(state: ExperimentState, chain: Chain) -> str | None:
    """Return the group of chains whose worlds have the same address as that of ``chain``.

    A branch outside a sandbox has the address of its original in its conversation, so only one
    chain of the group can run at a time. In a sandbox each chain has its own network, so the result
    is None.
    """
    if all(agent.sandbox for agent in chain.plan.agents):
        return None
    name = chain.name
    while (branch := state.chain(name).branch) is not None:
        name = branch.source.chain
    return name


@attrs.define
class _Waiting:
    slot: Slot
    is_granted: anyio.Event = attrs.field(factory=anyio.Event)


@attrs.define(eq=False)
class Admission:
    """Grants slots to attempts within the limits of the plan.

    Args:
        limits: The limits of the plan.
        can_start: Returns whether an attempt may start, apart from the limits.
        on_wait: Called when an attempt starts to wait for a slot.

    Attributes:
        taken: The taken slots.
    """

    _limits: Limits
    _can_start: Callable[[Slot], bool]
    _on_wait: Callable[[], object]
    _waiting: list[_Waiting] = attrs.field(factory=list, init=False)
    taken: list[Slot] = attrs.field(factory=list, init=False)

    @property
    def waiting(self) -> Sequence[Slot]:
        """Slots for which attempts are waiting."""
        return [waiting.slot for waiting in self._waiting]

    async def acquire(self, slot: Slot) -> None:
        """Wait for a slot, and acquire it.

        Args:
            slot: The slot.

        Cancellation: the slot is not acquired.
        """
        waiting = _Waiting(slot)
        self._waiting.append(waiting)
        try:
            # Simultaneous requests compete by priority.
            await anyio.lowlevel.checkpoint()
            self.grant()
            if not waiting.is_granted.is_set():
                self._on_wait()
            await waiting.is_granted.wait()
        except BaseException:
            if waiting.is_granted.is_set():
                self.release(slot)
                self.grant()
            raise
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def release(self, slot: Slot) -> None:
        """Release a slot; :meth:`grant` grants it to another attempt."""
        self.taken.remove(slot)

    def grant(self) -> None:
        """Grant free slots; call this when a slot or a limit has changed."""
        for waiting in sorted(self._waiting, key=lambda waiting: waiting.slot.priority):
            if self._can_start(waiting.slot) and self._fits(waiting.slot):
                self.taken.append(waiting.slot)
                self._waiting.remove(waiting)
                waiting.is_granted.set()

    def _fits(self, slot: Slot) -> bool:
        limits = self._limits
        taken = Counter(model for other in self.taken for model in other.models)
        wanted = Counter(slot.models)
        return (
            len(self.taken) < limits.worlds
            and (limits.agents is None or taken.total() + wanted.total() <= limits.agents)
            and all(
                taken[model] + wanted[model] <= limit
                for model, limit in limits.per_model.items()
                if wanted[model]
            )
            and (
                slot.address_group is None
                or all(other.address_group != slot.address_group for other in self.taken)
            )
        )
