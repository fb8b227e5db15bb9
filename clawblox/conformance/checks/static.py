"""Checks of the files of a world: ``world.toml`` and the documentation that agents read."""

from __future__ import annotations

from functools import partial
from typing import Final

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.context import CheckContext
from clawblox.conformance.registry import AreaChecks, CouldNotRun, NotMet
from clawblox.protocol import API_ROUTE, OPERATOR_HEADER, OPERATOR_TOKEN_ENV, SNAPSHOT_ROUTE
from clawblox.system.regular_files import read_file

CHECKS: Final = AreaChecks("static")

_MAX_DOC_BYTES: Final = 4 << 20
_HIDDEN: Final = (SNAPSHOT_ROUTE, OPERATOR_HEADER, OPERATOR_TOKEN_ENV)
"""Terms that the documentation for agents must not mention, in any case."""


@CHECKS.must(
    "world_toml",
    "A world has a world.toml that is valid TOML, with values of valid types.",
    needs_start=False,
)
async def check_world_toml(ctx: CheckContext) -> str:
    """Read ``world.toml``."""
    if ctx.instances.fault:
        raise NotMet(ctx.instances.fault)
    world = ctx.instances.require_world()
    return f"it is valid, with {len(world.config)} keys at the top level"


@CHECKS.should(
    "spelling",
    "No unknown key of world.toml looks like a misspelled key.",
    needs_directory=True,
    needs_start=False,
)
async def check_spelling(ctx: CheckContext) -> str:
    """Look for unknown keys that resemble known keys."""
    if warnings := ctx.instances.require_world().config_warnings:
        raise NotMet("; ".join(warnings))
    return "no key looks misspelled"


@CHECKS.must(
    "api_doc",
    "The documentation for agents that world.toml names exists, and the world serves a document"
    f" at {API_ROUTE} that is not empty.",
)
async def check_api_doc(ctx: CheckContext) -> str:
    """Read the documentation, from the file and through the route."""
    path = None
    if ctx.instances.world is not None:
        path = ctx.instances.world.api_doc_path
        config = ctx.instances.config
        is_named = config.get("api", {}).get("doc_path") or config.get("scripts", {}).get("skill")
        if is_named and not await run_blocking(path.is_file):
            raise NotMet(f"{path.relative_to(ctx.instances.world.dir)} is not a file")
    async with ctx.probe.use() as live:
        exchange = await live.call("GET", API_ROUTE)
    if not exchange.is_accepted:
        raise NotMet(f"it is not served: {exchange.outcome}", exchange=exchange)
    if not exchange.content.strip():
        raise NotMet("the served document is empty", exchange=exchange)
    return f"{len(exchange.content)} bytes are served"


@CHECKS.must(
    "hidden_routes",
    f"The documentation for agents mentions neither {SNAPSHOT_ROUTE} nor the operator's token.",
)
async def check_hidden_routes(ctx: CheckContext) -> str:
    """Search the served document and the file for the operator's half of the interface."""
    texts = {"the document that is served": await ctx.inputs.api_doc()}
    if ctx.instances.world is not None:
        path = ctx.instances.world.api_doc_path
        if await run_blocking(path.is_file):
            read = partial(read_file, max_bytes=_MAX_DOC_BYTES)
            name = str(path.relative_to(ctx.instances.world.dir))
            content = await run_blocking(read, ctx.instances.world.dir, name)
            texts[name] = content.decode(errors="replace")
    for place, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for hidden in _HIDDEN:
                if hidden.lower() in line.lower():
                    raise NotMet(f"{place} mentions {hidden} in line {number}: {line.strip()}")
    if not any(texts.values()):
        raise CouldNotRun("there is no documentation for agents")
    return f"{sum(map(len, texts.values()))} characters mention none of {', '.join(_HIDDEN)}"


@CHECKS.should(
    "actions",
    "The inputs are known: the documentation for agents shows each as JSON that can be sent"
    " unchanged, or world.toml lists them as [conformance] actions.",
)
async def check_actions(ctx: CheckContext) -> str:
    """Look for inputs that the other checks may send."""
    try:
        actions = await ctx.inputs.require_actions()
    except CouldNotRun as reason:
        if ctx.instances.fault:
            raise
        raise NotMet(str(reason)) from None
    known = ", ".join(sorted({one.type for one in actions}))
    if unsent := (await ctx.inputs.known()).describe_unsent():
        raise CouldNotRun(f"only {known} can be sent; {unsent}")
    return f"{len(actions)} inputs are known: {known}"
