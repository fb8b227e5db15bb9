"""Numbered calls: each happens once, whatever becomes of messages, answers, callers and hosts."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import anyio
import anyio.abc
import attrs
import pytest

from clawblox.experiment.cluster.calls import Answers, Caller
from clawblox.experiment.cluster.engine import CallLostError
from clawblox.experiment.cluster.lease import Renewer

pytestmark = pytest.mark.anyio

LENGTH_S = 30.0


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@attrs.define(eq=False)
class Message:
    """A call on its way to the host."""

    number: int
    pending: tuple[int, ...]
    name: str
    arguments: tuple[Any, ...]
    answer: Future[Any]


@attrs.define
class Handle:
    """An engine whose messages wait until the test delivers, loses or fails them."""

    messages: list[Message] = attrs.field(factory=list)
    renewals: list[Future[float]] = attrs.field(factory=list)
    has_message: anyio.Event = attrs.field(factory=anyio.Event)

    def call(
        self, number: int, pending: tuple[int, ...], name: str, arguments: tuple[Any, ...]
    ) -> Future[Any]:
        self.messages.append(Message(number, pending, name, arguments, Future()))
        self.has_message.set()
        return self.messages[-1].answer

    def renew(self, token: float | None) -> Future[float]:
        self.renewals.append(Future())
        return self.renewals[-1]

    def end(self) -> None: ...

    async def take(self) -> Message:
        """Return the next message, when it was sent."""
        while not self.messages:
            self.has_message = anyio.Event()
            await self.has_message.wait()
        return self.messages.pop(0)


class Deeds:
    """A host: its deeds, each of which can be held up."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.answers = Answers(tasks.start_soon)
        self.done: list[Any] = []
        self.has_begun = anyio.Event()
        self.may_go_on = anyio.Event()
        self.may_go_on.set()
        self.error: Exception | None = None

    async def deliver(self, message: Message) -> Any:
        async def run() -> Any:
            self.has_begun.set()
            await self.may_go_on.wait()
            self.done.append(message.arguments)
            if self.error is not None:
                raise self.error
            return len(self.done)

        return await self.answers.answer(message.number, message.pending, run)

    async def serve(self, message: Message) -> None:
        """Deliver a message, and its answer."""
        try:
            message.answer.set_result(await self.deliver(message))
        except Exception as error:
            message.answer.set_exception(error)


class Both:
    """Both sides, with a lease on a clock of the test."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.tasks = tasks
        self.now = 0.0
        self.losses: list[str] = []
        self.handle = Handle()
        self.renewer = Renewer(self.handle, LENGTH_S, self.losses.append, now=lambda: self.now)
        self.caller = Caller(self.handle, self.renewer, pause_s=0)
        self.host = Deeds(tasks)
        self.results: list[Any] = []
        self.ended = anyio.Event()

    def grant(self) -> None:
        self.renewer.look()
        self.handle.renewals[-1].set_result(0.0)

    def call(self, *arguments: Any) -> anyio.CancelScope:
        """Begin a call; what it returns or raises is in ``results``."""
        scope = anyio.CancelScope()

        async def call() -> None:
            with scope:
                try:
                    self.results.append(await self.caller.call("do", *arguments))
                except Exception as error:
                    self.results.append(error)
            self.ended.set()

        self.tasks.start_soon(call)
        return scope

    async def end(self) -> Any:
        """Wait for the end of a call, and return the latest result."""
        await self.ended.wait()
        self.ended = anyio.Event()
        return self.results[-1] if self.results else None


@pytest.fixture
async def both():
    async with anyio.create_task_group() as tasks:
        both = Both(tasks)
        both.grant()
        with anyio.fail_after(20):
            yield both
        tasks.cancel_scope.cancel()


async def test_call_is_made_and_answered(both):
    both.call("a")
    message = await both.handle.take()
    assert (message.number, message.name, message.arguments) == (1, "do", ("a",))
    await both.host.serve(message)
    assert await both.end() == 1


async def test_answer_lost_after_the_deed_repeats_no_deed(both):
    both.call("a")
    first = await both.handle.take()
    await both.host.deliver(first)
    first.answer.set_exception(CallLostError())
    await both.host.serve(await both.handle.take())
    assert await both.end() == 1
    assert both.host.done == [("a",)]


async def test_call_lost_before_the_deed_is_sent_again(both):
    both.call("a")
    first = await both.handle.take()
    first.answer.set_exception(CallLostError())
    second = await both.handle.take()
    assert second.number == first.number
    await both.host.serve(second)
    assert await both.end() == 1
    assert both.host.done == [("a",)]
