"""The steps of an agent as HTML: what it was told, thought, said and did, and what it got."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from clawblox.agents.narration import narrate
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.trajectory import AgentTurn, TurnIndex
from clawblox.rundir.saves import LineageSave
from clawblox.system.amounts import format_bytes
from clawblox.views.agent_words import (
    Step,
    call_text,
    describe_turn,
    offset_of,
    one_line,
    pretty,
    results_of,
)
from clawblox.views.formatting import path_word, suggest
from clawblox.views.html import Address, Child, Markup, element, link
from clawblox.views.world_calls import Observed, WorldCall, read_world_call
from clawblox.web.agent_log import AgentWorld
from clawblox.web.page import Ask
from clawblox.web.pieces import clock, code
from clawblox.web.site import RunSummary

_MAX_WORDS: Final = 3000
_MAX_LINE: Final = 220
_MAX_FOLDED: Final = 700
_MAX_START: Final = 240
"""Characters of the beginning of a text that is too long to be folded whole."""
_ROOM: Final = 24_000
"""Characters of HTML of all folded texts of a window; the rest is a link."""
_OBSERVING: Final = ("looks", "acts")


def fork_command(run: RunSummary, checkpoint: LineageSave) -> str:
    """Return the command that goes on from a checkpoint; empty if that cannot be told."""
    part, name = run.part, checkpoint.path.stem
    if part is not None and part.chain is not None and name.startswith("gen"):
        generation, _, active = name.removeprefix("gen").partition("-t")
        if generation.isdigit() and active.isdigit():
            place = f"{part.chain}/g{generation}@{int(active)}s"
            return suggest("experiment fork", part.experiment, place)
    if not run.run.instances:
        return ""
    resume = ("--resume", path_word(checkpoint.path))
    return suggest("run", run.run.instances[0].world_dir, *resume)


@attrs.define
class StepDrawer:
    """Draws steps in their order.

    Args:
        ask: Makes addresses.
        run: The run.
        ident: The agent's name in addresses.
        turns: Its turns.
        world: Its world.
        address: Its address of that.
        unanswered: Ids of calls without a result so far.
        orphans: Results of which the calls were drawn earlier.
    """

    ask: Ask
    run: RunSummary
    ident: str
    turns: TurnIndex
    world: AgentWorld
    address: str
    unanswered: Collection[str] = ()
    orphans: Collection[str] = ()
    _observed: Observed = attrs.field(factory=Observed)
    _called: dict[str, WorldCall | None] = attrs.field(factory=dict)
    _room: int = _ROOM
    _turn: AgentTurn | None = None
    _time: str | None = None
    _base: int = 0

    def draw(self, steps: Sequence[Step]) -> Iterator[Markup]:
        """Yield steps, the heads of their turns, and the checkpoints between them."""
        for step in steps:
            yield from self._draw_checkpoints(step.get("timestamp"))
            turn = self._find_turn(step)
            if turn is not None and turn is not self._turn:
                yield self._draw_turn(turn, is_begun=turn.start < offset_of(step))
                self._turn = turn
            if step["source"] == "user" and step["message"] == AUTO_CONTINUE:
                continue
            yield self._draw_step(step)

    def pass_over(self, steps: Sequence[Step]) -> None:
        """Take in steps that were drawn before, so that what follows them can be understood."""
        for step in steps:
            self._time = step.get("timestamp") or self._time
            self._turn = self._find_turn(step)
            results = results_of(step)
            for call in step.get("tool_calls", ()):
                world = read_world_call(call["arguments"], self.address)
                for result in results:
                    if result.get("source_call_id") == call["tool_call_id"]:
                        self._hear(world, result)

    def _find_turn(self, step: Step) -> AgentTurn | None:
        turn = self.turns.find_turn(offset_of(step))
        known = self._turn
        if turn is None or known is None:
            return turn
        # The end of a turn that was cut off stands where the next one begins.
        is_before = (step.get("timestamp") or "") < (turn.started_at or "")
        return known if is_before and turn.start == offset_of(step) else turn

    def _draw_checkpoints(self, time: str | None) -> Iterator[Markup]:
        """Yield the checkpoints between the last step and a time."""
        if self._time and time:
            for one in self.world.checkpoints:
                if self._time[:19] <= (one.created_at or "")[:19] < time[:19]:
                    yield draw_checkpoint(self.run, one)
        self._time = time or self._time

    def _draw_turn(self, turn: AgentTurn, *, is_begun: bool) -> Markup:
        began = "asked to continue" if turn.is_automatic else None
        if turn.prompt is None:
            began = "began it by itself"
        return element(
            "div",
            element("h2", f"Turn {turn.number}", ", continued" if is_begun else None),
            clock(turn.started_at, is_long=True),
            element("span", began, class_="muted") if began else None,
            element("span", describe_turn(turn), class_="right muted"),
            class_="turn",
            id=f"turn-{turn.start}",
        )

    def _draw_step(self, step: Step) -> Markup:
        offset = offset_of(step)
        time = link(clock(step.get("timestamp")) or f"byte {offset}", Address(f"#o{offset}"))
        sim = None
        if found := self.world.find_time(step.get("timestamp")):
            number, place = found
            to = self.ask.links.to(
                "run", self.run.ident, "replay", str(number), fragment=place.address[1:]
            )
            sim = link(f"{place.position:.2f} s", to, class_="muted")
        return element(
            "div",
            element("div", time, sim, class_="at"),
            element("div", *self._draw_content(step), class_="did"),
            class_="step",
            id=f"o{offset}",
        )

    def _draw_content(self, step: Step) -> Iterator[Child]:
        source, message = step["source"], step["message"]
        self._base = offset_of(step)
        if reasoning := step.get("reasoning_content"):
            yield self._draw_reasoning(reasoning)
        if message and source == "agent":
            yield element("p", *self._bounded(message, _MAX_WORDS, "message"), class_="words")
        elif source == "user":
            copied = " (before it came here)" if step.get("is_copied_context") else ""
            told = element("b", f"told{copied}", class_="warning")
            words = self._bounded(message, _MAX_WORDS, "message")
            yield element("div", told, " ", *words, class_="told")
        elif message:
            words = self._bounded(message, _MAX_WORDS, "message")
            yield element("p", "✕ ", *words, class_="bad words")
        yield from self._draw_calls(step)

    def _draw_reasoning(self, text: str) -> Markup:
        line = f"thinks: {one_line(text, _MAX_LINE)}"
        if len(text) <= _MAX_LINE and "\n" not in text:
            return element("p", line, class_="muted thinks")
        body = self._draw_text(text, "reasoning", _MAX_WORDS)
        return element("details", element("summary", line), body, class_="muted thinks")

    def _draw_calls(self, step: Step) -> Iterator[Markup]:
        results = [*enumerate(results_of(step))]
        for number, call in enumerate(step.get("tool_calls", ())):
            ident = call["tool_call_id"]
            own = [one for one in results if one[1].get("source_call_id") == ident]
            world = read_world_call(call["arguments"], self.address)
            yield self._draw_call(number, call, world, own)
        for number, result in results:
            if "source_call_id" not in result:
                world = self._called.get(result["content"])
                size = self._link_size(result["content"], f"result-{number}")
                answer = self._draw_answer(world, result)
                yield element("div", answer, size, class_="call answer")

    def _draw_call(
        self,
        number: int,
        call: Mapping[str, Any],
        world: WorldCall | None,
        results: Sequence[tuple[int, Mapping[str, Any]]],
    ) -> Markup:
        if world is not None:
            verb, words = element("b", world.verb, class_="good"), world.words
        else:
            name = call["function_name"]
            lines = narrate("tool.called", {"name": name, "arguments": call["arguments"]})
            shown = lines[0].text.removeprefix("● ") if lines else name
            first, _, words = shown.partition(" ")
            verb = element("b", one_line(first, 40))
        text = call_text(call)
        folded: list[Child] = []
        if world is not None or len(text) > len(words):
            folded.append(self._draw_text(text, f"call-{number}", _MAX_FOLDED))
        answers = [self._draw_answer(world, result) for _, result in results]
        if not results and call["tool_call_id"] in self.unanswered:
            answers = [element("div", "→ no answer yet", class_="muted result")]
        for place, result in results:
            folded.append(self._draw_text(result["content"], f"result-{place}", _MAX_FOLDED))
        size = sum(len(result["content"]) for _, result in results)
        summary = element(
            "summary",
            verb,
            element("code", words),
            element("small", format_bytes(size) if results else "", class_="muted"),
            *answers,
        )
        return element("details", summary, *folded, class_="call")

    def _draw_answer(self, world: WorldCall | None, result: Mapping[str, Any]) -> Markup:
        """Return a result on one line; of a request to the world, what it has changed."""
        is_error = result.get("extra", {}).get("is_error")
        words = self._hear(world, result) or one_line(result["content"], _MAX_LINE) or "nothing"
        sign, kind = ("✕ ", "bad result") if is_error else ("→ ", "muted result")
        return element("div", sign, words, class_=kind)

    def _hear(self, world: WorldCall | None, result: Mapping[str, Any]) -> str:
        """Take in what the world answered; return what it has changed, empty if that is unknown."""
        content = result["content"]
        if "source_call_id" in result and content in self.orphans:
            self._called[content] = world  # the page shows it behind its call
            return ""
        is_seen = world is not None and world.verb in _OBSERVING
        if not is_seen or result.get("extra", {}).get("is_error"):
            return ""
        return self._observed.describe(content)

    def _draw_text(self, text: str, name: str, limit: int) -> Markup:
        """Return a folded text, indented; of a long one the beginning, and a link to all of it."""
        limit = min(limit, max(self._room, 0))
        is_whole = len(text) <= limit
        words = [pretty(text)] if is_whole else self._bounded(text, min(limit, _MAX_START), name)
        drawn = element("pre", *words)
        self._room -= len(drawn.html)
        return drawn

    def _bounded(self, text: str, limit: int, name: str) -> Iterator[Child]:
        if len(text) <= limit:
            yield text
            return
        yield f"{text[:limit]}… "
        yield self._link_size(text, name)

    def _link_size(self, text: str, name: str) -> Markup:
        to = ("run", self.run.ident, "agent", self.ident, "part")
        words = f"all {format_bytes(len(text))}"
        return link(words, self.ask.links.to(*to, at=self._base, what=name), class_="all")


def draw_checkpoint(run: RunSummary, checkpoint: LineageSave) -> Markup:
    """Return the line of a checkpoint, with the command that goes on from it."""
    command = "" if checkpoint.removed_at else fork_command(run, checkpoint)
    at = "" if checkpoint.time is None else f" at {checkpoint.time:.2f} s"
    gone = ", removed" if checkpoint.removed_at else ""
    words = f"○ checkpoint {checkpoint.path.name}{at}{gone} "
    return element("p", words, code(command) if command else None, class_="checkpoint muted")
