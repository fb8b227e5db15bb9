"""Checks of data that a world leaves in snapshots and on the disk, and of its processes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from clawblox.columns import shorten
from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.conformance.baseline import GROWTH_BYTES
from clawblox.conformance.context import CheckContext
from clawblox.conformance.host_traces import (
    Find,
    find_body_leaves,
    find_host_path,
    find_secret,
    find_trace,
)
from clawblox.conformance.live import LiveWorld
from clawblox.conformance.registry import AreaChecks, CouldNotRun, NotMet
from clawblox.differences import ABSENT, ValueDifference
from clawblox.printable import name_some, printable
from clawblox.protocol import ScriptErrors
from clawblox.results import StartedWorld, StopResult
from clawblox.rundir.records import read_record
from clawblox.world.sources import digest_sources

CHECKS: Final = AreaChecks("hygiene")
_must = partial(CHECKS.must, needs_directory=True)
_should = partial(CHECKS.should, needs_directory=True)

_SHOWN: Final = 5
_MAX_ERROR_CHARS: Final = 300


@_should(
    "growth", "A snapshot has only the state, without history: it does not grow with every input."
)
async def check_growth(ctx: CheckContext) -> str:
    """Compare the growth of snapshots and observations over blocks of equal inputs."""
    await ctx.inputs.require_actions()
    baseline = await ctx.baseline()
    *_, last = growths = baseline.require(baseline.growth)
    if not last.is_everywhere:
        return str(last.last_block)
    unseen = [str(growth) for growth in growths if not growth.is_seen]
    if unseen:
        raise NotMet(
            f"the snapshot grew by more than {GROWTH_BYTES} bytes an input in every block, and not"
            f" only because agents saw more: {'; '.join(unseen)}"
        )
    types = ", ".join(growth.action.type for growth in growths)
    raise CouldNotRun(
        f"the snapshot has to grow, because agents see more with every input of {types}: list an"
        " input that adds nothing in world.toml, [conformance] actions"
    )


async def _read_snapshots(ctx: CheckContext) -> tuple[LiveWorld, bytes]:
    """Return the saved instance and its latest snapshot."""
    baseline = await ctx.baseline()
    snapshots = [each for each in baseline.snapshots if each.is_accepted]
    return baseline.live, baseline.require(snapshots)[-1].content


async def _search(content: bytes, find: Find) -> int:
    """Search the values of a snapshot in a thread, because there can be millions.

    Returns:
        The number of values.

    Raises:
        Failed: A value contains forbidden text.
    """
    count, trace = await run_blocking(find_trace, find_body_leaves(content), find)
    if trace is not None:
        difference = ValueDifference(trace.path, ABSENT, trace.value)
        raise NotMet(f"the snapshot has {trace.what}", difference=difference)
    return count


@_must("secrets", "A snapshot contains no token and no secret environment variable.")
async def check_secrets(ctx: CheckContext) -> str:
    """Search a snapshot for the secrets that the world was given."""
    live, content = await _read_snapshots(ctx)
    secrets = ctx.instances.find_secrets(live)
    await _search(content, partial(find_secret, secrets=secrets))
    return f"{len(content)} bytes contain none of {len(secrets)} secrets"


@_should(
    "paths", "A snapshot contains no absolute path of its machine, so that it works on others."
)
async def check_paths(ctx: CheckContext) -> str:
    """Search a snapshot for paths."""
    _, content = await _read_snapshots(ctx)
    count = await _search(content, find_host_path)
    return f"none of {count} values is a path"


@_must(
    "token_on_disk",
    "A world writes no token and no secret variable to its files.",
    is_last=True,
)
async def check_token_on_disk(ctx: CheckContext) -> str:
    """Search the files that changed in each run for secrets, including logs."""
    await ctx.baseline()
    await ctx.instances.search_disk()
    assert ctx.instances.disk is not None
    for name, what in ctx.instances.disk.traces.items():
        raise NotMet(f"{name} has {what}")
    for name, reason in ctx.instances.disk.unread.items():
        raise CouldNotRun(f"{name} cannot be read: {reason}")
    count, secrets = len(ctx.instances.disk.searched), len(ctx.instances.mask.variables)
    return f"{count} files that runs have written contain none of {secrets} secrets"


async def _find_changed_files(ctx: CheckContext) -> list[str]:
    """Return the files of the world that its instances created or changed.

    Raises:
        CouldNotRun: The files cannot be read.
    """
    try:
        directory = ctx.instances.require_world().dir
        now = await run_checked(lambda check: digest_sources(directory, check=check))
    except OSError as error:
        raise CouldNotRun(f"the directory of the world cannot be read: {error}") from None
    return sorted(name for name, digest in now.items() if ctx.instances.files.get(name) != digest)


@_should(
    "files",
    "A world leaves no files in its directory: recordings belong to WORLD_RECORD_DIR.",
    is_last=True,
)
async def check_files(ctx: CheckContext) -> str:
    """Compare the world's directory with its content before the first start."""
    await ctx.baseline()
    changed = await _find_changed_files(ctx)
    if changed:
        raise NotMet(f"these were made or changed: {name_some(changed, _SHOWN)}")
    return f"its {len(ctx.instances.files)} files are unchanged, and no files were added"


async def _find_stop(ctx: CheckContext) -> tuple[int, StopResult]:
    """Return the process id of the baseline run and the result of its stop."""
    live = (await ctx.baseline()).live
    assert live.started is not None
    assert live.stopped is not None
    return live.started.pid, live.stopped


def _is_process(pid: int, described: str) -> bool:
    return described.partition(" ")[0] == str(pid)


@_must("stop", "SIGTERM ends a world within the grace.")
async def check_stop(ctx: CheckContext) -> str:
    """Check how the world's main process ended."""
    pid, stopped = await _find_stop(ctx)
    if stopped.rung == "already_exited":
        raise NotMet(f"it had ended before it was stopped: {stopped.exit}")
    if any(_is_process(pid, killed) for killed in stopped.killed):
        raise NotMet(f"it ignored SIGTERM, and was killed after {stopped.elapsed_s:.1f} s")
    return f"SIGTERM ended it with {stopped.exit} in {stopped.elapsed_s:.2f} s"


@_must("processes", "No process of a world keeps running after its stop.")
async def check_processes(ctx: CheckContext) -> str:
    """Look for other processes that had to be killed."""
    pid, stopped = await _find_stop(ctx)
    left = [killed for killed in stopped.killed if not _is_process(pid, killed)]
    if left:
        raise NotMet(
            f"these ignored SIGTERM, and were killed after {stopped.elapsed_s:.1f} s:"
            f" {name_some(left, _SHOWN)}"
        )
    return f"all its processes ended within {stopped.elapsed_s:.2f} s"


@_must(
    "script_errors",
    "No script of a world fails: the world reports no script errors to its operator.",
    is_last=True,
)
async def check_script_errors(ctx: CheckContext) -> str:
    """Read the last report of each run, after its end."""
    await ctx.baseline()
    await ctx.probe.end()
    reports = await run_blocking(_read_reports, [live.started for live in ctx.instances.lives])
    if reports:
        worst = max(reports, key=lambda errors: errors.count)
        raise NotMet(
            f"a run reported {shorten(printable(str(worst)), _MAX_ERROR_CHARS)}; correct the"
            " script, or let pcall catch errors: the log of the world has each place"
        )
    return f"none of {len(ctx.instances.lives)} runs reported an error"


def _read_reports(lives: Iterable[StartedWorld | None]) -> list[ScriptErrors]:
    """Return the script errors in the last reports of runs. Blocks."""
    known = {life.name: life.run_dir for life in lives if life is not None}
    records = (read_record(run_dir, name) for name, run_dir in known.items())
    return [record.script_errors for record in records if record and record.script_errors]
