"""``RemoteFunction``: requests of agents to scripts, and of scripts to agents.

An agent sends a request as an input, and gets the result as an event for this agent only. If
``OnServerInvoke`` does not wait, the observation that answers the input contains the event.
``InvokeClient`` is an event for an agent, which answers with an input.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.errors import to_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.saved_state import Layouts, SavedState, entries, object_slot, record
from clawblox.engine.scheduler import START_STEPS, TICK_RATE
from clawblox.engine.services.remote_events import RemoteEvents, find_remote, player_argument
from clawblox.engine.slots import Slots
from clawblox.foreign_values import finite_number
from clawblox.luau import Coroutine, RuntimeFault, fail_call
from clawblox.luau.runtime.host import to_luau
from clawblox.server import Json

TIMEOUT_S: Final = 60
"""Simulation time after which a request to an agent fails, in seconds."""
MAX_ARGUMENTS: Final = 100
"""Maximum number of arguments of a request from an agent."""
MAX_CALLS: Final = 256
"""Maximum number of unanswered requests from an agent."""
_MAX_ID: Final = 100  # characters
_QUESTIONS_PER_STEP: Final = 8  # in a search among the waiting requests


@attrs.define(eq=False)
class _Question:
    """A request to an agent.

    Attributes:
        number: Its number, repeated in the agent's answer.
        thread: The thread that waits for the answer.
        player: The player of the agent.
        name: The name of the RemoteFunction, as text.
        due: The tick in which it fails.
    """

    number: int
    thread: Coroutine
    player: Instance
    name: str
    due: int


_QUESTION: Final = record(
    _Question,
    shapes.whole,
    object_slot(Coroutine),
    object_slot(Instance),
    shapes.text,
    shapes.whole,
)


class RemoteFunctions(SavedState):
    """The requests that wait for an agent, and those that wait for a script.

    Args:
        model: The data model; the methods of ``RemoteFunction`` are added to it.
        events: The events that carry requests and answers.
    """

    layouts: ClassVar[Layouts] = {
        "_questions": [_QUESTION],
        "_asked": shapes.whole,
        "_calls": entries(
            object_slot(Coroutine), object_slot(Instance), object_slot(Instance), shapes.anything
        ),
    }

    def __init__(self, model: DataModel, events: RemoteEvents) -> None:
        self._model = model
        self._events = events
        self._questions: list[_Question] = []
        self._asked = 0
        self._calls: dict[Coroutine, tuple[Instance, Instance, Json]] = {}
        model.classes.add("RemoteFunction", methods=bind_methods(self, "remote"))

    # Requests of agents

    def receive(self, player: Instance, data: Json) -> None:
        """Carry out an input ``RemoteFunction``: a request or an answer of an agent.

        Args:
            player: The sender.
            data: ``answer``, the number of a request, and ``result``; or ``name`` of a
                RemoteFunction below ReplicatedStorage, ``arguments``, and an ``id`` that the
                answer repeats. Other data is ignored.

        Raises:
            WorldHalted: The error of a script halts the world.
        """
        if isinstance(data, dict) and "answer" in data:
            self._take_answer(player, data["answer"], data.get("result"))
            return
        remote = find_remote(self._model, "RemoteFunction", data)
        if remote is None:
            return
        ident, arguments = _short(data.get("id")), data.get("arguments", [])
        if not isinstance(arguments, list) or len(arguments) > MAX_ARGUMENTS:
            text = f"arguments must be a list of at most {MAX_ARGUMENTS} values"
            self._tell(player, remote, {"answer": ident, "error": text})
        elif remote.read("OnServerInvoke") is None:
            self._tell(player, remote, {"answer": ident, "error": "nothing answers"})
        elif sum(asker is player for _, asker, _ in self._calls.values()) >= MAX_CALLS:
            text = f"{MAX_CALLS} requests wait for an answer"
            self._tell(player, remote, {"answer": ident, "error": text})
        else:
            self._run(remote, player, ident, arguments)

    def _run(self, remote: Instance, player: Instance, ident: Json, arguments: list[Json]) -> None:
        """Call ``OnServerInvoke`` in its own thread."""
        scheduler = self._model.scheduler
        scheduler.charge(START_STEPS)
        thread = scheduler.vm.coroutine(remote.read("OnServerInvoke"))
        self._calls[thread] = (remote, player, ident)
        thread.ended = partial(self._answer, thread)
        scheduler.resume(thread, (player, *map(to_luau, arguments)))

    def _answer(self, thread: Coroutine, ok: bool, values: tuple[Any, ...]) -> None:
        """Send an agent the results of ``OnServerInvoke``, or its failure."""
        remote, player, ident = self._calls.pop(thread)
        error = thread.error
        answer: dict[str, Json] = {"answer": ident, "error": "the function of the world failed"}
        if ok:
            try:
                answer = {"answer": ident, "result": self._events.payload(values)}
            except RuntimeFault as fault:
                error = fault
        self._tell(player, remote, answer)
        if error is not None:
            self._model.scheduler.fail(error)

    def _tell(self, player: Instance, remote: Instance, payload: Json) -> None:
        """Send an event to the agent of a player who is in the world."""
        if player.parent is not None:
            to = player.extra.agent_id
            self._events.add(to_text(remote.name), payload, to=to)

    # Requests of scripts

    def invoke_client(self, remote: Instance, player: Any = None, *values: Any) -> Any:
        """``InvokeClient(player, ...)``: wait for the agent's answer; fail after 60 s."""
        asked = player_argument(player, 1, "InvokeClient")
        name = to_text(remote.name)
        if asked.parent is None or asked.extra.is_bot:
            raise RuntimeFault(_refusal(name, asked, "has no agent"))
        scheduler = self._model.scheduler
        arguments = [self._events.payload((value,)) for value in values]
        thread, suspension = scheduler.park()
        self._asked += 1
        due = scheduler.tick + TIMEOUT_S * TICK_RATE
        self._questions.append(_Question(self._asked, thread, asked, name, due))
        self._tell(asked, remote, {"ask": self._asked, "arguments": arguments})
        raise suspension

    def _take_answer(self, player: Instance, number: Json, result: Json) -> None:
        self._model.scheduler.charge(len(self._questions) // _QUESTIONS_PER_STEP)
        for question in self._questions:
            if question.number == number and question.player is player:
                self._questions.remove(question)
                if question.thread.status == "suspended":
                    self._model.scheduler.resume(question.thread, (to_luau(result),))
                return

    def expire(self) -> None:
        """Let requests to agents fail after the timeout, at the start of a tick.

        Requests from agents who have left are dropped.

        Raises:
            WorldHalted: A script does not catch the failure, and the error halts the world.
        """
        if not (self._calls or self._questions):
            return
        for thread, (_, asker, _) in tuple(self._calls.items()):
            if asker.parent is None:  # an answer would have no receiver
                del self._calls[thread]
                thread.ended = None
        scheduler = self._model.scheduler
        scheduler.charge(len(self._questions) // _QUESTIONS_PER_STEP)
        failed = [
            question
            for question in self._questions
            if question.due <= scheduler.tick or question.player.parent is None
        ]
        for question in failed:
            self._questions.remove(question)
            has_left = question.player.parent is None
            why = "has left" if has_left else f"did not answer within {TIMEOUT_S} s"
            if question.thread.status == "suspended":
                text = _refusal(question.name, question.player, why)
                fail_call(question.thread, RuntimeFault(text))
                scheduler.resume(question.thread, ())

    def held(self) -> Iterator[Any]:
        """Iterate over the threads that are kept alive, to count their memory."""
        for question in self._questions:
            yield question.thread
        yield from self._calls

    def restore(self, document: dict[str, Any], slots: Slots) -> None:
        """Restore the requests of a snapshot, in both directions.

        Raises:
            ValueError: The snapshot is damaged.
        """
        super().restore(document, slots)
        for question in self._questions:
            self._model.scheduler.restore_parked(question.thread)
        for thread in self._calls:
            thread.ended = partial(self._answer, thread)


def _refusal(name: str, player: Instance, why: str) -> str:
    return f"InvokeClient of RemoteFunction '{name}': {to_text(player.name)} {why}"


def _short(ident: Json) -> Json:
    """Return the id of a request if an answer can repeat it, else null."""
    is_short = isinstance(ident, str) and len(ident) <= _MAX_ID
    return ident if is_short or finite_number(ident) is not None else None
