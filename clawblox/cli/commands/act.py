"""``clawblox act``: one input of an agent, for scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import attrs
import click

from clawblox.cli.parameters import PATH, existing_run_dir
from clawblox.cli.playing.agents import TIMEOUT_S, join_again
from clawblox.cli.playing.choices import agent_option, choose_record
from clawblox.cli.playing.lines import parse_data
from clawblox.cli.playing.sessions import KeptSession
from clawblox.cli.terminal.output import note
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.concurrency.threads import run_blocking
from clawblox.printable import printable_json
from clawblox.world.agent_client import AsyncAgentClient, join_place
from clawblox.world.recorded import RecordedPlace

__all__ = ["command"]


@attrs.frozen
class _Wish:
    """What the agent is to do.

    Attributes:
        text: What it says first; None for nothing.
        kind: Type of its input; None only looks.
        data: Data of the input.
        leaves: Whether it leaves at the end.
    """

    text: str | None
    kind: str | None
    data: Any
    leaves: bool

    @property
    def only_leaves(self) -> bool:
        return self.leaves and self.kind is None and self.text is None


@click.command(
    "act",
    epilog="""\
    \b
    Examples:
      clawblox act runs/r001 w000                     only look
      clawblox act runs/r001 w000 Wait
      clawblox act runs/r001 w000 Walk north
      clawblox act runs/r001 w000 Steer '{"direction": [1, 0]}'
      clawblox act runs/r001 w000 Steer @input.json
      clawblox act runs/r001 w000 --as red --say hello
      clawblox act runs/r001 w000 --as red --leave

    The exit status is 1 if the world refuses; its words are on standard error.
    """,
)
@click.argument("run_dir", type=PATH, metavar="RUN_DIR")
@click.argument("instance", metavar="INSTANCE")
@click.argument("kind", metavar="[TYPE]", required=False)
@click.argument("data", metavar="[DATA]", required=False)
@agent_option
@click.option("--say", "text", metavar="TEXT", help="Send a chat message first.")
@click.option("--leave", "leaves", is_flag=True, help="Leave the world at the end.")
def command(
    *,
    run_dir: str,
    instance: str,
    kind: str | None,
    data: str | None,
    agent: str,
    text: str | None,
    leaves: bool,
) -> None:
    """Send one input as an agent, and print what the agent sees then.

    TYPE and DATA are those of the input. DATA is JSON or a single word; @FILE takes it from a
    file, - from standard input. Without a TYPE, the agent only looks. What it sees is printed as
    one line of JSON.

    The first call joins the world. Further calls with the same name are the same agent, until one
    has --leave.

    \f
    Raises:
        ClawbloxError: The instance does not run, or the world refused.
        UsageError: There is no such instance, or the data is not JSON.
        OSError: The file with the data cannot be read.
    """
    configure_logging()
    run = existing_run_dir(run_dir).absolute()
    wish = _Wish(text, kind, None if data is None else _read_data(data), leaves)
    anyio.run(_act, run, instance, agent, wish)


def _read_data(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return the data of an input: as it was typed, from a file, or from standard input."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8", errors="replace")
    return parse_data(text.strip())


async def _act(run_dir: Path, instance: str, agent: str, wish: _Wish) -> None:
    record = await run_blocking(choose_record, run_dir, instance)
    kept = KeptSession(run_dir, record, agent)
    session = await run_blocking(kept.read)
    if session is None and wish.only_leaves:
        note(f"{agent!r} is not in {instance}")
        return
    with RecordedPlace(run_dir, record) as place:
        client = await _join(place, agent, session)
        if client.access.session != session:
            await run_blocking(kept.write, client.access.session)
        await _fulfil(client, wish)
        if wish.leaves:
            await client.leave()
            await run_blocking(kept.remove)


async def _join(place: RecordedPlace, agent: str, session: str | None) -> AsyncAgentClient:
    if session is None:
        return await join_place(place, agent, timeout=TIMEOUT_S)
    client, is_known = await join_again(place, agent, session)
    if not is_known:
        note(f"{place.name} does not know {agent!r} any more: joined as a new agent")
    return client


async def _fulfil(client: AsyncAgentClient, wish: _Wish) -> None:
    """Say and do what is asked for, and print what the agent sees then."""
    if wish.text is not None:
        await client.say(wish.text)
    if wish.kind is not None:
        seen = await client.act(wish.kind, wish.data)
    elif not wish.only_leaves:
        seen = await client.observe()
    else:
        return
    click.echo(printable_json(json.dumps(seen, ensure_ascii=False)))
