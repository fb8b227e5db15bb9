"""Runs a world in fresh places, and compares each run with the saved run."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import anyio
import attrs
import msgspec

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.comparison import ContinuedLife, RepeatableLife, RestoreComparison, Seen
from clawblox.conformance.fresh.enter import NOT_SEARCHED
from clawblox.conformance.fresh.messages import (
    MAX_RESULT_BYTES,
    AgentIdentity,
    LifeRequest,
    Result,
    decode_result,
)
from clawblox.conformance.fresh.places import BYTECODE_ENV, FreshPlace, find_bubblewrap, make_place
from clawblox.conformance.instances import Instances
from clawblox.conformance.masking import SESSION
from clawblox.conformance.registry import CouldNotRun, Findings, NotMet
from clawblox.printable import name_some
from clawblox.protocol import INSTANCE_ENV
from clawblox.results import ProcessExit
from clawblox.snapshot.rows import rows_beside
from clawblox.supervision.program import run_program
from clawblox.supervision.tree import SharedStop
from clawblox.system.files import make_private_dir, write_all
from clawblox.system.process import CannotExecute, Process, memory_log, spawn
from clawblox.system.regular_files import read_rest
from clawblox.system.trees import discard_tree

WHO: Final = "a life in fresh places"
_SHOWN: Final = 3
_LAST_BYTES: Final = 2000
_KEPT_ENV: Final = (BYTECODE_ENV,)
"""Variables of a place that are passed to the world."""


async def live_fresh(
    instances: Instances, comparison: RestoreComparison[ContinuedLife]
) -> Findings:
    """Return the evidence that restored runs in fresh places were equal to the saved run.

    Raises:
        Failed: A run differs, and the places are not the reason, since a run that started in fresh
            places also differs from its restore in other fresh places.
        CouldNotRun: A run does not start, or behaves differently in such places even before a save.
    """
    subjects = await comparison.find_subjects()
    bubblewrap = await run_blocking(find_bubblewrap)
    # Without bubblewrap, files of other runs could be mistaken for files of this run.
    async with instances.places if bubblewrap else instances.alone():
        with memory_log("views") as views:
            places = _Places(instances, bubblewrap, views)
            lives = [await _live_equal(places, comparison, subject) for subject in subjects]
    return _sum_up(lives, comparison.unit)


def _sum_up(lives: Sequence[tuple[_Life, int]], unit: str) -> Findings:
    """Return the evidence of equal runs, each with the size of its equal part."""
    described = lives[0][0].place.described
    count = sum(count for _, count in lives)
    among = "a run" if len(lives) == 1 else f"{len(lives)} runs"
    parts = [f"{count} {unit} were equal in {among} with {described}"]
    limits: tuple[str, ...] = ()
    if left := _name(
        (*life.result.files, *(f"the Unix listener {name}" for name in life.result.listeners))
        for life, _ in lives
    ):
        parts.append(f"it left {left}")
        limits = (f"where other runs could find it, the world left {left}",)
    if foreign := _name(life.result.foreign for life, _ in lives):
        parts.append(f"in the meantime other programs, or a hidden process, made {foreign}")
    if large := _name(life.not_searched for life, _ in lives):
        parts.append(f"too large to be searched for changes: {large}")
    return Findings("; ".join(parts), places=described, limits=limits)


def _name(parts: Iterable[Iterable[str]]) -> str:
    """Return the first distinct names and the number of further names; empty without names."""
    return name_some([*dict.fromkeys(chain.from_iterable(parts))], _SHOWN)


async def _live_equal(
    places: _Places, comparison: RestoreComparison[ContinuedLife], subject: RepeatableLife
) -> tuple[_Life, int]:
    """Return a run in fresh places, and the size of its equal part.

    Raises:
        Failed, CouldNotRun: As for :func:`live_fresh`.
    """
    order = places.order(subject, is_realtime=comparison.runs_by_itself)
    save = subject.save
    life = await places.live(order, {path.name: path for path in (save, rows_beside(save))})
    try:
        return life, _count_equal(comparison, subject.seen, life.result)
    except NotMet as difference:
        await _require_difference(places, comparison, order, difference)
        raise


@attrs.frozen
class _Life:
    """The result of a run, and its place."""

    place: FreshPlace
    result: Result
    not_searched: tuple[str, ...]


def _count_equal(
    comparison: RestoreComparison[ContinuedLife], expected: Seen, actual: Result
) -> int:
    """Return the size of the equal part of a run in fresh places.

    Raises:
        CouldNotRun: The world did not start, or too little was observed.
        Failed: The run failed later, or differs.
    """
    if actual.fault == "start":
        raise CouldNotRun(actual.reason)
    if actual.fault:
        raise NotMet(f"{WHO} failed: {actual.reason}", exchange=actual.evidence)
    return comparison.count_equal(expected, actual, WHO)


async def _require_difference(
    places: _Places,
    comparison: RestoreComparison[ContinuedLife],
    order: LifeRequest,
    difference: NotMet,
) -> None:
    """Require that the places are not the reason for a difference.

    The behaviour of a world may depend on its network or files of its home. Therefore the world
    starts in fresh places and is restored in others, which are equivalent.

    Raises:
        CouldNotRun: The two runs are equal, or one of them is impossible.
    """
    reason = f"{difference.evidence}; but any run there would differ as well"
    agents = tuple(AgentIdentity(agent.name) for agent in order.agents)
    first = await places.live(attrs.evolve(order, agents=agents), {})
    if first.result.fault:
        raise CouldNotRun(f"{reason}: {first.result.reason}")
    saved = first.result
    with_rows = {rows_beside(Path("save")).name: saved.rows} if saved.rows else {}
    files = {"save": saved.save, **with_rows}
    restored = await places.live(attrs.evolve(order, agents=saved.agents), files)
    try:
        _count_equal(comparison, saved, restored.result)
    except NotMet:
        return
    except CouldNotRun as outcome:
        raise CouldNotRun(f"{reason}: {outcome}") from None
    raise CouldNotRun(
        f"{reason}: a restore is equal to a run that started in such places. The world may need its"
        " network, a device or files of this machine"
    )


class _Places:
    """Makes places, and runs the world there.

    Args:
        instances: The instances of the world.
        bubblewrap: Path of bubblewrap; None to run without it.
        views: Descriptor of an empty file.
    """

    def __init__(self, instances: Instances, bubblewrap: str | None, views: int) -> None:
        self._instances = instances
        self._bubblewrap = bubblewrap
        self._views = views

    def order(self, subject: RepeatableLife, *, is_realtime: bool) -> LifeRequest:
        """Return the request for a run, without its places."""
        instances = self._instances
        return LifeRequest(
            name=instances.next_name(),
            env=dict(instances.env),
            options=instances.options,
            is_realtime=is_realtime,
            agents=tuple(
                AgentIdentity(each.name, each.session, each.agent_id) for each in subject.players
            ),
            warm=subject.warm,
            script=subject.seen.trace.steps,
            observed_until=max(subject.seen.observations, default=-1.0),
            saved_until=max(subject.seen.snapshots, default=-1.0),
            listeners=tuple(instances.listeners),
        )

    async def live(self, order: LifeRequest, files: Mapping[str, Path | bytes]) -> _Life:
        """Run the world in new places.

        Args:
            order: The request, without places.
            files: The save to restore, followed by its other files; empty starts fresh.

        Raises:
            CouldNotRun: The world cannot run there.

        Cancellation: the processes of the run are ended.
        """
        async with self._open() as place:
            await run_blocking(_put, place, files)
            order = attrs.evolve(
                order,
                world=str(place.world),
                run_dir=str(place.run_dir),
                save=str(place.save / next(iter(files))) if files else "",
                is_alone=place.is_alone,
                env=order.env | {name: place.env[name] for name in _KEPT_ENV if name in place.env},
            )
            data, log, ended = await _run(place, order, pass_fds=[self._views])
            try:
                result = await run_blocking(decode_result, data, order)
            except ValueError as error:
                last = log.decode(errors="replace").strip().rpartition("\n")[2]
                reason = last or f"the process ended without a result ({error}): {ended}"
                raise CouldNotRun(f"the world could not run in fresh places: {reason}") from None
        self._instances.mask.add_all(result.secrets)
        for agent in result.agents:
            self._instances.mask.add(SESSION, agent.session)
        lines = log.decode(errors="replace").splitlines()
        skipped = [line for line in lines if line.startswith(NOT_SEARCHED)]
        return _Life(place, result, tuple(line.removeprefix(NOT_SEARCHED) for line in skipped))

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[FreshPlace]:
        instances = self._instances
        world = instances.require_world()
        directory = instances.scratch / "fresh"
        run = instances.config.get("run", {})
        try:
            await run_blocking(make_private_dir, directory)
            copy = await instances.copy_again(directory)
            make = partial(
                make_place,
                directory,
                world=world.dir,
                copy=None if copy is None else copy.dir,
                commands=[each.get("command", ()) for each in (run, *run.get("sidecar", ()))],
                run_dir=instances.scratch / "run",
                bubblewrap=self._bubblewrap,
                since=instances.since,
                views=self._views,
            )
            yield await run_blocking(make)
        finally:
            with anyio.CancelScope(shield=True):
                await run_blocking(discard_tree, directory)


def _put(place: FreshPlace, files: Mapping[str, Path | bytes]) -> None:
    for name, content in files.items():
        target = place.directory / "save" / name
        if isinstance(content, bytes):
            target.write_bytes(content)
        elif content.exists():
            shutil.copyfile(content, target)


async def _run(
    place: FreshPlace, order: LifeRequest, *, pass_fds: Sequence[int]
) -> tuple[bytes, bytes, ProcessExit]:
    """Return the result of a run as bytes, the end of its log, and the exit of its process.

    Raises:
        CouldNotRun: The process cannot be started.

    Cancellation: the processes of the run are ended.
    """
    data = bytearray()

    async def keep(piece: bytes) -> None:
        data.extend(piece[: MAX_RESULT_BYTES - len(data)])

    with memory_log("order") as source, memory_log("log") as log:
        await run_blocking(write_all, source, msgspec.msgpack.encode(order))
        os.lseek(source, 0, os.SEEK_SET)

        def start(cookie: str, output: int) -> Process:
            env = {**place.env, INSTANCE_ENV: cookie}
            return spawn(
                place.command,
                cwd=place.directory,
                env=env,
                output=output,
                errors=log,
                stdin=source,
                pass_fds=pass_fds,
            )

        try:
            ended = await run_program(start, keep, SharedStop(), 0.0) or ProcessExit()
        except CannotExecute as error:
            raise CouldNotRun(f"a run in fresh places cannot be started: {error}") from None
        os.lseek(log, 0, os.SEEK_SET)
        text = await run_blocking(partial(read_rest, log, max_bytes=MAX_RESULT_BYTES))
        return bytes(data), text[-_LAST_BYTES:], ended
