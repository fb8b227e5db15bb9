"""A world with services only, without physics, HTTP and characters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from clawblox.engine.datastore.store import Store
from clawblox.engine.datastore.worker import Worker
from clawblox.engine.gui import GUI_ROWS
from clawblox.engine.instances.classes import ROWS, SERVICES
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import add_members
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.instances.tree_changes import set_parent
from clawblox.engine.instances.tree_document import (
    fill_tree,
    make_tree,
    restore_signals,
    signals_document,
    tree_document,
)
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.scripts.script_globals import make_instance_library
from clawblox.engine.services.data_stores import DataStores
from clawblox.engine.services.every import Services, add_services, fire_heartbeat, fire_stepped
from clawblox.engine.services.players import Players
from clawblox.engine.slots import Slots
from clawblox.engine.values.enums import find_enum_object
from clawblox.engine.values.libraries import lend_values, make_default
from clawblox.engine.values.vector3 import VECTOR_TYPE
from clawblox.engine.world.world_state import find_instances
from clawblox.luau import VM, Host, HostObject

_AGENT = "00000000-0000-4000-8000-0000000000{:02}"
ANN, BOB = (_AGENT.format(number) for number in (1, 2))
"""The ids of the first and the second player of a bench."""


class BenchHost(Host):
    model: DataModel

    def find_object(self, ident: str) -> HostObject | None:
        return find_enum_object(ident) or self.model.find_object(ident)


class Bench:
    """A world with services only; `lines` are its printed and logged lines."""

    def __init__(self, store: Store | None = None, *, afk_timeout_s: float = 0.0) -> None:
        self.lines: list[str] = []
        self.worker = None if store is None else Worker(store)
        self._host = BenchHost()
        self._options: dict[str, Any] = {
            "output": self.lines.append,
            "vectors": VECTOR_TYPE,
            "steps": 500_000,
        }
        self.vm = VM(**self._options)
        self.scheduler = Scheduler(self.vm, self.lines.append)
        self.scheduler.halts_on_error = True  # so that errors reach the test
        self.vm.globals.update(lend_values(self._host))
        classes = ClassTable((*ROWS, *GUI_ROWS), self._host, make_default)
        add_members(classes, self.scheduler)
        add_services(classes)
        self.model = self._host.model = DataModel(self._host, self.scheduler, classes)
        self.vm.globals["Instance"] = make_instance_library(self._host, self.model)
        players = Players(
            self.model,
            max_players=3,
            afk_timeout_s=afk_timeout_s,
            spawn=self._spawn,
            leave=lambda player: self.services.inputs.remove_player(player),
            log=self.lines.append,
        )
        data_stores = DataStores(self.model, self.worker, "game")
        self.services = Services(self.model, players, data_stores)

    def _spawn(self, player: Instance) -> None:
        character = self.model.make("Model")
        character.name = player.name
        player.store("Character", character)
        set_parent(character, self.model.workspace)

    def begin(self) -> Bench:
        self.model.build(SERVICES)
        self.services.begin()
        self._set_globals()
        return self

    def _set_globals(self) -> None:
        self.vm.globals["game"] = self.model.game
        for name, service in self.model.services.items():
            self.vm.globals[name] = service

    def run(self, source: str) -> None:
        """Run a script, up to its first wait."""
        self.scheduler.run(self.vm.load(source, "=script"))

    def tick(self, times: int = 1) -> None:
        """Run the phases of a tick that concern services."""
        for _ in range(times):
            with self.vm.entered(), self.scheduler.phase("Begin frame error"):
                self.services.players.begin_tick()
                self.services.debris.collect()
                self.services.data_stores.deliver()
                self.services.remote_functions.expire()
                self.scheduler.resume_due()
                fire_stepped(self.model)
                self.services.inputs.process()
                self.services.speech.process()
                fire_heartbeat(self.model)
                self.services.remote_events.publish()
                self.services.data_stores.submit()
            self.scheduler.tick += 1

    def printed(self) -> list[str]:
        lines, self.lines[:] = list(self.lines), []
        return lines

    def document(self) -> str:
        """Return a snapshot as text."""
        model = self.model
        document: dict[str, Any] = {}
        loose: list[Instance] = []
        for _ in range(2):  # the first time, to find the instances held only by scripts
            slots = Slots()
            tree = find_instances(model, loose)
            document = {
                "tree": tree_document(model, tree, slots),
                "signals": signals_document(tree, slots),
                "scheduler": model.scheduler.document(slots),
                "services": self.services.document(slots),
            }
            lent: list[Any] = []
            slots.store(self.vm)
            document["vm"] = self.vm.snapshot(lent=lent)
            slots.clear(self.vm)
            loose = [each for each in lent if isinstance(each, Instance)]
        return json.dumps(document)

    def restore(self, text: str) -> Bench:
        """Restore a snapshot, instead of calling `begin`."""
        document = json.loads(text)
        kept = make_tree(self.model, document["tree"])
        self._set_globals()
        self.vm = self.scheduler.vm = VM.restore(document["vm"], host=self._host, **self._options)
        slots = Slots.load(self.vm)
        fill_tree(self.model, document["tree"], slots)
        restore_signals(self.model, document["signals"], slots)
        self.scheduler.restore(document["scheduler"], slots)
        self.services.restore(document["services"], slots)
        slots.clear(self.vm)
        del kept
        return self

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()


def bench(source: str, *, players: Sequence[str] = (), **options: Any) -> Bench:
    """Return a world without a database, after players have joined and a script has run."""
    made = Bench(**options).begin()
    made.run(source)
    for number, name in enumerate(players, 1):
        made.services.players.add(_AGENT.format(number), name)
    return made


def output(source: str, *, ticks: int = 0, **options: Any) -> list[str]:
    """Return the lines that a script prints in some ticks."""
    world = bench(source, **options)
    world.tick(ticks)
    return world.printed()
