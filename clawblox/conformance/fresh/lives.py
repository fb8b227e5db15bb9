"""Runs lives in fresh places, and compares each with the one that was saved."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance import lockstep, realtime
from clawblox.conformance.fresh.enter import NOT_SEARCHED
from clawblox.conformance.fresh.messages import (
    MAX_RESULT_BYTES,
    Agent,
    Order,
    Result,
    decode_result,
    encode,
)
from clawblox.conformance.fresh.places import BYTECODE_ENV, Place, find_bubblewrap, make_place
from clawblox.conformance.lab import Lab
from clawblox.conformance.live import Arrival, Player, Step, Trace
from clawblox.conformance.masking import SESSION
from clawblox.conformance.registry import CouldNotRun, Failed
from clawblox.printable import name_some
from clawblox.protocol import INSTANCE_ENV
from clawblox.results import ProcessExit, SavedSnapshot
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


@attrs.frozen
class Compared:
    """Lives in fresh places that were equal to the originals.

    Attributes:
        counts: Number of answers or simulated times that were equal, for each life.
        what: What was counted, in words.
        described: The places, in words.
        left: What the world left there, where another life could have found it.
        foreign: New files and listeners of unknown origin.
        not_searched: Directories that were too large to hide what is new in them.
    """

    counts: tuple[int, ...]
    what: str
    described: str
    left: tuple[str, ...]
    foreign: tuple[str, ...]
    not_searched: tuple[str, ...]

    @property
    def evidence(self) -> str:
        """A sentence about the lives."""
        lives = "a life" if len(self.counts) == 1 else f"{len(self.counts)} lives"
        parts = [f"{sum(self.counts)} {self.what} were equal in {lives} with {self.described}"]
        if self.left:
            parts.append(f"it left {shorten(self.left)}")
        if self.foreign:
            parts.append(f"meanwhile others, or a process that hides, made {shorten(self.foreign)}")
        if self.not_searched:
            parts.append(f"too large to be searched for changes: {shorten(self.not_searched)}")
        return "; ".join(parts)


def shorten(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    return name_some(names, _SHOWN)


async def live_fresh(lab: Lab) -> Compared:
    """Return how restored lives in fresh places continued; each was equal to the one saved.

    Raises:
        Failed: One differs, and a life that began in fresh places differs from its restore in
            others in the same way: so the places are not the reason.
        CouldNotRun: One does not start, or behaves differently in such places even before a save.
    """
    subjects = await _find_subjects(lab)
    bubblewrap = await run_blocking(find_bubblewrap)
    # Without bubblewrap, files of other lives could be taken for those of this one.
    async with lab.places if bubblewrap else lab.alone():
        with memory_log("views") as views:
            places = _Places(lab, bubblewrap, views)
            lives = [await _live_equal(places, subject) for subject in subjects]
    left = [(*life.result.files, *_name_listeners(life.result)) for life, _ in lives]
    return Compared(
        tuple(count for _, count in lives),
        subjects[0].what,
        lives[0][0].place.described,
        _unite(left),
        _unite(life.result.foreign for life, _ in lives),
        _unite(life.not_searched for life, _ in lives),
    )


def _name_listeners(result: Result) -> list[str]:
    return [f"the Unix listener {name}" for name in result.listeners]


def _unite(parts: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


async def _live_equal(places: _Places, subject: _Subject) -> tuple[_Life, int]:
    """Return a life in fresh places, and how much of it was equal.

    Raises:
        Failed, CouldNotRun: As :func:`live_fresh`.
    """
    life = await places.live(subject.order, subject.files)
    try:
        return life, subject.compare(life)
    except Failed as difference:
        await _require_difference(places, subject.order, difference)
        raise


@attrs.frozen
class _Life:
    """A life, and where it was lived."""

    place: Place
    result: Result
    not_searched: tuple[str, ...]


@attrs.frozen
class _Subject:
    """The life that is repeated.

    Attributes:
        order: Its order, without places.
        files: Its save, and the rows beside it.
        compare: Returns how much of a life is equal; raises as the comparisons of lives do.
        what: What is counted, in words.
    """

    order: Order
    files: Mapping[str, Path]
    compare: Callable[[_Life], int]
    what: str


async def _find_subjects(lab: Lab) -> list[_Subject]:
    if await lab.clock() == "realtime":
        return [await _find_running(lab)]
    original = await lockstep.live_original(lab)
    resaved = await lockstep.live_resaved(lab)
    cut = await run_blocking(resaved.find_other_state)
    beginning = original.beginning
    warm = await lab.warm_script(rounds=lockstep.WARM_ROUNDS)
    order = _order(lab, beginning.players, is_realtime=False)

    def make(save: SavedSnapshot, life: lockstep.Life, past: Sequence[Step]) -> _Subject:
        own = attrs.evolve(order, warm=(*warm, *past), script=life.trace.steps)
        return _Subject(own, _files(save.path), partial(_equal_answers, life), "answers")

    return [
        make(beginning.save, original.life, ()),
        make(resaved.saves[cut], resaved.life.since(cut), beginning.script[:cut]),
    ]


async def _find_running(lab: Lab) -> _Subject:
    running = await realtime.live_original(lab)
    watched = running.watched
    order = attrs.evolve(
        _order(lab, running.players, is_realtime=True),
        observed_until=max(watched.observations, default=-1.0),
        saved_until=max(watched.snapshots, default=-1.0),
        warm=await lab.warm_script(rounds=realtime.WARM_ROUNDS),
    )
    return _Subject(
        order, _files(running.save.path), partial(_equal_times, watched), "simulated times"
    )


def _order(lab: Lab, players: Sequence[Player], *, is_realtime: bool) -> Order:
    return Order(
        world="",
        run_dir="",
        name=lab.next_name(),
        env=dict(lab.env),
        options=lab.options,
        is_realtime=is_realtime,
        agents=tuple(Agent(player.name, player.session, player.agent_id) for player in players),
        is_alone=False,
        listeners=tuple(lab.listeners),
    )


def _files(save: Path) -> dict[str, Path]:
    return {path.name: path for path in (save, rows_beside(save))}


def _equal_answers(expected: lockstep.Life, life: _Life) -> int:
    _require_life(life.result)
    return lockstep.require_equal(expected, _lived(expected.trace.steps, life.result), WHO)


def _lived(script: tuple[Step, ...], result: Result) -> lockstep.Life:
    assert result.final is not None
    trace = Trace(script, result.exchanges)
    return lockstep.Life(Arrival((), (), ()), trace, result.final, None, Trace((), ()))


def _equal_times(expected: realtime.Watched, life: _Life) -> int:
    result = life.result
    _require_life(result)
    seen = [(expected.observations, result.observations)]
    if not expected.is_opaque:
        seen.append((expected.snapshots, result.snapshots))
    return realtime.require_equal(WHO, *seen)


def _require_life(result: Result) -> None:
    """Require that a life was lived.

    Raises:
        CouldNotRun: The world did not start.
        Failed: It failed later.
    """
    if result.fault == "start":
        raise CouldNotRun(result.reason)
    if result.fault:
        raise Failed(f"{WHO} failed: {result.reason}", exchange=result.evidence)


async def _require_difference(places: _Places, order: Order, difference: Failed) -> None:
    """Require that the places are not the reason for a difference.

    A world may need its network, or files of its home, to behave as it does. So it begins in fresh
    places and is restored in others: what it has in one of them, it has in the other.

    Raises:
        CouldNotRun: The two lives are equal, or one of them cannot be lived.
    """
    reason = f"{difference.evidence}; but so would any life there"
    agents = tuple(Agent(agent.name) for agent in order.agents)
    first = await places.live(attrs.evolve(order, agents=agents), {})
    if first.result.fault:
        raise CouldNotRun(f"{reason}: {first.result.reason}")
    saved = first.result
    with_rows = {rows_beside(Path("save")).name: saved.rows} if saved.rows else {}
    files = {"save": saved.save, **with_rows}
    restored = await places.live(attrs.evolve(order, agents=saved.agents), files)
    try:
        if order.is_realtime:
            watched = realtime.Watched(saved.observations, {}, saved.snapshots, not saved.snapshots)
            _equal_times(watched, restored)
        else:
            _equal_answers(_lived(order.script, saved), restored)
    except Failed:
        return
    except CouldNotRun as outcome:
        raise CouldNotRun(f"{reason}: {outcome}") from None
    raise CouldNotRun(
        f"{reason}: a restore is equal to a life that began in such places. The world may need its"
        " network, a device or files of this machine"
    )


class _Places:
    """Makes places for lives, and lives there.

    Args:
        lab: The world under test.
        bubblewrap: Path of bubblewrap; None to do without.
        views: Descriptor of an empty file.
    """

    def __init__(self, lab: Lab, bubblewrap: str | None, views: int) -> None:
        self._lab = lab
        self._bubblewrap = bubblewrap
        self._views = views

    async def live(self, order: Order, files: Mapping[str, Path | bytes]) -> _Life:
        """Return a life in new places.

        Args:
            order: The life, without its places.
            files: The save to restore, first, and what belongs to it; empty starts fresh.

        Raises:
            CouldNotRun: It cannot be lived there.

        Cancellation: its processes are ended.
        """
        async with self._open() as place:
            await run_blocking(_put, place, files)
            order = attrs.evolve(
                order,
                world=str(place.world),
                run_dir=str(place.run_dir),
                save=str(place.save / next(iter(files))) if files else "",
                is_alone=place.is_alone,
                env=_own_env(order.env, place),
            )
            data, log, ended = await _run(place, order, pass_fds=[self._views])
            try:
                result = await run_blocking(decode_result, data, order)
            except ValueError as error:
                last = log.decode(errors="replace").strip().rpartition("\n")[2]
                reason = last or f"the process ended without a result ({error}): {ended}"
                raise CouldNotRun(f"nothing was lived in fresh places: {reason}") from None
        self._lab.mask.add_all(result.secrets)
        for agent in result.agents:
            self._lab.mask.add(SESSION, agent.session)
        lines = log.decode(errors="replace").splitlines()
        skipped = [line for line in lines if line.startswith(NOT_SEARCHED)]
        return _Life(place, result, tuple(line.removeprefix(NOT_SEARCHED) for line in skipped))

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Place]:
        lab = self._lab
        world = lab.require_world()
        directory = lab.scratch / "fresh"

        try:
            await run_blocking(make_private_dir, directory)
            copy = await lab.copy_again(directory)
            make = partial(
                make_place,
                directory,
                world=world.dir,
                copy=None if copy is None else copy.dir,
                commands=_commands(lab.config),
                run_dir=lab.scratch / "run",
                bubblewrap=self._bubblewrap,
                since=lab.since,
                views=self._views,
            )
            yield await run_blocking(make)
        finally:
            with anyio.CancelScope(shield=True):
                await run_blocking(discard_tree, directory)


def _commands(config: Mapping[str, Any]) -> list[list[str]]:
    run = config.get("run", {})
    return [run.get("command", []), *(sidecar["command"] for sidecar in run.get("sidecar", ()))]


def _own_env(env: Mapping[str, str], place: Place) -> dict[str, str]:
    """Return the variables of the world, with the cache for bytecode of its place."""
    own = {BYTECODE_ENV: place.env[BYTECODE_ENV]} if BYTECODE_ENV in place.env else {}
    return {**env, **own}


def _put(place: Place, files: Mapping[str, Path | bytes]) -> None:
    for name, content in files.items():
        target = place.directory / "save" / name
        if isinstance(content, bytes):
            target.write_bytes(content)
        elif content.exists():
            shutil.copyfile(content, target)


async def _run(
    place: Place, order: Order, *, pass_fds: Sequence[int]
) -> tuple[bytes, bytes, ProcessExit]:
    """Return the result of a life as bytes, the end of its log, and how its process ended.

    Raises:
        CouldNotRun: Its process cannot be started.

    Cancellation: its processes are ended.
    """
    data = bytearray()

    async def keep(piece: bytes) -> None:
        data.extend(piece[: MAX_RESULT_BYTES - len(data)])

    with memory_log("order") as source, memory_log("log") as log:
        await run_blocking(write_all, source, encode(order))
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
            raise CouldNotRun(f"a life in fresh places cannot be started: {error}") from None
        os.lseek(log, 0, os.SEEK_SET)
        text = await run_blocking(partial(read_rest, log, max_bytes=MAX_RESULT_BYTES))
        return bytes(data), text[-_LAST_BYTES:], ended
