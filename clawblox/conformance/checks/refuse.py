"""Checks of refusals: a world that cannot restore a snapshot ends before it opens its port."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable
from functools import partial
from typing import Any, Final

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.context import CheckContext
from clawblox.conformance.exchange import is_json, read_json
from clawblox.conformance.failed_starts import RefusedStart
from clawblox.conformance.live import MAX_SNAPSHOT_BYTES
from clawblox.conformance.registry import AreaChecks, CouldNotRun, NotApplicable, NotMet
from clawblox.errors import WorldReadyTimeoutError
from clawblox.protocol import RESUME_ENV
from clawblox.system.regular_files import read_regular

CHECKS: Final = AreaChecks("refuse")
_must = partial(CHECKS.must, needs_directory=True)
_should = partial(CHECKS.should, needs_directory=True)

_GARBAGE: Final = b"\x00\xff\x80garbage\xfe"
_VERSIONS: Final = ("version", "format_version", "schema_version", "schema")
_FORMAT_VERSION: Final = re.compile(r"(\d+)(?=\D*$)")


async def _read_save(ctx: CheckContext) -> bytes:
    """Return a snapshot that the world wrote."""
    baseline = await ctx.baseline()
    save = baseline.require(baseline.save)
    return await run_blocking(lambda: read_regular(save.path, max_bytes=MAX_SNAPSHOT_BYTES))


async def _require_refusal(ctx: CheckContext, name: str, content: bytes, what: str) -> str:
    """Start the world with a snapshot, and require that the world refuses it.

    Args:
        ctx: The world under test.
        name: Name of the file.
        content: The snapshot.
        what: The snapshot in words, as the start of a sentence.

    Returns:
        A sentence about the refusal.

    Raises:
        Failed: The world did not refuse the snapshot, or too late.
    """
    path = ctx.instances.scratch / name
    await run_blocking(path.write_bytes, content)
    return await _judge(ctx, ctx.instances.try_resume(path), what)


async def _judge(ctx: CheckContext, attempt: Awaitable[RefusedStart | None], what: str) -> str:
    try:
        refusal = await attempt
    except WorldReadyTimeoutError as error:
        reason = str(error).partition("\n")[0]
        raise NotMet(f"{what}: the world neither refused it nor became ready: {reason}") from None
    if refusal is None:
        raise NotMet(f"{what}: the world became ready with it")
    if refusal.exit is not None and refusal.exit.status == 0:
        raise NotMet(f"{what}: the world ended with exit status 0, as if nothing was wrong")
    if refusal.was_open and not _inherits_listener(ctx):
        raise NotMet(f"{what}: the world refused it only after its port was open")
    when = "it was ready" if _inherits_listener(ctx) else "its port was open"
    return f"{what}: the world ended before {when}, {refusal.exit}"


def _inherits_listener(ctx: CheckContext) -> bool:
    """Return whether the world's port is open before it starts."""
    run = ctx.instances.config.get("run", {})
    usual = "bind" if run.get("command") else "inherit"
    return bool(run.get("listen", usual) == "inherit")


@_must(
    "corrupt",
    "A world that gets a damaged snapshot ends with an error before it opens its port, and does"
    " not start fresh.",
)
async def check_corrupt(ctx: CheckContext) -> str:
    """Restore a snapshot with bytes overwritten in the middle."""
    content = await _read_save(ctx)
    middle = len(content) // 2
    damaged = content[:middle] + _GARBAGE + content[middle + len(_GARBAGE) :]
    return await _require_refusal(
        ctx, "corrupt.json", damaged, f"{len(_GARBAGE)} bytes of {len(content)} were overwritten"
    )


@_must(
    "truncated",
    "A world that gets a truncated snapshot ends with an error before it opens its port.",
)
async def check_truncated(ctx: CheckContext) -> str:
    """Restore a truncated snapshot."""
    content = await _read_save(ctx)
    kept = len(content) * 2 // 3
    what = f"the last {len(content) - kept} bytes of {len(content)} were cut off"
    return await _require_refusal(ctx, "truncated.json", content[:kept], what)


@_must(
    "empty",
    "A world that gets an empty snapshot ends with an error before it opens its port.",
)
async def check_empty(ctx: CheckContext) -> str:
    """Restore an empty file."""
    return await _require_refusal(ctx, "empty.json", b"", "the snapshot was empty")


async def _read_document(ctx: CheckContext) -> dict[str, Any]:
    """Return a snapshot that the world wrote, as JSON.

    Raises:
        CouldNotRun: The snapshot is not a JSON object.
    """
    document = read_json(await _read_save(ctx))
    if not is_json(document):
        raise CouldNotRun("the snapshot is not JSON")
    if not isinstance(document, dict):
        raise CouldNotRun("the snapshot is not a JSON object")
    return document


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode(errors="surrogatepass")


@_should(
    "foreign",
    "A world refuses a snapshot of other content, such as a snapshot with another scene hash.",
)
async def check_foreign(ctx: CheckContext) -> str:
    """Restore a snapshot with another identity of the world's content."""
    identity = (await ctx.baseline()).find_identity()
    if not identity:
        raise CouldNotRun("nothing at the top level of the snapshot looks like a scene hash")
    document = await _read_document(ctx)
    for key, value in identity.items():
        document[key] = ("1" if value.startswith("0") else "0") + value[1:]
    what = f"{', '.join(identity)} changed"
    return await _require_refusal(ctx, "foreign.json", _encode(document), what)


@_should("newer", "A world refuses a snapshot of a newer version of its format.")
async def check_newer(ctx: CheckContext) -> str:
    """Restore a snapshot with a higher version number."""
    document = await _read_document(ctx)
    raised = _raise_version(document)
    return await _require_refusal(ctx, "newer.json", _encode(document), raised)


def _raise_version(document: dict[str, Any]) -> str:
    """Raise the version in a snapshot by one; return a sentence about the change."""
    for key in _VERSIONS:
        value = document.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            document[key] = value + 1
            return f"{key} was raised from {value} to {value + 1}"
    form = document.get("format")
    if isinstance(form, str) and (match := _FORMAT_VERSION.search(form)):
        newer = f"{form[: match.start()]}{int(match[1]) + 1}{form[match.end() :]}"
        document["format"] = newer
        return f"format was raised from {form} to {newer}"
    raise CouldNotRun(
        f"the snapshot has no version: neither {', '.join(_VERSIONS)} nor a number in format"
    )


@_must(
    "missing",
    f"A world whose {RESUME_ENV} names no file ends with an error, and does not start fresh.",
)
async def check_missing(ctx: CheckContext) -> str:
    """Start a copy of the world whose command sets the variable to a missing path."""
    if ctx.instances.require_world().run_command is None:
        raise NotApplicable("the world has no command of its own")
    path = ctx.instances.scratch / "missing.json"

    def set_variable(document: Any) -> None:  # noqa: ANN401 - of tomlkit
        run = document["run"]
        run["command"] = ["env", f"{RESUME_ENV}={path}", *run["command"]]
        run.pop("listen", None)  # the port then stays closed until the world opens it

    async with ctx.instances.variant("missing", set_variable) as world:
        what = f"{RESUME_ENV} named {path.name}, which does not exist"
        return await _judge(ctx, ctx.instances.try_start(world, None), what)
