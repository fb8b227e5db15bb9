"""Makes the run directory of an attempt: new workspaces, or those of a checkpoint. Blocks."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from clawblox.agents.layout import AgentDir
from clawblox.checkpoint.load.load import extract_snapshot, load
from clawblox.checkpoint.names import SNAPSHOT_NAME
from clawblox.checkpoint.options import LoadOptions
from clawblox.config.world_toml import read_world_config
from clawblox.experiment import layout
from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.attempt_files import (
    AttemptRecord,
    RecordedAgent,
    agent_names,
    copy_session,
    last_usage,
    read_record,
    require_agents,
    update_manifest,
    write_record,
)
from clawblox.experiment.live.branches import source_dir
from clawblox.experiment.live.run_directories import making_run
from clawblox.experiment.live.workspaces import digest_workspaces, fill_workspace
from clawblox.experiment.schedule.ports import AttemptError
from clawblox.rundir.manifest import (
    try_read_manifest,
)
from clawblox.rundir.manifest_entries import objects_in, read_text
from clawblox.rundir.manifest_updates import run_update
from clawblox.system.clock import utc_now
from clawblox.system.files import has_digest
from clawblox.world.sources import find_world_dir


def find_archive(chain_dir: Path, checkpoint: CheckpointRef) -> Path | None:
    """Return the path of an archive, even if its attempt was set aside, or None."""
    places = _attempt_dirs(chain_dir, checkpoint.attempt)
    paths = (place / "checkpoints" / checkpoint.file for place in places)
    return next((path for path in paths if path.is_file() and not path.is_symlink()), None)


def find_attempt(chain_dir: Path, attempt: str) -> Path | None:
    """Return the run directory of an attempt, even if it was set aside, or None."""
    return next((path for path in _attempt_dirs(chain_dir, attempt) if path.is_dir()), None)


def _attempt_dirs(chain_dir: Path, attempt: str) -> list[Path]:
    """Return possible directories of an attempt; a public script's run may have its name."""
    pattern = f"{glob.escape(attempt)}.failed-*"
    aside = sorted(layout.runs_dir(chain_dir).glob(pattern), reverse=True)
    return [layout.attempt_dir(chain_dir, attempt), *aside]


@attrs.frozen(eq=False)
class Preparation:
    """Makes one run directory.

    Args:
        order: The attempt.
        chain_dir: Returns the directory of a chain.
        experiment_dir: Directory of the experiment.
        check: Called often while workspaces are copied; ends the call by raising an error.
    """

    order: AttemptOrder
    _chain_dir: Callable[[str], Path]
    _experiment_dir: Path
    _check: Callable[[], None]

    def run(self) -> Mapping[str, Any]:
        """Make the directory, unless it is complete.

        Returns:
            ``digests`` of its contents; and ``left_out``, entries missing from workspaces, by
            agent.

        Raises:
            AttemptError: A checkpoint is unusable, or another directory is in the way.
            ClawbloxError: An archive, a template or a file is unusable.
            OSError: A file cannot be written.
        """
        run_dir = self._run_dir
        record = read_record(run_dir)
        if record is None:
            try:
                with making_run(self._own_chain, self.order.attempt_id) as directory:
                    record = self._fill(directory)
                    self._write_manifest(directory, record)
                    write_record(directory, record)
            except FileExistsError as error:
                raise AttemptError("start", f"{run_dir} is in the way: {error}") from error
        sources = {"checkpoint": self.order.origin, "world": self.order.world}
        digests = {name: ref.sha256 for name, ref in sources.items() if ref is not None}
        if not self.order.origin:
            digests |= digest_workspaces(run_dir, self._check)
        left_out = {agent.name: agent.left_out for agent in record.agents if agent.left_out}
        return {"digests": digests, **({"left_out": left_out} if left_out else {})}

    @property
    def _own_chain(self) -> Path:
        return self._chain_dir(self.order.chain.name)

    @property
    def _run_dir(self) -> Path:
        """The directory, once it is complete."""
        return layout.attempt_dir(self._own_chain, self.order.attempt_id)

    def _fill(self, directory: Path) -> AttemptRecord:
        origin = self.order.origin
        if origin is None:
            return self._make_new(directory)
        if self.order.phase == "score":
            return self._extract_world(origin, directory)
        return self._load(origin, directory)

    def _write_manifest(self, directory: Path, record: AttemptRecord) -> None:
        order, ref = self.order, self.order.origin or self.order.world
        update = run_update(
            id=order.attempt_id,
            index=order.generation - 1,
            status="running",
            started_at=utc_now(),
            resume_from=None if ref is None else self._find_save(ref, record),
            parent_sha256=record.sha256,
            resume_archive=None if ref is None else find_archive(self._chain_dir(ref.chain), ref),
        )
        if order.branch is not None:
            prompt = order.branch.prompt
            digest = None if prompt is None else hashlib.sha256(prompt.encode()).hexdigest()
            facts = {"label": order.branch.label, "prompt_sha256": digest}
            update = msgspec.structs.replace(update, run={**update.run, "branch": facts})
        update_manifest(directory, update)

    def _find_save(self, ref: CheckpointRef, record: AttemptRecord) -> Path:
        """Return the save listed by a checkpoint's own run, or else the archive."""
        attempt = self._require_attempt(self._chain_dir(ref.chain), ref.attempt)
        archive = attempt / "checkpoints" / ref.file
        manifest = try_read_manifest(attempt)  # the archive may be here without its run
        for entry in objects_in(manifest.checkpoints):
            path = read_text(entry, "path")
            if path is not None and "instance" in entry and entry.get("sha256") == record.sha256:
                return manifest.resolve(path)
        return archive

    # -- from checkpoints -------------------------------------------------------------------------

    def _require_archive(self, ref: CheckpointRef) -> Path:
        path = find_archive(self._chain_dir(ref.chain), ref)
        if path is None or not has_digest(path, ref.sha256, check=self._check):
            raise AttemptError(
                "start", f"the checkpoint {ref.file} of {ref.attempt} was removed or changed"
            )
        return path

    def _require_attempt(self, chain_dir: Path, attempt: str) -> Path:
        path = find_attempt(chain_dir, attempt)
        if path is None:
            raise AttemptError("start", f"the run directory of {attempt} no longer exists")
        return path

    def _load(self, ref: CheckpointRef, directory: Path) -> AttemptRecord:
        """Load world and agents; a branch's agents go elsewhere, to be forked later."""
        is_branch = self.order.branch is not None
        place = source_dir(directory) if is_branch else directory
        options = LoadOptions(path=self._require_archive(ref), run_dir=place)
        loaded = load(options, final_dir=None if is_branch else self._run_dir).result
        names = self._require_whole(loaded)
        if is_branch:
            for path in place.glob(f"{SNAPSHOT_NAME}*"):  # with its data stores
                path.rename(directory / path.name)
            agents = [
                RecordedAgent(name=self._full_name(index), forked_from=name)
                for index, name in enumerate(names)
            ]
        else:
            before = {name: last_usage(path) for name, path in loaded["agents"].items()}
            agents = [RecordedAgent(name=name, before=before[name]) for name in names]
        digest = loaded["metadata"]["files"][SNAPSHOT_NAME]["sha256"]
        return AttemptRecord(agents=tuple(agents), snapshot=SNAPSHOT_NAME, sha256=digest)

    def _require_whole(self, loaded: Mapping[str, Any]) -> Sequence[str]:
        """Check that a loaded checkpoint is complete; return the names of the agents, in order."""
        for name, reason in loaded["lost_sessions"].items():
            raise AttemptError("start", f"{name}: its conversation was not restored: {reason}")
        if loaded["world_snapshot"] is None:
            raise AttemptError("start", "the checkpoint has no snapshot of the world")
        names = sorted(loaded["agents"], key=layout.agent_index)
        require_agents(names, len(self.order.chain.plan.agents))
        return names

    def _extract_world(self, ref: CheckpointRef, directory: Path) -> AttemptRecord:
        """Extract only the world; the agents' directories stay in the original attempt."""
        archive = self._require_archive(ref)
        snapshot, sha256 = extract_snapshot(archive, directory / "checkpoints")
        attempt = self._require_attempt(self._chain_dir(ref.chain), ref.attempt)
        agents = [
            RecordedAgent(name=name, before=last_usage(attempt / "agents" / name))
            for name in agent_names(attempt)
        ]
        return AttemptRecord(
            agents=tuple(agents),
            snapshot=str(snapshot.relative_to(directory)),
            sha256=sha256,
            agents_of=attempt.name,
        )

    # -- new agents -------------------------------------------------------------------------------

    def _make_new(self, directory: Path) -> AttemptRecord:
        """Make the workspaces of new agents, and extract the snapshot of their world, if any."""
        order = self.order
        names = [self._full_name(index) for index, _ in enumerate(order.chain.plan.agents)]
        left_out = self._fill_workspaces(directory, names)
        agents = [
            RecordedAgent(name=name, left_out=tuple(entries))
            for name, entries in zip(names, left_out, strict=True)
        ]
        record = AttemptRecord(agents=tuple(agents))
        if order.world is None:
            return record
        archive = self._require_archive(order.world)
        snapshot, sha256 = extract_snapshot(archive, directory / "checkpoints")
        self._copy_sessions(order.world, directory, names)
        place = str(snapshot.relative_to(directory))
        return attrs.evolve(record, snapshot=place, sha256=sha256)

    def _fill_workspaces(self, directory: Path, names: Sequence[str]) -> list[list[str]]:
        """Fill the workspaces; return the entries missing from each."""
        plan = self.order.chain.plan
        world = read_world_config(find_world_dir(plan.world.dir))
        return [
            fill_workspace(
                AgentDir(directory / "agents" / name).workspace,
                spec.template if inherited is None else inherited,
                world,
                is_inherited=inherited is not None,
                final=AgentDir(self._run_dir / "agents" / name).workspace,
                experiment_dir=self._experiment_dir,
                check=self._check,
            )
            for spec, name, inherited in zip(plan.agents, names, self._inherited(), strict=True)
        ]

    def _inherited(self) -> Sequence[Path | None]:
        """Return the workspaces that new agents inherit; None for the templates."""
        order, plan = self.order, self.order.chain.plan
        if order.inherited is None:
            return [None] * len(plan.agents)
        attempt = self._require_attempt(self._own_chain, order.inherited)
        names = agent_names(attempt)
        require_agents(names, len(plan.agents))
        return [AgentDir(attempt / "agents" / name).workspace for name in names]

    def _copy_sessions(self, ref: CheckpointRef, directory: Path, names: Sequence[str]) -> None:
        """Let each new agent rejoin as the player of its predecessor."""
        attempt = self._require_attempt(self._chain_dir(ref.chain), ref.attempt)
        for old, new in zip(agent_names(attempt), names, strict=True):
            copy_session(attempt / "agents" / old, directory / "agents" / new)

    def _full_name(self, index: int) -> str:
        display = str(self.order.chain.plan.agents[index].name)
        return layout.full_name(display, self.order.attempt_id, index)
