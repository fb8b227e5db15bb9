"""``clawblox act``: one input of an agent, for scripts."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import click

from clawblox.cli.parameters import (
    PATH,
    agent_option,
    choose_record,
    examples,
    existing_run_dir,
)
from clawblox.cli.playing.lines import parse_data
from clawblox.cli.terminal.output import note
from clawblox.cli.terminal.reports import configure_logging
from clawblox.concurrency.threads import run_blocking
from clawblox.printable import printable_json
from clawblox.protocol import JoinAnswer
from clawblox.rundir.status import select_records
from clawblox.world.access import join_answer
from clawblox.world.agent_client import AsyncAgentClient, join_place
from clawblox.world.kept_sessions import KeptSession
from clawblox.world.recorded import TIMEOUT_S, RecordedPlace, join_again

_NUMBERED_NAME: Final = re.compile(r"w[0-9]{3,9}")
"""A name that clawblox assigns; never an input type, even if no such instance exists."""


@attrs.frozen
class _Wish:
    """The actions that the command line requests for an agent.

    Attributes:
        text: Chat message to send first; None for none.
        kind: Type of the input; None for no input.
        data: Data of the input.
        leaves: Whether the agent leaves at the end.
    """

    text: str | None
    kind: str | None
    data: Any
    leaves: bool

    @property
    def only_leaves(self) -> bool:
        return self.leaves and self.kind is None and self.text is None


@examples("""
  clawblox act runs/r001                          only look
  clawblox act runs/r001 Walk north               in the only instance
  clawblox act runs/r001 w000 Wait
  clawblox act runs/r001 w000 Walk north
  clawblox act runs/r001 w000 Steer '{"direction": [1, 0]}'
  clawblox act runs/r001 w000 Steer @input.json
  clawblox act runs/r001 w000 --as red --say hello
  clawblox act runs/r001 w000 --as red --leave

The exit status is 1 if the world refuses the input; the reason is on standard error.
""")
@click.command("act")
@click.argument("run_dir", type=PATH, metavar="RUN_DIR")
@click.argument("words", metavar="[INSTANCE] [TYPE] [DATA]", nargs=-1)
@agent_option
@click.option("--say", "text", metavar="TEXT", help="Send a chat message first.")
@click.option("--leave", "leaves", is_flag=True, help="Leave the world at the end.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    run_dir: str,
    words: tuple[str, ...],
    agent: str,
    text: str | None,
    leaves: bool,
) -> None:
    """Send one input as an agent, and print the observation after it.

    INSTANCE may be left out while only one instance is ready. TYPE and DATA are the type and the
    data of the input. DATA is JSON or a single word; @FILE reads it from a file, - from standard
    input. Without a TYPE, the agent only observes. The observation is printed as a line of JSON.

    The first call joins the world. Later calls with the same name act as the same agent, until a
    call with --leave.

    \f
    Raises:
        ClawbloxError: The instance is not running, or the world refused the input.
        UsageError: There is no such instance, or the data is not JSON.
        OSError: The file with the data cannot be read.
    """
    configure_logging()
    run = existing_run_dir(run_dir).absolute()
    instance, (kind, data) = _sort_words(ctx, run, words)
    wish = _Wish(text, kind, None if data is None else _read_data(data), leaves)
    anyio.run(_act, run, instance, agent, wish)


def _sort_words(
    ctx: click.Context, run_dir: Path, words: tuple[str, ...]
) -> tuple[str | None, tuple[str | None, str | None]]:
    """Return the named instance, if any, and the type and data of the input. Blocks.

    Raises:
        click.UsageError: There are too many words.
    """
    names = {record.name for record in select_records(run_dir, ())}
    is_named = bool(words) and (words[0] in names or bool(_NUMBERED_NAME.fullmatch(words[0])))
    kind, data, *rest = (*words[is_named:], None, None)
    if any(word is not None for word in rest):
        unknown = f"; there is no instance {words[0]!r}" if not is_named else ""
        raise click.UsageError(f"only TYPE and DATA may follow the instance{unknown}", ctx)
    return words[0] if is_named else None, (kind, data)


def _read_data(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return the data of an input as typed, or read from a file or standard input."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8", errors="replace")
    return parse_data(text.strip())


async def _act(run_dir: Path, instance: str | None, agent: str, wish: _Wish) -> None:
    record = await run_blocking(choose_record, run_dir, instance)
    kept = KeptSession(run_dir, record.name, record.run_id, agent)
    answer = await run_blocking(kept.read)
    if answer is None and wish.only_leaves:
        note(f"{agent!r} is not in {record.name}")
        return
    with RecordedPlace(run_dir, record) as place:
        client = await _join(place, agent, answer)
        if answer is None or client.access.session != answer.session:
            await run_blocking(kept.write, join_answer(client.access))
        await _fulfil(client, wish)
        if wish.leaves:
            await client.leave()
            await run_blocking(kept.remove)


async def _join(place: RecordedPlace, agent: str, answer: JoinAnswer | None) -> AsyncAgentClient:
    if answer is None:
        client = await join_place(place, agent, timeout=TIMEOUT_S)
        if client.rejoined:
            note(
                f"{agent!r} is the player of that name in the save from which {place.name} started"
            )
        return client
    client, is_known = await join_again(place, agent, answer)
    if not is_known:
        note(f"{place.name} no longer knows {agent!r}: joined as a new agent")
    return client


async def _fulfil(client: AsyncAgentClient, wish: _Wish) -> None:
    """Send the message and the input, and print the observation after them."""
    if wish.text is not None:
        await client.say(wish.text)
    if not wish.only_leaves:
        seen = await (client.observe() if wish.kind is None else client.act(wish.kind, wish.data))
        click.echo(printable_json(json.dumps(seen, ensure_ascii=False)))
