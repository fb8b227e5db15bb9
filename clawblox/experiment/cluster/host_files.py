"""The files of a host: those that the driver sends before an attempt, and those it receives.

All functions block.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final

import attrs

from clawblox.errors import UsageError
from clawblox.experiment import layout
from clawblox.experiment.cluster import scratch
from clawblox.experiment.cluster.chunks import IncomingFile, read_chunk
from clawblox.experiment.cluster.messages import AttemptOpening, Changes
from clawblox.experiment.cluster.mirror import is_mirrored
from clawblox.experiment.cluster.trees import Stamp, difference, list_tree, pack, unpack
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.attempt_files import require_record
from clawblox.experiment.plan.plan import Layout
from clawblox.system.files import digest_file
from clawblox.system.trees import discard_tree

LAYOUT: Final[Layout] = "chains"
_BUNDLES: Final = ("run", "agents", "world")
"""Bundles from the driver: the run directory; the agents of another attempt, for the phase
``score``; the world, unless the node has it."""
_CHANGES: Final = "changes"


class HostFiles:
    """The files of a host in its scratch directory.

    Args:
        place: The directory.

    Attributes:
        place: The same as the argument.
        run_dir: The run directory of the attempt, once it is unpacked.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.run_dir: Path
        self._incoming: dict[str, IncomingFile] = {}
        self._sent: dict[int, Mapping[str, Stamp]] = {}
        self._given: dict[str, Path] = {}

    # -- from the driver --------------------------------------------------------------------------

    def has(self, world: str) -> bool:
        """Return whether this node has the files of a world."""
        return scratch.has_world(world)

    def expect(self, name: str, size: int, sha256: str) -> None:
        """Expect a bundle.

        Args:
            name: ``run``, ``agents`` or ``world``.
            size: Its size in bytes.
            sha256: Its digest.
        """
        if name not in _BUNDLES:
            raise UsageError(f"a host accepts no bundle {name!r}")
        self._incoming[name] = IncomingFile(self.place / name, size, sha256)

    def put(self, name: str, offset: int, data: bytes) -> None:
        """Take a chunk of an expected bundle."""
        self._incoming[name].write(offset, data)

    def unpack(self, opening: AttemptOpening) -> AttemptOrder:
        """Unpack the received files; return the attempt with its paths on this node.

        Raises:
            TransferError: A bundle is damaged.
            ClawbloxError: A file is unusable.
            OSError: A file cannot be written.
        """
        order = opening.order
        runs = layout.runs_dir(layout.chain_dir(self.place, order.chain.name, LAYOUT))
        runs.mkdir(parents=True)
        self.run_dir = runs / order.attempt_id
        unpack(self._publish("run"), self.run_dir)
        home = require_record(self.run_dir).agents_of
        if home is not None:
            unpack(self._publish("agents"), runs / home)
        if opening.world is not None and not scratch.has_world(opening.world):
            scratch.keep_world(self._publish("world"), opening.world)
        for name in _BUNDLES:
            (self.place / name).unlink(missing_ok=True)
        self._sent[0] = list_tree(self.run_dir)
        return self._localize(opening)

    def _publish(self, name: str) -> Path:
        if name not in self._incoming:
            raise UsageError(f"the bundle {name!r} was not sent")
        self._incoming[name].publish()
        return self.place / name

    def _localize(self, opening: AttemptOpening) -> AttemptOrder:
        plan = opening.order.chain.plan
        world = plan.world
        if opening.world is not None:
            world = attrs.evolve(world, dir=scratch.world_path(opening.world))
        agents = []
        for index, (spec, text) in enumerate(zip(plan.agents, opening.prompts, strict=True)):
            prompt = None
            if text is not None:
                prompt = self.place / f"system-prompt-{index}.md"
                prompt.write_bytes(text)
            agents.append(spec.but(system_prompt=prompt, template=None))
        chain = attrs.evolve(opening.order.chain, plan=plan.but(world=world, agents=agents))
        return attrs.evolve(opening.order, chain=chain)

    # -- to the driver ----------------------------------------------------------------------------

    def give(self, path: Path) -> None:
        """Let the driver read an archive or a snapshot by its name, separately from the bundles."""
        self._given[path.name] = path

    def take_back(self, name: str) -> None:
        """Undo :meth:`give` for a removed archive."""
        self._given.pop(name, None)

    def changes(self, part: str, token: int) -> Changes:
        """Pack the changes in a part of the run directory, to be read as ``changes``.

        Growing files are sent with the news.

        Args:
            part: Prefix of the file names; empty for all files.
            token: The state that the driver has, from the previous answer; 0 at first.
        """
        before, now = (
            {name: stamp for name, stamp in listed.items() if self._travels(name, part)}
            for listed in (self._sent[token], list_tree(self.run_dir))
        )
        rest = {name: stamp for name, stamp in self._sent[token].items() if name not in before}
        self._sent = {token: self._sent[token], token + 1: {**rest, **now}}
        names, gone = difference(before, now)
        parents = {str(parent) for name in names for parent in PurePath(name).parents}
        file = self._given[_CHANGES] = self.place / _CHANGES
        pack(self.run_dir, file, names | parents)
        size, sha256 = file.stat().st_size, digest_file(file)
        return Changes(token=token + 1, size=size, sha256=sha256, gone=gone)

    def _travels(self, name: str, part: str) -> bool:
        is_archive = name.startswith("checkpoints/") and PurePath(name).name in self._given
        return name.startswith(part) and not is_archive and not is_mirrored(name)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return a chunk of an archive, of a snapshot, or of ``changes``."""
        if name not in self._given:
            raise UsageError(f"a host provides no file {name!r}")
        return read_chunk(self._given[name], offset, size)

    def remove(self) -> None:
        """Remove all files of the host except worlds, once the driver has them."""
        discard_tree(self.place)
