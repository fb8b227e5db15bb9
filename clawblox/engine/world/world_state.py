"""Saves a world as a single JSON document, and restores it.

A restore creates the instances first, then the VM with the values that refer to them, and fills
the instances last. The engine's references into the VM's heap (handlers, threads, arguments) are in
one table of slots, so a shared value remains a single value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from clawblox.engine import shapes
from clawblox.engine.errors import SnapshotMismatch
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.tree_document import (
    SIGNALS_SHAPE,
    TREE_SHAPE,
    fill_tree,
    restore_signals,
    signals_document,
    tree_document,
)
from clawblox.engine.saved_state import SavedState
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.signals import Signal, SignalConnection
from clawblox.engine.slots import Slots
from clawblox.luau import VM, HostObject

FORMAT: Final = "clawblox-engine-v1"
SCHEMA_VERSION: Final = 1
REVISION: Final = 2
"""Revision of the engine's behaviour, in recordings; recordings without it have revision 1.

It is increased when worlds may run differently from the same state:

- 2: a thread that yields stays suspended, deferred threads run before those that wait,
  ``Event:Wait`` continues within the event, and an error ends its thread instead of the world.
"""

Json = Any

_SHAPE: Final = {
    "schema_version": shapes.whole,
    "format": shapes.text,
    "time": shapes.number,
    "game_id": shapes.text,
    "content_hash": shapes.text,
    "tree": TREE_SHAPE,
    "signals": SIGNALS_SHAPE,
    "scheduler": Scheduler.shape,
    "vm": {str: shapes.anything},
}
"""Shape of a whole document, except for its systems."""


def write_world(model: DataModel, vm: VM, systems: Mapping[str, SavedState]) -> dict[str, Json]:
    """Return instances, threads, systems and the VM for a snapshot.

    Saving the VM finds the instances outside the tree that only scripts refer to. If they have
    handlers or values not yet in the VM, the VM is saved again with those.
    """
    instances = find_instances(model, ())
    while True:
        slots = Slots()
        document, lent = _write(model, vm, systems, instances, slots)
        known = {instance.number for instance in instances}
        if all(instance.number in known for instance in lent):
            return document
        instances, count = find_instances(model, lent), len(slots)
        document["tree"] = tree_document(model, instances, slots)
        added = (instance for instance in instances if instance.number not in known)
        if len(slots) == count and not any(instance.signals for instance in added):
            return document


def _write(
    model: DataModel,
    vm: VM,
    systems: Mapping[str, SavedState],
    found: list[Instance],
    slots: Slots,
) -> tuple[dict[str, Json], list[Instance]]:
    document: dict[str, Json] = {
        "tree": tree_document(model, found, slots),
        "signals": signals_document(found, slots),
        "scheduler": model.scheduler.document(slots),
        "systems": {name: system.document(slots) for name, system in systems.items()},
    }
    lent: list[HostObject] = []
    slots.store(vm)
    try:
        document["vm"] = vm.snapshot(lent=lent)
    finally:
        slots.clear(vm)
    return document, [item for value in lent if (item := _instance_behind(value)) is not None]


def _instance_behind(value: HostObject) -> Instance | None:
    """Return the instance that a host object needs after a restore."""
    if isinstance(value, SignalConnection):
        value = value.signal if value.function is not None else None  # type: ignore[assignment]
    if isinstance(value, Signal):
        value = value.owner
    return value if isinstance(value, Instance) else None


def find_instances(model: DataModel, held: Iterable[Instance]) -> list[Instance]:
    """Return all instances in the tree, and all others that are referenced.

    Args:
        model: The data model.
        held: Instances referenced from outside the tree.
    """
    known: dict[int, Instance] = {}
    waiting = [model.game, *held]
    while waiting:
        root = waiting.pop()
        if root.number in known:
            continue
        *_, root = (root, *root.ancestors())
        for instance in (root, *root.descendants()):
            known[instance.number] = instance
            waiting += [value for value in instance.props.values() if isinstance(value, Instance)]
    return list(known.values())


def check_identity(state: Json, content_hash: str) -> None:
    """Check that this world can continue from a document.

    Raises:
        SnapshotMismatch: The world cannot continue; the message states why.
    """
    if not isinstance(state, dict):
        raise SnapshotMismatch("the snapshot is not a JSON object")
    version = state.get("schema_version")
    if version != SCHEMA_VERSION:
        raise SnapshotMismatch(
            f"unsupported snapshot schema version {version}; restore it with the version of "
            "clawblox that saved it"
        )
    if state.get("format") != FORMAT:
        raise SnapshotMismatch(f"the snapshot's format is {state.get('format')!r}, not {FORMAT!r}")
    if state.get("content_hash") != content_hash:
        raise SnapshotMismatch(
            "the world's scripts or settings have changed since the snapshot was saved; restore it "
            "with the files that it was saved with"
        )


def check_document(systems: Mapping[str, SavedState], document: Json) -> None:
    """Check the shape of a snapshot before using it.

    Raises:
        ValueError: The snapshot is damaged; the message states where.
    """
    saved = document.get("systems")
    if not isinstance(saved, dict) or saved.keys() != systems.keys():
        raise SnapshotMismatch("the snapshot was saved by an engine with other parts")
    own = {name: system.shape for name, system in systems.items()}
    shapes.check_shape(document, {**_SHAPE, "systems": own}, "state")


def read_world(model: DataModel, vm: VM, systems: Mapping[str, SavedState], document: Json) -> None:
    """Fill the instances of a snapshot, and restore everything that refers to the VM.

    Args:
        model: The data model, with the instances created by `make_tree`.
        vm: The restored VM.
        systems: The parts with their own state.
        document: The result of `write_world`.

    Raises:
        ValueError: The snapshot is damaged.
    """
    slots = Slots.load(vm)
    fill_tree(model, document["tree"], slots)
    restore_signals(model, document["signals"], slots)
    model.scheduler.restore(document["scheduler"], slots)
    for name, system in systems.items():
        system.restore(document["systems"][name], slots)
    slots.clear(vm)
