"""A session: the commands of a person or a script, and messages that arrive between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
import attrs
import click

from clawblox.cli.flags import in_flags
from clawblox.cli.playing.consoles import PlayConsole
from clawblox.cli.playing.lines import VERBS, PlayCommand, parse_line
from clawblox.cli.terminal.reports import DisplayContainment
from clawblox.concurrency.tasks import Tasks
from clawblox.differences import find_differences
from clawblox.errors import (
    ActionRefusedError,
    ClawbloxError,
    WorldCallError,
    WorldExitedError,
)
from clawblox.printable import printable, printable_lines
from clawblox.rundir.presence import Presence
from clawblox.views.event_lines import describe_error, describe_saved
from clawblox.views.observations import find_value, format_difference, format_value
from clawblox.world.agent_client import AsyncAgentClient
from clawblox.world.input_examples import InputExample
from clawblox.world.recorded import RecordedPlayer

_CHAT_INTERVAL_S = 1.0
_LIFE_INTERVAL_S = 0.25
_DECISION_TIMEOUT_S = 2.0
"""Seconds to wait for the orchestrator's decision whether to restart a dead instance."""

_MAX_DIFFERENCES = 40
_MAX_MESSAGES = 20
_NO_SUCH_ROUTE: Final = (404, 405, 501)


class PlaySession:
    """The actions of an agent from a console, until its lines or its world end.

    Args:
        player: The agent, which has joined.
        console: Console that reads the commands and shows the observations.
        examples: The inputs that the documentation of the world shows.
    """

    def __init__(
        self, player: RecordedPlayer, console: PlayConsole, examples: Sequence[InputExample]
    ) -> None:
        self._player = player
        self._console = console
        self._examples = examples
        self._seen: Any = None
        self._talk = HeardChat()
        self._lines = 0
        self._has_failed = False
        self._contained = DisplayContainment()
        self._has_ended = False
        self._life = player.life
        self._looking = anyio.Lock()
        self._end = anyio.CancelScope()
        self._command: anyio.CancelScope | None = None

    async def run(self) -> int:
        """Run the commands until the lines end, at ``quit``, or when the world has ended for good.

        Returns:
            The exit status: 1 if a command failed or the world ended, else 0.

        Raises:
            OutputGone: The reader of the output is gone.

        Cancellation: the current command may have taken effect.
        """
        async with Tasks() as tasks:
            with self._end:
                await self._begin()
                tasks.start_soon(self._contained.keep_showing, self._report_messages)
                tasks.start_soon(self._contained.keep_showing, self._report_life)
                while (text := await self._console.read_line()) is not None:
                    with self._contained:
                        if not await self._obey(text):
                            break
        self._has_ended = True
        return int(self._has_failed or self._contained.has_failed or self.has_world_ended)

    @property
    def has_world_ended(self) -> bool:
        """True if the world, and with it the session, has ended."""
        return self._end.cancelled_caught

    async def interrupt(self) -> bool:
        """Cancel the current command, or clear the line that is being typed.

        Returns:
            Whether the session continues; it does if a person types the lines.

        Cancellation: the prompt may not be shown again.
        """
        if self._has_ended or not self._console.is_interactive:
            return False
        if self._command is not None:
            self._command.cancel()
        else:
            await self._console.show([])
        return True

    async def _begin(self) -> None:
        """Make the first observation, as the base of later comparisons."""
        try:
            self._seen = await self._player.agent.observe()
        except ClawbloxError as error:
            await self._explain(error)
            return
        if self._console.is_interactive:
            await self._show_value(self._seen)

    # -- commands ---------------------------------------------------------------------------

    async def _obey(self, text: str) -> bool:
        """Run the command of a line; return whether the session continues."""
        self._lines += 1
        try:
            line = parse_line(text)
            if line is None:
                return True
            if line.verb == "quit":
                return False
            with anyio.CancelScope() as self._command:
                await getattr(self, f"_{line.verb}")(line)
            if self._command.cancelled_caught:
                await self._complain("interrupted")
        except ClawbloxError as error:
            self._has_failed = True
            await self._explain(error)
        finally:
            self._command = None
        return True

    async def _explain(self, error: ClawbloxError) -> None:
        if isinstance(error, WorldExitedError) and await self._look():
            return
        text = describe_error(error)
        if isinstance(error, ActionRefusedError):
            reason = printable_lines(error.text.strip()).replace("\n", "\n  ")
            text = f"refused ({error.status}): {reason}"
        is_script = not self._console.is_interactive and self._lines > 0
        await self._complain(f"line {self._lines}: {text}" if is_script else text)
        if hint := in_flags(error, click.get_current_context().command).hint:
            await self._complain(f"  {printable(hint)}")

    async def _complain(self, text: str) -> None:
        await self._console.complain(self._console.paint("error", text))

    async def _act(self, line: PlayCommand) -> None:
        try:
            await self._show_changes(await self._player.agent.act(line.text, line.data))
        except ActionRefusedError as error:
            is_known = line.text in {example.type for example in self._examples}
            if line.is_short and not is_known and error.hint is None:
                error.hint = f"{line.text!r} was sent as an input; help lists the commands"
            raise

    async def _observe(self, _line: PlayCommand) -> None:
        self._seen = await self._player.agent.observe()
        await self._show_value(self._seen)

    async def _changes(self, _line: PlayCommand) -> None:
        await self._show_changes(await self._player.agent.observe())

    async def _show_changes(self, now: Any) -> None:  # noqa: ANN401 - JSON
        before, self._seen = self._seen, now
        if before is None:
            await self._show_value(now)
            return
        paint = self._console.paint
        changes = find_differences(before, now)
        lines = [format_difference(change, paint) for change in changes[:_MAX_DIFFERENCES]]
        if not changes:
            lines = [paint("note", "nothing changed")]
        if len(changes) > _MAX_DIFFERENCES:
            more = f"… and {len(changes) - _MAX_DIFFERENCES} more changes: show"
            lines.append(paint("note", more))
        await self._console.show(lines)

    async def _show(self, line: PlayCommand) -> None:
        if self._seen is None:
            self._seen = await self._player.agent.observe()
        await self._show_value(find_value(self._seen, line.text), is_shortened=False)

    async def _show_value(self, value: Any, *, is_shortened: bool = True) -> None:  # noqa: ANN401
        console = self._console
        await console.show(
            format_value(value, width=console.width, paint=console.paint, is_shortened=is_shortened)
        )

    async def _say(self, line: PlayCommand) -> None:
        await self._player.agent.say(line.text)

    async def _chat(self, _line: PlayCommand) -> None:
        await self._talk.listen(self._player.agent)
        messages = list(self._talk.messages)[-_MAX_MESSAGES:]
        note = self._console.paint("note", "no messages")
        await self._console.show(list(map(self._format, messages)) or [note])

    async def _api(self, _line: PlayCommand) -> None:
        await self._console.show(printable_lines(await self._player.agent.api()).splitlines())

    async def _save(self, _line: PlayCommand) -> None:
        await self._console.show([describe_saved(await self._player.save_instance())])

    async def _help(self, _line: PlayCommand) -> None:
        width = max(len(usage) for usage, _ in VERBS.values())
        lines = [f"{usage.ljust(width)}  {text}" for usage, text in VERBS.values()]
        if self._examples:
            lines += ["", "Inputs in the documentation of this world:"]
            lines += [f"  {printable(str(example))}" for example in self._examples]
        await self._console.show(lines)

    # -- news between the commands -----------------------------------------------------------------

    async def _report_messages(self) -> None:
        """Show new messages of others; messages from before the session are only counted."""
        is_first = True
        while True:
            try:
                new = await self._talk.listen(self._player.agent)
            except WorldCallError as error:
                if error.status in _NO_SUCH_ROUTE:
                    return
            except ClawbloxError:
                pass  # a command or the check of the instance reports the cause
            else:
                await self._report_new(new, is_first=is_first)
                is_first = False
            await anyio.sleep(_CHAT_INTERVAL_S)

    async def _report_new(self, new: Sequence[HeardMessage], *, is_first: bool) -> None:
        if is_first and new and self._console.is_interactive:
            text = f"{len(new)} chat message{'s'[: len(new) != 1]} so far: chat"
            await self._console.show([self._console.paint("note", text)])
        foreign = [] if is_first else [message for message in new if not self._is_own(message)]
        if foreign:
            await self._console.show(list(map(self._format, foreign)))

    def _is_own(self, message: HeardMessage) -> bool:
        access = self._player.agent.access
        if message.agent_id is not None and access.agent_id is not None:
            return bool(message.agent_id == access.agent_id)
        return message.name == access.name

    def _format(self, message: HeardMessage) -> str:
        name = self._console.paint("key", f"{message.name or 'somebody'}:")
        return f"{name} {message.content}"

    async def _report_life(self) -> None:
        while True:
            await anyio.sleep(_LIFE_INTERVAL_S)
            await self._look()

    async def _look(self) -> bool:
        """Report changes in the state of the world, and return whether there were any."""
        async with self._looking:
            before, now = self._life, await self._player.read_presence()
            if (before.state, before.number) == (now.state, now.number):
                return False
            if before.state == "serving":
                now = await self._decision(now)
                await self._report_death(before, now)
            self._life = now
            if now.state == "serving":
                await self._come_back()
            elif now.state == "over":
                self._end.cancel()
            return True

    async def _decision(self, life: Presence) -> Presence:
        """Wait until a dead instance is over or about to be restarted, and return its presence."""
        with anyio.move_on_after(_DECISION_TIMEOUT_S):
            while life.state == "away" and not life.will_restart:
                await anyio.sleep(_LIFE_INTERVAL_S)
                life = await self._player.read_presence()
        return life

    async def _report_death(self, before: Presence, now: Presence) -> None:
        error = await self._player.exited_error(before, now)
        lines = [f"{error.instance}: {error.message}", *(f"  | {line}" for line in error.log_lines)]
        if now.state == "over":
            lines.append("It is not restarted.")
        for line in lines:
            await self._complain(printable_lines(line))

    async def _come_back(self) -> None:
        name = self._life.record.name
        try:
            is_known = await self._player.rejoin()
        except ClawbloxError as error:
            await self._complain(f"{name} is ready again, but: {describe_error(error)}")
            return
        self._talk = HeardChat()
        with suppress(ClawbloxError):  # messages from before the restart are not new
            await self._talk.listen(self._player.agent)
        how = "with your session" if is_known else "without your session: you are a new agent"
        await self._console.complain(f"{name} is ready again, {how}")


_KEPT_MESSAGES = 200


@attrs.frozen
class HeardMessage:
    """A chat message.

    Attributes:
        id: Id of the message; None if the world gives none.
        agent_id: The world's id of the sender; None if the world gives none.
        name: Name of the sender; empty if the world gives none.
        content: The text, as one printable line.
    """

    id: str | int | None
    agent_id: str | None
    name: str
    content: str


class HeardChat:
    """The chat messages that an agent has heard.

    Attributes:
        messages: The last messages, oldest first.
    """

    def __init__(self) -> None:
        self.messages: deque[HeardMessage] = deque(maxlen=_KEPT_MESSAGES)
        self._heard: set[HeardMessage] = set()
        self._last_id: str | int | None = None
        self._lock = anyio.Lock()

    async def listen(self, agent: AsyncAgentClient) -> list[HeardMessage]:
        """Return the messages that were not heard before.

        Raises:
            ClawbloxError: As for :meth:`AsyncAgentClient.messages`.

        Cancellation: later calls may lack messages of this call.
        """
        new: list[HeardMessage] = []
        async with self._lock:
            while True:  # a world answers one page at a time
                page = _read_messages(await agent.messages(after=self._last_id))
                unheard = [message for message in page if message not in self._heard]
                if not unheard:
                    return new
                self._heard.update(unheard)
                self._last_id = unheard[-1].id
                self.messages.extend(unheard)
                new += unheard


def _read_messages(answer: Any) -> list[HeardMessage]:  # noqa: ANN401 - the world decides
    """Return the messages in an answer to ``GET /chat/messages``, in its order.

    The answer is a list, or an object with a list as ``messages``; other items are left out.
    """
    messages = answer.get("messages") if isinstance(answer, Mapping) else answer
    items = messages if isinstance(messages, list) else []
    return [
        _read_message(item) for item in items if isinstance(item, Mapping) and "content" in item
    ]


def _read_message(item: Mapping[str, Any]) -> HeardMessage:
    key, agent_id = item.get("id"), item.get("agent_id")
    name = item.get("agent_name", item.get("name"))
    return HeardMessage(
        id=key if isinstance(key, str | int) else None,
        agent_id=agent_id if isinstance(agent_id, str) else None,
        name=printable(name) if isinstance(name, str) else "",
        content=printable(" ".join(str(item["content"]).split())),
    )
