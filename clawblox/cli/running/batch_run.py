"""What ``up`` and ``fork`` have in common: their options, and running many instances."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import anyio
import attrs
import click

from clawblox.cli.parameters import (
    SectionedCommand,
    at_least_one,
    environment_of,
    grace_option,
    port_number,
    positive,
    words_of,
)
from clawblox.cli.running.background import Background, Reporter, Settled, spawn_in_background
from clawblox.cli.running.displays import Display, LineDisplay, TableDisplay
from clawblox.cli.running.orchestrator import Care, Orchestrator, Start
from clawblox.cli.tables.instance_states import Roster
from clawblox.cli.terminal.output import Output, note, shorten_path, suggest
from clawblox.cli.terminal.screen import progress_bar
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.config.options import DEFAULT_KEEP, DEFAULT_MAX_RESTARTS, DEFAULT_WINDOW_S
from clawblox.results import RestartMode
from clawblox.world.async_world import AsyncWorld, OnFailure

__all__ = ["Crowd", "ManyCommand", "ManyOptions", "many_options", "run_crowd"]

_F = TypeVar("_F", bound=Callable[..., Any])

_START_OPTIONS = (
    "record",
    "env",
    "host",
    "base_path",
    "health_timeout",
    "restart",
    "max_restarts",
    "restart_window",
    "on_failure",
)


@attrs.frozen(kw_only=True)
class ManyOptions:
    """The values of :func:`many_options`; what they mean is in the help of each."""

    record: bool
    env: Mapping[str, str]
    host: str
    base_path: str
    restart: RestartMode
    max_restarts: int
    restart_window: float
    on_failure: OnFailure
    autosave: float | None
    keep: int
    health_timeout: float
    grace: float
    save_at_end: bool
    metrics_port: int | None
    detach: bool
    report_to: int | None

    def of_starts(self) -> dict[str, Any]:
        """Return those that are arguments of ``AsyncWorld.start_many`` and ``fork``."""
        return {name: getattr(self, name) for name in _START_OPTIONS}

    def care(self) -> Care:
        """Return what the orchestrator does beside starting."""
        return Care(
            autosave=self.autosave,
            keep=self.keep,
            grace=self.grace,
            save_at_end=self.save_at_end,
            metrics_port=self.metrics_port,
        )


class ManyCommand(SectionedCommand):
    """A command with :func:`many_options`."""

    sections: ClassVar = {
        "The instances": ("record", "env", "host", "base_path"),
        "What becomes of them": (
            "restart",
            "max_restarts",
            "restart_window",
            "on_failure",
            "autosave",
            "keep",
        ),
        "Their time": ("health_timeout", "grace"),
        "The orchestrator": ("detach", "save_at_end", "metrics_port"),
    }


_OPTIONS = (
    click.option("--record", is_flag=True, help="Have the worlds record."),
    click.option(
        "--env",
        multiple=True,
        callback=environment_of,
        metavar="KEY=VALUE",
        help="Further environment variable; may be given again.",
    ),
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        metavar="ADDRESS",
        help="Address that the worlds bind, each on a port of its own.",
    ),
    click.option("--base-path", default="", metavar="PATH", help="Prefix of their routes."),
    click.option(
        "--restart",
        type=click.Choice(get_args(RestartMode)),
        default="never",
        show_default=True,
        metavar="MODE",
        help="Start one that dies again: never, fresh, or from its last checkpoint.",
    ),
    click.option(
        "--max-restarts",
        type=int,
        callback=at_least_one,
        default=DEFAULT_MAX_RESTARTS,
        show_default=True,
        metavar="N",
        help="One that died so often within the window stays dead.",
    ),
    click.option(
        "--restart-window",
        type=float,
        callback=positive,
        default=DEFAULT_WINDOW_S,
        show_default=True,
        metavar="SECONDS",
        help="That window.",
    ),
    click.option(
        "--on-failure",
        type=click.Choice(get_args(OnFailure)),
        default="keep",
        show_default=True,
        metavar="MODE",
        help="When a start fails, keep the others, or stop_all.",
    ),
    click.option(
        "--autosave",
        type=float,
        callback=positive,
        metavar="SECONDS",
        help="Save all of them again and again, beginning when they are up.",
    ),
    click.option(
        "--keep",
        type=int,
        callback=at_least_one,
        default=DEFAULT_KEEP,
        show_default=True,
        metavar="N",
        help="So many of these saves stay for each instance.",
    ),
    click.option(
        "--health-timeout",
        type=float,
        callback=positive,
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Time until a world must be ready.",
    ),
    grace_option,
    click.option("--detach", is_flag=True, help="Go on in the background once all are up."),
    click.option("--save-at-end", is_flag=True, help="Save what Ctrl-C stops, before it does."),
    click.option(
        "--metrics-port",
        type=int,
        callback=port_number,
        metavar="PORT",
        help="Serve metrics for Prometheus on 127.0.0.1; 0 takes a free port.",
    ),
    # Unlike any word that a person may mistype, for click would suggest it.
    click.option("--background-channel", "report_to", type=int, hidden=True),
)


def many_options(command: _F) -> _F:
    """Add the options that say how many instances are run; see :class:`ManyOptions`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@attrs.frozen
class Crowd:
    """Many instances to be run.

    Attributes:
        world: The world, not open yet.
        run_dir: The run directory, absolute.
        count: How many.
        start: Starts them; the world is open.
        options: How they are run.
    """

    world: AsyncWorld
    run_dir: Path
    count: int
    start: Start
    options: ManyOptions


def run_crowd(ctx: click.Context, crowd: Crowd) -> None:
    """Run instances to their end, here or in the background, and exit."""
    if crowd.options.detach and crowd.options.report_to is None:
        ctx.exit(_run_detached(words_of(ctx), crowd))
    ctx.exit(anyio.run(_run_here, crowd))


# -- here -------------------------------------------------------------------------------------


async def _run_here(crowd: Crowd) -> int:
    roster = Roster(crowd.count)
    report_to = crowd.options.report_to
    with Output(sys.stdout) as output:
        orchestrator = Orchestrator(
            crowd.world,
            crowd.run_dir,
            crowd.start,
            roster=roster,
            display=_make_display(output, crowd, roster),
            care=crowd.options.care(),
            reporter=None if report_to is None else Reporter(report_to),
        )
        return await orchestrator.run()


def _make_display(output: Output, crowd: Crowd, roster: Roster) -> Display:
    if not output.is_terminal:
        configure_logging()
        display = LineDisplay(output)
        display.announce(f"World {crowd.world.name!r}, run directory {crowd.run_dir}")
        return display
    table = TableDisplay(output, crowd.run_dir, crowd.world.name, roster, pid=os.getpid())
    configure_logging(table.warn if sys.stderr.isatty() else None)
    return table


# -- in the background ------------------------------------------------------------------------


def _run_detached(words: tuple[str, ...], crowd: Crowd) -> int:
    background = spawn_in_background(words, crowd.run_dir)
    try:
        settled = anyio.run(_wait_until_settled, background, crowd.count)
        if settled is None:
            return _tell_early_end(background)
        for line in _summary(settled, background, crowd):
            click.echo(line)
        return 1 if settled.failed else 0
    except KeyboardInterrupt:
        note(f"The start goes on in the background: {suggest('ps -f', crowd.run_dir)}")
        raise
    finally:
        background.leave()


async def _wait_until_settled(background: Background, count: int) -> Settled | None:
    async with progress_bar("Starting", count) as bar:
        return await background.wait_until_settled(
            lambda is_ready: bar.advance(is_failed=not is_ready)
        )


def _tell_early_end(background: Background) -> int:
    status = background.wait()
    note("The orchestrator in the background has ended:")
    for line in background.last_words():
        note(f"  | {line}")
    return status or 1


def _summary(settled: Settled, background: Background, crowd: Crowd) -> Iterator[str]:
    yield from settled.lines
    for name, reason in settled.failed.items():
        yield f"  {name}: {reason}"
    if settled.ready:
        yield f"watch:  {suggest('ps -f', crowd.run_dir)}"
        yield f"stop:   {suggest('stop', crowd.run_dir)}"
    yield f"log:    {shorten_path(background.log_file)} (pid {background.pid})"
