"""Numbered calls: each runs once, even if messages, answers, callers or hosts are lost."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, Future
from typing import Any

import anyio
import anyio.abc
import attrs
import pytest

from clawblox.experiment.cluster.calls import Answers, HostCaller, HostLostError
from clawblox.experiment.cluster.engine import CallLostError, HostEndedError
from clawblox.experiment.cluster.lease import MARGIN_S, Renewer

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
        """Wait for the next message, and return it."""
        while not self.messages:
            self.has_message = anyio.Event()
            await self.has_message.wait()
        return self.messages.pop(0)


class Deeds:
    """A host whose methods can be held up."""

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
        """Deliver a message and its answer."""
        try:
            message.answer.set_result(await self.deliver(message))
        except Exception as error:
            message.answer.set_exception(error)


class Both:
    """Both sides, with a lease on a clock that the test controls."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.tasks = tasks
        self.now = 0.0
        self.handle = Handle()
        self.renewer = Renewer(self.handle, LENGTH_S, now=lambda: self.now)
        self.caller = HostCaller(self.handle, self.renewer, pause_s=0)
        self.host = Deeds(tasks)
        self.results: list[Any] = []
        self.ended = anyio.Event()

    def grant(self) -> None:
        self.renewer.run_due()
        self.handle.renewals[-1].set_result(0.0)

    def call(self, *arguments: Any) -> anyio.CancelScope:
        """Start a call; ``results`` receives its return value or exception."""
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
        """Wait until a call ends, and return the latest result."""
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


async def test_call_is_not_repeated_when_its_answer_is_lost(both):
    both.call("a")
    first = await both.handle.take()
    await both.host.deliver(first)
    first.answer.set_exception(CallLostError())
    await both.host.serve(await both.handle.take())
    assert await both.end() == 1
    assert both.host.done == [("a",)]


async def test_lost_call_is_sent_again(both):
    both.call("a")
    first = await both.handle.take()
    first.answer.set_exception(CallLostError())
    second = await both.handle.take()
    assert second.number == first.number
    await both.host.serve(second)
    assert await both.end() == 1
    assert both.host.done == [("a",)]


async def test_call_repeated_while_it_runs_waits_for_the_same_run(both):
    both.host.may_go_on = anyio.Event()
    both.call("a")
    first = await both.handle.take()
    both.tasks.start_soon(both.host.serve, first)
    await both.host.has_begun.wait()
    second = attrs.evolve(first, answer=Future())
    async with anyio.create_task_group() as repeats:
        repeats.start_soon(both.host.serve, second)
        await anyio.wait_all_tasks_blocked()
        both.host.may_go_on.set()
    assert second.answer.result() == await both.end() == 1
    assert both.host.done == [("a",)]


async def test_caller_cancelled_on_the_node_does_not_end_the_run(both):
    both.host.may_go_on = anyio.Event()
    both.call("a")
    message = await both.handle.take()
    async with anyio.create_task_group() as first:
        first.start_soon(both.host.deliver, message)
        await both.host.has_begun.wait()
        first.cancel_scope.cancel()
    both.host.may_go_on.set()
    assert await both.host.deliver(message) == 1
    assert both.host.done == [("a",)]


async def test_method_error_reaches_each_caller_without_a_second_run(both):
    both.host.error = LookupError("no such agent")
    both.call("a")
    first = await both.handle.take()
    with pytest.raises(LookupError, match="no such agent"):
        await both.host.deliver(first)
    first.answer.set_exception(CallLostError())
    await both.host.serve(await both.handle.take())
    error = await both.end()
    assert isinstance(error, LookupError)
    assert both.host.done == [("a",)]


async def test_calls_that_arrive_out_of_order_all_run(both):
    both.call("a")
    first = await both.handle.take()
    both.call("b")
    second = await both.handle.take()
    assert (first.pending, second.pending) == ((1,), (1, 2))
    await both.host.serve(second)
    assert await both.end() == 1
    await both.host.serve(first)
    assert await both.end() == 2
    assert both.host.done == [("b",), ("a",)]


async def test_late_copy_of_an_answered_call_is_refused(both):
    both.call("a")
    first = await both.handle.take()
    await both.host.serve(first)
    await both.end()
    both.call("b")
    second = await both.handle.take()
    await both.host.serve(second)
    with pytest.raises(ValueError, match="number: must belong to a pending call"):
        await both.host.deliver(first)
    assert both.host.done == [("a",), ("b",)]
    assert await both.host.deliver(second) == 2


async def test_late_copies_of_several_answered_calls_are_refused(both):
    messages = []
    for _ in range(3):
        both.call("a")
        messages.append(await both.handle.take())
        await both.host.serve(messages[-1])
        await both.end()
    for message in messages[:2]:
        with pytest.raises(ValueError, match="number"):
            await both.host.deliver(message)
    assert len(both.host.done) == 3


async def test_late_copy_of_a_call_keeps_answers_of_later_calls(both):
    both.call("a")
    first = await both.handle.take()
    both.call("b")
    second = await both.handle.take()
    assert await both.host.deliver(second) == 1
    assert await both.host.deliver(first) == 2
    assert await both.host.deliver(second) == 1


async def test_host_drops_answers_that_the_driver_no_longer_awaits(both):
    both.call("long")
    long = await both.handle.take()
    assert await both.host.deliver(long) == 1
    for number in range(2, 50):
        both.call("short")
        await both.host.serve(await both.handle.take())
        assert await both.end() == number
    kept = both.host.answers
    assert set(kept._runs) == set(kept._pending) == {1, 49}
    assert await both.host.deliver(long) == 1


async def test_call_fails_when_its_host_ends_during_the_run(both):
    both.call("a")
    message = await both.handle.take()
    async with anyio.create_task_group() as tasks:
        host = Deeds(tasks)
        host.may_go_on = anyio.Event()
        both.tasks.start_soon(host.serve, message)
        await host.has_begun.wait()
        tasks.cancel_scope.cancel()
    await anyio.wait_all_tasks_blocked()
    assert isinstance(message.answer.exception(), HostEndedError)


# -- cancellation at each suspension -----------------------------------------------------------


async def cancel(both: Both, scope: anyio.CancelScope) -> None:
    await anyio.wait_all_tasks_blocked()
    scope.cancel()
    assert await both.end() is None


async def assert_forgotten(both: Both, message: Message) -> None:
    """Check that the next call makes the host forget a call, whose late copy is refused."""
    both.call("next")
    following = await both.handle.take()
    assert following.pending == (following.number,)
    await both.host.serve(following)
    assert await both.end() == len(both.host.done)
    with pytest.raises(ValueError, match="number"):
        await both.host.deliver(message)
    assert set(both.host.answers._runs) == {following.number}


async def test_call_cancelled_before_its_run_never_runs(both):
    scope = both.call("a")
    message = await both.handle.take()
    await cancel(both, scope)
    await assert_forgotten(both, message)
    assert both.host.done == [("next",)]


async def test_call_cancelled_during_its_run_continues_and_is_forgotten(both):
    both.host.may_go_on = anyio.Event()
    scope = both.call("a")
    message = await both.handle.take()
    both.tasks.start_soon(both.host.serve, message)
    await both.host.has_begun.wait()
    await cancel(both, scope)
    both.host.may_go_on.set()
    await anyio.wait_all_tasks_blocked()
    assert both.host.done == [("a",)]
    await assert_forgotten(both, message)


async def test_call_cancelled_after_its_run_is_forgotten(both):
    scope = both.call("a")
    message = await both.handle.take()
    await both.host.deliver(message)
    await cancel(both, scope)
    message.answer.set_result("too late")
    await assert_forgotten(both, message)


async def test_call_is_cancelled_while_it_waits_to_be_sent_again(both):
    both.caller = HostCaller(both.handle, both.renewer, pause_s=1000)
    scope = both.call("a")
    message = await both.handle.take()
    message.answer.set_exception(CallLostError())
    await cancel(both, scope)
    await assert_forgotten(both, message)


async def test_call_is_cancelled_after_the_host_has_ended(both):
    scope = both.call("a")
    message = await both.handle.take()
    message.answer.set_exception(HostEndedError())
    await cancel(both, scope)
    assert both.handle.messages == []


@pytest.fixture
async def pending():
    """Both sides, with a host that waits for room."""
    async with anyio.create_task_group() as tasks:
        both = Both(tasks)
        both.renewer.run_due()
        with anyio.fail_after(20):
            yield both
        tasks.cancel_scope.cancel()


async def test_no_call_is_sent_before_the_host_has_a_lease(pending):
    pending.call("a")
    await anyio.wait_all_tasks_blocked()
    assert pending.handle.messages == []
    pending.grant()
    await pending.host.serve(await pending.handle.take())
    assert await pending.end() == 1


async def test_call_is_cancelled_while_its_host_waits_for_room(pending):
    await cancel(pending, pending.call("a"))
    pending.grant()
    pending.call("b")
    assert (await pending.handle.take()).pending == (2,)


async def test_call_fails_if_the_host_never_arrives(pending):
    pending.call("a")
    await anyio.wait_all_tasks_blocked()
    pending.handle.renewals[0].set_exception(HostEndedError("no such program"))
    error = await pending.end()
    assert isinstance(error, HostLostError)
    assert str(error) == "the host ended before it was ready (no such program)"
    assert pending.handle.messages == []


# -- lost hosts --------------------------------------------------------------------------------


async def lose(both: Both) -> None:
    """Let the lease expire, and check that no call ends earlier."""
    before = len(both.results)
    both.now = LENGTH_S + MARGIN_S - 0.1
    both.renewer.run_due()
    await anyio.wait_all_tasks_blocked()
    assert len(both.results) == before
    both.now = LENGTH_S + MARGIN_S
    both.renewer.run_due()


async def test_waiting_calls_end_when_the_host_is_lost(both):
    both.caller = HostCaller(both.handle, both.renewer, pause_s=1000)
    both.call("unanswered")
    await both.handle.take()
    both.call("to be sent again")
    (await both.handle.take()).answer.set_exception(CallLostError())
    both.call("ended")
    (await both.handle.take()).answer.set_exception(HostEndedError())
    await lose(both)
    await anyio.wait_all_tasks_blocked()
    assert [str(error) for error in both.results] == [both.renewer.lost.result()] * 3
    assert {type(error) for error in both.results} == {HostLostError}
    assert both.handle.messages == []


async def test_call_to_a_lost_host_is_not_sent(both):
    await lose(both)
    both.call("a")
    assert isinstance(await both.end(), HostLostError)
    assert both.handle.messages == []


async def test_calls_end_when_the_lease_is_given_up(both):
    both.call("a")
    await both.handle.take()
    both.renewer.stop()
    assert isinstance(await both.end(), CancelledError)
    assert both.renewer.lost.cancelled()
    assert not both.renewer.is_lost


async def test_answer_of_a_lost_host_is_ignored(both):
    both.call("a")
    message = await both.handle.take()
    both.now = LENGTH_S + MARGIN_S
    await both.host.serve(message)
    await anyio.wait_all_tasks_blocked()
    assert both.results == []
    both.renewer.run_due()
    assert isinstance(await both.end(), HostLostError)


async def test_finished_calls_leave_no_callbacks_behind(both):
    for _ in range(20):
        both.call("a")
        (await both.handle.take()).answer.set_exception(CallLostError())
        await both.host.serve(await both.handle.take())
        await both.end()
    assert len(both.renewer.lost._done_callbacks) == 1
    assert both.renewer.granted._done_callbacks == []
    assert both.caller._waits == set()


async def test_answer_of_another_thread_wakes_the_call(both, anyio_backend_name):
    if anyio_backend_name == "asyncio":
        asyncio.get_running_loop().set_debug(True)  # refuses calls from other threads
    both.call("a")
    message = await both.handle.take()
    await anyio.to_thread.run_sync(message.answer.set_result, "value")
    assert await both.end() == "value"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_answer_and_loss_after_the_end_of_the_loop_are_harmless(backend, caplog):
    async def main() -> Both:
        async with anyio.create_task_group() as tasks:
            both = Both(tasks)
            both.grant()
            both.call("a")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        return both

    both = anyio.run(main, backend=backend)
    both.handle.messages[0].answer.set_result("late")
    both.now = 1000.0
    both.renewer.run_due()
    assert both.renewer.lost.result()
    assert caplog.records == []
