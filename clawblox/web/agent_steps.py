"""The steps of an agent as HTML: prompts, thoughts, messages, calls and results.

The steps are part of the agent's page, or a separate file with its own style and without scripts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.trajectory import AgentTurn, TurnIndex, read_window
from clawblox.rundir.listed_saves import LineageSave
from clawblox.system.amounts import format_bytes
from clawblox.system.files import publish_bytes
from clawblox.views.agent_words import (
    THEIR_WORDS,
    Step,
    call_text,
    describe_call,
    describe_turn,
    one_line,
    pretty,
    read_calls,
    read_offset,
    read_results,
)
from clawblox.views.axis import format_position
from clawblox.views.formatting import count_words
from clawblox.views.html import Child, Markup, PageAddress, document, element, link, style
from clawblox.web.agent_log import AgentView, read_address
from clawblox.web.outgoing import Outgoing
from clawblox.web.pieces import clock, code
from clawblox.web.run_history import RunSave
from clawblox.web.site import RunSummary
from clawblox.web.world_calls import Observed, WorldCall, read_time, read_world_call

_MAX_WORDS: Final = 3000
_MAX_LINE: Final = 220
_MAX_FOLDED: Final = 700
_ROOM: Final = 24_000
"""Maximum characters of HTML for all folded texts of a window; the rest is a link."""
_OBSERVING: Final = ("looks", "acts")
_SENDING: Final = ("acts", "says")
_LOOK: Final = WorldCall("looks")
_MAX_BYTES: Final = 64 << 20
"""Maximum size of the log's part that a file shows."""


def write_agent_file(directory: Path, file: Path, root: Path, *, redact: bool = False) -> int:
    """Write the steps of an agent into a file, which replaces an existing one. Blocks.

    Args:
        directory: The agent's directory.
        file: The file.
        root: The directory whose name is replaced with ``DIR``.
        redact: Whether to mask secrets; otherwise a secret is an error.

    Returns:
        The number of steps.

    Raises:
        UsageError: No agent has run there.
        ClawbloxError: A step contains a secret.
        OSError: A file cannot be read or written.
    """
    turns = TurnIndex(directory)
    turns.read_on()
    outgoing = Outgoing(root, [directory], redact=redact)
    window = read_window(turns, 0, max_bytes=_MAX_BYTES)
    size, number = format_bytes(window.last - window.first), len(window.steps)
    rest = f", of the first {size}" if window.has_later else ""
    head = element("p", count_words(number, "step"), rest, class_="muted")
    drawn = StepDrawer(turns).draw(window.steps)
    body = element("main", element("h1", directory.name), head, *drawn, class_="alone")
    page = document(f"{directory.name} · clawblox", style("page", "agent"), body)
    data = outgoing.clear(file.name, page.encode(errors="replace"))
    outgoing.check()
    publish_bytes(file, data)
    return number


def list_words(step: Step, address: str) -> Iterator[tuple[str, str]]:
    """Yield a verb and a text for each call, message and result of a step.

    Args:
        step: The step.
        address: The agent's address of its world; empty if it has none.
    """
    yield {"agent": "says", "user": "told"}.get(step["source"], "✕"), step["message"]
    yield "thinks", step.get("reasoning_content", "")
    for call in read_calls(step):
        if world := read_world_call(call["arguments"], address):
            yield world.verb, world.words
        yield call["function_name"], call_text(call)
    for result in read_results(step):
        yield "→", pretty(result["content"])


@attrs.define
class StepDrawer:
    """Draws consecutive steps.

    Args:
        turns: The agent's turns.
        view: The page that shows the steps; None for a file, which has no links and uncut texts.
        unanswered: Ids of calls without a result so far.
    """

    turns: TurnIndex
    view: AgentView | None = None
    unanswered: Collection[str] = ()
    _observed: Observed = attrs.field(factory=Observed)
    _address: str = attrs.field(init=False)
    _called: dict[str, WorldCall | None] = attrs.field(factory=dict)
    _late: Collection[str] = ()
    _room: int = _ROOM
    _turn: AgentTurn | None = None
    _time: str | None = None
    _base: int = 0

    def __attrs_post_init__(self) -> None:
        self._address = read_address(self.turns.directory.path)

    def pass_over(self, steps: Sequence[Step], following: Sequence[Step]) -> None:
        """Update the state with steps that were drawn earlier, before drawing later steps."""
        late = (result for step in following for result in read_results(step))
        self._late = {result["content"] for result in late if "source_call_id" not in result}
        for _ in self.draw(steps):
            pass
        self._late, self._room = (), _ROOM

    def draw(self, steps: Sequence[Step]) -> Iterator[Markup]:
        """Yield steps, the heads of their turns, and the checkpoints between them."""
        for step in steps:
            yield from self._draw_checkpoints(step.get("timestamp"))
            turn = self._find_turn(step)
            if turn is not None and turn is not self._turn:
                yield _draw_turn(turn, is_begun=turn.start < read_offset(step))
            self._turn = turn
            if step["source"] != "user" or step["message"] != AUTO_CONTINUE:
                yield self._draw_step(step)

    def _find_turn(self, step: Step) -> AgentTurn | None:
        turn = self.turns.find_turn(read_offset(step))
        known = self._turn
        if turn is None or known is None:
            return turn
        # The end of an interrupted turn is shown at the start of the next turn.
        is_before = (step.get("timestamp") or "") < (turn.started_at or "")
        return known if is_before and turn.start == read_offset(step) else turn

    def _draw_checkpoints(self, time: str | None) -> Iterator[Markup]:
        """Yield the checkpoints between the last step and a time."""
        if self.view and self._time and time:
            for one in self.view.world.checkpoints:
                if self._time[:19] <= (one.created_at or "")[:19] < time[:19]:
                    yield draw_checkpoint(self.view.run, one)
        self._time = time or self._time

    def _draw_step(self, step: Step) -> Markup:
        self._base = read_offset(step)
        place, utc = f"o{self._base}", step.get("timestamp")
        when = "inherited" if step.get("is_copied_context") else f"byte {self._base}"
        time = link(clock(utc) or when, PageAddress(f"#{place}"))
        simulated = self._draw_time(step, self.view) if self.view else None
        at = element("div", time, simulated, class_="at")
        did = element("div", *self._draw_content(step), class_="did")
        return element("div", at, did, class_="step", id=place)

    def _draw_time(self, step: Step, view: AgentView) -> Markup | None:
        """Return the simulated time of a step, linked to the recording; None if unknown."""
        requests = (read_world_call(one["arguments"], self._address) for one in read_calls(step))
        request = next(requests, None)
        sent = request.words if request and request.verb in _SENDING else ""
        if (found := view.world.find_time(step.get("timestamp"), sent)) is None:
            return None
        number, time = found
        if request == _LOOK:
            seen = (read_time(result["content"]) for result in read_results(step))
            time = next((at for at in seen if at is not None), time)
        path = ("run", view.run.ident, "replay", str(number))
        to = view.ask.links.to(*path, fragment=f"t={format_position(time)}")
        return link(f"{time:.2f} s", to, class_="muted")

    def _draw_content(self, step: Step) -> Iterator[Child]:
        if thought := step.get("reasoning_content"):
            words, kind = f"thinks: {one_line(thought, _MAX_LINE)}", "muted thinks"
            if len(thought) > _MAX_LINE or "\n" in thought:
                folded = self._draw_text(thought, "reasoning", _MAX_WORDS)
                yield element("details", element("summary", words), folded, class_=kind)
            else:
                yield element("p", words, class_=kind)
        copied = " (before it came here)" if step.get("is_copied_context") else ""
        told = element("b", f"told{copied} ", class_="warning")
        heads = {"agent": ("words", None), "user": ("told", told)}
        theirs = THEIR_WORDS if step.get("extra", {}).get("kind") == "limit" else ""
        kind, sign = heads.get(step["source"], ("bad words", f"✕ {theirs}"))
        if message := step["message"]:
            yield element("p", sign, *self._bounded(message, "message", _MAX_WORDS), class_=kind)
        results = [*enumerate(read_results(step))]
        for number, call in enumerate(read_calls(step)):
            ident = call["tool_call_id"]
            own = {place: one for place, one in results if one.get("source_call_id") == ident}
            yield self._draw_call(number, call, own)
        for number, result in results:
            if "source_call_id" not in result:
                answer = self._draw_answer(self._called.get(result["content"]), result)
                size = self._link_size(result["content"], f"result-{number}")
                yield element("div", answer, size, class_="call answer")

    def _draw_call(
        self, number: int, call: Mapping[str, Any], results: Mapping[int, Mapping[str, Any]]
    ) -> Markup:
        world, text = read_world_call(call["arguments"], self._address), call_text(call)
        verb, _, words = describe_call(call).removeprefix("● ").partition(" ")
        if world is not None:
            verb, words = world.verb, world.words
        texts = {f"result-{place}": result["content"] for place, result in results.items()}
        size = format_bytes(sum(map(len, texts.values()))) if results else ""
        if world is not None or len(text) > len(words):
            texts = {f"call-{number}": text, **texts}
        answers = [self._draw_answer(world, result) for result in results.values()]
        if not results and call["tool_call_id"] in self.unanswered:
            answers = [element("div", "→ no answer yet", class_="muted result")]
        name = element("b", one_line(verb, 40), class_="good" if world else None)
        head = (name, element("code", words), element("small", size, class_="muted"))
        summary = element("summary", *head, *answers)
        folded = (self._draw_text(text, name, _MAX_FOLDED) for name, text in texts.items())
        return element("details", summary, *folded, class_="call")

    def _draw_answer(self, world: WorldCall | None, result: Mapping[str, Any]) -> Markup:
        """Return a result on one line, for a request to the world as changes."""
        content, words = result["content"], ""
        is_error = result.get("extra", {}).get("is_error")
        if "source_call_id" in result and content in self._late:
            self._called[content] = world  # shown after its call
        elif world is not None and world.verb in _OBSERVING and not is_error:
            words = self._observed.describe(content)
        sign, kind = ("✕ ", "bad result") if is_error else ("→ ", "muted result")
        return element("div", sign, words or one_line(content, _MAX_LINE) or "nothing", class_=kind)

    def _draw_text(self, text: str, name: str, limit: int) -> Markup:
        """Return a folded text, cut if there is no room."""
        drawn = element("pre", *self._bounded(text, name, max(0, min(limit, self._room))))
        self._room -= len(drawn.html)
        return drawn

    def _bounded(self, text: str, name: str, limit: int) -> Sequence[Child]:
        """Return a text; a long text is cut and gets a link to the full text."""
        if self.view is None or len(text) <= limit:
            return (pretty(text),)
        return f"{text[:limit]}… ", self._link_size(text, name)

    def _link_size(self, text: str, name: str) -> Markup | None:
        if self.view is None:
            return None
        to = self.view.to("part", at=self._base, what=name)
        return link(f"all {format_bytes(len(text))}", to, class_="all")


def _draw_turn(turn: AgentTurn, *, is_begun: bool) -> Markup:
    heading = element("h2", f"Turn {turn.number}", ", continued" if is_begun else None)
    began = {None: "began it by itself", AUTO_CONTINUE: "asked to continue"}.get(turn.prompt, "")
    time, used = clock(turn.started_at, is_long=True), describe_turn(turn)
    words = element("span", began), element("span", used, class_="right")
    return element("div", heading, time, *words, class_="turn", id=f"turn-{turn.start}")


def draw_checkpoint(run: RunSummary, checkpoint: LineageSave) -> Markup:
    """Return the line of a checkpoint, with the command that continues from it."""
    command = "" if checkpoint.removed_at else RunSave(run, checkpoint).command
    at = "" if checkpoint.time is None else f" at {checkpoint.time:.2f} s"
    gone = ", removed" if checkpoint.removed_at else ""
    words = f"○ checkpoint {checkpoint.path.name}{at}{gone} "
    return element("p", words, code(command) if command else None, class_="checkpoint muted")
