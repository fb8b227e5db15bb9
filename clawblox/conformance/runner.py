"""Runs the checks of a world: on a private copy of its directory, in place, or at an address."""

from __future__ import annotations

import hashlib
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.config.arguments import SECONDS, check_count, checked
from clawblox.config.options import DEFAULT_CHECK_TIMEOUT_S, DEFAULT_HEALTH_TIMEOUT_S
from clawblox.config.world_toml import read_world_config
from clawblox.conformance.checks import CHECKS
from clawblox.conformance.context import CheckContext
from clawblox.conformance.disk import DiskSearch
from clawblox.conformance.failed_starts import describe_start, summarize_start
from clawblox.conformance.fresh.footprints import list_listeners
from clawblox.conformance.fresh.views import COARSE_S
from clawblox.conformance.instances import Instances
from clawblox.conformance.masking import SecretMask
from clawblox.conformance.pace import advise_time
from clawblox.conformance.registry import (
    Check,
    CouldNotRun,
    Findings,
    NotApplicable,
    NotMet,
    TooLittleSeen,
    select_checks,
)
from clawblox.conformance.report import CheckResult, Report, judge
from clawblox.differences import ABSENT
from clawblox.errors import ClawbloxError, ConfigError, WorldError, WorldStartError
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.request import parse_address
from clawblox.system.scratch import scratch_directory
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.async_world import AsyncWorld
from clawblox.world.private_copies import (
    MissingFilesError,
    TrialOptions,
    copy_world,
    has_files_beside,
    place_world,
)
from clawblox.world.sources import digest_sources, find_world_dir, is_source
from clawblox.world_keys import CONFIG_NAME

SEEDS: Final = 2**32
_SIDE_BY_SIDE: Final = 5
_LONGEST: Final = "restore"
"""The area whose checks start first because they take longest."""
_DID_NOT_START: Final = "did not start"
_ADDRESS: Final = "http://"
_IN_PLACE_HINT: Final = "check the world in place: --in-place"
_COPY_HINT: Final = (
    "it ran in a private copy; if it needs files that are not in it, check it in place: --in-place"
)
_SCRATCH: Final = "tmp"
"""Prefix of temporary directories, Python's default, which does not reveal a check to a world."""
_TIMEOUT_HINT: Final = "give each check more time with --check-timeout SECONDS"

_BODY_DIGITS: Final = 16
_BODY_MODE: Final = 0o644
"""Readable by other users, like reports; sessions and tokens are in headers."""

_log = OwnLog(__name__)

OnResult = Callable[[CheckResult], None]
"""Called with each result, as soon as it is known."""


@attrs.frozen(kw_only=True)
class CheckOptions(TrialOptions):
    """The options of a check.

    Attributes:
        seed: Seed of all choices; None draws one.
        strict: Whether recommendations, and checks that could not run, also count.
        check_timeout: Time limit for each check, in seconds.
    """

    seed: int | None = attrs.field(
        default=None, validator=checked(check_count, at_least=0, optional=True)
    )
    strict: bool = False
    check_timeout: float = attrs.field(default=DEFAULT_CHECK_TIMEOUT_S, validator=SECONDS)


async def check_world(
    target: str | Path,
    names: Sequence[str] = (),
    *,
    seed: int | None = None,
    in_place: bool = False,
    health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S,
    check_timeout: float = DEFAULT_CHECK_TIMEOUT_S,
    bodies_dir: Path | None = None,
    on_result: OnResult = lambda _result: None,
) -> Report:
    """Check whether a world meets the requirements of the world interface.

    The world is started several times, played, saved and restored. All instances are stopped and
    all files removed, except bodies of requests that failures refer to.

    Args:
        target: The directory of a world, the address of a world in a GitHub repository, or the
            address of a running instance, such as ``http://127.0.0.1:8080``. For a running
            instance, only the interface for agents is checked.
        names: Ids of checks, or areas such as ``restore``; empty for all.
        seed: Seed of all choices; None draws one.
        in_place: Whether the world runs in its own directory instead of a private copy.
        health_timeout: Seconds until an instance must be ready.
        check_timeout: Time limit for each check, in seconds of real time.
        bodies_dir: Directory for bodies of requests that are too long for a command, created when
            needed; None means a new temporary directory.
        on_result: Called with each result, as soon as it is known.

    Returns:
        The report, even if the world does not start.

    Raises:
        ConfigError: ``target`` is not a world, or its directory cannot be copied.
        UsageError: No check matches a name.

    Cancellation: every instance is stopped and every file removed.
    """
    begun = time.monotonic()
    options = CheckOptions(
        seed=seed, in_place=in_place, health_timeout=health_timeout, check_timeout=check_timeout
    )
    selected = select_checks(CHECKS, names)
    chosen_seed = secrets.randbelow(SEEDS) if seed is None else seed
    needs_start = any(check.needs_start for check in selected)
    async with _open_lab(str(target), options, chosen_seed, needs_start=needs_start) as ctx:
        bodies = BodyFiles(bodies_dir)
        results = await _run_checks(ctx, selected, check_timeout, bodies, on_result)
        failure = ctx.instances.start_failure
        obstacle = "" if failure is None else summarize_start(_DID_NOT_START, failure)
        report = Report(
            world=str(ctx.instances.config.get("name", target)),
            target=str(target),
            verdict=judge(results, obstacle=obstacle),
            obstacle="" if failure is None else describe_start(_DID_NOT_START, failure),
            seed=chosen_seed,
            checks=tuple(results),
            seconds=time.monotonic() - begun,
            in_place=in_place,
        )
        report = await run_blocking(ctx.instances.mask.mask_verdict, report)
    return attrs.evolve(report, seconds=time.monotonic() - begun)


@asynccontextmanager
async def _open_lab(
    target: str, options: CheckOptions, seed: int, *, needs_start: bool
) -> AsyncIterator[CheckContext]:
    async with AsyncExitStack() as stack:
        scratch = await stack.enter_async_context(scratch_directory(_SCRATCH))
        make = partial(Instances, options=options, scratch=scratch, seed=seed)
        if target.startswith(_ADDRESS):
            parse_address(target)
            ctx = CheckContext(make(world=None), url=target)
            stack.push_async_callback(ctx.close)
        else:
            opening = _Opening(stack, scratch, make, needs_start)
            ctx = await opening.open(target, in_place=options.in_place)
        yield ctx


@attrs.frozen
class _Opening:
    """Opens the directory of a world for the checks; closing the stack closes it."""

    stack: AsyncExitStack
    scratch: Path
    make: Callable[..., Instances]
    needs_start: bool

    async def open(self, target: str, *, in_place: bool) -> CheckContext:
        """Return the world, in a copy with the files of its repository if the start needs them.

        Raises:
            ConfigError: The target is not a world, or its directory cannot be copied.
        """
        directory = await run_blocking(find_world_dir, target)
        try:
            await run_blocking(read_world_config, directory)
        except ConfigError as error:
            if error.path is None or error.path.name != CONFIG_NAME:
                raise
            return CheckContext(self.make(world=None, fault=str(error)))
        if in_place:
            await anyio.sleep(COARSE_S)  # files written before now are not changes by the world
        try:
            world = await place_world(directory, self.scratch, in_place=in_place)
        except MissingFilesError as error:
            missing = WorldStartError(str(error), hint=_IN_PLACE_HINT)
            world = await place_world(directory, self.scratch, in_place=True)
            return await self._enter(world, start_failure=missing)
        ctx = await self._enter(world, source=None if in_place else directory)
        if not self.needs_start or await _starts(ctx) or in_place:
            return ctx
        whole = await self._open_whole(directory)
        failure = ctx.instances.start_failure
        if whole is None and failure is not None and failure.hint is None:
            failure.hint = _COPY_HINT
        return whole or ctx

    async def _open_whole(self, directory: Path) -> CheckContext | None:
        """Return the world in a copy with its repository's files; None if it does not start."""
        if not await has_files_beside(directory):
            return None
        scratch = self.scratch / "repository"
        await run_blocking(make_private_dir, scratch)
        try:
            world = await copy_world(directory, scratch, is_whole=True)
        except MissingFilesError:
            return None
        ctx = await self._enter(world, source=directory, scratch=scratch, is_whole=True)
        return ctx if await _starts(ctx) else None

    async def _enter(
        self,
        world: AsyncWorld,
        *,
        source: Path | None = None,
        scratch: Path | None = None,
        **fields: Any,
    ) -> CheckContext:
        scratch = scratch or self.scratch
        try:
            files = await run_checked(lambda check: digest_sources(world.dir, check=check))
        except OSError as error:
            message = f"cannot be read: {error.filename} {error.strerror}"
            raise ConfigError(message, key="dir", value=str(source or world.dir)) from error
        await self.stack.enter_async_context(world)
        skip = (lambda _path: False) if source else (lambda path: not is_source(path))
        disk = DiskSearch(world.dir, skip, scratch / "run")
        await run_blocking(disk.begin)
        ctx = CheckContext(
            self.make(
                world=world,
                scratch=scratch,
                files=files,
                disk=disk,
                listeners=await run_blocking(list_listeners),
                source=source,
                **fields,
            )
        )
        self.stack.push_async_callback(ctx.close)
        return ctx


async def _starts(ctx: CheckContext) -> bool:
    """Return whether the probe instance becomes ready; it then keeps running."""
    try:
        async with ctx.probe.use():
            return True
    except (CouldNotRun, WorldStartError):
        return False


async def _run_checks(
    ctx: CheckContext,
    checks: Sequence[Check],
    timeout: float,
    bodies: BodyFiles,
    on_result: OnResult,
) -> list[CheckResult]:
    results: dict[str, CheckResult] = {}
    places = anyio.Semaphore(_SIDE_BY_SIDE)

    async def run(check: Check) -> None:
        async with places:
            result = await _run_check(ctx, check, timeout, bodies)
            result = results[check.id] = await run_blocking(ctx.instances.mask.mask_result, result)
        on_result(result)

    by_duration = sorted(checks, key=lambda check: check.area != _LONGEST)
    for is_last in (False, True):
        async with anyio.create_task_group() as tasks:
            for check in by_duration:
                if check.is_last is is_last:
                    tasks.start_soon(run, check)
    return [results[check.id] for check in checks]


async def _run_check(
    ctx: CheckContext, check: Check, timeout: float, bodies: BodyFiles
) -> CheckResult:
    begun = time.monotonic()

    def end(status: Any, evidence: str, **fields: Any) -> CheckResult:  # noqa: ANN401
        seconds = time.monotonic() - begun
        return CheckResult(
            check.id, check.level, status, check.requirement, evidence, seconds, **fields
        )

    try:
        if check.needs_directory:
            ctx.instances.require_world()
        with anyio.fail_after(timeout):
            seen = await check.look(ctx)
        findings = seen if isinstance(seen, Findings) else Findings(seen)
        return end("passed", findings.evidence, findings=findings)
    except NotMet as failure:
        fields = await run_blocking(_describe, failure, bodies, ctx.instances.mask)
        return end("failed", failure.evidence, **fields)
    except NotApplicable as reason:
        return end("not_applicable", str(reason))
    except TooLittleSeen as reason:
        parts = [str(reason), advise_time(ctx.slowness, timeout)]
        return end("could_not_run", "; ".join(filter(None, parts)))
    except CouldNotRun as reason:
        return end("could_not_run", str(reason))
    except WorldStartError as error:
        is_known = error is ctx.instances.start_failure  # described once, in the report
        describe = summarize_start if is_known else describe_start
        return end("could_not_run", describe(_DID_NOT_START, error), is_own_error=True)
    except WorldError as error:
        return end("failed", f"the world failed: {error}")
    except TimeoutError:
        advice = advise_time(ctx.slowness, timeout) or _TIMEOUT_HINT
        return end("could_not_run", f"it took longer than {timeout:g} s: {advice}")
    except (ClawbloxError, OSError) as error:  # for example a full disk
        return end("could_not_run", f"the check itself failed: {error}", is_own_error=True)
    except Exception as error:  # noqa: BLE001 - a check must not end the others
        _log.defect("check failed", error, check=check.id)
        text = f"the check itself failed: {type(error).__name__}: {error}"
        return end("could_not_run", text, is_own_error=True)


def _describe(failure: NotMet, bodies: BodyFiles, mask: SecretMask) -> dict[str, Any]:
    """Return the fields of a result that describe a failure. Blocks."""
    fields: dict[str, Any] = {}
    if (exchange := failure.exchange) is not None:
        body = exchange.long_body
        file = "" if body is None else bodies.keep(mask.mask_bytes(body))
        fields["request"] = exchange.command(file)
    if (difference := failure.difference) is not None:
        sides = {"expected": difference.before, "got": difference.after}
        present = {name: side for name, side in sides.items() if side is not ABSENT}
        absent = next((name for name in sides if name not in present), None)
        fields |= {"path": difference.path, "absent": absent, **present}
    return fields


class BodyFiles:
    """The files with the request bodies of a report.

    Args:
        directory: The directory, created with the first file; None means a new temporary directory.
    """

    def __init__(self, directory: Path | None) -> None:
        name = f"clawblox-check-{secrets.token_hex(8)}"
        self._directory = directory or Path(tempfile.gettempdir(), name)

    def keep(self, body: bytes) -> str:
        """Write a body to a file, named after its digest, and return its path. Blocks.

        If the file cannot be written, only a warning is logged, to keep the result of the check.
        """
        digest = hashlib.sha256(body).hexdigest()
        path = self._directory / f"{digest[:_BODY_DIGITS]}.body"
        with _log.contain("body not written", expected=(OSError,), path=str(path)):
            self._directory.mkdir(exist_ok=True)
            publish_bytes(path, body, mode=_BODY_MODE, durable=False)
        return str(path)
